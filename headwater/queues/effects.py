"""What an event of the journal does to the index of a group.

A process that records an event has changed the index already, in the same transaction. Events are applied when it was killed
between the two, and when the index is older than the journal or is built again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from headwater.log import Offsets
from headwater.queues.config import QueueConfig
from headwater.queues.index import Index
from headwater.queues.journal import DONE, Event
from headwater.queues.message import Place
from headwater.queues.ranges import Range, merged, ranges_of
from headwater.queues.rows import QueueRows


class Effects:
    """Applies events of the journal to the index of one group."""

    def __init__(self, rows: QueueRows, config: Callable[[], QueueConfig]) -> None:
        self._rows, self._config = rows, config

    def apply(self, index: Index, kind: str, events: list[Event], starts: Offsets) -> None:
        """Apply events of one kind."""
        if kind in DONE or kind == "return":
            self._unschedule(index, events)
        if kind in ("pause", "resume"):
            index.store("paused", int(kind == "pause"))
        elif kind in ("reset", "cursor"):
            index.reset({each.partition: max(each.offset, starts[each.partition]) for each in events})
        elif kind == "done":
            for event in events:
                index.mark_done(event.partition, event.offset, event.offset + event.length)
        elif kind == "kept":
            self._keep(index, self._schedule(index, events))
        elif kind in DONE:
            for partition, some in itertools.groupby(events, key=lambda event: event.partition):
                ranges = merged((event.offset, event.offset + event.length) for event in some)
                self.finish(index, kind, partition, ranges)
        else:
            cursors = index.cursors()
            for event in events:
                place = Place(event.partition, event.offset)
                if index.entry(place) is None and event.offset >= cursors[event.partition]:
                    index.mark_done(event.partition, event.offset, event.offset + 1)
                    self._keep(index, [event])
                index.give_back(place, ready_at_us=event.ready_at_us, attempts=event.attempts)

    def finish(self, index: Index, kind: str, partition: int, ranges: Sequence[Range]) -> None:
        """Delete messages that the group is done with, and let the next ones of their keys follow."""
        cursor, ordered = index.cursors()[partition], self._config().ordered
        keys: set[str] = set()
        for start, stop in ranges:
            if stop > cursor:
                index.mark_done(partition, max(start, cursor), stop)
            if ordered:
                keys |= index.keys_between(partition, start, stop)
            index.delete(partition, start, stop)
        for key in keys:
            index.unblock(partition, key)
        count = sum(stop - start for start, stop in ranges)
        index.add({"ack": "acknowledged", "dead": "dead"}.get(kind, "expired"), count)

    def finish_places(self, index: Index, kind: str, places: Sequence[Place]) -> None:
        for partition, some in itertools.groupby(sorted(places), key=lambda place: place.partition):
            self.finish(index, kind, partition, ranges_of([place.offset for place in some]))

    # -- messages before the cursor -----------------------------------------------------------------------------------

    def _keep(self, index: Index, events: list[Event]) -> None:
        """Add messages before the cursor that an index which is built again does not know, in the order of offsets."""
        ordered = self._config().ordered
        places = [
            (Place(event.partition, event.offset + more), event) for event in events for more in range(event.length)
        ]
        rows = self._rows.read(place for place, _ in places) if ordered else {}
        for place, event in places:
            key = rows[place].message.key if place in rows else None
            blocked = key is not None and index.has_key(event.partition, key)
            index.park(*place, ready_at_us=event.ready_at_us, key=key, blocked=blocked, attempts=event.attempts)

    def _schedule(self, index: Index, events: list[Event]) -> list[Event]:
        """Put messages that were never delivered into the schedule; return the events of the others."""
        if self._config().ordered:
            return events
        rows = {
            Place(event.partition, event.offset): event.ready_at_us
            for event in events
            if event.ready_at_us and not event.attempts
        }
        due = self._due(list(rows))
        scheduled = {place for place, ready_at_us in rows.items() if due.get(place) == ready_at_us}
        index.schedule.add((place.partition, due[place], place.offset) for place in scheduled)
        return [event for event in events if (event.partition, event.offset) not in scheduled]

    def _unschedule(self, index: Index, events: list[Event]) -> None:
        """Move messages that events name from the schedule to the others: an index of an earlier time has them there."""
        if index.schedule.is_empty():
            return
        cursors = index.cursors()
        places = [
            Place(event.partition, offset)
            for event in events
            for offset in range(event.offset, min(event.offset + event.length, cursors[event.partition]))
        ]
        index.schedule.move([(place.partition, due_us, place.offset) for place, due_us in self._due(places).items()])

    def _due(self, places: Sequence[Place]) -> dict[Place, int]:
        """When messages are due, those of them that were scheduled as they were put."""
        return {
            place: stored.deliver_at_us for place, stored in self._rows.read(places).items() if stored.deliver_at_us
        }
