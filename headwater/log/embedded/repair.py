"""Verify and repair: read every byte that matters, say exactly what is wrong, and mend it without losing anything else.

`verify` changes nothing. `repair` does what is safe: it finishes what dead processes began, cuts torn ends, removes
leftovers, and sets damaged frames aside in the quarantine, so that the rows around them can be read again. It never
hides a loss: each finding names the file, the byte, the offsets and what was done.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import CommitLogCorrupt, FormatUnknown, FrameCorrupt, HeadwaterError, ReadOnly, SegmentMissing
from headwater.log.embedded import commit_repair, recovery
from headwater.log.embedded.files import make_folders, open_file, sync_folder
from headwater.log.embedded.frame import FLAG_TRANSACTION, HEADER_BYTES, Header, payload_is_whole, read_header
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.segment import (
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentMap,
    check_segment_header,
    list_segments,
    segment_header,
)
from headwater.log.embedded.state import Tail, boot_mark

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog

Progress = Callable[[int, int], None]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is not as it should be, where it is, and what was (or would be) done about it."""

    path: str
    topic: str = ""
    partition: int = -1
    position: int = -1
    offset: int = -1
    kind: str
    why: str
    action: str = ""

    def __str__(self) -> str:
        where = f"{self.path} at byte {self.position}" if self.position >= 0 else self.path
        return f"{self.kind}: {where}: {self.why}" + (f" → {self.action}" if self.action else "")


@dataclass
class Report:
    """What was looked at, and what was found."""

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


def verify(log: EmbeddedLog, topic: str | None = None, *, progress: Progress | None = None) -> Report:
    """Check every frame of every segment, or of one topic's. Changes nothing."""
    return _Inspection(log, topic, progress, mend=False, dry_run=True).run()


def repair(
    log: EmbeddedLog, topic: str | None = None, *, dry_run: bool = False, progress: Progress | None = None
) -> Report:
    """Mend what can be mended; with `dry_run` only say what would be done."""
    if log.read_only and not dry_run:
        raise ReadOnly(path=str(log.path))
    return _Inspection(log, topic, progress, mend=True, dry_run=dry_run).run()


class _Inspection:
    def __init__(
        self, log: EmbeddedLog, topic: str | None, progress: Progress | None, *, mend: bool, dry_run: bool
    ) -> None:
        self._log = log
        self._topic = topic
        self._progress = progress
        self._mend = mend and not dry_run
        self._say = mend
        self._report = Report()
        self._total = 0

    def run(self) -> Report:
        names = self._names()
        self._total = sum(self._size_of(name) for name in names)
        if self._topic is None:
            self._leftovers()
            self._commit_log()
        for name in names:
            self._report.topics += 1
            try:
                partitions = self._log.handle(name).partitions()
            except (HeadwaterError, ValueError, KeyError) as error:
                if not self._folder(name).exists():
                    continue  # its deletion was begun by a process that died, and has been finished just now
                self._found(Finding(path=str(self._folder(name)), topic=name, kind="topic unreadable", why=str(error)))
                continue
            for partition in partitions:
                if partition.folder.is_dir():
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
            with contextlib.suppress(FileNotFoundError):  # removed or written anew while we looked
                size += path.stat().st_size
        return size

    def _found(self, finding: Finding) -> None:
        self._report.findings.append(finding)

    def _leftovers(self) -> None:
        for folder in self._log.catalogue().leftovers():
            action = self._action("removed", partial(shutil.rmtree, folder))
            self._found(Finding(path=str(folder), kind="half-made topic", why="its process died", action=action))

    def _commit_log(self) -> None:
        for finding in commit_repair.inspect(self._log, repair=self._say, dry_run=not self._mend):
            self._found(Finding(**finding._asdict()))

    def _action(self, what: str, act: Callable[[], object]) -> str:
        if not self._say:
            return ""
        if not self._mend:
            return f"would be {what}"
        act()
        return what

    def _partition(self, partition: Partition) -> None:
        if self._log.read_only:
            self._inspect(partition)
            return
        with partition.tidy_lock:  # no segment may go, or be written anew, while we look at it
            self._inspect(partition)

    def _inspect(self, partition: Partition) -> None:
        self._rewrite_leftovers(partition)
        chain, _ = list_segments(partition.folder)
        visible = self._visible(partition)
        for index, segment in enumerate(chain):
            following = chain[index + 1].base if index + 1 < len(chain) else None
            self._segment(partition, segment, visible, following)
        self._gaps(partition, list_segments(partition.folder)[0], visible)
        if self._mend:
            self._settle(partition)

    def _visible(self, partition: Partition) -> Tail | None:
        state = partition.state
        return state.visible(partition.number) if partition.synced else state.written(partition.number)

    def _rewrite_leftovers(self, partition: Partition) -> None:
        _, superseded = list_segments(partition.folder)
        for path in [segment.path for segment in superseded] + sorted(partition.folder.glob(".*.tmp")):
            action = self._action("removed", partial(path.unlink, missing_ok=True))
            why = "a rewrite was published and its process died before it removed this"
            self._found(self._finding(partition, path, kind="leftover of a rewrite", why=why, action=action))

    def _segment(self, partition: Partition, segment: Segment, visible: Tail | None, following: int | None) -> None:
        self._report.segments += 1
        try:
            with segment.path.open("rb") as file:
                check_segment_header(segment.path, file.read(SEGMENT_HEADER_BYTES))
        except FormatUnknown as error:
            self._found(self._finding(partition, segment.path, kind="unknown format", why=str(error)))
            return
        except FrameCorrupt as error:
            self._segment_header(partition, segment, error, visible)
            return
        # A segment that is not the last was sealed: all of it was acknowledged.
        limit = (
            None if following is not None or visible is None or visible.segment != segment.base else visible.position
        )
        damaged = list(self._damaged(partition, segment, limit))
        if damaged and self._mend and any(finding.kind == "damaged frame" for finding in damaged):
            self._set_frames_aside(partition, segment)
        for finding in damaged:
            self._found(finding)

    def _segment_header(
        self, partition: Partition, segment: Segment, error: FrameCorrupt, visible: Tail | None
    ) -> None:
        size = segment.path.stat().st_size
        never_used = size <= SEGMENT_HEADER_BYTES and (visible is None or visible.segment != segment.base)
        kind = "unused segment" if never_used else "damaged segment header"

        def write() -> None:
            header = segment_header(
                partition=partition.number,
                base=segment.base,
                created_us=partition.clock.now_us(),
                topic=int(partition.topic.id[:15], 16),
            )
            with segment.path.open("r+b") as file:
                file.write(header)
                os.fsync(file.fileno())

        action = self._action("written anew", write)
        self._found(self._finding(partition, segment.path, position=0, kind=kind, why=error.why, action=action))

    def _damaged(self, partition: Partition, segment: Segment, limit: int | None) -> Iterator[Finding]:
        """The places in a segment where frames are not whole, each with the rows that are lost there."""
        mapped = SegmentMap(segment.path)
        view = mapped.view
        position, offset = SEGMENT_HEADER_BYTES, segment.base
        acknowledged = mapped.length if limit is None else limit
        self._step(SEGMENT_HEADER_BYTES)
        while position < mapped.length:
            header = read_header(view, position)
            why = _why_not_whole(view, position, header)
            if not why and header is not None:
                wrong = self._misplaced(partition, segment, header, offset)
                if wrong and position >= acknowledged:
                    yield self._torn(partition, segment, position, offset, wrong)
                    return
                if wrong:
                    yield self._finding(
                        partition, segment.path, position=position, offset=offset, kind="misplaced frame", why=wrong
                    )
                self._report.frames += 1
                self._report.rows += header.rows
                self._step(header.size)
                position += header.size
                offset = header.offset_next
                mapped.forget_before(position)
                continue
            following = recovery.next_frame(view, position + 8)
            if position >= acknowledged or (
                following is None and limit is None and self._may_be_torn(partition, segment)
            ):
                yield self._torn(partition, segment, position, offset, why)
                return
            end, offset_end = (mapped.length, None) if following is None else (following[0], following[1].offset_base)
            lost = "the rest of the segment" if offset_end is None else f"offsets {offset} to {offset_end - 1}"
            yield self._finding(
                partition,
                segment.path,
                position=position,
                offset=offset,
                kind="damaged frame",
                why=f"{why}; {lost} cannot be read ({end - position} bytes)",
                action=self._action("set aside in the quarantine", lambda: None),
            )
            position, offset = end, offset if offset_end is None else offset_end

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
        """Whether this is the last segment and its state is lost, so that its end may never have been acknowledged."""
        chain, _ = list_segments(partition.folder)
        state = partition.state
        known = state.visible(partition.number) if partition.synced else state.written(partition.number)
        return chain[-1].base == segment.base and known is None

    @staticmethod
    def _misplaced(partition: Partition, segment: Segment, header: Header, offset: int) -> str:
        with contextlib.suppress(CommitLogCorrupt):  # reported by itself: whether it was committed is not known
            if header.flags & FLAG_TRANSACTION and not partition.is_committed(header.transaction):
                return "its transaction never committed"
        if header.offset_base < offset or (header.offset_base > offset and not segment.rewritten):
            return f"it holds offset {header.offset_base} where {offset} was due"
        return ""

    def _set_frames_aside(self, partition: Partition, segment: Segment) -> None:
        """Write the segment anew without the damaged places; the old one goes to the quarantine whole."""
        make_folders(partition.quarantine)
        kept = partition.quarantine / f"{partition.topic.name}-{partition.number}-{segment.path.name}"
        with segment.path.open("rb") as damaged, open(kept, "wb", opener=open_file) as file:
            shutil.copyfileobj(damaged, file)
        later = [other.base for other in list_segments(partition.folder)[0] if other.base > segment.base]
        last = min(later) if later else None
        with partition.append_lock:
            _without_damage(partition, segment, last)

    def _gaps(self, partition: Partition, chain: list[Segment], visible: Tail | None) -> None:
        """Offsets that no segment covers."""
        if visible is not None and chain and not any(segment.base == visible.segment for segment in chain):
            missing = visible.segment
            why = f"the segment that begins at offset {missing} is gone, with rows up to {visible.offset}"
            self._found(
                self._finding(
                    partition,
                    partition.folder,
                    offset=missing,
                    kind="missing segment",
                    why=why,
                    action=self._action("continued behind it", lambda: partition.restart_behind(visible.offset)),
                )
            )
            return
        for before, after in pairwise(chain):
            end = before.offset_next if before.offset_next is not None else _end_of(before)
            if end is not None and end < after.base and not before.rewritten:
                why = f"no segment holds the offsets from {end} to {after.base - 1}"
                self._found(self._finding(partition, after.path, offset=end, kind="missing rows", why=why))

    def _settle(self, partition: Partition) -> None:
        try:
            with partition.append_lock:
                recovery.recover(partition)
        except (FrameCorrupt, SegmentMissing) as error:
            # What was acknowledged is no longer there; it has been reported above. Go on at the true end.
            with partition.append_lock:
                partition.forget_tails()
                tail = recovery.recover(partition)
            self._found(
                self._finding(
                    partition,
                    partition.folder,
                    offset=tail.offset,
                    kind="acknowledged rows lost",
                    why=error.problem.format(**error.facts()),
                    action=f"the partition goes on at offset {tail.offset}",
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
        return "the header does not match its sum"
    if position + header.size > len(view):
        return "the file ends inside the frame"
    start = position + HEADER_BYTES
    if not payload_is_whole(header, view[start : start + header.payload_size]):
        return "the payload does not match its sum"
    return ""


def _end_of(segment: Segment) -> int | None:
    end = None
    view = SegmentMap(segment.path).view
    position = SEGMENT_HEADER_BYTES
    while (header := read_header(view, position)) is not None:
        end = header.offset_next
        position += header.size
    return end if end is not None else segment.base


def _without_damage(partition: Partition, segment: Segment, offset_next: int | None) -> None:
    """Publish a copy of the segment with only its whole frames, under a name that says which offsets it covers."""
    view = SegmentMap(segment.path).view
    position, end = SEGMENT_HEADER_BYTES, segment.base
    temporary = segment.path.with_name(f".{segment.path.name}.repair.tmp")
    with open(temporary, "wb", opener=open_file) as file:
        file.write(view[:SEGMENT_HEADER_BYTES])
        while position < len(view):
            header = read_header(view, position)
            if _why_not_whole(view, position, header) or header is None:
                following = recovery.next_frame(view, position + 8)
                if following is None:
                    break
                position = following[0]
                continue
            file.write(view[position : position + header.size])
            position += header.size
            end = header.offset_next
        file.flush()
        os.fsync(file.fileno())
    visible = (
        partition.state.visible(partition.number) if partition.synced else partition.state.written(partition.number)
    )
    bound = offset_next if offset_next is not None else max(end, visible.offset if visible is not None else end)
    target = partition.folder / f"{segment.base:020d}-{bound:020d}.log"
    os.replace(temporary, target)
    if target != segment.path:
        segment.path.unlink()
    sync_folder(partition.folder)
    if offset_next is None:
        # It was the last one: appends go on in a fresh segment behind it.
        partition.create_segment(bound)
        partition.publish(Tail(boot_mark(), bound, SEGMENT_HEADER_BYTES, bound, 0))
