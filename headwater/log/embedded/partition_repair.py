"""Verify and repair one partition: its segments, frames and snapshots of producers."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.log.embedded import recovery
from headwater.log.embedded.files import open_file, sync_folder
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.producers import PartitionProducers, read_snapshot
from headwater.log.embedded.segment import (
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentFacts,
    SegmentMap,
    check_segment_header,
    list_segments,
    segment_path,
)
from headwater.log.embedded.state import Tail, boot_mark
from headwater.log.errors import CommitLogCorrupt, FileCorrupt, FormatUnknown, FrameCorrupt, SegmentMissing
from headwater.log.frame import FLAG_TRANSACTION, HEADER_BYTES, Header, payload_is_whole, read_header

if TYPE_CHECKING:
    from headwater.log.embedded.repair import Inspection

SET_ASIDE = "set aside in the quarantine"


class PartitionInspection:
    """Checks one partition, and repairs it if the inspection repairs."""

    def __init__(self, inspection: Inspection, partition: Partition, versions: set[int]) -> None:
        """`versions` are the known versions of the topic's schema; unknown ones are added when they are reported."""
        self._inspection = inspection
        self._report = inspection.report
        self._partition = partition
        self._versions = versions

    def run(self) -> None:
        partition = self._partition
        if not partition.folder.is_dir():
            visible = self._visible()
            if visible is None or visible.offset <= partition.start():
                return
            if self._inspection.repairs:  # the folder with acknowledged rows is missing
                partition.make()
        self._report.partitions += 1
        if partition.read_only or not partition.folder.is_dir():
            self._check()
            return
        with partition.maintenance_lock:  # no segment may be deleted or rewritten meanwhile
            self._check()

    def _check(self) -> None:
        self._check_leftovers()
        self._check_snapshots()
        chain = self._partition.segments()
        visible = self._visible()
        ends = []
        for index, segment in enumerate(chain):
            following = chain[index + 1].base if index + 1 < len(chain) else None
            ends.append(self._check_segment(segment, visible, following))
        due = self._partition.start()
        for segment, end in zip(chain, ends, strict=True):
            if due < segment.base:
                self._add_hole(due, segment.base, last=False)
            due = max(due, end)
        if visible is not None and due < visible.offset:
            self._add_hole(due, visible.offset, last=True)
        if self._inspection.repairs:
            self._recover()

    def _visible(self) -> Tail | None:
        """The end of the acknowledged rows; None if it is not known."""
        recorded = self._partition.recorded()
        if recorded is not None and not self._partition.synced and recorded.boot != boot_mark():
            return None  # rows that were never synced may be lost after a power cut
        return recorded

    def _add(
        self,
        path: Path,
        *,
        kind: str,
        why: str,
        action: str = "",
        position: int = -1,
        offset: int = -1,
        offset_next: int = -1,
    ) -> None:
        with contextlib.suppress(ValueError):  # a topic in memory is outside of the log's folder
            path = path.relative_to(self._inspection.log.path)
        self._inspection.add(
            path=str(path),
            topic=self._partition.topic.name,
            partition=self._partition.number,
            position=position,
            offset=offset,
            offset_next=offset_next,
            kind=kind,
            why=why,
            action=action,
        )

    def _add_hole(self, offset: int, offset_next: int, *, last: bool) -> None:
        """Report offsets between the recorded start and the acknowledged end that no segment covers."""
        partition = self._partition
        why = f"no segment holds the offsets from {offset} to {offset_next - 1}: a file was cut, or is gone"
        skip = partial(partition.skip, offset, offset_next, last=last)
        action = self._inspection.action("skipped by readers", skip)
        self._add(partition.folder, offset=offset, offset_next=offset_next, kind="missing rows", why=why, action=action)

    def _check_leftovers(self) -> None:
        _, superseded = list_segments(self._partition.folder)
        for path in [segment.path for segment in superseded] + sorted(self._partition.folder.glob(".*.tmp")):
            action = self._inspection.action("removed", partial(path.unlink, missing_ok=True))
            why = "the process of a rewrite died before it removed this file"
            self._add(path, kind="leftover of a rewrite", why=why, action=action)

    def _check_snapshots(self) -> None:
        folder = self._partition.folder
        for path in sorted(folder.glob("*.producers")):
            if read_snapshot(path) is None and path.exists():
                why = "it does not match its checksum; a batch that a producer retries may be appended twice"
                action = self._inspection.action("removed", partial(path.unlink, missing_ok=True))
                self._add(path, kind="damaged producer index", why=why, action=action)
        tail = self._visible()
        if tail is None:
            return  # recovery corrects the snapshots together with the tail

        def rebuild() -> None:
            known = PartitionProducers(folder, complete=False)
            known.catch_up(tail)
            known.save(tail.segment)

        try:
            PartitionProducers(folder).catch_up(tail)
        except FileCorrupt as error:
            action = self._inspection.action("rebuilt from the frames that are left", rebuild)
            self._add(Path(error.path), kind="missing producer index", why=error.why, action=action)
        except (FrameCorrupt, FormatUnknown, FileNotFoundError):
            return  # a segment is damaged, which is reported by itself

    # -- segments -----------------------------------------------------------------------------------------------------

    def _check_segment(self, segment: Segment, visible: Tail | None, following: int | None) -> int:
        """Check one segment; return its end offset, including rows whose loss has been reported."""
        self._report.segments += 1
        # The offset at which it must end, without reading its frames.
        due = segment.offset_next if segment.offset_next is not None else following
        if due is None:
            due = max(segment.base, visible.offset if visible is not None else 0)
        size = segment.path.stat().st_size
        facts = SegmentFacts()
        try:
            with segment.path.open("rb") as file:
                facts = check_segment_header(segment.path, file.read(SEGMENT_HEADER_BYTES))
        except FormatUnknown as error:
            self._add(segment.path, kind="unknown format", why=str(error))
            return due
        except FrameCorrupt as error:
            is_unused = size <= SEGMENT_HEADER_BYTES and following is None and not segment.rewritten
            is_unused = is_unused and (visible is None or visible.segment != segment.base)
            kind = "unused segment" if is_unused else "damaged segment header"
            action = self._inspection.action("replaced", partial(self._replace_header, segment, size))
            self._add(segment.path, position=0, kind=kind, why=error.why, action=action)
            if size < SEGMENT_HEADER_BYTES:
                if segment.rewritten:
                    why = "the file has lost all of its frames"
                    self._add(segment.path, offset=segment.base, offset_next=due, kind="missing rows", why=why)
                return due if segment.rewritten else segment.base
        # All of a sealed segment was acknowledged.
        is_active = following is None and visible is not None and visible.segment == segment.base
        is_damaged, end = self._check_frames(segment, visible.position if is_active and visible else None, due)
        if facts.size and size != facts.size:
            is_damaged = True
            why = f"the file has {size} bytes, but was written with {facts.size}"
            lost = size < facts.size and end < due
            self._add(
                segment.path,
                position=min(size, facts.size),
                offset=end if lost else -1,
                offset_next=due if lost else -1,
                kind="damaged segment",
                why=f"{why}; rows from offset {end} to {due - 1} may be lost" if lost else why,
                action=self._inspection.action(SET_ASIDE),
            )
        if is_damaged and self._inspection.repairs:
            self._set_frames_aside(segment, facts.flags)
        return due if segment.rewritten else end

    def _replace_header(self, segment: Segment, size: int) -> None:
        size = max(size, SEGMENT_HEADER_BYTES) if segment.rewritten else 0
        with segment.path.open("r+b") as file:
            file.write(self._partition.segment_header(segment.base, size=size))
            os.fsync(file.fileno())

    def _check_frames(self, segment: Segment, limit: int | None, due: int) -> tuple[bool, int]:
        """Check the frames of a segment; return whether some must be set aside, and its end offset.

        Frames from byte `limit` on were not acknowledged.
        """
        is_damaged = False
        mapped = SegmentMap(segment.path, checked=False)
        view = mapped.view
        position, offset = SEGMENT_HEADER_BYTES, segment.base
        acknowledged = mapped.length if limit is None else limit
        self._inspection.count_bytes(SEGMENT_HEADER_BYTES)
        while position < mapped.length:
            header = read_header(view, position)
            why = _why_not_whole(view, position, header)
            if not why and header is not None:
                wrong, is_misplaced = self._why_wrong(segment, header, offset)
                if wrong and position >= acknowledged:
                    self._add_torn(segment, position, offset, wrong)
                    break
                if wrong:
                    is_damaged = is_damaged or is_misplaced
                    self._add(
                        segment.path,
                        position=position,
                        offset=offset,
                        offset_next=max(header.offset_base, offset),
                        kind="misplaced frame",
                        why=wrong,
                        action=self._inspection.action(SET_ASIDE) if is_misplaced else "",
                    )
                self._check_version(header)
                self._report.frames += 1
                self._report.rows += header.rows
                self._inspection.count_bytes(header.size)
                position += header.size
                offset = max(offset, header.offset_next)
                mapped.forget_before(position)
                continue
            following = recovery.next_frame(view, position + 8)
            if position >= acknowledged or (following is None and limit is None and self._may_be_torn(segment)):
                self._add_torn(segment, position, offset, why)
                break
            end, offset_end = (mapped.length, due) if following is None else (following[0], following[1].offset_base)
            lost = f"offsets {offset} to {offset_end - 1}" if offset_end > offset else "no offsets"
            is_damaged = True
            self._add(
                segment.path,
                position=position,
                offset=offset,
                offset_next=max(offset, offset_end),
                kind="damaged frame",
                why=f"{why}; {lost} cannot be read ({end - position} bytes)",
                action=self._inspection.action(SET_ASIDE),
            )
            position, offset = end, max(offset, offset_end)
        return is_damaged, offset

    def _why_wrong(self, segment: Segment, header: Header, offset: int) -> tuple[str, bool]:
        """Why a whole frame must not be at this position, and whether it must be set aside."""
        with contextlib.suppress(CommitLogCorrupt):  # a finding of its own
            if header.flags & FLAG_TRANSACTION and not self._partition.is_committed(header.transaction):
                return "its transaction never committed", False
        if header.offset_base < offset or (header.offset_base > offset and not segment.rewritten):
            return f"it holds offset {header.offset_base} where {offset} was due", True
        return "", False

    def _check_version(self, header: Header) -> None:
        if header.rows and header.schema_version not in self._versions:
            self._versions.add(header.schema_version)
            name = self._partition.topic.name
            why = f"rows were written with schema version {header.schema_version}, which it does not have"
            self._inspection.add(path=f"topics/{name}/topic.json", topic=name, kind="topic unreadable", why=why)

    def _add_torn(self, segment: Segment, position: int, offset: int, why: str) -> None:
        why = f"{why}; nothing from here on was acknowledged"
        action = self._inspection.action("cut by recovery")
        self._add(segment.path, position=position, offset=offset, kind="torn end", why=why, action=action)

    def _may_be_torn(self, segment: Segment) -> bool:
        """Whether this is the last segment and its tail is not recorded, so that its end may not be acknowledged."""
        return self._partition.segments()[-1].base == segment.base and self._partition.recorded() is None

    # -- repair -------------------------------------------------------------------------------------------------------

    def _set_frames_aside(self, segment: Segment, flags: int) -> None:
        """Rewrite a segment without its damaged frames; copy the old one to the quarantine."""
        partition = self._partition
        recovery.set_aside(partition, segment.path, 0, why="damaged frames")
        later = [other.base for other in partition.segments() if other.base > segment.base]
        with partition.append_lock:
            _without_damage(partition, segment, min(later, default=None), flags)

    def _recover(self) -> None:
        partition = self._partition
        try:
            with partition.append_lock:
                recovery.recover(partition)
        except (FrameCorrupt, SegmentMissing) as error:
            # Acknowledged rows are missing, which has been reported. Continue behind them.
            known = self._visible()
            with partition.append_lock:
                partition.forget_tails()
                tail = recovery.recover(partition)
            end = tail.offset
            if known is not None and known.offset > end:
                end = known.offset
                partition.skip(tail.offset, end, last=True)
            self._add(
                partition.folder,
                offset=tail.offset,
                offset_next=end,
                kind="acknowledged rows lost",
                why=error.filled(error.problem),
                action=f"the partition continues at offset {end}",
            )


def _why_not_whole(view: memoryview, position: int, header: Header | None) -> str:
    if header is None:
        return "the header does not match its checksum"
    if position + header.size > len(view):
        return "the file ends inside the frame"
    start = position + HEADER_BYTES
    if not payload_is_whole(header, view[start : start + header.payload_size]):
        return "the payload does not match its checksum"
    return ""


def _without_damage(partition: Partition, segment: Segment, following: int | None, flags: int) -> None:
    """Publish a copy of the segment with only its whole frames, under a name with the offsets that it covers."""
    view = SegmentMap(segment.path, checked=False).view
    position, end = SEGMENT_HEADER_BYTES, segment.base
    temporary = segment.path.with_name(f".{segment.path.name}.repair.tmp")
    with open(temporary, "wb", opener=open_file) as file:
        file.write(bytes(SEGMENT_HEADER_BYTES))
        while position < len(view):
            header = read_header(view, position)
            if _why_not_whole(view, position, header) or header is None:
                next_frame = recovery.next_frame(view, position + 8)
                if next_frame is None:
                    break
                position = next_frame[0]
                continue
            if header.offset_base >= end:  # otherwise it is a duplicate
                file.write(view[position : position + header.size])
                end = header.offset_next
            position += header.size
        size = file.tell()
        file.seek(0)
        file.write(partition.segment_header(segment.base, size=size, flags=flags))
        file.flush()
        os.fsync(file.fileno())
    visible = partition.recorded()
    bound = segment.offset_next if segment.offset_next is not None else following
    is_last = bound is None
    if bound is None:
        bound = max(end, visible.offset if visible is not None else end)
    target = segment_path(partition.folder, segment.base, bound)
    os.replace(temporary, target)
    sync_folder(partition.folder)
    if target != segment.path:
        segment.path.unlink()
        sync_folder(partition.folder)
    if is_last:
        # It was the last one: appends continue in a new segment.
        partition.create_segment(bound)
        partition.publish(Tail(boot_mark(), bound, SEGMENT_HEADER_BYTES, bound, 0))
