"""The rows of a queue's topic, as a group reads them: forward from its cursors, and at single places."""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa

from headwater.log import Log
from headwater.log import Offsets as PartitionOffsets
from headwater.log.errors import OffsetExpired
from headwater.log.port import Batch, Cursor
from headwater.queues.config import QueueConfig
from headwater.queues.gathered_rows import GatheredRows, Offsets, rows_at
from headwater.queues.message import Place, Stored, decode

#: Rows of a frame that are read for one of them.
PART_ROWS_MAX = 4_096
#: Parts of frames that are kept between calls, and the memory of this process that they take.
PARTS_MAX = 8_192
PARTS_BYTES_MAX = 256 * 1024 * 1024
KEPT_US = 300_000_000
#: Rows that are read ahead: so many times those of the last time that were of use, up to a number and the memory they take.
AHEAD_GROWTH = 4
AHEAD_ROWS_MAX = 65_536
AHEAD_BYTES_MAX = 16 * 1024 * 1024
#: Columns that a reader adds, from memory that all batches share.
SHARED = frozenset({"_partition", "_offset", "_appended_at", "_sent_at"})


class QueueRows:
    """Reads the topic of a queue; positions in each partition stay open between calls."""

    def __init__(self, log: Log, queue: str, config: Callable[[], QueueConfig]) -> None:
        self._log, self._queue, self._config = log, queue, config
        self._cursors: dict[int, Cursor] = {}
        self._starts: PartitionOffsets = {}
        self._read_us = 0
        self._parts = FrameParts()
        #: Rows that are likely to be asked for next, by partition.
        self._ahead: dict[int, GatheredRows] = {}

    def at(self, partition: int, offset: int, count: int) -> list[tuple[pa.RecordBatch, int]]:
        """Up to `count` rows from an offset on, in batches, each with the offset behind it."""
        cursor = self._cursors.get(partition)
        if cursor is None or cursor.offset != offset or cursor.deleted:
            cursor = self._log.cursor(self._queue, partition, offset)
        batches = cursor.read(rows_max=count)
        self._cursors[partition] = cursor
        return [(batch.data, batch.offset_next) for batch in batches if batch.punctuation_us is None]

    def read(
        self, places: Iterable[Place], *, following: Callable[[int], Sequence[int]] | None = None
    ) -> dict[Place, Stored]:
        """The rows at some places; those that retention has deleted are missing.

        Scheduled messages that are due together stand far apart, and a frame holds many of them. So the rest of a frame
        is kept for later calls; and so many offsets that `following` returns, of one partition, are read with the others:
        a few rows of a frame cost hardly more than one.
        """
        self._read_us = self._log.clock.now_us()
        self._starts = self._log.start_offsets(self._queue)
        result: dict[Place, Stored] = {}
        for partition, some in groupby(sorted(places), key=lambda place: place.partition):
            start = self._starts[partition]
            wanted = np.array([place.offset for place in some if place.offset >= start], np.int64)
            for data in self._gathered(partition, wanted, following).take(wanted):
                result |= {stored.message.place: stored for stored in decode(data, self._config(), None)}
        return result

    def _gathered(
        self, partition: int, wanted: Offsets, following: Callable[[int], Sequence[int]] | None
    ) -> GatheredRows:
        kept = self._ahead.get(partition)
        if kept is None or not kept.knows(wanted):
            if following is None:
                return self._gather(partition, wanted, wanted)
            used = max(len(wanted), 0 if kept is None else kept.used)
            more = following(min(AHEAD_ROWS_MAX, AHEAD_GROWTH * used))
            asked = np.union1d(wanted, np.array(more, np.int64))
            kept = self._ahead[partition] = self._gather(partition, asked, wanted)
        kept.used += len(wanted)
        return kept

    def _gather(self, partition: int, asked: Offsets, wanted: Offsets) -> GatheredRows:
        """Read rows; only those that are wanted, once the others take too much memory."""
        found, taken = [], []
        at, left = 0, AHEAD_BYTES_MAX
        while at < len(asked):
            if left < 0 and len(asked) > len(wanted):
                asked = np.concatenate([asked[:at], wanted[np.searchsorted(wanted, asked[at]) :]])
                wanted = asked
                continue
            place = Place(partition, int(asked[at]))
            part = self._parts.get(place) or self._load(place)
            stop = at + 1 if part is None else int(np.searchsorted(asked, part.offset_next))
            if part is not None:
                offsets, rows = rows_at(part, asked[at:stop])
                found.append(offsets)
                taken.append(rows)
                left -= rows.get_total_buffer_size()
            at = stop
        return GatheredRows(asked, found, taken)

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
            self._ahead.clear()


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


def _bytes_allocated(data: pa.RecordBatch) -> int:
    """The memory that the columns of a batch take; those that are mapped cannot be changed, and take none."""
    columns = (column for name, column in zip(data.schema.names, data.columns, strict=True) if name not in SHARED)
    filled = (column for column in columns if column.null_count < len(column))  # all nulls are shared, too
    buffers = (buffer for column in filled for buffer in column.buffers() if buffer is not None)
    return sum(buffer.size for buffer in buffers if buffer.is_mutable)
