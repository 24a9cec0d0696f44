"""A buffer for messages to put: batches in the background, and a confirm for each message."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.errors import ArgumentInvalid, Closed
from headwater.queues.message import Outgoing

if TYPE_CHECKING:
    from headwater.queues.work_queue import WorkQueue


class Publisher:
    """Puts messages in batches of up to `batch`, or after `linger` seconds; the future of a message has its id.

    >>> import tempfile, headwater
    >>> queue = headwater.open(tempfile.mkdtemp()).queue("jobs")
    >>> with queue.publisher() as publisher:
    ...     confirms = [publisher.put(number) for number in range(3)]
    >>> [confirm.result() for confirm in confirms]
    ['0-0', '0-1', '0-2']
    """

    def __init__(self, queue: WorkQueue, *, batch: int, linger: float) -> None:
        if batch < 1:
            raise ArgumentInvalid(name="batch", value=batch, expected="at least 1")
        self._queue, self._batch, self._linger = queue, batch, linger
        self._waiting: list[tuple[Outgoing, Future[str]]] = []
        self._first_at = 0.0
        self._busy = 0
        self._urgent = self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"publisher of {queue.name}", daemon=True)
        self._thread.start()

    # Any: as in `Queue.put`.
    def put(self, body: Any, **options: Any) -> Future[str]:
        """Add a message; the future is done once the message is durable. Waits while ten batches are ahead."""
        message = body if isinstance(body, Outgoing) else Outgoing(body=body, **options)
        confirm: Future[str] = Future()
        with self._changed:
            while len(self._waiting) >= 10 * self._batch and not self._closed:
                self._changed.wait()
            if self._closed:
                raise Closed(what="publisher")
            if not self._waiting:
                self._first_at = time.monotonic()
                self._changed.notify_all()
            self._waiting.append((message, confirm))
            if len(self._waiting) == self._batch:
                self._changed.notify_all()
        return confirm

    def flush(self) -> None:
        """Wait until each message so far is confirmed or has failed."""
        with self._changed:
            self._urgent = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting and not self._busy)
            self._urgent = False

    def close(self) -> None:
        """Put what is waiting, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
                while self._waiting and len(self._waiting) < self._batch and not (self._closed or self._urgent):
                    remaining = self._first_at + self._linger - time.monotonic()
                    if remaining <= 0:
                        break
                    self._changed.wait(remaining)
                batch, self._waiting = self._waiting[: self._batch], self._waiting[self._batch :]
                self._first_at = time.monotonic()
                self._busy = len(batch)
                if not batch:
                    return
            self._put(batch)
            with self._changed:
                self._busy = 0
                self._changed.notify_all()

    def _put(self, batch: list[tuple[Outgoing, Future[str]]]) -> None:
        try:
            ids = self._queue.put_many([message for message, _ in batch])
        except Exception as error:
            for _, confirm in batch:
                confirm.set_exception(error)
        else:
            for (_, confirm), id_ in zip(batch, ids, strict=True):
                confirm.set_result(id_)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
