"""What a group of a queue holds now: its counts, and the messages that come next."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import Log
from headwater.log.errors import OffsetExpired
from headwater.queues.message import Message, Place, Stored, decode

if TYPE_CHECKING:
    from headwater.queues.queue import Queue

#: Rows behind the cursor of a partition that are looked at, because no worker has come to them; those after them count as waiting.
LOOK_ROWS_MAX = 65_536


@dataclass(frozen=True, kw_only=True)
class QueueStats:
    """The state of one group of a queue."""

    queue: str
    group: str
    #: Messages that can be delivered now, and all of those that are too far behind the cursor to be looked at (`LOOK_ROWS_MAX`).
    waiting: int
    scheduled: int
    in_flight: int
    #: Messages that wait for an earlier one of their key.
    blocked: int
    consumers: int
    #: The age of the oldest waiting message.
    oldest_seconds: float | None
    delivered: int
    redelivered: int
    acknowledged: int
    dead: int
    #: Messages that were not processed: their time to live ended, the length limit dropped them, or retention deleted them.
    expired: int
    paused: bool

    @property
    def depth(self) -> int:
        """Messages that wait for a worker, also those that wait for an earlier one of their key."""
        return self.waiting + self.blocked

    @property
    def length(self) -> int:
        """Messages that the group is not done with."""
        return self.waiting + self.scheduled + self.in_flight + self.blocked


def stats_of(log: Log, queue: Queue) -> QueueStats:
    """The counts of a queue's group."""
    now_us = log.clock.now_us()
    with queue.state.changes() as index:
        ready, scheduled, in_flight, blocked, ahead = index.counts(now_us)
        cursors = index.cursors()
        names = ("delivered", "redelivered", "acknowledged", "dead", "expired")
        counters = {name: int(index.get(name)) for name in names}
        paused = bool(index.get("paused"))
        consumers = len(queue.state.consumers(index))
        first = index.first_ready(now_us)
        ends = log.end_offsets(queue.topic)
        done = {each: index.done_between(each, start, start + LOOK_ROWS_MAX) for each, start in cursors.items()}
    behind = [_behind(log, queue, Place(each, cursors[each]), ends[each], done[each], now_us) for each in ends]
    later = sum(count for count, _ in behind)
    puts = [put_us for _, put_us in behind if put_us is not None]
    if first is not None:
        puts += [stored.message.put_at_us for stored in rows_of(log, queue, first, 1)]
    return QueueStats(
        queue=queue.name,
        group=queue.group,
        waiting=ready - ahead + sum(ends[each] - cursors[each] for each in ends) - later,
        scheduled=scheduled + later,
        in_flight=in_flight,
        blocked=blocked,
        consumers=consumers,
        oldest_seconds=(now_us - min(puts)) / 1_000_000 if puts else None,
        paused=paused,
        **counters,
    )


def _behind(log: Log, queue: Queue, place: Place, end: int, done: set[int], now_us: int) -> tuple[int, int | None]:
    """Of messages that no worker has come to: how many are scheduled, and when the first of the others was put."""
    later, put_us = 0, None
    stop = min(end, place.offset + LOOK_ROWS_MAX)
    if place.offset >= stop:
        return later, put_us
    columns = ["deliver_at", "_appended_at", "_offset"]
    with suppress(OffsetExpired):
        for batch in log.read_range(queue.topic, place.partition, start=place.offset, stop=stop, columns=columns):
            due, put, offsets = (batch.data.column(name).cast(pa.int64()) for name in columns)
            is_later = pc.greater(due, now_us).fill_null(False)
            is_waiting = pc.invert(is_later)
            if done:
                is_left = pc.invert(pc.is_in(offsets, pa.array(done, pa.int64())))
                is_later, is_waiting = pc.and_(is_later, is_left), pc.and_(is_waiting, is_left)
            later += pc.sum(is_later).as_py() or 0
            if put_us is None:
                put_us = pc.min(pc.if_else(is_waiting, put, None)).as_py()
    return later, put_us


def next_messages(log: Log, queue: Queue, n: int) -> list[Message]:
    """The next messages of a queue's group, without a lease."""
    with queue.state.changes() as index:
        now_us = log.clock.now_us()
        cursors = index.cursors()
        early = {
            partition: [Place(entry.partition, entry.offset) for entry in entries]
            for partition in cursors
            for entries in [index.ready(partition, now_us=now_us, count=n)]
        }
        done = {each: index.done_between(each, start, start + 2 * n) for each, start in cursors.items()}
    found: list[Message] = []
    for partition in sorted(cursors, reverse=True):
        for place in early[partition]:
            found += [stored.message for stored in rows_of(log, queue, place, 1)]
        found += [
            stored.message
            for stored in rows_of(log, queue, Place(partition, cursors[partition]), 2 * n)
            if stored.message.offset not in done[partition] and stored.only_group in (None, queue.group)
        ]
    return found[:n]


def rows_of(log: Log, queue: Queue, place: Place, count: int) -> list[Stored]:
    """Up to `count` messages from a place on; none if retention has deleted it."""
    end = log.end_offsets(queue.topic).get(place.partition, 0)
    if not 0 <= place.offset < end:
        return []
    stop = min(place.offset + count, end)
    rows: list[Stored] = []
    with suppress(OffsetExpired):
        for batch in log.read_range(queue.topic, place.partition, start=place.offset, stop=stop):
            rows += decode(batch.data, queue.config, None)
    return rows
