"""Verify and repair a log: check every frame, report each defect, and repair what can be repaired without further loss.

`verify` changes nothing. `repair` recovers partitions, cuts torn ends, removes leftovers of dead processes, and moves
damaged frames to the quarantine, so that the rows around them can be read again. It never hides a loss: each finding
names the file, the byte, the offsets and what was done.

Here are the log as a whole, its producers and its commit log; `partition_repair` has the segments and frames.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from headwater.errors import HeadwaterError
from headwater.log.embedded import maintenance, recovery
from headwater.log.embedded.commit_log import Damage, Rebuilt
from headwater.log.embedded.log import EmbeddedLog, local_log
from headwater.log.embedded.maintenance import FAILURE_FILE, failure_of
from headwater.log.embedded.partition import BACKUP_LOCK, Partition
from headwater.log.embedded.partition_repair import PartitionInspection
from headwater.log.embedded.producers import Registry
from headwater.log.embedded.segment import SEGMENT_HEADER_BYTES, SegmentMap
from headwater.log.errors import FileCorrupt, FormatUnknown, FrameCorrupt, ReadOnly
from headwater.log.frame import FLAG_TRANSACTION, Header, read_header
from headwater.log.port import Log

Progress = Callable[[int, int], None]


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
    return Inspection(local_log(log), progress, has_actions=False, repairs=False).run(topic)


def repair(log: Log, topic: str | None = None, *, dry_run: bool = False, progress: Progress | None = None) -> Report:
    """Repair what can be repaired; with `dry_run` only report what would be done."""
    if log.read_only and not dry_run:
        raise ReadOnly(path=log.address)
    local = local_log(log)
    inspection = Inspection(local, progress, has_actions=True, repairs=not dry_run)
    if dry_run:
        return inspection.run(topic)
    with maintenance.without_backup(local.path / BACKUP_LOCK, local.config.lock_seconds_max):
        return inspection.run(topic)


class Inspection:
    """One run over a log."""

    def __init__(self, log: EmbeddedLog, progress: Progress | None, *, has_actions: bool, repairs: bool) -> None:
        self.log = log
        self.report = Report()
        #: Whether the actions are done, and not only reported.
        self.repairs = repairs
        self._has_actions = has_actions
        self._progress = progress
        self._total = 0

    # Any: the fields of a finding.
    def add(self, **finding: Any) -> None:
        self.report.findings.append(Finding(**finding))

    def action(self, what: str, act: Callable[[], object] | None = None) -> str:
        """Do what is done about a defect, if this is a repair; return it for the finding."""
        if not self._has_actions:
            return ""
        if not self.repairs:
            return f"would be {what}"
        if act is not None:
            act()
        return what

    def count_bytes(self, size: int) -> None:
        self.report.bytes += size
        if self._progress is not None:
            self._progress(self.report.bytes, self._total)

    def run(self, topic: str | None) -> Report:
        names = self.log.topics(internal=True) if topic is None else [self.log.topic(topic).name]
        for name in names:
            for path in self._folder(name).glob("*/*.log"):
                with contextlib.suppress(FileNotFoundError):  # removed or rewritten in the meantime
                    self._total += path.stat().st_size
        if topic is None:
            for folder in self.log.catalogue().leftovers():
                action = self.action("removed", partial(shutil.rmtree, folder))
                self.add(path=str(folder), kind="half-made topic", why="its process died", action=action)
            self._check_producers()
            self._check_commit_logs()
        for name in names:
            self._check_topic(name)
        return self.report

    def _folder(self, name: str) -> Path:
        return self.log.path / "topics" / name

    def _check_topic(self, name: str) -> None:
        self.report.topics += 1
        try:
            handle = self.log.handle(name)
            partitions = handle.partitions()
            versions = set(handle.schemas)
        except (HeadwaterError, ValueError, KeyError) as error:
            if self._folder(name).exists():  # otherwise opening it has finished a deletion whose process died
                self.add(path=str(self._folder(name)), topic=name, kind="topic unreadable", why=str(error))
            return
        for partition in partitions:
            PartitionInspection(self, partition, versions).run()
        for partition in partitions:
            failure = failure_of(partition)
            if failure is not None:
                self.add(
                    path=str(partition.folder / FAILURE_FILE),
                    topic=name,
                    partition=partition.number,
                    kind="maintenance failed",
                    why=failure,
                    action=self.action("run again", partial(self.log.maintain, name)),
                )

    def _check_producers(self) -> None:
        registry = Registry(self.log.path / "producers")
        for name in registry.names():
            try:
                registry.epoch(name)
            except FileCorrupt as error:
                self.add(path=error.path, kind="damaged producer", why=error.why)

    # -- the commit log -----------------------------------------------------------------------------------------------

    def _check_commit_logs(self) -> None:
        commits = self.log.commits()
        damaged = commits.damaged()
        # The visible frames of the partitions prove which transactions were committed; only a repair reads them all.
        proven = _unrecorded_transactions(self.log) if self._has_actions else {}
        for log in commits.with_other_copy():
            if log not in damaged:
                action = self.action("replaced", log.renew_copy)
                why = "it differs from the commit log"
                self._add_commits(log.copy, kind="damaged copy of the commit log", why=why, action=action)
        if not self._has_actions:
            for log in damaged:
                self._add_commits(log.path, log.damage, kind="damaged commit log")
        elif damaged or proven:
            unrecorded = Damage(-1, f"it has no record of {len(proven)} transactions that readers see")
            damages = {log.path: log.damage for log in damaged}
            for log, rebuilt in commits.rebuild(proven, dry_run=not self.repairs):
                self._add_rebuilt(log.path, damages.get(log.path) or unrecorded, rebuilt)

    def _add_rebuilt(self, path: Path, damage: Damage, rebuilt: Rebuilt) -> None:
        action = self.action(
            f"set aside and rebuilt: {rebuilt.kept} commits from whole records,"
            f" {rebuilt.from_copy} from the copy, {rebuilt.from_partitions} from the partitions"
        )
        self._add_commits(path, damage, kind="damaged commit log", action=action)
        for first, last in rebuilt.lost:
            why = (
                f"no record is left of the commits {first} to {last}: rows that readers saw stay, but a producer that"
                " repeats one of these transactions by its sequence appends its rows a second time"
            )
            action = self.action("recorded as lost")
            self._add_commits(path, damage, kind="lost commits", why=why, action=action)

    def _add_commits(
        self, path: Path, damage: Damage | None = None, *, kind: str, why: str = "", action: str = ""
    ) -> None:
        position, cause = damage if damage is not None else (-1, "")
        name = str(path.relative_to(self.log.path))
        self.add(path=name, position=position, kind=kind, why=why or cause, action=action)


def _unrecorded_transactions(log: EmbeddedLog) -> dict[int, list[list[Any]]]:
    """Visible transactions that the commit log does not cover, by number, each with its parts.

    Marked frames before the visible end, or in a sealed segment, prove that their transaction was committed.
    """
    commits = log.commits()
    proven: dict[int, list[list[Any]]] = {}
    for name in log.topics(internal=True):
        with contextlib.suppress(HeadwaterError, ValueError, KeyError):  # an unreadable topic proves nothing
            for partition in log.handle(name).partitions():
                if not partition.folder.is_dir():
                    continue
                # No segment may be deleted or rewritten meanwhile; a read-only process cannot prevent it.
                with contextlib.nullcontext() if log.read_only else partition.maintenance_lock:
                    for header in _visible_frames(partition):
                        if header.flags & FLAG_TRANSACTION and not commits.recorded(header.transaction):
                            parts = proven.setdefault(header.transaction, [])
                            if parts and parts[-1][:2] == [name, partition.number]:
                                parts[-1][3] = header.offset_next
                            else:
                                parts.append([name, partition.number, header.offset_base, header.offset_next])
    return proven


def _visible_frames(partition: Partition) -> Iterator[Header]:
    chain = partition.segments()
    visible = partition.recorded()
    for segment in chain:
        is_active = segment is chain[-1] and not segment.rewritten
        if is_active and (visible is None or visible.segment != segment.base):
            continue
        try:
            mapped = SegmentMap(segment.path)
        except (FrameCorrupt, FormatUnknown, FileNotFoundError):
            continue
        stop = visible.position if is_active and visible is not None else mapped.length
        position = SEGMENT_HEADER_BYTES
        while position < stop:
            header = read_header(mapped.view, position)
            if header is None:
                following = recovery.next_frame(mapped.view, position + 8)
                if following is None or following[0] >= stop:
                    break
                position, header = following
            yield header
            position += header.size
            mapped.forget_before(position)
