"""Connections that wait for their next batch: each serves one batch at a time, and one that is broken is not kept."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Connection = TypeVar("Connection")

#: Connections to one address that are kept while idle.
IDLE_MAX = 4


class Pool(Generic[Connection]):
    """Connections by address, for all sinks and queries of this process."""

    def __init__(
        self,
        connect: Callable[[str], Connection],
        *,
        is_usable: Callable[[Connection], bool],
        close: Callable[[Connection], None],
    ) -> None:
        self._connect = connect
        self._is_usable = is_usable
        self._close = close
        self._idle: dict[str, list[Connection]] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()
        atexit.register(self.close)

    def close(self) -> None:
        """Close the idle connections. The pool serves on with new ones."""
        with self._lock:
            idle, self._idle = self._idle, {}
        if self._process == os.getpid():
            for connection in (one for several in idle.values() for one in several):
                with contextlib.suppress(Exception):
                    self._close(connection)

    @contextlib.contextmanager
    def borrowed(self, address: str) -> Iterator[Connection]:
        """A connection for a while. It goes back only where the caller came to a good end with it."""
        connection = self._taken(address)
        try:
            yield connection
        except BaseException:
            with contextlib.suppress(Exception):
                self._close(connection)
            raise
        with self._lock:
            idle = self._idle.setdefault(address, [])
            if self._is_usable(connection) and len(idle) < IDLE_MAX:
                idle.append(connection)
                return
        self._close(connection)

    def _taken(self, address: str) -> Connection:
        with self._lock:
            if self._process != os.getpid():  # a fork must not speak on its parent's connections
                self._idle, self._process = {}, os.getpid()
            idle = self._idle.get(address, [])
            while idle:
                connection = idle.pop()
                if self._is_usable(connection):
                    return connection
        return self._connect(address)
