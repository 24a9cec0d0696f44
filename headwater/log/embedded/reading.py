"""Reading the embedded log: positions, bounded reads, and waiting for more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import numpy as np

from headwater.errors import (
    ArgumentInvalid,
)
from headwater.log.embedded.cursor import EmbeddedCursor
from headwater.log.embedded.expiry import expiry_of
from headwater.log.embedded.notify import wait_for
from headwater.log.embedded.reader import LogReader, Projection, check_range, offset_at
from headwater.log.embedded.topics import TopicHandle
from headwater.log.embedded.watch import LogWatch
from headwater.log.lag import Expiry
from headwater.log.port import (
    Offsets,
    Start,
)

if TYPE_CHECKING:
    pass


from headwater.log.embedded.transacting import Transacting
from headwater.log.embedded.writing import micros


class Reading(Transacting):
    """How rows come out."""

    def read(
        self,
        topic: str,
        *,
        start: Start = "earliest",
        stop: Start | None = None,
        partitions: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        archived: bool = False,
    ) -> LogReader:
        """Read what is there now, from `start` up to `stop` or the present end."""
        handle = self._handle(topic)
        current = handle.current()
        projection = Projection.of(current, columns)
        numbers = list(range(current.partitions)) if partitions is None else list(partitions)
        ends = self._snapshot(handle, numbers)
        starts = self._resolve(handle, start, numbers, ends, archived=archived)
        stops = ends if stop is None else self._resolve(handle, stop, numbers, ends, archived=archived)
        ranges = {}
        for number in numbers:
            where = handle.partition(number)
            check_range(where, starts[number], self._oldest(handle, number, archived), ends[number])
            ranges[number] = (where, starts[number], min(stops[number], ends[number]))
        archives = {number: handle.archive(number) for number in numbers} if archived else None
        return LogReader(handle.current, handle.schema_of, ranges, projection, limit=limit, archives=archives)

    def start_offsets(self, topic: str) -> Offsets:
        """The oldest offset that each partition still has."""
        return {partition.number: partition.start() for partition in self._handle(topic).partitions()}

    def end_offsets(self, topic: str) -> Offsets:
        """The offset that the next row of each partition will get; no transaction is ever half counted."""
        handle = self._handle(topic)
        return self._snapshot(handle, range(handle.current().partitions))

    def offset_at(self, topic: str, time: datetime | int) -> Offsets:
        """In each partition, the first offset appended at or after a time (microseconds or a datetime)."""
        time_us = micros(time)
        handle = self._handle(topic)
        return {partition.number: offset_at(partition, time_us, handle.schema_of) for partition in handle.partitions()}

    def wait(
        self, topics: str | Mapping[str, Offsets], *, after: Offsets | None = None, seconds: float | None = None
    ) -> bool:
        """Sleep until a partition has rows at or behind the given offsets. Woken by the writer; False on time-out."""
        positions = (
            {topics: after if after is not None else self.end_offsets(topics)} if isinstance(topics, str) else topics
        )
        handles = {name: self._handle(name) for name in positions}
        watched = [
            (handles[name].partition(number), offset)
            for name, offsets in positions.items()
            for number, offset in offsets.items()
        ]

        places = [partition.visible()[1:3] for partition, _ in watched]

        def arrived() -> bool:
            if self._checked_commits.pending():
                self._checked_commits.settle()
            if any(handle.deleted for handle in handles.values()):
                return True
            tails = [partition.visible() for partition, _ in watched]
            # A punctuation takes no offset: it shows by the place where the partition ends.
            return any(
                tail.offset > offset or tail[1:3] != place
                for tail, (_, offset), place in zip(tails, watched, places, strict=True)
            )

        return wait_for(arrived, [handle.state.path for handle in handles.values()], seconds=seconds)

    def cursor(
        self, topic: str, partition: int, offset: int, *, columns: Sequence[str] | None = None
    ) -> EmbeddedCursor:
        """A place in one partition from which to read on, again and again."""
        handle = self._handle(topic)
        names = None if columns is None else tuple(columns)
        return EmbeddedCursor(handle, handle.partition(partition), offset, columns=names)

    def expiry(self, topic: str, partition: int, offset: int) -> Expiry:
        """When retention will delete the segment that holds an offset."""
        handle = self._handle(topic)
        return expiry_of(handle, handle.partition(partition), offset, clock=self.clock)

    def watch(self) -> LogWatch:
        """A sleeper that files of this log can wake."""
        return LogWatch(self.path, lambda topic: self._handle(topic).state.path)

    def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has; asked by consumers at every poll."""
        return self._handle(topic).current().partitions

    def settle(self) -> None:
        """Finish the commit of a process that died in the middle of it, if there is one."""
        if self._checked_commits.pending():
            self._checked_commits.settle()

    def _snapshot(self, handle: TopicHandle, numbers: Sequence[int] | range) -> Offsets:
        commits = self._checked_commits
        if len(numbers) == 1:
            found = {number: handle.partition(number).visible().offset for number in numbers}
            if not commits.pending() or self.read_only:
                return found
        return commits.snapshot(lambda: {number: handle.partition(number).visible().offset for number in numbers})

    def _resolve(
        self, handle: TopicHandle, position: Start, numbers: Sequence[int], ends: Offsets, *, archived: bool
    ) -> Offsets:
        if position == "latest":
            return ends
        if position == "earliest":
            return {number: self._oldest(handle, number, archived) for number in numbers}
        if isinstance(position, Mapping):
            return {number: position.get(number, self._oldest(handle, number, archived)) for number in numbers}
        if isinstance(position, datetime):
            time_us = micros(position)
            return {number: offset_at(handle.partition(number), time_us, handle.schema_of) for number in numbers}
        if isinstance(position, (int, np.integer)) and not isinstance(position, bool):
            if position >= 0:
                return dict.fromkeys(numbers, int(position))
            oldest = {number: self._oldest(handle, number, archived) for number in numbers}
            return {number: max(oldest[number], ends[number] + int(position)) for number in numbers}
        raise ArgumentInvalid(
            name="start",
            value=position,
            expected="'earliest', 'latest', an offset, minus so many rows, a time or {partition: offset}",
        )

    @staticmethod
    def _oldest(handle: TopicHandle, number: int, archived: bool) -> int:
        if archived:
            from headwater.log.embedded.segment import list_segments

            # Segments that retention has marked, but whose process died before it archived them, are read where they are.
            chain = list_segments(handle.archive(number))[0] or handle.partition(number).segments()
            if chain:
                return chain[0].base
        return handle.partition(number).start()
