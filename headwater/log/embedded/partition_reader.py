"""Readers of a partition: its frames in offset order, as Arrow batches that share the memory of the file.

A reader takes no lock and never waits for a writer. It maps the segments up to *visible*, and verifies the checksums of
each frame before it returns rows.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from headwater.log.embedded.partition import Partition
from headwater.log.embedded.segment import SEGMENT_HEADER_BYTES, Segment, SegmentMap, chain_of, list_segments
from headwater.log.embedded.state import Tail
from headwater.log.errors import FrameCorrupt, OffsetAhead, OffsetExpired, SegmentMissing
from headwater.log.frame import (
    FLAG_OFFSETS,
    FLAG_TIMES,
    HEADER_BYTES,
    KIND_PUNCTUATION,
    Header,
    decode,
    payload_is_whole,
    payload_schema,
    read_header,
)

#: So many bytes at the tail are read by one call instead of a new mapping.
SMALL_BYTES_MAX = 256 * 1024
#: How often a reader lists a partition before it reports a missing segment: a listing taken while files are renamed and
#: removed may show neither the old segments nor the new one.
LISTINGS_MAX = 8


def limit_of(segment: Segment, visible: Tail) -> int | None:
    """The byte at which readers stop in the active segment; None for a sealed one.

    A rewritten segment has the same base, but its frames are at other bytes.
    """
    return visible.position if segment.base == visible.segment and not segment.rewritten else None


class PartitionReader:
    """Reads the frames of one partition from an offset on. A second call of `frames` continues after the first.

    With `unsynced` it also reads the frames that wait for the disk. Then no effect may be seen before a `sync_to`.
    """

    def __init__(
        self, partition: Partition, offset: int, *, archive: Path | None = None, unsynced: bool = False
    ) -> None:
        self.partition = partition
        self._end = partition.written if unsynced else partition.visible
        self.offset = offset
        #: The first unread offset of the frame returned last; the frame may begin before it.
        self.since = offset
        self._archive = archive
        self._segment: Segment | None = None
        self._map: SegmentMap | None = None
        self._whole = False
        self._position = 0

    def frames(self, stop: int | None = None) -> Iterator[tuple[Header, pa.Buffer]]:
        """Frames up to the visible end, or up to offset `stop`, with verified checksums."""
        visible = self._end()
        end = visible.offset if stop is None else min(stop, visible.offset)
        if self._segment is None and self.offset == visible.offset:
            self._stand_at(visible.segment, visible.position)
        while self.offset < end or (
            stop is None and self._segment is not None and self._behind(visible.position, visible.segment)
        ):
            if self._segment is None:
                self._seek(visible)
            segment = self._segment
            if segment is None:
                return
            limit = limit_of(segment, visible)
            if limit is None and not self._map_whole(segment):
                continue
            yield from self._frames_of(segment, limit, end)
            if self._segment is None:
                continue  # it was sealed and rewritten in the meantime
            if limit is not None and self._position >= limit and self.offset < visible.offset:
                raise self._damaged(
                    segment,
                    f"its frames end at offset {self.offset}, but rows up to {visible.offset} were acknowledged",
                )
            if limit is not None or self.offset >= end:
                return
            self._segment = None

    def _stand_at(self, segment: int, position: int) -> None:
        """Start at the tail, so that a punctuation is read even if no row follows it."""
        for one in self.partition.segments():
            if one.base == segment and not one.rewritten:
                self._segment, self._map, self._whole, self._position = one, None, False, position

    def _behind(self, position: int, segment: int) -> bool:
        # Punctuations take no offset: there may be unread frames although all rows have been read.
        return self._segment is not None and self._segment.base == segment and self._position < position

    def _frames_of(self, segment: Segment, limit: int | None, end: int) -> Iterator[tuple[Header, pa.Buffer]]:
        try:
            buffer, start, stop = self._bytes_of(segment, limit)
        except FileNotFoundError:
            self._segment = None
            return
        view = memoryview(buffer)
        while self._position < stop:
            at = self._position - start
            header = read_header(view, at)
            if header is None and at + HEADER_BYTES > len(view):
                raise self._damaged(segment, f"the file ends here, but rows up to byte {stop} were acknowledged")
            if header is None:
                raise self._damaged(segment, "its header does not match its checksum")
            if header.offset_base > self.offset and not segment.rewritten:
                raise self._damaged(segment, f"it holds offset {header.offset_base} where {self.offset} was due")
            if header.offset_base >= end and header.kind != KIND_PUNCTUATION:
                self.offset = max(self.offset, end)  # compaction has removed the rows in between
                return
            if at + header.size > len(view):
                raise self._damaged(segment, "the file ends inside the frame")
            payload = buffer.slice(at + HEADER_BYTES, header.payload_size)
            if header.payload_size and not payload_is_whole(header, payload):
                raise self._damaged(segment, "its payload does not match its checksum")
            if self._map is not None:
                self._map.forget_before(self._position)
            self._position += header.size
            self.since, self.offset = self.offset, max(self.offset, header.offset_next)
            yield header, payload
        if limit is None:
            self.offset = max(self.offset, self._end_of(segment))

    def _map_whole(self, segment: Segment) -> bool:
        """Map a sealed segment to its end, since a mapping made while it grew is too short. False if it was rewritten."""
        if not self._whole:
            try:
                self._map = SegmentMap(segment.path)
            except FileNotFoundError:
                self._segment = None  # seek the rewritten one by offset
                return False
            self._whole = True
        return True

    def _bytes_of(self, segment: Segment, limit: int | None) -> tuple[pa.Buffer, int, int]:
        """Bytes of a segment, the position of the first byte, and the position to stop at."""
        if (
            limit is not None
            and limit - self._position <= SMALL_BYTES_MAX
            and (self._map is None or self._map.length < limit)
        ):
            file = self.partition.file(segment.base)
            data = os.pread(file.descriptor, limit - self._position, self._position)
            return pa.py_buffer(data), self._position, limit
        if self._map is None or (limit is not None and self._map.length < limit):
            self._map = SegmentMap(segment.path)
        return self._map.buffer, 0, limit if limit is not None else self._map.length

    def _seek(self, visible: Tail) -> None:
        """Find the segment and the frame of the offset, or the next ones after a gap that compaction left."""
        for _ in range(LISTINGS_MAX):
            chain = self._segments()
            start = chain[0].base if self._archive is not None and chain else self.partition.start()
            if self.offset < start:
                raise OffsetExpired(partition=self.partition.name, asked=self.offset, oldest=start)
            at = bisect_right(chain, self.offset, key=lambda segment: segment.base) - 1
            if at < 0 or (chain[at].offset_next or self.offset + 1) <= self.offset:
                os.sched_yield()
                continue  # no segment covers the offset
            segment = chain[at]
            try:
                self._map = SegmentMap(segment.path)
                limit = limit_of(segment, visible)
                self._whole = limit is None
            except FileNotFoundError:
                continue  # compaction or retention has removed it: list the folder again
            self._segment = segment
            self._position = SEGMENT_HEADER_BYTES
            if self.offset > segment.base:
                known = self._map.length if limit is None else limit
                self._position = self.partition.index_of(self._map, known).position_of(self.offset)
            return
        raise SegmentMissing(partition=self.partition.name, offset=self.offset)

    def _segments(self) -> list[Segment]:
        chain = self.partition.segments()
        if self._archive is None:
            return chain
        # After a power cut a segment that was being archived may be in both folders.
        return chain_of([*chain, *list_segments(self._archive)[0]])[0]

    def _end_of(self, segment: Segment) -> int:
        """The end offset of a sealed segment that was read to its last byte. Raise if rows of it are missing.

        A rewritten segment may end with a gap; its size was verified when it was mapped.
        """
        if segment.offset_next is not None:
            return segment.offset_next
        chain: list[Segment] = []
        at = 0
        for _ in range(LISTINGS_MAX):
            chain = self._segments()
            at = bisect_left(chain, segment.base, key=lambda one: one.base)
            if at == len(chain) or chain[at].path != segment.path:
                # It was rewritten or deleted in the meantime, perhaps together with the next ones: only its own rows
                # are known to be read.
                return self.offset
            if at + 1 < len(chain) and chain[at + 1].base <= self.offset:
                return self.offset
            os.sched_yield()
        if at + 1 == len(chain):
            raise SegmentMissing(partition=self.partition.name, offset=self.offset)
        raise self._damaged(
            segment, f"its frames end at offset {self.offset}, but the next segment begins at {chain[at + 1].base}"
        )

    def _damaged(self, segment: Segment, why: str) -> FrameCorrupt:
        return FrameCorrupt(path=str(segment.path), position=self._position, offset=self.offset, why=why)


def offset_at(partition: Partition, time_us: int, schema_of: Callable[[int], pa.Schema]) -> int:
    """The first offset appended at or after a time; the end if there is none yet."""
    while True:
        try:
            return _offset_at(partition, time_us, schema_of)
        except FileNotFoundError:
            continue  # compaction or retention has removed a segment: list the folder again


def _offset_at(partition: Partition, time_us: int, schema_of: Callable[[int], pa.Schema]) -> int:
    visible = partition.visible()
    chain = [segment for segment in partition.segments() if segment.base < visible.offset]
    # Search from the last segment whose first frame is older; append times never decrease.
    at = bisect_left(chain, time_us, key=_first_appended_at)
    for segment in chain[max(0, at - 1) :]:
        mapped = SegmentMap(segment.path)
        limit = limit_of(segment, visible) or mapped.length
        index = partition.index_of(mapped, limit)
        entries = index.entries
        found = bisect_left(entries, time_us, key=lambda entry: entry.appended_at_us)
        if found < len(entries):
            return max(_offset_in(mapped, entries[found].position, time_us, schema_of), partition.start())
        if index.position_next < limit:
            # The first row may be behind the damage: a later one must not be returned instead.
            offset = entries[-1].offset_next if entries else segment.base
            why = "its header does not match its checksum"
            raise FrameCorrupt(path=str(segment.path), position=index.position_next, offset=offset, why=why)
    return visible.offset


def _offset_in(mapped: SegmentMap, position: int, time_us: int, schema_of: Callable[[int], pa.Schema]) -> int:
    """The first row of a frame that was appended at or after a time; a coalesced frame holds rows of many times."""
    header = read_header(mapped.view, position)
    if header is None or not header.flags & FLAG_TIMES:
        return -1 if header is None else header.offset_base
    payload = mapped.buffer.slice(position + HEADER_BYTES, header.payload_size)
    if not payload_is_whole(header, payload):
        why = "its payload does not match its checksum"
        raise FrameCorrupt(path=str(mapped.path), position=position, offset=header.offset_base, why=why)
    rows = decode(payload, payload_schema(schema_of(header.schema_version), header.flags))
    row = int(np.searchsorted(np.asarray(rows.column("_appended_at").view(pa.int64())), time_us))
    if header.flags & FLAG_OFFSETS:
        return int(rows.column("_offset")[row].as_py())
    return header.offset_base + row


def _first_appended_at(segment: Segment) -> int:
    with segment.path.open("rb") as file:
        file.seek(SEGMENT_HEADER_BYTES)
        header = read_header(file.read(HEADER_BYTES), 0)
    return header.appended_at_us if header is not None else 2**63 - 1


def check_range(partition: Partition, offset: int, oldest: int, end: int) -> None:
    """Raise for an offset that retention has deleted, or that the partition has not reached yet."""
    if offset < oldest:
        raise OffsetExpired(partition=partition.name, asked=offset, oldest=oldest)
    if offset > end:
        raise OffsetAhead(partition=partition.name, asked=offset, end=end)
