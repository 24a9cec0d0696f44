"""Reads of topics: bounded reads, offsets by position or time, and waiting for more rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from headwater.clock import time_us
from headwater.errors import ArgumentInvalid
from headwater.log.client_config import Start
from headwater.log.decoder import Decoder, Projection
from headwater.log.embedded.commits import Commits
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.partition_reader import PartitionReader, check_range, offset_at
from headwater.log.embedded.segment import list_segments
from headwater.log.embedded.topic import TopicHandle
from headwater.log.embedded.watch import wait_for
from headwater.log.port import Batch, Cursor, Offsets, Reader, RowWatch
from headwater.log.topic import Topic


class TopicReader:
    """Reads topics up to ends at which no transaction is partly visible."""

    def __init__(self, commits: Commits, *, read_only: bool, check_open: Callable[[], None]) -> None:
        self._commits = commits
        self._read_only = read_only
        self._check_open = check_open

    def read(
        self,
        handle: TopicHandle,
        *,
        start: Start,
        stop: Start | None,
        partitions: Sequence[int] | None,
        columns: Sequence[str] | None,
        limit: int | None,
        archived: bool,
    ) -> TopicRead:
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
        return TopicRead(handle.current, handle.schema_of, ranges, projection, limit=limit, archives=archives)

    def end_offsets(self, handle: TopicHandle) -> Offsets:
        return self._snapshot(handle, range(handle.current().partitions))

    def offset_at(self, handle: TopicHandle, time: datetime | int) -> Offsets:
        at_us = time_us(time)
        return {partition.number: offset_at(partition, at_us, handle.schema_of) for partition in handle.partitions()}

    def row_watch(self, positions: Sequence[tuple[TopicHandle, Offsets]]) -> EmbeddedRowWatch:
        return EmbeddedRowWatch(positions, self._resolve_commits)

    def wait(self, positions: Sequence[tuple[TopicHandle, Offsets]], *, seconds: float | None) -> bool:
        watch = self.row_watch(positions)
        return wait_for(watch.arrived, watch.paths, seconds=seconds)

    def _resolve_commits(self) -> None:
        self._check_open()
        if self._commits.pending():
            self._commits.resolve()

    def _snapshot(self, handle: TopicHandle, numbers: Sequence[int] | range) -> Offsets:
        commits = self._commits
        if len(numbers) == 1:
            found = {number: handle.partition(number).visible().offset for number in numbers}
            if not commits.pending() or self._read_only:
                return found
        return commits.snapshot(
            lambda: {number: handle.partition(number).visible().offset for number in numbers},
            handle.topic.name,
            numbers,
        )

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
            at_us = time_us(position)
            return {number: offset_at(handle.partition(number), at_us, handle.schema_of) for number in numbers}
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
            # Segments that expired, but whose process died before it archived them, are still in the partition.
            chain = list_segments(handle.archive(number))[0] or handle.partition(number).segments()
            if chain:
                return chain[0].base
        return handle.partition(number).start()


class EmbeddedRowWatch(RowWatch):
    """Looks at the visible ends of partitions; the state files of their topics change with these."""

    def __init__(self, positions: Sequence[tuple[TopicHandle, Offsets]], resolve: Callable[[], None]) -> None:
        self._resolve = resolve
        self._handles = [handle for handle, _ in positions]
        self._watched = [
            (handle.partition(number), offset) for handle, offsets in positions for number, offset in offsets.items()
        ]
        self._places = [partition.visible()[1:3] for partition, _ in self._watched]

    @property
    def paths(self) -> list[Path]:
        return [handle.state.path for handle in self._handles]

    def arrived(self) -> bool:
        self._resolve()
        if any(handle.deleted for handle in self._handles):
            return True
        tails = [partition.visible() for partition, _ in self._watched]
        # A punctuation takes no offset, but moves the end of the partition.
        return any(
            tail.offset > offset or tail[1:3] != place
            for tail, (_, offset), place in zip(tails, self._watched, self._places, strict=True)
        )


class TopicRead(Reader):
    """A bounded, lazy read of partitions of a topic, one after the other."""

    def __init__(
        self,
        topic: Callable[[], Topic],
        schema_of: Callable[[int], pa.Schema],
        ranges: dict[int, tuple[Partition, int, int]],
        projection: Projection,
        *,
        limit: int | None = None,
        archives: dict[int, Path] | None = None,
    ) -> None:
        self._topic = topic
        self._schema_of = schema_of
        self._ranges = ranges
        self._projection = projection
        self._limit = limit
        self._archives = archives or {}

    @property
    def schema(self) -> pa.Schema:
        return self._projection.output

    @property
    def ranges(self) -> dict[int, tuple[int, int]]:
        return {number: (start, stop) for number, (_, start, stop) in self._ranges.items()}

    def batches(self) -> Iterator[Batch]:
        left = self._limit
        for number, (partition, start, stop) in self._ranges.items():
            decoder = Decoder(self._topic, self._schema_of, number, self._projection)
            reader = PartitionReader(partition, start, archive=self._archives.get(number))
            for header, payload in reader.frames(stop):
                batch = decoder.batch(header, payload, start=reader.since, stop=stop)
                if batch is None:
                    continue
                if left is not None and batch.punctuation_us is None:
                    if batch.data.num_rows >= left:
                        yield batch if batch.data.num_rows == left else _cut(batch, left)[0]
                        return
                    left -= batch.data.num_rows
                yield batch


#: Frames with fewer rows are concatenated; larger ones are returned without a copy.
JOINED_ROWS_MAX = 8_192


class EmbeddedCursor(Cursor):
    """Reads one partition from an offset on. It holds no lock, and its batches share the memory of the file."""

    def __init__(
        self, handle: TopicHandle, partition: Partition, offset: int, *, columns: tuple[str, ...] | None = None
    ) -> None:
        # An expired offset raises at the first read, not here: a consumer may skip the gap.
        check_range(partition, offset, 0, partition.visible().offset)
        self._handle = handle
        self._partition = partition
        self._columns = columns
        self._reader = PartitionReader(partition, offset)
        self._rest: Batch | None = None
        self._offset = offset
        self._version = -1
        self._decoder: Decoder

    @property
    def offset(self) -> int:
        return self._offset

    @property
    def deleted(self) -> bool:
        return self._handle.deleted

    def read(self, *, rows_max: int) -> list[Batch]:
        self._follow_schema()
        pieces: list[Batch] = []
        left = rows_max
        while left > 0 and (piece := self._piece()) is not None:
            if piece.data.num_rows > left:
                piece, self._rest = _cut(piece, left)
            left -= piece.data.num_rows
            self._offset = piece.offset_next
            pieces.append(piece)
        return joined(pieces)

    def _piece(self) -> Batch | None:
        if self._rest is not None:
            piece, self._rest = self._rest, None
            return piece
        for header, payload in self._reader.frames():
            batch = self._decoder.batch(header, payload, start=self._reader.since, stop=None)
            if batch is not None:
                return batch
        # Offsets at the end whose rows compaction removed count as read.
        self._offset = max(self._offset, self._reader.offset)
        return None

    def _follow_schema(self) -> None:
        topic = self._handle.current()
        if topic.schema_version != self._version:
            projection = Projection.of(topic, self._columns)
            number = self._partition.number
            self._decoder = Decoder(self._handle.current, self._handle.schema_of, number, projection)
            self._version = topic.schema_version


def joined(pieces: list[Batch]) -> list[Batch]:
    """Concatenate consecutive small batches; punctuations stay between the rows."""
    result: list[Batch] = []
    run: list[Batch] = []
    for piece in pieces:
        if run and not _may_follow(run[-1], piece):
            result.append(_join(run))
            run = []
        run.append(piece)
    if run:
        result.append(_join(run))
    return result


def _may_follow(before: Batch, after: Batch) -> bool:
    return (
        before.punctuation_us is None
        and after.punctuation_us is None
        and before.producer == after.producer
        and before.data.num_rows < JOINED_ROWS_MAX
        and after.data.num_rows < JOINED_ROWS_MAX
        and before.data.schema.equals(after.data.schema)
    )


def _join(run: list[Batch]) -> Batch:
    if len(run) == 1:
        return run[0]
    return replace(run[0], offset_next=run[-1].offset_next, data=pa.concat_batches([piece.data for piece in run]))


def _cut(batch: Batch, rows: int) -> tuple[Batch, Batch]:
    head, tail = batch.data.slice(0, rows), batch.data.slice(rows)
    if batch.offset_next - batch.offset == batch.data.num_rows or "_offset" not in batch.data.schema.names:
        middle = batch.offset + rows
    else:
        middle = tail.column("_offset")[0].as_py()
    return replace(batch, offset_next=middle, data=head), replace(batch, offset=middle, data=tail)
