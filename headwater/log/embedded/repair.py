"""Verify and repair a log: check every frame, report each defect, and repair what can be repaired without further loss.

`verify` changes nothing. `repair` recovers partitions, cuts torn ends, removes leftovers of dead processes, and moves
damaged frames to the quarantine, so that the rows around them can be read again. It never hides a loss: each finding
names the file, the byte, the offsets and what was done.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headwater.errors import HeadwaterError
from headwater.log.embedded import commit_repair, recovery
from headwater.log.embedded.files import make_folders, open_file, sync_folder
from headwater.log.embedded.frame import FLAG_TRANSACTION, HEADER_BYTES, Header, payload_is_whole, read_header
from headwater.log.embedded.log import EmbeddedLog, local_log
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.producers import PartitionProducers, Registry, read_snapshot
from headwater.log.embedded.segment import (
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentFacts,
    SegmentMap,
    check_segment_header,
    list_segments,
    segment_header,
    segment_path,
)
from headwater.log.embedded.state import Tail, boot_mark
from headwater.log.errors import CommitLogCorrupt, FileCorrupt, FormatUnknown, FrameCorrupt, ReadOnly, SegmentMissing
from headwater.log.port import Log

Progress = Callable[[int, int], None]

SET_ASIDE = "set aside in the quarantine"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One defect, where it is, and what was (or would be) done about it."""

    path: str
    topic: str = ""
    partition: int = -1
    position: int = -1
    offset: int = -1
    #: If rows are lost, the first offset behind them.
    offset_next: int = -1
    kind: str
    why: str
    action: str = ""

    def __str__(self) -> str:
        where = f"{self.path} at byte {self.position}" if self.position >= 0 else self.path
        return f"{self.kind}: {where}: {self.why}" + (f" → {self.action}" if self.action else "")


@dataclass
class Report:
    """How much was checked, and the findings."""

    findings: list[Finding] = field(default_factory=list)
    topics: int = 0
    partitions: int = 0
    segments: int = 0
    frames: int = 0
    rows: int = 0
    bytes: int = 0

    @property
    def ok(self) -> bool:
        return not self.findings


def verify(log: Log, topic: str | None = None, *, progress: Progress | None = None) -> Report:
    """Check every frame of every segment, or of one topic's. Changes nothing."""
    return _Inspection(local_log(log), topic, progress, repair=False, dry_run=True).run()


def repair(log: Log, topic: str | None = None, *, dry_run: bool = False, progress: Progress | None = None) -> Report:
    """Repair what can be repaired; with `dry_run` only report what would be done."""
    if log.read_only and not dry_run:
        raise ReadOnly(path=log.address)
    return _Inspection(local_log(log), topic, progress, repair=True, dry_run=dry_run).run()


class _Inspection:
    def __init__(
        self, log: EmbeddedLog, topic: str | None, progress: Progress | None, *, repair: bool, dry_run: bool
    ) -> None:
        self._log = log
        self._topic = topic
        self._progress = progress
        #: Whether findings have actions, and whether these are done.
        self._has_actions = repair
        self._repairs = repair and not dry_run
        self._report = Report()
        self._total = 0
        self._name = ""
        self._versions: set[int] = set()

    def run(self) -> Report:
        names = self._names()
        self._total = sum(self._size_of(name) for name in names)
        if self._topic is None:
            self._leftovers()
            self._producers()
            self._commit_log()
        for name in names:
            self._report.topics += 1
            self._name = name
            try:
                handle = self._log.handle(name)
                partitions = handle.partitions()
                self._versions = set(handle.schemas)
            except (HeadwaterError, ValueError, KeyError) as error:
                if not self._folder(name).exists():
                    continue  # opening it has finished a deletion whose process died
                self._found(Finding(path=str(self._folder(name)), topic=name, kind="topic unreadable", why=str(error)))
                continue
            for partition in partitions:
                if partition.folder.is_dir() or self._has_lost_its_folder(partition):
                    self._report.partitions += 1
                    self._partition(partition)
        return self._report

    def _names(self) -> list[str]:
        if self._topic is not None:
            return [self._log.topic(self._topic).name]
        return self._log.topics(internal=True)

    def _folder(self, name: str) -> Path:
        return self._log.path / "topics" / name

    def _size_of(self, name: str) -> int:
        size = 0
        for path in self._folder(name).glob("*/*.log"):
            with contextlib.suppress(FileNotFoundError):  # removed or rewritten in the meantime
                size += path.stat().st_size
        return size

    def _found(self, finding: Finding) -> None:
        self._report.findings.append(finding)

    def _leftovers(self) -> None:
        for folder in self._log.catalogue().leftovers():
            action = self._action("removed", partial(shutil.rmtree, folder))
            self._found(Finding(path=str(folder), kind="half-made topic", why="its process died", action=action))

    def _producers(self) -> None:
        registry = Registry(self._log.path / "producers")
        for name in registry.names():
            try:
                registry.epoch(name)
            except FileCorrupt as error:
                self._found(Finding(path=error.path, kind="damaged producer", why=error.why))

    def _has_lost_its_folder(self, partition: Partition) -> bool:
        visible = self._visible(partition)
        if visible is None or visible.offset <= partition.start():
            return False
        if self._repairs:
            partition.make()
        return True

    def _commit_log(self) -> None:
        for finding in commit_repair.inspect(self._log, repair=self._has_actions, dry_run=not self._repairs):
            self._found(Finding(**finding._asdict()))

    def _action(self, what: str, act: Callable[[], object]) -> str:
        if not self._has_actions:
            return ""
        if not self._repairs:
            return f"would be {what}"
        act()
        return what

    def _partition(self, partition: Partition) -> None:
        if self._log.read_only or not partition.folder.is_dir():
            self._inspect(partition)
            return
        with partition.maintenance_lock:  # no segment may be deleted or rewritten meanwhile
            self._inspect(partition)

    def _inspect(self, partition: Partition) -> None:
        self._rewrite_leftovers(partition)
        self._snapshots(partition)
        chain, _ = list_segments(partition.folder)
        visible = self._visible(partition)
        ends = []
        for index, segment in enumerate(chain):
            following = chain[index + 1].base if index + 1 < len(chain) else None
            ends.append(self._segment(partition, segment, visible, following))
        self._holes(partition, [segment.base for segment in chain], ends, visible)
        if self._repairs:
            self._recover(partition)

    def _visible(self, partition: Partition) -> Tail | None:
        """The end of the acknowledged rows; None if it is not known."""
        recorded = partition.recorded()
        if recorded is not None and not partition.synced and recorded.boot != boot_mark():
            return None  # rows that were never synced may be lost after a power cut
        return recorded

    def _snapshots(self, partition: Partition) -> None:
        for path in sorted(partition.folder.glob("*.producers")):
            if read_snapshot(path) is None and path.exists():
                why = "it does not match its checksum; a batch that a producer retries may be appended twice"
                action = self._action("removed", partial(path.unlink, missing_ok=True))
                self._found(self._finding(partition, path, kind="damaged producer index", why=why, action=action))
        tail = partition.recorded()
        if tail is None:
            return
        try:
            PartitionProducers(partition.folder).catch_up(tail)
        except FileCorrupt as error:
            action = self._action("rebuilt from the frames that are left", partial(_save_producers, partition, tail))
            self._found(
                self._finding(partition, Path(error.path), kind="missing producer index", why=error.why, action=action)
            )
        except (FrameCorrupt, FormatUnknown, FileNotFoundError):
            return  # a segment is damaged, which is reported below

    def _rewrite_leftovers(self, partition: Partition) -> None:
        _, superseded = list_segments(partition.folder)
        for path in [segment.path for segment in superseded] + sorted(partition.folder.glob(".*.tmp")):
            action = self._action("removed", partial(path.unlink, missing_ok=True))
            why = "the process of a rewrite died before it removed this file"
            self._found(self._finding(partition, path, kind="leftover of a rewrite", why=why, action=action))

    def _segment(self, partition: Partition, segment: Segment, visible: Tail | None, following: int | None) -> int:
        """Check one segment; return its end offset, including rows whose loss has been reported."""
        self._report.segments += 1
        due = self._due(segment, visible, following)
        size = segment.path.stat().st_size
        facts = SegmentFacts()
        try:
            with segment.path.open("rb") as file:
                facts = check_segment_header(segment.path, file.read(SEGMENT_HEADER_BYTES))
        except FormatUnknown as error:
            self._found(self._finding(partition, segment.path, kind="unknown format", why=str(error)))
            return due
        except FrameCorrupt as error:
            self._segment_header(partition, segment, error, visible, following)
            if size < SEGMENT_HEADER_BYTES:
                if segment.rewritten:
                    self._lost(partition, segment.path, segment.base, due, "the file has lost all of its frames")
                return due if segment.rewritten else segment.base
        # All of a sealed segment was acknowledged.
        limit = (
            None if following is not None or visible is None or visible.segment != segment.base else visible.position
        )
        damaged, end = self._damaged(partition, segment, limit, due)
        if facts.size and size != facts.size:
            damaged.append(self._resized(partition, segment, size, facts.size, end, due))
        if self._repairs and any(finding.action == SET_ASIDE for finding in damaged):
            self._set_frames_aside(partition, segment, facts.flags)
        for finding in damaged:
            self._found(finding)
        return due if segment.rewritten else end

    @staticmethod
    def _due(segment: Segment, visible: Tail | None, following: int | None) -> int:
        """The offset at which a segment must end, without reading its frames."""
        if segment.offset_next is not None:
            return segment.offset_next
        if following is not None:
            return following
        return max(segment.base, visible.offset if visible is not None else 0)

    def _segment_header(
        self,
        partition: Partition,
        segment: Segment,
        error: FrameCorrupt,
        visible: Tail | None,
        following: int | None,
    ) -> None:
        size = segment.path.stat().st_size
        is_unused = size <= SEGMENT_HEADER_BYTES and following is None and not segment.rewritten
        is_unused = is_unused and (visible is None or visible.segment != segment.base)
        kind = "unused segment" if is_unused else "damaged segment header"

        def write() -> None:
            header = _header_of(partition, segment, max(size, SEGMENT_HEADER_BYTES) if segment.rewritten else 0)
            with segment.path.open("r+b") as file:
                file.write(header)
                os.fsync(file.fileno())

        action = self._action("replaced", write)
        self._found(self._finding(partition, segment.path, position=0, kind=kind, why=error.why, action=action))

    def _resized(self, partition: Partition, segment: Segment, size: int, expected: int, end: int, due: int) -> Finding:
        why = f"the file has {size} bytes, but was written with {expected}"
        lost = size < expected and end < due
        return self._finding(
            partition,
            segment.path,
            position=min(size, expected),
            offset=end if lost else -1,
            offset_next=due if lost else -1,
            kind="damaged segment",
            why=f"{why}; rows from offset {end} to {due - 1} may be lost" if lost else why,
            action=self._action(SET_ASIDE, lambda: None),
        )

    def _damaged(
        self, partition: Partition, segment: Segment, limit: int | None, due: int
    ) -> tuple[list[Finding], int]:
        """The damaged places of a segment with the rows that are lost there, and its end offset."""
        findings: list[Finding] = []
        mapped = SegmentMap(segment.path, checked=False)
        view = mapped.view
        position, offset = SEGMENT_HEADER_BYTES, segment.base
        acknowledged = mapped.length if limit is None else limit
        self._step(SEGMENT_HEADER_BYTES)
        while position < mapped.length:
            header = read_header(view, position)
            why = _why_not_whole(view, position, header)
            if not why and header is not None:
                wrong, action = self._misplaced(partition, segment, header, offset)
                if wrong and position >= acknowledged:
                    findings.append(self._torn(partition, segment, position, offset, wrong))
                    break
                if wrong:
                    findings.append(
                        self._finding(
                            partition,
                            segment.path,
                            position=position,
                            offset=offset,
                            offset_next=max(header.offset_base, offset),
                            kind="misplaced frame",
                            why=wrong,
                            action=self._action(action, lambda: None) if action else "",
                        )
                    )
                self._schema_version(header)
                self._report.frames += 1
                self._report.rows += header.rows
                self._step(header.size)
                position += header.size
                offset = max(offset, header.offset_next)
                mapped.forget_before(position)
                continue
            following = recovery.next_frame(view, position + 8)
            if position >= acknowledged or (
                following is None and limit is None and self._may_be_torn(partition, segment)
            ):
                findings.append(self._torn(partition, segment, position, offset, why))
                break
            end, offset_end = (mapped.length, due) if following is None else (following[0], following[1].offset_base)
            lost = f"offsets {offset} to {offset_end - 1}" if offset_end > offset else "no offsets"
            findings.append(
                self._finding(
                    partition,
                    segment.path,
                    position=position,
                    offset=offset,
                    offset_next=max(offset, offset_end),
                    kind="damaged frame",
                    why=f"{why}; {lost} cannot be read ({end - position} bytes)",
                    action=self._action(SET_ASIDE, lambda: None),
                )
            )
            position, offset = end, max(offset, offset_end)
        return findings, offset

    def _schema_version(self, header: Header) -> None:
        if header.rows and header.schema_version not in self._versions:
            self._versions.add(header.schema_version)
            why = f"rows were written with schema version {header.schema_version}, which it does not have"
            path = str(self._folder(self._name).relative_to(self._log.path) / "topic.json")
            self._found(Finding(path=path, topic=self._name, kind="topic unreadable", why=why))

    def _torn(self, partition: Partition, segment: Segment, position: int, offset: int, why: str) -> Finding:
        return self._finding(
            partition,
            segment.path,
            position=position,
            offset=offset,
            kind="torn end",
            why=f"{why}; nothing from here on was acknowledged",
            action=self._action("cut by recovery", lambda: None),
        )

    @staticmethod
    def _may_be_torn(partition: Partition, segment: Segment) -> bool:
        """Whether this is the last segment and its tail is not recorded, so that its end may not be acknowledged."""
        chain, _ = list_segments(partition.folder)
        state = partition.state
        known = state.visible(partition.number) if partition.synced else state.written(partition.number)
        return chain[-1].base == segment.base and known is None

    @staticmethod
    def _misplaced(partition: Partition, segment: Segment, header: Header, offset: int) -> tuple[str, str]:
        """Why a whole frame must not be at this position, and what is done about it."""
        with contextlib.suppress(CommitLogCorrupt):  # a finding of its own
            if header.flags & FLAG_TRANSACTION and not partition.is_committed(header.transaction):
                return "its transaction never committed", ""
        if header.offset_base < offset or (header.offset_base > offset and not segment.rewritten):
            return f"it holds offset {header.offset_base} where {offset} was due", SET_ASIDE
        return "", ""

    def _set_frames_aside(self, partition: Partition, segment: Segment, flags: int) -> None:
        """Rewrite a segment without its damaged frames; copy the old one to the quarantine."""
        make_folders(partition.quarantine)
        name = f"{partition.topic.name}-{partition.number}-{time.time_ns()}-{segment.path.name}"
        with segment.path.open("rb") as damaged, open(partition.quarantine / name, "wb", opener=open_file) as file:
            shutil.copyfileobj(damaged, file)
        later = [other.base for other in list_segments(partition.folder)[0] if other.base > segment.base]
        with partition.append_lock:
            _without_damage(partition, segment, min(later, default=None), flags)

    def _holes(self, partition: Partition, bases: list[int], ends: list[int], visible: Tail | None) -> None:
        """Report offsets between the recorded start and the acknowledged end that no segment covers."""
        due = partition.start()
        for base, end in zip(bases, ends, strict=True):
            if due < base:
                self._hole(partition, due, base, last=False)
            due = max(due, end)
        if visible is not None and due < visible.offset:
            self._hole(partition, due, visible.offset, last=True)

    def _hole(self, partition: Partition, offset: int, offset_next: int, *, last: bool) -> None:
        why = f"no segment holds the offsets from {offset} to {offset_next - 1}: a file was cut, or is gone"
        skip = partial(partition.skip, offset, offset_next, last=last)
        self._lost(partition, partition.folder, offset, offset_next, why, self._action("skipped by readers", skip))

    def _lost(
        self, partition: Partition, path: Path, offset: int, offset_next: int, why: str, action: str = ""
    ) -> None:
        self._found(
            self._finding(
                partition, path, offset=offset, offset_next=offset_next, kind="missing rows", why=why, action=action
            )
        )

    def _recover(self, partition: Partition) -> None:
        try:
            with partition.append_lock:
                recovery.recover(partition)
        except (FrameCorrupt, SegmentMissing) as error:
            # Acknowledged rows are missing, which has been reported. Continue behind them.
            known = self._visible(partition)
            with partition.append_lock:
                partition.forget_tails()
                tail = recovery.recover(partition)
            end = tail.offset
            if known is not None and known.offset > end:
                end = known.offset
                partition.skip(tail.offset, end, last=True)
            self._found(
                self._finding(
                    partition,
                    partition.folder,
                    offset=tail.offset,
                    offset_next=end,
                    kind="acknowledged rows lost",
                    why=error.problem.format(**error.facts()),
                    action=f"the partition continues at offset {end}",
                )
            )

    def _finding(
        self,
        partition: Partition,
        path: Path,
        *,
        kind: str,
        why: str,
        position: int = -1,
        offset: int = -1,
        offset_next: int = -1,
        action: str = "",
    ) -> Finding:
        try:
            shown = str(path.relative_to(self._log.path))
        except ValueError:
            shown = str(path)
        return Finding(
            path=shown,
            topic=partition.topic.name,
            partition=partition.number,
            position=position,
            offset=offset,
            offset_next=offset_next,
            kind=kind,
            why=why,
            action=action,
        )

    def _step(self, size: int) -> None:
        self._report.bytes += size
        if self._progress is not None:
            self._progress(self._report.bytes, self._total)


def _why_not_whole(view: memoryview, position: int, header: Header | None) -> str:
    if header is None:
        return "the header does not match its checksum"
    if position + header.size > len(view):
        return "the file ends inside the frame"
    start = position + HEADER_BYTES
    if not payload_is_whole(header, view[start : start + header.payload_size]):
        return "the payload does not match its checksum"
    return ""


def _save_producers(partition: Partition, tail: Tail) -> None:
    known = PartitionProducers(partition.folder, complete=False)
    known.catch_up(tail)
    known.save(tail.segment)


def _header_of(partition: Partition, segment: Segment, size: int, flags: int = 0) -> bytes:
    return segment_header(
        partition=partition.number,
        base=segment.base,
        created_us=partition.clock.now_us(),
        topic=int(partition.topic.id[:15], 16),
        size=size,
        flags=flags,
    )


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
        file.write(_header_of(partition, segment, size, flags))
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
