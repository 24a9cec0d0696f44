"""A time limit for work that may never end, such as a user's statement."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")
#: Work calls this with a function that stops it from another thread.
Stoppable = Callable[[Callable[[], None]], None]


class Work(Generic[T]):
    """Work in a thread of its own, with a deadline; a caller that finds it overdue stops it."""

    def __init__(self, work: Callable[[Stoppable], T], *, until: float) -> None:
        self._work = work
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self.future: Future[T] = Future()
        self.until = until
        self.is_stopped = False
        threading.Thread(target=self._run, name="headwater-alert-statement", daemon=True).start()

    def stop(self) -> None:
        """Stop it at once, or as soon as it says how."""
        with self._lock:
            self.is_stopped = True
            if self._end is not None:
                self._end()

    def _stoppable(self, end: Callable[[], None]) -> None:
        with self._lock:
            self._end = end
            if self.is_stopped:
                end()

    def _run(self) -> None:
        try:
            self.future.set_result(self._work(self._stoppable))
        except BaseException as error:  # raised to the caller that asks for the result
            self.future.set_exception(error)


class TimeLimit(Generic[T]):
    """Runs work in threads, and stops it at its time limit. No work runs twice at the same time.

    >>> limit = TimeLimit[int]()
    >>> limit.run("sum", lambda stoppable: 1 + 1, seconds=60)
    2
    """

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._works: dict[Hashable, Work[T]] = {}
        self._lock = threading.Lock()

    def run(
        self,
        name: Hashable,
        work: Callable[[Stoppable], T],
        *,
        seconds: float,
        pause_seconds: float = 0.0,
        restart: bool = False,
    ) -> T:
        """The result of this work, or of work of this name that runs already; raise `TimeoutError` at the time limit.

        Overdue work is not waited for again: once it has ended it is started again, but not before `pause_seconds`. With
        `restart`, running work of this name is stopped first: its result is not needed.
        """
        with self._lock:
            found = self._works.get(name)
            if found is not None and restart:
                found.stop()
                found = None
            elif found is not None and self._has_failed(found):
                if self._now() < found.until + pause_seconds:
                    raise TimeoutError
                found = None
            if found is None:
                found = self._begun(name, work, seconds)
        return self._awaited(name, found)

    def _has_failed(self, work: Work[T]) -> bool:
        """Whether it was stopped and has failed; work that finished nevertheless has a result."""
        return work.is_stopped and work.future.done() and work.future.exception() is not None

    def _begun(self, name: Hashable, work: Callable[[Stoppable], T], seconds: float) -> Work[T]:
        over = [known for known, one in self._works.items() if one.future.done() and one.until < self._now() - 600]
        for known in over:
            del self._works[known]
        self._works[name] = Work(work, until=self._now() + seconds)
        return self._works[name]

    def _awaited(self, name: Hashable, work: Work[T]) -> T:
        done = threading.Event()
        work.future.add_done_callback(lambda _: done.set())
        if not done.wait(max(0.0, work.until - self._now())):
            work.stop()
            raise TimeoutError
        if self._has_failed(work):  # it is kept, so that it is not started again too soon
            raise TimeoutError
        with self._lock:
            if self._works.get(name) is work:
                del self._works[name]
        return work.future.result()
