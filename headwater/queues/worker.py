"""Plain functions as workers: each message of a queue is a call, in threads or as a coroutine."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headwater.errors import ArgumentInvalid
from headwater.log import Log
from headwater.log.errors import ServerUnreachable
from headwater.queues.errors import LeaseLost
from headwater.queues.location import open_queue
from headwater.queues.message import Message
from headwater.queues.retry import Retry
from headwater.queues.work_queue import WorkQueue

#: How long a worker that waits for messages takes to notice `stop`.
_WAIT_SECONDS = 0.2
#: The longest pause before a server that cannot be reached is asked again.
_PAUSE_SECONDS_MAX = 5.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class WorkerProgress:
    """What a worker has done since its start."""

    taken: int = 0
    #: Messages that were processed and acknowledged.
    done: int = 0
    #: Calls that raised; their messages were returned, or are dead letters.
    failed: int = 0
    #: Messages whose leases were lost during the call: another worker gets them.
    lost: int = 0
    running: int = 0


class Worker:
    """A function that processes messages; made by `@log.worker("jobs")`. Call `run` in each process that works.

    A call that returns acknowledges its message, and one that raises returns it with the pause of `retries`; after the
    last attempt it is a dead letter with the traceback. While a call runs, its lease is extended. A server that cannot be
    reached is asked again until the worker is stopped.
    """

    def __init__(
        self, log: Log, function: Callable[[Message], Any], queue: str, *, group: str, concurrency: int, retries: Retry
    ) -> None:
        if concurrency < 1:
            raise ArgumentInvalid(name="concurrency", value=concurrency, expected="at least 1")
        self._log, self._function = log, function
        self.queue, self.group, self.concurrency, self.retries = queue, group, concurrency, retries
        self._stopped = threading.Event()
        self._ended = threading.Condition()
        self._running: dict[int, Message] = {}
        self._progress = WorkerProgress()
        self._error: BaseException | None = None
        self.__name__ = getattr(function, "__name__", "worker")

    # Any: the result of the function itself, so that tests can call it.
    def __call__(self, message: Message) -> Any:
        return self._function(message)

    @property
    def progress(self) -> WorkerProgress:
        """What the worker has done so far."""
        with self._ended:
            return replace(self._progress, running=len(self._running))

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped.is_set()

    def stop(self) -> None:
        """Take no more messages; `run` returns once the calls that run have ended."""
        self._stopped.set()
        with self._ended:
            self._ended.notify_all()

    def run(self, *, idle_seconds_max: float | None = None, until_empty: bool = False, log: Log | None = None) -> int:
        """Process messages until `stop`, or until none came for `idle_seconds_max`; return how many were taken.

        With `until_empty`, until the group is done with all messages, also scheduled ones and those of other workers.
        The queue is that of another `log` if one is given.
        """
        idle = 0.0
        loop = _Loop() if inspect.iscoroutinefunction(self._function) else None
        with (
            open_queue(log or self._log, self.queue, group=self.group) as queue,
            ThreadPoolExecutor(self.concurrency) as pool,
        ):
            finished = threading.Event()
            extender = threading.Thread(target=self._extend, args=(queue, finished), daemon=True)
            extender.start()
            try:
                while not self._stopped.is_set():
                    with self._ended:
                        self._ended.wait_for(lambda: self._stopped.is_set() or len(self._running) < self.concurrency)
                        free = self.concurrency - len(self._running)
                    if self._stopped.is_set():
                        break
                    messages = self._take(queue, free)
                    idle = 0.0 if messages or self._running else idle + _WAIT_SECONDS
                    if idle_seconds_max is not None and idle > idle_seconds_max:
                        break
                    if idle and until_empty and self._is_empty(queue):
                        break
                    with self._ended:
                        self._running.update((id(message), message) for message in messages)
                    self._count(taken=len(messages))
                    for message in messages:
                        pool.submit(self._process, queue, message, loop).add_done_callback(self._processed)
                with self._ended:
                    self._ended.wait_for(lambda: not self._running)
            finally:
                finished.set()
                extender.join()
                if loop is not None:
                    loop.close()
        if self._error is not None:
            raise self._error
        return self._progress.taken

    def _processed(self, call: Future[None]) -> None:
        """Stop if the end of a delivery could not be recorded, for example on a full disk; `run` raises the error."""
        error = call.exception()
        if error is not None:
            self._error = self._error or error
            self.stop()

    def _take(self, queue: WorkQueue, count: int) -> list[Message]:
        pause = _WAIT_SECONDS
        while True:
            try:
                return queue.take(count, wait=_WAIT_SECONDS)
            except ServerUnreachable as error:
                logger.warning("worker %r waits for its server: %s", self.__name__, error)
                if self._stopped.wait(pause):
                    return []
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _is_empty(self, queue: WorkQueue) -> bool:
        with suppress(ServerUnreachable):
            return queue.stats().length == 0
        return False

    def _count(self, *, taken: int = 0, done: int = 0, failed: int = 0, lost: int = 0) -> None:
        with self._ended:
            now = self._progress
            self._progress = WorkerProgress(
                taken=now.taken + taken, done=now.done + done, failed=now.failed + failed, lost=now.lost + lost
            )

    def _process(self, queue: WorkQueue, message: Message, loop: _Loop | None) -> None:
        try:
            try:
                if loop is None:
                    self._function(message)
                else:
                    loop.run(self._function(message))
            except Exception as error:
                end, counted = partial(self._failed, queue, message, error), {"failed": 1}
            else:
                end, counted = partial(queue.ack, message), {"done": 1}
            self._count(**(counted if self._ends(queue, end) else {"lost": 1}))
        except ServerUnreachable as error:  # the lease runs out, and the message is delivered again
            logger.warning("worker %r could not end the delivery of message %s: %s", self.__name__, message.id, error)
            self._count(lost=1)
        finally:
            with self._ended:
                self._running.pop(id(message), None)
                self._ended.notify_all()

    def _ends(self, queue: WorkQueue, end: Callable[[], None]) -> bool:
        """End a delivery; False if its lease was lost. A server that cannot be reached is asked for the time of a lease."""
        deadline = time.monotonic() + queue.config.lease_us / 1_000_000
        while True:
            try:
                end()
            except LeaseLost:
                return False
            except ServerUnreachable:
                if self._stopped.wait(_WAIT_SECONDS) or time.monotonic() > deadline:
                    raise
            else:
                return True

    def _failed(self, queue: WorkQueue, message: Message, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
        if message.attempt >= self.retries.attempts:
            queue.reject(message, reason=reason, trace=trace)
        else:
            queue.nack(message, delay=self.retries.delay_seconds(message.attempt), reason=reason, trace=trace)

    def _extend(self, queue: WorkQueue, finished: threading.Event) -> None:
        """Extend the leases of calls that run, three times in each lease, also while the worker stops."""
        while not finished.wait(queue.config.lease_us / 3_000_000):
            with self._ended:
                running = list(self._running.values())
            if running:
                # Some were acknowledged meanwhile; a server that is away is asked again a third of a lease later.
                with suppress(LeaseLost, ServerUnreachable):
                    queue.extend(*running)


class _Loop:
    """An event loop in a thread, for workers that are coroutines."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="worker loop", daemon=True)
        self._thread.start()

    # Any: a coroutine and its result.
    def run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def worker(
    log: Log, queue: str, *, concurrency: int = 1, retries: Retry | None = None, group: str = "default"
) -> Callable[[Callable[[Message], Any]], Worker]:
    """Declare a function as the worker of a queue; see `Worker`."""

    def declare(function: Callable[[Message], Any]) -> Worker:
        return Worker(log, function, queue, group=group, concurrency=concurrency, retries=retries or Retry())

    return declare
