"""Waiting only so long for work that may never end, such as a statement that somebody has written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Patience(Generic[T]):
    """Runs each work in a thread of its own. Work that is not done in time goes on, and is not begun a second time.

    >>> patience = Patience[int]()
    >>> patience.run("sum", lambda: 1 + 1, seconds=60)
    2
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, Future[T]] = {}
        self._lock = threading.Lock()

    def run(self, name: Hashable, work: Callable[[], T], *, seconds: float) -> T:
        """The result, of this work or of an earlier one of this name that was not done in time; else `TimeoutError`.

        Nobody waits a second time: for work that was overdue before, it is only looked whether it is done.
        """
        with self._lock:
            overdue = self._running.get(name)
            future = overdue or self._begun(name, work)
        try:
            return future.result(timeout=0 if overdue is not None else seconds)
        finally:
            if future.done():
                with self._lock:
                    self._running.pop(name, None)

    def _begun(self, name: Hashable, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:  # told to whoever asks for the result
                future.set_exception(error)

        self._running[name] = future
        threading.Thread(target=run, name="headwater-alert-statement", daemon=True).start()
        return future
