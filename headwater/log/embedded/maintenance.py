"""Maintenance of partitions: retention, coalescing and compaction, in a background thread that never blocks appends.

Retention first records the new start (readers before it get `OffsetExpired`), then archives or unlinks the segments. A
crash in between leaves segments before the start, and the next run removes them. Only this record moves the start of a
partition: a first segment that is gone without it is missing, not expired.
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater.log.embedded import compaction, rewrite
from headwater.log.embedded.faults import reach
from headwater.log.embedded.files import make_folder, open_file, replace_file, storage_error, sync_folder
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.segment import (
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentMap,
    frames_to,
    list_segments,
    recorded_starts,
    segment_header,
    segment_path,
    walk,
)
from headwater.log.embedded.topic import TopicHandle
from headwater.log.port import Expiry

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog

#: The interval at which retention by age is applied.
AGEING_SECONDS = 30.0

COPY_BYTES = 1024 * 1024


@dataclass
class MaintenanceReport:
    """The work of one maintenance run."""

    segments_expired: int = 0
    bytes_expired: int = 0
    segments_coalesced: int = 0
    rows_compacted: int = 0

    def __add__(self, other: MaintenanceReport) -> MaintenanceReport:
        return MaintenanceReport(
            self.segments_expired + other.segments_expired,
            self.bytes_expired + other.bytes_expired,
            self.segments_coalesced + other.segments_coalesced,
            self.rows_compacted + other.rows_compacted,
        )


def maintain_partition(
    handle: TopicHandle,
    partition: Partition,
    *,
    clock: Clock,
    compact: bool = True,
    seal: bool = False,
    wait: bool = False,
) -> MaintenanceReport:
    """Maintain one partition. If another process holds its maintenance lock, wait for it (`wait`) or do nothing."""
    report = MaintenanceReport()
    if not partition.folder.is_dir():
        return report
    if wait:
        partition.maintenance_lock.__enter__()
    elif not partition.maintenance_lock.try_acquire():
        return report
    try:
        remove_leftovers(partition)
        _roll_if_due(handle, partition, clock=clock, seal=seal)
        _expire(handle, partition, report, now_us=clock.now_us())
        sealed, offset_next = _sealed(partition)
        if compact and handle.current().compact and (seal or compaction.is_dirty(sealed)):
            report.rows_compacted = compaction.compact(handle, partition, sealed, offset_next, now_us=clock.now_us())
            sealed, offset_next = _sealed(partition)
        for segment, end in zip(sealed, _ends(sealed, offset_next), strict=True):
            if segment.base < partition.coalesced_to or segment.rewritten:
                continue
            if rewrite.coalesce(handle, partition, segment, end):
                report.segments_coalesced += 1
        partition.coalesced_to = offset_next
    finally:
        partition.maintenance_lock.release()
    return report


def remove_leftovers(partition: Partition) -> list[Path]:
    """Delete the files of a rewrite whose process died. The caller holds the maintenance lock."""
    _, superseded = list_segments(partition.folder)
    if superseded:
        sync_folder(partition.folder)  # the process that renamed the rewritten one may have died before it synced
    found = [segment.path for segment in superseded] + list(partition.folder.glob(".*.log.tmp"))
    for path in found:
        path.unlink(missing_ok=True)
    return found


def expiry_us(handle: TopicHandle, segment_last_us: int) -> int | None:
    """When retention by age deletes a segment whose last row was appended at `segment_last_us`; None for never."""
    seconds = handle.topic.retention.seconds_max
    return None if seconds is None else segment_last_us + round(seconds * 1e6)


def last_appended_us(segment: Segment, offset_next: int) -> int:
    """When the last frame of a sealed segment was appended; 0 for one without frames."""
    last = 0
    for _, header in frames_to(SegmentMap(segment.path), segment, offset_next):
        last = header.appended_at_us
    return last


def expiry_of(handle: TopicHandle, partition: Partition, offset: int, *, clock: Clock) -> Expiry:
    """When retention deletes the segment of `offset`, by age and by bytes."""
    try:
        return _expiry_of(handle, partition, offset, clock=clock)
    except FileNotFoundError:  # deleted in the meantime
        return Expiry(offset_next=partition.start(), oldest=True, seconds=0.0, used=1.0)


def _expiry_of(handle: TopicHandle, partition: Partition, offset: int, *, clock: Clock) -> Expiry:
    retention = handle.current().retention
    visible = partition.visible()
    chain = partition.segments()
    ends = [*(segment.base for segment in chain[1:]), visible.offset] if chain else []
    at = next((index for index, end in enumerate(ends) if offset < end), None)
    if at is None:
        return Expiry(offset_next=visible.offset, oldest=False, seconds=None, used=0.0)
    seconds, used = None, 0.0
    if retention.seconds_max is not None and not handle.topic.compact:
        limit = visible.position if chain[at].base == visible.segment else None
        due_us = expiry_us(handle, _last_appended_us(partition, chain[at], limit)) or 0
        seconds = max(0.0, (due_us - clock.now_us()) / 1e6)
        used = 1 - seconds / retention.seconds_max
    if retention.bytes_max is not None:
        # A segment is deleted when it and all later ones together exceed the limit.
        used = max(used, sum(segment.path.stat().st_size for segment in chain[at:]) / retention.bytes_max)
    return Expiry(offset_next=ends[at], oldest=at == 0, seconds=seconds, used=used)


def _last_appended_us(partition: Partition, segment: Segment, limit: int | None) -> int:
    mapped = SegmentMap(segment.path)
    entries = partition.index_of(mapped, mapped.length if limit is None else limit).entries()
    return entries[-1].appended_at_us if entries else 0


def _sealed(partition: Partition) -> tuple[list[Segment], int]:
    """All segments but the active one, and the base of the active one."""
    chain = partition.segments()
    if not chain:
        return [], 0
    written = partition.state.written(partition.number)
    if written is None:
        return [], chain[0].base
    sealed = [segment for segment in chain if segment.base < written.segment]
    return sealed, written.segment


def _ends(sealed: Sequence[Segment], offset_next: int) -> list[int]:
    return [*(segment.base for segment in sealed[1:]), offset_next] if sealed else []


def _roll_if_due(handle: TopicHandle, partition: Partition, *, clock: Clock, seal: bool) -> None:
    """Seal an old segment, so that retention by age also applies to a topic with few rows."""
    topic = handle.current()
    with partition.append_lock:
        partition.check_alive()
        tail = partition.tail()
        if tail.position <= SEGMENT_HEADER_BYTES:
            return
        if not seal:
            limits = [limit for limit in (topic.segment_seconds_max, topic.retention.seconds_max) if limit is not None]
            chain = partition.segments()
            first = next(walk(SegmentMap(chain[-1].path).view), None)
            if first is None or clock.now_us() - first[1].appended_at_us < min(limits) * 1e6:
                return
        partition.roll(tail)


def _expire(handle: TopicHandle, partition: Partition, report: MaintenanceReport, *, now_us: int) -> None:
    retention = handle.current().retention
    sealed, offset_next = _sealed(partition)
    ends = _ends(sealed, offset_next)
    start = partition.start()
    gone = sum(1 for end in ends if end <= start)  # a process died after it recorded the start
    if retention.seconds_max is not None and not handle.topic.compact:
        while gone < len(sealed) and (
            (expiry_us(handle, last_appended_us(sealed[gone], ends[gone])) or now_us) < now_us
        ):
            gone += 1
    if retention.bytes_max is not None:
        sizes = [segment.path.stat().st_size for segment in partition.segments()]
        while gone < len(sealed) and sum(sizes[gone:]) > retention.bytes_max:
            gone += 1
    if not gone:
        if start > max(recorded_starts(partition.folder), default=0) and partition.folder_is_on_disk:
            partition.set_start(start)  # recorded by an earlier release, in the state file alone
        return
    rewrite.save_producers(partition, ends[gone - 1])
    partition.set_start(max(start, ends[gone - 1]))
    reach("retention.marked")
    for segment, end in zip(sealed[:gone], ends, strict=False):
        report.segments_expired += 1
        report.bytes_expired += segment.path.stat().st_size
        _remove(handle, partition, segment, end)
        reach("retention.unlinked")


def _remove(handle: TopicHandle, partition: Partition, segment: Segment, offset_next: int) -> None:
    folder = handle.archive(partition.number)
    if not handle.topic.archive and folder.is_dir() and not (folder / segment.path.name).exists():
        # An archive that exists covers these offsets by an empty segment, so that it has no hole.
        header = segment_header(
            partition=partition.number,
            base=segment.base,
            created_us=partition.clock.now_us(),
            topic=int(handle.topic.id[:15], 16),
            size=SEGMENT_HEADER_BYTES,
        )
        replace_file(segment_path(folder, segment.base, offset_next), header, durable=True)
    if handle.topic.archive:
        make_folder(folder, levels=3)
        try:
            os.rename(segment.path, folder / segment.path.name)
        except OSError:  # the archive is on another disk
            _copy(segment.path, folder / segment.path.name)
        sync_folder(folder)
    segment.path.unlink(missing_ok=True)


def _copy(source: Path, target: Path) -> None:
    """Copy a file durably; under its name it is complete or missing."""
    temporary = target.with_name(f".{target.name}.tmp")
    with source.open("rb") as original, open(temporary, "wb", opener=open_file) as file:
        shutil.copyfileobj(original, file, COPY_BYTES)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, target)


class MaintenanceThread:
    """Maintains the partitions that this process writes: after a segment was sealed, and periodically for topics with
    retention by age."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = weakref.ref(log)
        self._queue: queue.SimpleQueue[tuple[TopicHandle, Partition] | None] = queue.SimpleQueue()
        self._ageing: dict[str, weakref.ref[TopicHandle]] = {}
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self.errors: deque[HeadwaterError] = deque(maxlen=16)

    def rolled(self, handle: TopicHandle, partition: Partition) -> None:
        """A segment was sealed: maintain the partition soon."""
        self._queue.put((handle, partition))
        self._start()

    def appended(self, handle: TopicHandle) -> None:
        """Rows were appended to a topic with retention by age: maintain it periodically."""
        if handle.topic.name not in self._ageing:
            self._ageing[handle.topic.name] = weakref.ref(handle)
            self._start()

    def close(self) -> None:
        """Finish the current partition, and leave the others to the next process."""
        if self._thread is not None:
            while not self._queue.empty():
                with contextlib.suppress(queue.Empty):
                    self._queue.get_nowait()
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="headwater-maintenance", daemon=True)
                    self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=AGEING_SECONDS)
            except queue.Empty:
                self._maintain_ageing()
                continue
            if item is None:
                return
            self._maintain(*item)

    def _maintain_ageing(self) -> None:
        for name, reference in list(self._ageing.items()):
            handle = reference()
            if handle is None or handle.deleted:
                del self._ageing[name]
                continue
            for partition in handle.partitions():
                self._maintain(handle, partition)

    def _maintain(self, handle: TopicHandle, partition: Partition) -> None:
        log = self._log()
        if log is None or log.closed:
            return
        try:
            maintain_partition(handle, partition, clock=log.clock)
        except HeadwaterError as error:
            # Appends continue; a reader of these rows gets the same error, and `headwater log verify` reports it.
            self.errors.append(error)
        except OSError as error:
            if not handle.deleted and not log.closed:
                self.errors.append(storage_error(error, partition.folder))
        except ValueError:
            if not handle.deleted and not log.closed:
                raise
