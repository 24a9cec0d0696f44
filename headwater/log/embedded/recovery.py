"""Recovery: find the end and the start of a partition, and restore them in the state file.

A process compares the recorded tail with the files when it first uses a partition: the last writer may have died, or the
state file may be an older copy.

Two rules decide what is kept. Bytes that were visible are never cut: damage there is corruption and raises
`FrameCorrupt`. Bytes behind them belong to calls that were never acknowledged: whole frames are kept; everything from
the first frame on that is torn, or whose transaction never committed, is copied to the quarantine and cut.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headwater.log.embedded.files import COPY_BYTES, make_folders, open_file, sync_folder
from headwater.log.embedded.producers import PartitionProducers
from headwater.log.embedded.segment import (
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentMap,
    check_segment_header,
    list_segments,
    recorded_starts,
)
from headwater.log.embedded.state import Tail, boot_mark
from headwater.log.errors import FrameCorrupt, SegmentMissing
from headwater.log.frame import (
    FLAG_MORE,
    FLAG_TRANSACTION,
    HEADER_BYTES,
    MAGIC,
    Header,
    payload_is_whole,
    read_header,
)

if TYPE_CHECKING:
    from headwater.log.embedded.partition import Partition

#: So much of a topic's name is in the names of its files in the quarantine: a name may have 255 bytes.
TOPIC_CHARACTERS_MAX = 100
#: How often a read-only process compares a tail with its file: a running writer changes both within microseconds.
TAIL_CHECKS_MAX = 20


class Scan(NamedTuple):
    """The end of the whole frames of a segment, and why they end there."""

    position: int
    offset: int
    appended_at_us: int
    why: str
    resumes: bool


def visible_end(partition: Partition, tail: Tail | None) -> Tail:
    """The end for readers, where the recorded `tail` was not compared with the files yet, or is missing or old."""
    if partition.read_only:
        return _visible_read_only(partition, tail)
    if tail is not None and tail.boot == boot_mark():
        return _visible_at_first_use(partition, tail)
    # After a power cut the recorded tails of two partitions may be of different ages. Each is recovered before it is used,
    # so that no transaction is visible in one partition and missing in the other.
    if not partition.folder.is_dir():
        if tail is not None and tail.offset > partition.start() and partition.synced:
            raise SegmentMissing(partition=partition.name, offset=partition.start())
        return _beginning(partition)
    with partition.append_lock:
        partition.check_alive()
        recover(partition)
    partition.tail_checked = True
    return partition.recorded() or _beginning(partition)


def _visible_at_first_use(partition: Partition, tail: Tail) -> Tail:
    """Compare the recorded tail with the files, and recover if they differ.

    Rows that a killed process left without a sync are synced here and not by the next append: a program that reads
    what there is before it appends must see every row that will stay.
    """
    written = partition.state.written(partition.number)
    differs = written is None or written.offset > tail.offset or not _is_end(partition, written)
    if partition.folder.is_dir() and differs:
        if not partition.append_lock.try_acquire():
            return tail  # the process that is appending compares them itself; the next call tries again
        try:
            partition.check_alive()
            end = partition.tail()
            if partition.synced:
                partition.sync_to(end.offset)
        except (FrameCorrupt, SegmentMissing):
            chain = partition.segments()
            if chain and chain[-1].base > tail.segment:
                raise
            # Acknowledged rows are missing: reading them raises; the other rows can be read.
        finally:
            partition.append_lock.release()
    partition.tail_checked = True
    return partition.recorded() or tail


def _visible_read_only(partition: Partition, tail: Tail | None) -> Tail:
    """The end for readers in a process that may not write: scan for it instead of recovering."""
    if tail is not None and tail.boot != boot_mark() and not partition.synced:
        tail = None  # these rows were never synced: a power cut may have lost them
    if not partition.tail_checked:
        if tail is None or tail.boot != boot_mark() or not _becomes_end(partition):
            partition.scanned_tail = _last_valid(partition, tail)
        partition.tail_checked = True
    ends = [end for end in (tail, partition.scanned_tail) if end is not None]
    return max(ends, key=lambda end: end.offset, default=_beginning(partition))


def _is_end(partition: Partition, written: Tail) -> bool:
    """Whether *written* is the end of the last segment."""
    chain = partition.segments()
    if not chain or chain[-1].base != written.segment or chain[-1].rewritten:
        return False
    try:
        return chain[-1].path.stat().st_size == written.position
    except FileNotFoundError:
        return False


def _becomes_end(partition: Partition) -> bool:
    for _ in range(TAIL_CHECKS_MAX):
        written = partition.state.written(partition.number)
        if written is not None and _is_end(partition, written):
            return True
        os.sched_yield()
    return False


def _beginning(partition: Partition) -> Tail:
    return Tail(0, partition.floor, SEGMENT_HEADER_BYTES, partition.floor, 0)


def recorded_start(partition: Partition) -> tuple[int, bool]:
    """The start that retention has recorded, and whether the state file has it too.

    If retention died between its two records, or the state file is an older copy, correct the state file. That is not
    possible in a read-only process, or while retention runs: then use its value, as other processes do.
    """
    state, number = partition.state, partition.number
    start, recorded = max([partition.floor, *recorded_starts(partition.folder)]), state.start(number)
    if start <= max(recorded or 0, partition.floor):
        return start, True
    if partition.read_only or not partition.maintenance_lock.try_acquire():
        return (start, True) if recorded is None else (recorded, False)
    try:
        in_folder = max(recorded_starts(partition.folder), default=0)
        if in_folder > (state.start(number) or 0):
            state.set_start(number, in_folder)
    finally:
        partition.maintenance_lock.release()
    return start, True


def recover(partition: Partition) -> Tail:
    """Move *written* and *visible* to the true end, and return it. The caller holds the append lock."""
    chain, superseded = list_segments(partition.folder)
    if superseded:
        sync_folder(partition.folder)  # the process that renamed the rewritten one may have died before it synced
    for segment in superseded:
        segment.path.unlink(missing_ok=True)
    if not chain:
        return _nothing_left(partition)
    known = _known_good(partition, chain)
    end = _scan_from(partition, chain, known)
    _check_acknowledged(partition, end)
    tail = _never_reuse(partition, end)
    PartitionProducers.forget_lost(partition.folder, end, tail, is_first=partition.start() == partition.floor)
    if partition.synced:
        partition.sync_segment(tail.segment)
        sync_folder(partition.folder)  # the process that created the segment may have died before it synced the folder
    partition.publish(tail)
    if partition.synced:
        partition.state.sync()  # so that after a power cut a bad frame behind it is torn, not damaged
    return tail


def _last_valid(partition: Partition, recorded: Tail | None) -> Tail | None:
    """The end that recovery would find, without writing anything: for processes that may not write."""
    chain, _ = list_segments(partition.folder)
    if not chain:
        return None
    segment = chain[-1]
    if recorded is not None and recorded.segment == segment.base and not segment.rewritten:
        if segment.path.stat().st_size <= recorded.position:
            return recorded
        position, offset, appended = recorded.position, recorded.offset, recorded.appended_at_us
    else:
        position, offset, appended = SEGMENT_HEADER_BYTES, segment.base, 0
    scan = scan_segment(partition, segment, position=position, offset=offset, appended_at_us=appended)
    end = scan.offset if segment.offset_next is None else max(scan.offset, segment.offset_next)
    return Tail(boot_mark(), segment.base, scan.position, end, scan.appended_at_us)


def scan_segment(
    partition: Partition, segment: Segment, *, position: int, offset: int, appended_at_us: int = 0
) -> Scan:
    """Verify the frames of a segment from a valid position up to the first one that is not whole."""
    if _never_began(partition, segment):
        return Scan(SEGMENT_HEADER_BYTES, offset, appended_at_us, "the segment never began", False)
    mapped = SegmentMap(segment.path)
    view, size = mapped.view, mapped.length
    why = ""
    whole = Scan(position, offset, appended_at_us, "", False)  # the end of the last complete append
    while position < size:
        header = read_header(view, position)
        if header is None or position + header.size > size:
            why = "a torn frame" if header is None or header.payload_size else "a frame cut short"
            position += 8
            break
        if not payload_is_whole(header, view[position + HEADER_BYTES : position + HEADER_BYTES + header.payload_size]):
            why = "the payload does not match its checksum"
            position += 8
            break
        if header.offset_base < offset or (header.offset_base != offset and not segment.rewritten):
            why = f"offset {header.offset_base} where {offset} was due"
            position += 8
            break
        if header.flags & FLAG_TRANSACTION and not partition.is_committed(header.transaction):
            why = "its transaction never committed"
            position = _behind_transaction(view, position, header.transaction)
            break
        position += header.size
        offset = header.offset_next
        appended_at_us = header.appended_at_us
        if not header.flags & FLAG_MORE:
            whole = Scan(position, offset, appended_at_us, "", False)
        mapped.forget_before(position)
    if not why and whole.position < position:
        why = "an append that was not finished"
    return whole._replace(why=why, resumes=bool(why) and next_frame(view, position) is not None)


def _behind_transaction(view: memoryview, position: int, transaction: int) -> int:
    """The position behind the frames of a transaction. Nothing follows them until the transaction is resolved."""
    header = read_header(view, position)
    while header is not None and header.transaction == transaction:
        position += header.size
        header = read_header(view, position)
    return position


def next_frame(view: memoryview, position: int) -> tuple[int, Header] | None:
    """The next whole frame at or after `position`. There is one behind damage in the middle, none behind a torn end."""
    position += -position % 8
    window = 1 << 20
    while position < len(view):
        chunk = bytes(view[position : position + window + len(MAGIC)])
        at = chunk.find(MAGIC)
        while 0 <= at < window:
            header = read_header(view, position + at) if at % 8 == 0 else None
            if header is not None and position + at + header.size <= len(view):
                start = position + at + HEADER_BYTES
                if payload_is_whole(header, view[start : start + header.payload_size]):
                    return position + at, header
            at = chunk.find(MAGIC, at + 1)
        position += window
    return None


def set_aside(partition: Partition, path: Path, position: int, *, why: str) -> Path | None:
    """Copy the bytes from `position` on to the quarantine, durably; return None if all of them are zero."""
    with path.open("rb") as file:
        file.seek(position)
        if not any(data.strip(b"\0") for data in iter(lambda: file.read(COPY_BYTES), b"")):
            return None
        file.seek(position)
        make_folders(partition.quarantine)
        reason = "".join(character if character.isalnum() else "-" for character in why)[:60]
        place = f"{partition.topic.name[:TOPIC_CHARACTERS_MAX]}-{partition.number}-{path.stem}-at-{position}"
        kept = partition.quarantine / f"{place}-{time.time_ns()}-{reason}.bytes"
        with open(kept, "wb", opener=open_file) as copy:
            shutil.copyfileobj(file, copy, COPY_BYTES)
            copy.flush()
            os.fsync(copy.fileno())  # before the original is cut
    sync_folder(partition.quarantine)
    return kept


def _known_good(partition: Partition, chain: list[Segment]) -> Tail | None:
    """The recorded position up to which the files need no scan; None if there is none."""
    written = partition.state.written(partition.number)
    if written is not None and written.boot == boot_mark():
        good: Tail | None = written  # no reboot since: what was written is still there
    elif partition.synced:
        good = partition.state.visible(partition.number)  # stored after the sync, so valid even after a power cut
    else:
        good = None
    if good is None:
        return None
    for segment in chain:
        if segment.offset_next is not None and segment.base <= good.segment < segment.offset_next:
            return None  # the position belongs to a file that was rewritten
        if segment.base == good.segment:
            size = segment.path.stat().st_size
            if size < good.position:
                raise FrameCorrupt(
                    path=str(segment.path),
                    position=size,
                    offset=good.offset,
                    why=f"the file ends at byte {size}, but rows up to byte {good.position} were acknowledged",
                )
            return good
    if good.position > SEGMENT_HEADER_BYTES and good.offset > partition.start():
        raise SegmentMissing(partition=partition.name, offset=good.segment)
    return None


def _check_acknowledged(partition: Partition, tail: Tail) -> None:
    """Raise if acknowledged rows lie behind the end that was found, and no power cut explains it."""
    written = partition.state.written(partition.number)
    visible = partition.state.visible(partition.number) if partition.synced else None
    recorded = written if written is not None and written.boot == boot_mark() else visible
    if recorded is not None and tail.offset < recorded.offset:
        raise SegmentMissing(partition=partition.name, offset=tail.offset)


def _scan_from(partition: Partition, chain: list[Segment], known: Tail | None) -> Tail:
    if known is None:
        # All but the last segment were synced when they were sealed, unless the topic never syncs.
        first = len(chain) - 1 if partition.synced else 0
        position, offset, appended = SEGMENT_HEADER_BYTES, chain[first].base, 0
    else:
        first = next(index for index, segment in enumerate(chain) if segment.base == known.segment)
        position, offset, appended = known.position, known.offset, known.appended_at_us
    loses_files = known is None and not partition.synced
    if loses_files and chain[0].base > partition.start():
        partition.create_gap(partition.start(), chain[0].base)
    for index in range(first, len(chain)):
        segment = chain[index]
        if index > first:
            if loses_files and offset < segment.base:
                partition.create_gap(offset, segment.base)  # a power cut may have lost a file that was never synced
            position, offset = SEGMENT_HEADER_BYTES, max(offset, segment.base)
        scan = scan_segment(partition, segment, position=position, offset=offset, appended_at_us=appended)
        position, offset, appended = scan.position, scan.offset, scan.appended_at_us
        if segment.offset_next is not None:
            offset = max(offset, segment.offset_next)
        last = index == len(chain) - 1
        if scan.why and partition.synced and ((scan.resumes and known is None) or not last):
            # A segment is synced before the next one is created. And if *visible* is lost, a bad frame with whole ones
            # behind it is damage, not a torn end.
            raise FrameCorrupt(path=str(segment.path), position=scan.position, offset=scan.offset, why=scan.why)
        if scan.why:
            _cut(partition, segment, scan)
            for later in chain[index + 1 :]:
                set_aside(partition, later.path, 0, why="behind-the-cut")
                later.path.unlink()
            break
    return Tail(boot_mark(), segment.base, position, offset, appended)


def _never_began(partition: Partition, segment: Segment) -> bool:
    """Whether a crash or a power cut came between the creation of the file and its header."""
    if segment.rewritten:
        return False  # it was complete before it was renamed
    size = segment.path.stat().st_size
    with segment.path.open("rb") as file:
        data = file.read(SEGMENT_HEADER_BYTES)
    if size < SEGMENT_HEADER_BYTES:
        return True
    try:
        check_segment_header(segment.path, data)
    except FrameCorrupt:
        if partition.synced and size > SEGMENT_HEADER_BYTES:
            raise  # the header was synced before the first frame was written
        return True
    return False


def _cut(partition: Partition, segment: Segment, scan: Scan) -> None:
    if _never_began(partition, segment):
        set_aside(partition, segment.path, 0, why=scan.why)
        partition.create_segment(segment.base)
        return
    set_aside(partition, segment.path, scan.position, why=scan.why)
    with segment.path.open("r+b") as file:
        file.truncate(scan.position)
        os.fdatasync(file.fileno())


def _never_reuse(partition: Partition, tail: Tail) -> Tail:
    """Continue behind every offset that readers may have seen, also if a power cut lost its rows (`os` topics)."""
    seen = [
        record.offset
        for record in (partition.state.written(partition.number), partition.state.visible(partition.number))
        if record is not None and (not partition.synced or record.boot == boot_mark())
    ]
    offset = max([tail.offset, partition.floor, *([] if partition.synced else seen)])
    rewritten = any(
        segment.base == tail.segment and segment.rewritten for segment in list_segments(partition.folder)[0]
    )
    if offset == tail.offset and not rewritten:
        return tail
    if offset > tail.offset:
        partition.create_gap(tail.offset, offset)
    partition.create_segment(offset)
    return Tail(boot_mark(), offset, SEGMENT_HEADER_BYTES, offset, tail.appended_at_us)


def _nothing_left(partition: Partition) -> Tail:
    """Recover a partition without segments: it is new, or its files are missing."""
    state = partition.state
    known = state.visible(partition.number) if partition.synced else state.written(partition.number)
    start = first = partition.start()
    if known is not None and known.offset > start:
        if partition.synced or known.boot == boot_mark():
            raise SegmentMissing(partition=partition.name, offset=known.offset)
        # A power cut lost files that were never synced.
        partition.create_gap(start, known.offset)
        start = known.offset
    if partition.synced:
        # The process that created these folders may have died before it synced their parents.
        sync_folder(partition.folder.parent.parent)
        sync_folder(partition.folder.parent)
    partition.create_segment(start)
    tail = Tail(boot_mark(), start, SEGMENT_HEADER_BYTES, start, 0)
    end = tail._replace(segment=first, offset=first)
    PartitionProducers.forget_lost(partition.folder, end, tail, is_first=first == partition.floor)
    partition.publish(tail)
    if partition.synced:
        partition.state.sync()
    return tail
