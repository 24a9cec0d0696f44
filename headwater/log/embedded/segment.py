"""A segment: a file of frames. Its name has the offsets that it covers, so that a listing is enough to find the chain.

- `<base>.log` was written by appends; it covers the offsets up to the next segment's base.
- `<base>-<next>.log` was written by compaction or coalescing and covers exactly [base, next). It supersedes every
  other segment whose base is in that range: it is published by one rename, and the others are unlinked afterwards.

A partition has no hole: each segment ends where the next one begins. Offsets that are known to be lost (by a repair, or
by a power cut for a topic that never syncs) are covered by a rewritten segment without frames. Any other hole is damage.
The header of a rewritten segment has its size in bytes, since its last frame may end before its range does.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from google_crc32c import value as crc32c

from headwater.log.embedded.files import open_file, storage_errors
from headwater.log.errors import FormatUnknown, FrameCorrupt
from headwater.log.frame import HEADER_BYTES, Header, read_header, size_at

MAGIC = b"HEADWATR"
FORMAT = 1
_HEADER = struct.Struct("<8sIIqqqQI8xI")
SEGMENT_HEADER_BYTES = _HEADER.size
#: Frames of idempotent producers were joined: their sequences are only in a snapshot of producers.
FLAG_PRODUCERS = 1
#: An empty file whose name is the offset at which the partition begins after retention.
START_SUFFIX = ".start"
_NAME = re.compile(r"(\d{20})(?:-(\d{20}))?\.log")
_START_NAME = re.compile(r"(\d{20})\.start")


class Segment(NamedTuple):
    """A segment by its name: `offset_next` is None for one that was written by appends."""

    base: int
    offset_next: int | None
    path: Path

    @property
    def rewritten(self) -> bool:
        """Whether compaction or coalescing wrote it."""
        return self.offset_next is not None


class SegmentFacts(NamedTuple):
    """Facts of the header about the whole file. `size` is 0 for a segment written by appends, or by an early release."""

    size: int = 0
    flags: int = 0


class Entry(NamedTuple):
    """One frame in a segment's index."""

    position: int
    offset_base: int
    offset_next: int
    appended_at_us: int


def segment_path(folder: Path, base: int, offset_next: int | None = None) -> Path:
    return folder / (f"{base:020d}.log" if offset_next is None else f"{base:020d}-{offset_next:020d}.log")


def list_segments(folder: Path) -> tuple[list[Segment], list[Segment]]:
    """The chain of segments in order, and the superseded ones."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return [], []
    found = []
    for name in names:
        if match := _NAME.fullmatch(name):
            base, end = match.groups()
            found.append(Segment(int(base), int(end) if end else None, folder / name))
    return chain_of(found)


def start_path(folder: Path, offset: int) -> Path:
    return folder / f"{offset:020d}{START_SUFFIX}"


def recorded_starts(folder: Path) -> list[int]:
    """The offsets in the names of start files, sorted; the last one is valid."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(match.group(1)) for name in names if (match := _START_NAME.fullmatch(name)))


def chain_of(found: list[Segment]) -> tuple[list[Segment], list[Segment]]:
    """The chain of some segments, and those that are superseded."""
    # Of two with the same base, the one that covers more comes first, and a rewritten one before the original.
    found = sorted(found, key=lambda segment: (segment.base, -(segment.offset_next or -1)))
    chain: list[Segment] = []
    superseded: list[Segment] = []
    covered = -1
    for segment in found:
        if segment.base < covered or (chain and segment.base == chain[-1].base):
            superseded.append(segment)
            continue
        chain.append(segment)
        covered = segment.offset_next or -1
    return chain, superseded


def segment_header(*, partition: int, base: int, created_us: int, topic: int, size: int = 0, flags: int = 0) -> bytes:
    """The header of a segment. A rewritten one, which does not grow, has the `size` of the whole file."""
    body = _HEADER.pack(MAGIC, FORMAT, partition, base, created_us, topic, size, flags, 0)[:-4]
    return body + struct.pack("<I", crc32c(body))


def check_segment_header(path: Path, data: bytes) -> SegmentFacts:
    """Raise unless these first bytes are the header of a segment that this release reads; return its facts."""
    base = int(path.name[:20])
    if len(data) < SEGMENT_HEADER_BYTES or data[:8] != MAGIC:
        raise FrameCorrupt(path=str(path), position=0, offset=base, why="the segment's own header is missing")
    _, version, _, first, *_rest, size, flags, crc = _HEADER.unpack(data[:SEGMENT_HEADER_BYTES])
    if crc32c(data[: SEGMENT_HEADER_BYTES - 4]) != crc:
        raise FrameCorrupt(
            path=str(path), position=0, offset=base, why="the segment's own header does not match its checksum"
        )
    if version != FORMAT:
        raise FormatUnknown(path=str(path), found=str(version), known=f"format {FORMAT}")
    if first != base:
        raise FrameCorrupt(
            path=str(path), position=0, offset=base, why=f"it is the segment that begins at offset {first}"
        )
    return SegmentFacts(size, flags)


#: How often to map a file again whose size has changed between `fstat` and `mmap`.
_MAPS_MAX = 20


class SegmentMap:
    """A memory-mapped segment: frames are read without a copy.

    The mapping keeps the bytes readable after retention has unlinked the file.
    """

    def __init__(self, path: Path, *, length: int | None = None, checked: bool = True) -> None:
        descriptor = open_file(path, os.O_RDONLY)
        try:
            self.inode = os.fstat(descriptor).st_ino
            for attempt in range(_MAPS_MAX):
                size = os.fstat(descriptor).st_size
                self.length = size if length is None else min(length, size)
                if self.length < SEGMENT_HEADER_BYTES:
                    check_segment_header(path, os.pread(descriptor, SEGMENT_HEADER_BYTES, 0))
                try:
                    with storage_errors(path):  # a mapping keeps the file open
                        self._map = mmap.mmap(descriptor, self.length, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
                    break
                except ValueError:  # shorter by now: a writer has cut frames that were not published
                    if attempt == _MAPS_MAX - 1:
                        raise
        finally:
            os.close(descriptor)
        self.path = path
        self.buffer: pa.Buffer = pa.py_buffer(self._map)
        self.view = memoryview(self._map)
        self.flags = 0
        if checked:
            facts = check_segment_header(path, bytes(self.view[:SEGMENT_HEADER_BYTES]))
            if facts.size and size != facts.size:
                why = f"the file has {size} bytes, but was written with {facts.size}"
                position = min(size, facts.size)
                raise FrameCorrupt(path=str(path), position=position, offset=int(path.name[:20]), why=why)
            self.flags = facts.flags
        self._forgotten = 0

    def forget_before(self, position: int) -> None:
        """Release the pages before `position`, so that a long scan does not fill the memory of this process."""
        start, stop = self._forgotten, position // mmap.PAGESIZE * mmap.PAGESIZE
        if stop - start >= 8 * 1024 * 1024 and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)
            self._forgotten = stop


def walk(
    view: memoryview | bytes, *, position: int = SEGMENT_HEADER_BYTES, stop: int | None = None
) -> Iterator[tuple[int, Header]]:
    """The frames from `position` on, up to the first bad header. Payloads are not read."""
    end = len(view) if stop is None else stop
    while position + HEADER_BYTES <= end:
        header = read_header(view, position)
        if header is None or position + header.size > end:
            return
        yield position, header
        position += header.size


def frames_to(mapped: SegmentMap, segment: Segment, offset_next: int) -> Iterator[tuple[int, Header]]:
    """All frames of a sealed segment; raise unless they end at `offset_next`. Payloads are not read.

    Maintenance must not rewrite or delete a segment with missing frames.
    """
    position, offset = SEGMENT_HEADER_BYTES, segment.base
    for position, header in walk(mapped.view):
        yield position, header
        position += header.size
        offset = header.offset_next
    why = ""
    if position < mapped.length:
        why = "its header does not match its checksum"
    elif segment.offset_next is not None and segment.offset_next != offset_next:
        why = f"it covers the offsets up to {segment.offset_next}, but the next segment begins at {offset_next}"
        offset = segment.offset_next
    elif segment.offset_next is None and offset != offset_next:
        why = f"its frames end at offset {offset}, but the next segment begins at {offset_next}"
    if why:
        raise FrameCorrupt(path=str(segment.path), position=position, offset=offset, why=why)


def count_frames(view: memoryview | bytes) -> int:
    """The approximate number of frames, by their sizes alone: ten times as fast as `walk`."""
    count = 0
    position = SEGMENT_HEADER_BYTES
    while size := size_at(view, position):
        count += 1
        position += size
    return count


class SegmentIndex:
    """The positions and offsets of the frames of a segment. Built from the frames in memory, never stored."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        #: The position behind the last whole frame.
        self.position_next = SEGMENT_HEADER_BYTES

    def extend(self, view: memoryview | bytes, stop: int) -> None:
        for position, header in walk(view, position=self.position_next, stop=stop):
            self.entries.append(Entry(position, header.offset_base, header.offset_next, header.appended_at_us))
            self.position_next = position + header.size

    def position_of(self, offset: int) -> int:
        """The position of the first frame to read for `offset`."""
        # Find the first frame that ends behind the offset, and step back over the punctuations before it, which have the
        # same offset and no rows.
        at = bisect_right(self.entries, offset, key=lambda entry: entry.offset_next)
        while at > 0 and self.entries[at - 1].offset_base == offset and self.entries[at - 1].offset_next == offset:
            at -= 1
        return self.entries[at].position if at < len(self.entries) else self.position_next
