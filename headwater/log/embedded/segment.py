"""A segment: a file of frames. Its name says which offsets it covers, so that a listing alone tells the whole chain.

- `<base>.log` was written by appends; it covers the offsets up to the next segment's base.
- `<base>-<next>.log` was written by compaction or coalescing and covers exactly [base, next). It supersedes every
  other segment whose base lies in that range: publishing it is one rename, unlinking the others may come any time.

So a partition has no hole: each segment ends where the next one begins. Offsets that are known to be lost (a repair,
or a power cut where nothing was promised) are covered by a rewritten segment without frames. Any other hole is damage.
How many bytes a rewritten segment has is said by its header, since its last frame may end before its range does.
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
from headwater.log.embedded.frame import HEADER_BYTES, Header, read_header, size_at
from headwater.log.errors import FormatUnknown, FrameCorrupt

MAGIC = b"HEADWATR"
FORMAT = 1
_HEADER = struct.Struct("<8sIIqqqQI8xI")
SEGMENT_HEADER_BYTES = _HEADER.size
SUFFIX = ".log"
#: Frames of idempotent producers were joined here: what they wrote stands in a producer index, and nowhere else.
FLAG_PRODUCERS = 1
#: A file without content whose name says at which offset retention has made a partition begin.
START_SUFFIX = ".start"
_NAME = re.compile(r"(\d{20})(?:-(\d{20}))?\.log")
_START_NAME = re.compile(r"(\d{20})\.start")


class Segment(NamedTuple):
    """A segment's place: `offset_next` is None where the name does not say it."""

    base: int
    offset_next: int | None
    path: Path

    @property
    def rewritten(self) -> bool:
        """Whether compaction or coalescing made it."""
        return self.offset_next is not None


class Told(NamedTuple):
    """What a segment's header says of the whole file. `size` is 0 where it says none: it was written by appends, or
    rewritten by a release that did not say it."""

    size: int = 0
    flags: int = 0


class Entry(NamedTuple):
    """One frame in a segment's index."""

    position: int
    offset_base: int
    offset_next: int
    appended_at_us: int


def segment_name(base: int, offset_next: int | None = None) -> str:
    name = f"{base:020d}" if offset_next is None else f"{base:020d}-{offset_next:020d}"
    return name + SUFFIX


def segment_path(folder: Path, base: int, offset_next: int | None = None) -> Path:
    return folder / segment_name(base, offset_next)


def list_segments(folder: Path) -> tuple[list[Segment], list[Segment]]:
    """The chain in order, and the segments that a rewritten one has superseded."""
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
    """The offsets at which retention has made a partition begin, by the files that say so; the last one counts."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(int(match.group(1)) for name in names if (match := _START_NAME.fullmatch(name)))


def chain_of(found: list[Segment]) -> tuple[list[Segment], list[Segment]]:
    """The chain that some segments make, and those of them that it does not need."""
    # Of two with one base, the one that covers more comes first, and a rewritten one before the original.
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
    """The header of a segment. `size` is that of the whole file, for a rewritten one: it does not grow any more."""
    body = _HEADER.pack(MAGIC, FORMAT, partition, base, created_us, topic, size, flags, 0)[:-4]
    return body + struct.pack("<I", crc32c(body))


def check_segment_header(path: Path, data: bytes) -> Told:
    """Raise where these first bytes are not a segment that this release reads; returns what they tell of it."""
    base = int(path.name[:20])
    if len(data) < SEGMENT_HEADER_BYTES or data[:8] != MAGIC:
        raise FrameCorrupt(path=str(path), position=0, offset=base, why="the segment's own header is missing")
    _, version, _, first, *_rest, size, flags, crc = _HEADER.unpack(data[:SEGMENT_HEADER_BYTES])
    if crc32c(data[: SEGMENT_HEADER_BYTES - 4]) != crc:
        raise FrameCorrupt(
            path=str(path), position=0, offset=base, why="the segment's own header does not match its sum"
        )
    if version != FORMAT:
        raise FormatUnknown(path=str(path), found=str(version), known=f"format {FORMAT}")
    if first != base:
        raise FrameCorrupt(
            path=str(path), position=0, offset=base, why=f"it is the segment that begins at offset {first}"
        )
    return Told(size, flags)


def check_segment_size(path: Path, size: int, told: int) -> None:
    """Raise where a rewritten segment does not have the size that its header tells."""
    if told and size != told:
        raise FrameCorrupt(
            path=str(path),
            position=min(size, told),
            offset=int(path.name[:20]),
            why=f"the file has {size} bytes, but was written with {told}",
        )


#: How often a file is looked at that changes its size between the look and its mapping.
_MAPS_MAX = 20


class SegmentMap:
    """A segment in memory, by mapping: frames are handed out without a copy.

    The mapping keeps the bytes alive after retention has unlinked the file, so that only a reader that comes later is
    told that they are gone.
    """

    def __init__(self, path: Path, *, length: int | None = None, checked: bool = True) -> None:
        descriptor = open_file(path, os.O_RDONLY)
        try:
            self.inode = os.fstat(descriptor).st_ino
            for look in range(_MAPS_MAX):
                size = os.fstat(descriptor).st_size
                self.length = size if length is None else min(length, size)
                if self.length < SEGMENT_HEADER_BYTES:
                    check_segment_header(path, os.pread(descriptor, SEGMENT_HEADER_BYTES, 0))
                try:
                    with storage_errors(path):  # a mapping keeps the file open
                        self._map = mmap.mmap(descriptor, self.length, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
                    break
                except ValueError:  # shorter by now: a writer has taken back what it had not published
                    if look == _MAPS_MAX - 1:
                        raise
        finally:
            os.close(descriptor)
        self.path = path
        self.buffer: pa.Buffer = pa.py_buffer(self._map)
        self.view = memoryview(self._map)
        self.flags = 0
        if checked:
            told = check_segment_header(path, bytes(self.view[:SEGMENT_HEADER_BYTES]))
            check_segment_size(path, size, told.size)
            self.flags = told.flags
        self._forgotten = 0

    def forget_before(self, position: int) -> None:
        """Give the pages before `position` back, so that a long scan does not fill this process's memory."""
        start, stop = self._forgotten, position // mmap.PAGESIZE * mmap.PAGESIZE
        if stop - start >= 8 * 1024 * 1024 and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)
            self._forgotten = stop


def walk(
    view: memoryview | bytes, *, position: int = SEGMENT_HEADER_BYTES, stop: int | None = None
) -> Iterator[tuple[int, Header]]:
    """The frames from `position` on, as long as their headers are whole. Payloads are not looked at."""
    end = len(view) if stop is None else stop
    while position + HEADER_BYTES <= end:
        header = read_header(view, position)
        if header is None or position + header.size > end:
            return
        yield position, header
        position += header.size


def frames_to(mapped: SegmentMap, segment: Segment, offset_next: int) -> Iterator[tuple[int, Header]]:
    """All frames of a sealed segment, which must lead to `offset_next`. Payloads are not looked at.

    Whoever writes a segment anew, or deletes it, decides by its frames: what is missing must stop that.
    """
    position, offset = SEGMENT_HEADER_BYTES, segment.base
    for position, header in walk(mapped.view):
        yield position, header
        position += header.size
        offset = header.offset_next
    check_end(segment, mapped.length, position=position, offset=offset, offset_next=offset_next)


def check_end(segment: Segment, length: int, *, position: int, offset: int, offset_next: int) -> None:
    """Raise where the frames of a sealed segment, read up to a position and an offset, are not all that it had."""
    why = ""
    if position < length:
        why = "its header does not match its sum"
    elif segment.offset_next is not None and segment.offset_next != offset_next:
        why = f"it covers the offsets up to {segment.offset_next}, but the next segment begins at {offset_next}"
        offset = segment.offset_next
    elif segment.offset_next is None and offset != offset_next:
        why = f"its frames end at offset {offset}, but the next segment begins at {offset_next}"
    if why:
        raise FrameCorrupt(path=str(segment.path), position=position, offset=offset, why=why)


def count_frames(view: memoryview | bytes) -> int:
    """About how many frames there are, by their sizes alone: ten times as fast as a walk, good enough for a guess."""
    count = 0
    position = SEGMENT_HEADER_BYTES
    while size := size_at(view, position):
        count += 1
        position += size
    return count


class SegmentIndex:
    """Where each frame of a segment is: rebuilt from the frames by whoever needs it, never stored, never trusted."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._next = SEGMENT_HEADER_BYTES

    def extend(self, view: memoryview | bytes, stop: int) -> None:
        for position, header in walk(view, position=self._next, stop=stop):
            self._entries.append(Entry(position, header.offset_base, header.offset_next, header.appended_at_us))
            self._next = position + header.size

    def position_of(self, offset: int) -> int:
        """Where to begin to read `offset`: the first frame that ends after it."""
        # Frames without rows (punctuations) stand before the frame of their own offset, so look for the first one
        # whose end lies beyond, and step back over those that begin there.
        at = bisect_right(self._entries, offset, key=lambda entry: entry.offset_next)
        while at > 0 and self._entries[at - 1].offset_base == offset and self._entries[at - 1].offset_next == offset:
            at -= 1
        return self._entries[at].position if at < len(self._entries) else self._next

    def entries(self) -> list[Entry]:
        return self._entries

    @property
    def position_next(self) -> int:
        """Behind the last frame that is whole."""
        return self._next
