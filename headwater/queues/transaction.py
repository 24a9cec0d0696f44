"""Consume, produce and acknowledge in one transaction of the log."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.log import Log, Rows
from headwater.queues.journal import Event
from headwater.queues.message import Message, Outgoing, parse_receipt

if TYPE_CHECKING:
    from headwater.queues.queue import Queue


class QueueTransaction:
    """Rows, messages and acknowledgements that become visible all at once; see `Queue.transaction`.

    The leases are checked under the group's lock at the commit: if one is lost, `LeaseLost` is raised and nothing of the
    transaction happens. So of two workers with the same message, one commits.
    """

    def __init__(self, log: Log, queue: Queue) -> None:
        self._log, self._queue = log, queue
        self._transaction = log.transaction()
        self._leases: list[tuple[int, int, int]] = []

    def append(self, topic: str, rows: Rows, *, partition: int | None = None, headers: Any = None) -> None:
        """Append rows to a topic."""
        self._transaction.append(topic, rows, partition=partition, headers=headers)

    # Any: as in `Queue.put`.
    def put(self, queue: Queue, body: Any, **options: Any) -> None:
        """Put a message; deduplication and the length limit do not apply."""
        message = body if isinstance(body, Outgoing) else Outgoing(body=body, **options)
        for priority, (rows, headers, _) in queue.encoder.batches([message], now_us=self._log.clock.now_us()).items():
            self._transaction.append(queue.topic, rows, partition=priority, headers=headers)

    def ack(self, *messages: Message | str) -> None:
        """Acknowledge messages of the queue with the transaction."""
        self._leases += [parse_receipt(message) for message in messages]

    def _record(self, events: Sequence[Event]) -> None:
        if events:
            self._queue.state.journal.append_to(self._transaction, events)

    def commit(self) -> None:
        """Make all of it visible, or raise `LeaseLost`."""
        if not self._leases:
            self._transaction.commit()
            return
        state = self._queue.state
        with state.changes():
            lost = state.ack_within(self._leases, record=self._record)
            state.raise_if_lost(lost)
            appended = self._transaction.commit()
            state.recorded(appended[state.journal.topic].offsets_next[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.commit()
        finally:
            if not self._transaction.outcome:
                self._transaction.rollback()
