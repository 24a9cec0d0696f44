"""The rows of a queue's topic, as a group reads them: forward from its cursors, and at single places."""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import Log, Offsets
from headwater.log.errors import OffsetExpired
from headwater.log.port import Batch, Cursor
from headwater.queues.config import QueueConfig
from headwater.queues.message import Place, Stored, decode

#: Rows of a frame that are read for one of them.
PART_ROWS_MAX = 4_096
#: Parts of frames that are kept between calls, and the memory of this process that they take.
PARTS_MAX = 8_192
PARTS_BYTES_MAX = 256 * 1024 * 1024
KEPT_US = 300_000_000
#: Columns that a reader adds, from memory that all batches share.
SHARED = frozenset({"_partition", "_offset", "_appended_at", "_sent_at"})


class QueueRows:
    """Reads the topic of a queue; positions in each partition stay open between calls."""

    def __init__(self, log: Log, queue: str, config: Callable[[], QueueConfig]) -> None:
        self._log, self._queue, self._config = log, queue, config
        self._cursors: dict[int, Cursor] = {}
        self._starts: Offsets = {}
        self._read_us = 0
        self._parts = FrameParts()

    def at(self, partition: int, offset: int, count: int) -> list[tuple[pa.RecordBatch, int]]:
        """Up to `count` rows from an offset on, in batches, each with the offset behind it."""
        cursor = self._cursors.get(partition)
        if cursor is None or cursor.offset != offset or cursor.deleted:
            cursor = self._log.cursor(self._queue, partition, offset)
        batches = cursor.read(rows_max=count)
        self._cursors[partition] = cursor
        return [(batch.data, batch.offset_next) for batch in batches if batch.punctuation_us is None]

    def read(self, places: Iterable[Place]) -> dict[Place, Stored]:
        """The rows at some places; those that retention has deleted are missing.

        Scheduled messages that are due together stand far apart, and a frame holds many of them. So the rest of a frame
        is kept for later calls.
        """
        self._read_us = self._log.clock.now_us()
        self._starts = self._log.start_offsets(self._queue)
        slices: list[list[pa.RecordBatch]] = []  # those of one schema together
        for place in sorted(places):
            if place.offset < self._starts[place.partition]:
                continue
            part = self._parts.get(place) or self._load(place)
            row = None if part is None else _row_at(part, place.offset)
            if row is None:
                continue
            if not slices or not slices[-1][-1].schema.equals(row.schema):
                slices.append([])
            slices[-1].append(row)
        return {
            stored.message.place: stored
            for rows in slices
            for data in pa.Table.from_batches(rows).combine_chunks().to_batches()
            for stored in decode(data, self._config(), None)
        }

    def _load(self, place: Place) -> Batch | None:
        """Read the rest of the frame that holds a row; if a later part of the frame is known, also rows before it.

        Of what is read only the part with the row is certain to be kept.
        """
        partition, offset = place
        known = self._parts.behind(place)
        before = 0 if known is None else min(16 * known.data.num_rows, PART_ROWS_MAX // 4)
        if known is not None and known.offset - offset < before:
            start, stop = max(self._starts[partition], offset - before), known.offset
        else:
            start, stop = offset, min(offset + PART_ROWS_MAX, self._log.end_offsets(self._queue)[partition])
        found: Batch | None = None
        with contextlib.suppress(OffsetExpired):
            for batch in self._log.read_range(self._queue, partition, start=start, stop=stop):
                self._parts.add(batch)
                if batch.offset <= offset < batch.offset_next:
                    found = batch
                if start == offset:
                    break
        return found

    def forget_unused(self) -> None:
        """Let go of the frames that `read` has kept, if it was not called for some minutes."""
        if self._log.clock.now_us() - self._read_us > KEPT_US:
            self._parts.clear()


class FrameParts:
    """Rows that were read, as parts of their frames, found by offset. If they are too many, all are dropped.

    A frame that is not compressed is mapped and takes no memory of this process, however large its bodies are.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._starts: dict[int, list[int]] = {}
        self._parts: dict[int, list[Batch]] = {}
        self._count = self._bytes = 0

    def add(self, part: Batch) -> None:
        """Keep a part; those that lie in it are dropped."""
        if self._count >= PARTS_MAX or self._bytes >= PARTS_BYTES_MAX:
            self.clear()
        self._count += 1
        self._bytes += _bytes_allocated(part.data)
        starts, parts = self._starts.setdefault(part.partition, []), self._parts.setdefault(part.partition, [])
        first = behind = bisect_left(starts, part.offset)
        while behind < len(parts) and parts[behind].offset_next <= part.offset_next:
            behind += 1
        starts[first:behind], parts[first:behind] = [part.offset], [part]

    def get(self, place: Place) -> Batch | None:
        """The part with the row at a place, if it was read."""
        at = bisect_right(self._starts.get(place.partition, []), place.offset) - 1
        if at < 0 or place.offset >= (part := self._parts[place.partition][at]).offset_next:
            return None
        return part

    def behind(self, place: Place) -> Batch | None:
        """The first part that begins behind a place."""
        at = bisect_right(self._starts.get(place.partition, []), place.offset)
        return self._parts[place.partition][at] if at < len(self._starts.get(place.partition, [])) else None


def _row_at(part: Batch, offset: int) -> pa.RecordBatch | None:
    """The row with an offset; None if compaction has left a gap there."""
    row = offset - part.offset
    if part.offset_next - part.offset != part.data.num_rows:
        row = pc.index(part.data.column("_offset"), offset).as_py()
    return None if row < 0 else part.data.slice(row, 1)


def _bytes_allocated(data: pa.RecordBatch) -> int:
    """The memory that the columns of a batch take; those that are mapped cannot be changed, and take none."""
    columns = (column for name, column in zip(data.schema.names, data.columns, strict=True) if name not in SHARED)
    filled = (column for column in columns if column.null_count < len(column))  # all nulls are shared, too
    buffers = (buffer for column in filled for buffer in column.buffers() if buffer is not None)
    return sum(buffer.size for buffer in buffers if buffer.is_mutable)
