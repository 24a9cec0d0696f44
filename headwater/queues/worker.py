"""Plain functions as workers: each message of a queue is a call, in threads or as a coroutine."""

from __future__ import annotations

import asyncio
import inspect
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from headwater.errors import ArgumentInvalid
from headwater.log import Log
from headwater.queues.errors import LeaseLost
from headwater.queues.message import Message
from headwater.queues.queue import Queue, open_queue
from headwater.queues.retry import Retry

#: How long a worker that waits for messages takes to notice `stop`.
_WAIT_SECONDS = 0.2


class Worker:
    """A function that processes messages; made by `@log.worker("jobs")`. Call `run` in each process that works.

    A call that returns acknowledges its message, and one that raises returns it with the pause of `retries`; after the
    last attempt it is a dead letter with the traceback. While a call runs, its lease is extended.
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
        self._error: BaseException | None = None
        self.__name__ = getattr(function, "__name__", "worker")

    # Any: the result of the function itself, so that tests can call it.
    def __call__(self, message: Message) -> Any:
        return self._function(message)

    def stop(self) -> None:
        """Take no more messages; `run` returns once the calls that run have ended."""
        self._stopped.set()
        with self._ended:
            self._ended.notify_all()

    def run(self, *, idle_seconds_max: float | None = None) -> int:
        """Process messages until `stop`, or until none came for `idle_seconds_max`; return how many were taken."""
        taken, idle = 0, 0.0
        loop = _Loop() if inspect.iscoroutinefunction(self._function) else None
        with open_queue(self._log, self.queue, group=self.group) as queue, ThreadPoolExecutor(self.concurrency) as pool:
            extender = threading.Thread(target=self._extend, args=(queue,), daemon=True)
            extender.start()
            try:
                while not self._stopped.is_set():
                    with self._ended:
                        self._ended.wait_for(lambda: self._stopped.is_set() or len(self._running) < self.concurrency)
                        free = self.concurrency - len(self._running)
                    if self._stopped.is_set():
                        break
                    messages = queue.take(free, wait=_WAIT_SECONDS)
                    idle = 0.0 if messages or self._running else idle + _WAIT_SECONDS
                    if idle_seconds_max is not None and idle > idle_seconds_max:
                        break
                    with self._ended:
                        self._running.update((id(message), message) for message in messages)
                    taken += len(messages)
                    for message in messages:
                        pool.submit(self._process, queue, message, loop).add_done_callback(self._processed)
                with self._ended:
                    self._ended.wait_for(lambda: not self._running)
            finally:
                self._stopped.set()
                extender.join()
                if loop is not None:
                    loop.close()
        if self._error is not None:
            raise self._error
        return taken

    def _processed(self, call: Future[None]) -> None:
        """Stop if the end of a delivery could not be recorded, for example on a full disk; `run` raises the error."""
        error = call.exception()
        if error is not None:
            self._error = self._error or error
            self.stop()

    def _process(self, queue: Queue, message: Message, loop: _Loop | None) -> None:
        try:
            with suppress(LeaseLost):  # another worker has the message
                try:
                    if loop is None:
                        self._function(message)
                    else:
                        loop.run(self._function(message))
                except Exception as error:
                    self._failed(queue, message, error)
                else:
                    queue.ack(message)
        finally:
            with self._ended:
                self._running.pop(id(message), None)
                self._ended.notify_all()

    def _failed(self, queue: Queue, message: Message, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
        if message.attempt >= self.retries.attempts:
            queue.reject(message, reason=reason, trace=trace)
        else:
            queue.nack(message, delay=self.retries.delay_seconds(message.attempt), reason=reason, trace=trace)

    def _extend(self, queue: Queue) -> None:
        """Extend the leases of calls that run, three times in each lease."""
        while not self._stopped.wait(queue.config.lease_us / 3_000_000):
            with self._ended:
                running = list(self._running.values())
            for message in running:
                with suppress(LeaseLost):  # acknowledged meanwhile
                    queue.extend(message)


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
