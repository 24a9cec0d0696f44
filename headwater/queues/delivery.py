"""What a call that takes delivers, and what one that got nothing waits for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from headwater.queues.dead_letters import DeadMessage
from headwater.queues.journal import Event
from headwater.queues.message import Message, Place
from headwater.queues.ranges import Range, ranges_of


class Idle(NamedTuple):
    """What a caller that got no message has to wait for."""

    ends: dict[int, int]
    journal_next: int
    #: When a lease runs out, or a scheduled message is due.
    event_us: int | None
    #: Whether the death of another process could free messages.
    others: bool
    #: Whether the call has looked through as many rows as it may, and there are others.
    unread: bool


@dataclass
class Delivery:
    """What one call that takes has decided so far."""

    now_us: int
    #: In order: a message with its attempt, or rows that are all delivered for the first time.
    picked: list[tuple[Message, int] | pa.RecordBatch] = field(default_factory=list)
    count: int = 0
    redelivered: int = 0
    dead: list[DeadMessage] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    unread: bool = False

    def add(self, message: Message, attempt: int) -> None:
        self.picked.append((message, attempt))
        self.count += 1
        self.redelivered += attempt > 1

    def add_rows(self, rows: pa.RecordBatch) -> None:
        self.picked.append(rows)
        self.count += rows.num_rows

    def places(self) -> list[Place]:
        """Where the messages are."""
        found: list[Place] = []
        for part in self.picked:
            if isinstance(part, tuple):
                found.append(part[0].place)
            else:
                columns = [part.column(name).to_pylist() for name in ("_partition", "_offset")]
                found += map(Place, *columns)
        return found


def ranges_in(rows: pa.RecordBatch) -> list[Range]:
    """The offsets of rows in order."""
    offsets = rows.column("_offset")
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return [(first, last + 1)] if last - first == rows.num_rows - 1 else ranges_of(offsets.to_pylist())
