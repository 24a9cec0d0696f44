"""Locks between threads and processes. A process that dies, even by `kill -9`, holds none of them."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from headwater.log.embedded.files import OpenFile


class FileLock:
    """An exclusive lock on a file, held against other threads and other processes alike."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = threading.RLock()
        self._file: OpenFile | None = None
        self._depth = 0

    def __enter__(self) -> Self:
        self._thread.acquire()
        try:
            if self._depth == 0:
                if self._file is None:
                    self._file = OpenFile(self._path, os.O_RDWR | os.O_CREAT)
                fcntl.flock(self._file.descriptor, fcntl.LOCK_EX)
            self._depth += 1
        except BaseException:
            self._thread.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0 and self._file is not None:
            fcntl.flock(self._file.descriptor, fcntl.LOCK_UN)
        self._thread.release()

    def try_acquire(self) -> bool:
        """Take the lock if nobody holds it; leave with `__exit__` as usual."""
        if not self._thread.acquire(blocking=False):
            return False
        try:
            if self._depth == 0:
                if self._file is None:
                    self._file = OpenFile(self._path, os.O_RDWR | os.O_CREAT)
                fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._thread.release()
            return False
        self._depth += 1
        return True

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        with self._thread:  # not while another thread holds the lock: closing the file would let others in
            self._file = None

    def rest(self) -> None:
        """Let go of the file as `close` does, unless the lock is held just now; never waits."""
        if self._thread.acquire(blocking=False):
            try:
                if self._depth == 0:
                    self._file = None
            finally:
                self._thread.release()

    def abandon(self) -> None:
        """In a forked child: forget that the parent may hold the lock. The parent keeps it."""
        self._thread = threading.RLock()
        self._file = None
        self._depth = 0
