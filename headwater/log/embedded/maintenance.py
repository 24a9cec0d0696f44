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
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater.faults import reach
from headwater.filelock import try_lock, wait_for_lock
from headwater.log.embedded import rewrite
from headwater.log.embedded.files import (
    COPY_BYTES,
    make_folder,
    open_file,
    replace_file,
    storage_error,
    storage_errors,
    sync_folder,
)
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.segment import (
    SEGMENT_HEADER_BYTES,
    SegmentMap,
    frames_to,
    list_segments,
    recorded_starts,
    segment_path,
    start_path,
    walk,
)
from headwater.log.embedded.topic import TopicHandle
from headwater.log.port import Expiry

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog

#: In the folder of a partition whose last background maintenance failed: the error. The next success removes it.
FAILURE_FILE = "maintenance.error"
#: The interval at which retention by age is applied.
AGEING_SECONDS = 30.0


@dataclass
class MaintenanceReport:
    """The work of a maintenance run."""

    segments_expired: int = 0
    bytes_expired: int = 0
    segments_coalesced: int = 0
    rows_compacted: int = 0


def maintain_partition(
    handle: TopicHandle,
    partition: Partition,
    report: MaintenanceReport,
    *,
    clock: Clock,
    compact: bool = True,
    seal: bool = False,
    wait: bool = False,
    before: int = 0,
) -> None:
    """Maintain one partition. If another process maintains it or makes a backup, wait for that (`wait`) or do nothing.

    Segments whose rows all have offsets less than `before` are deleted, whatever the retention.
    """
    if not partition.folder.is_dir():
        return
    with contextlib.ExitStack() as locks:
        if wait:
            locks.enter_context(partition.maintenance_lock)
        elif partition.maintenance_lock.try_acquire():
            locks.callback(partition.maintenance_lock.release)
        else:
            return
        if not locks.enter_context(without_backup(partition.backup_lock, partition.lock_seconds_max, wait=wait)):
            return
        _remove_leftovers(partition)
        _roll_if_due(handle, partition, clock=clock, seal=seal)
        _expire(handle, partition, report, now_us=clock.now_us(), before=before)
        sealed = _sealed(partition)
        is_dirty = any(not segment.rewritten for segment, _ in sealed)  # one was sealed since the last compaction
        if compact and handle.current().compact and (seal or is_dirty):
            report.rows_compacted += rewrite.compact(handle, partition, sealed, now_us=clock.now_us())
            sealed = _sealed(partition)
        for segment, end in sealed:
            if segment.base < partition.coalesced_to or segment.rewritten:
                continue
            if rewrite.coalesce(handle, partition, (segment, end)):
                report.segments_coalesced += 1
        if sealed:
            partition.coalesced_to = sealed[-1][1]
        (partition.folder / FAILURE_FILE).unlink(missing_ok=True)


@contextlib.contextmanager
def without_backup(path: Path, seconds_max: float, *, wait: bool = True) -> Iterator[bool]:
    """Prevent that a backup begins; `path` is the lock of backups. False while one runs, unless the caller waits for it."""
    descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
    try:
        if wait:
            wait_for_lock(descriptor, path, seconds_max=seconds_max, shared=True)
        yield wait or try_lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def change_rows(handle: TopicHandle, partition: Partition, change: rewrite.Change, *, clock: Clock) -> int:
    """Change rows of one partition and of its archive, while others append; return the number of changed frames."""
    if not partition.folder.is_dir():
        return 0
    with partition.maintenance_lock:
        _remove_leftovers(partition)
        _roll_if_due(handle, partition, clock=clock, seal=True)
        changed = 0
        for sealed in (*_archived(handle.archive(partition.number)), *_sealed(partition)):
            changed += rewrite.change_rows(handle, partition, sealed, change)
        return changed


def _archived(folder: Path) -> list[rewrite.Sealed]:
    """All segments of an archive, each with the offset at which it ends."""
    found = []
    for segment in list_segments(folder)[0]:
        end = segment.offset_next
        if end is None:
            end = max((header.offset_next for _, header in walk(SegmentMap(segment.path).view)), default=segment.base)
        found.append((segment, end))
    return found


def _record_failure(partition: Partition, error: HeadwaterError) -> None:
    """Record why the background maintenance of a partition failed, for `verify` and `headwater doctor`."""
    with contextlib.suppress(OSError):  # the disk is full, or the topic was deleted
        replace_file(partition.folder / FAILURE_FILE, str(error).encode(), durable=False)


def failure_of(partition: Partition) -> str | None:
    """Why the last background maintenance of a partition failed; None if it did not."""
    try:
        return (partition.folder / FAILURE_FILE).read_text(encoding="utf-8")
    except OSError:
        return None


def _remove_leftovers(partition: Partition) -> None:
    """Delete the files of a rewrite whose process died. The caller holds the maintenance lock."""
    _, superseded = list_segments(partition.folder)
    if superseded:
        sync_folder(partition.folder)  # the process that renamed the rewritten one may have died before it synced
    for path in [*(segment.path for segment in superseded), *partition.folder.glob(".*.log.tmp")]:
        path.unlink(missing_ok=True)


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


def _sealed(partition: Partition) -> list[rewrite.Sealed]:
    """All segments but the active one, each with the offset at which it ends."""
    written = partition.state.written(partition.number)
    if written is None:
        return []
    sealed = [segment for segment in partition.segments() if segment.base < written.segment]
    ends = [*(segment.base for segment in sealed[1:]), written.segment]
    return list(zip(sealed, ends, strict=False))


# -- retention ----------------------------------------------------------------------------------------------------------


def expiry_of(handle: TopicHandle, partition: Partition, offset: int, *, clock: Clock) -> Expiry:
    """When retention deletes the segment of `offset`, by age and by bytes."""
    retention = handle.current().retention
    try:
        visible = partition.visible()
        chain = partition.segments()
        ends = [*(segment.base for segment in chain[1:]), visible.offset] if chain else []
        at = next((index for index, end in enumerate(ends) if offset < end), None)
        if at is None:
            return Expiry(offset_next=visible.offset, oldest=False, seconds=None, used=0.0)
        seconds, used = None, 0.0
        if retention.seconds_max is not None and not handle.topic.compact:
            mapped = SegmentMap(chain[at].path)
            limit = visible.position if chain[at].base == visible.segment else mapped.length
            entries = partition.index_of(mapped, limit).entries
            due_us = (entries[-1].appended_at_us if entries else 0) + round(retention.seconds_max * 1e6)
            seconds = max(0.0, (due_us - clock.now_us()) / 1e6)
            used = 1 - seconds / retention.seconds_max
        if retention.bytes_max is not None:
            # A segment is deleted when it and all later ones together exceed the limit.
            used = max(used, sum(segment.path.stat().st_size for segment in chain[at:]) / retention.bytes_max)
    except FileNotFoundError:  # deleted in the meantime
        return Expiry(offset_next=partition.start(), oldest=True, seconds=0.0, used=1.0)
    return Expiry(offset_next=ends[at], oldest=at == 0, seconds=seconds, used=used)


def _expire(handle: TopicHandle, partition: Partition, report: MaintenanceReport, *, now_us: int, before: int) -> None:
    retention = handle.current().retention
    sealed = _sealed(partition)
    start = partition.start()
    gone = sum(1 for _, end in sealed if end <= max(start, before))  # those before the start: a process died
    if retention.seconds_max is not None and not handle.topic.compact:
        since_us = now_us - round(retention.seconds_max * 1e6)
        while gone < len(sealed) and _last_appended_us(sealed[gone]) < since_us:
            gone += 1
    if retention.bytes_max is not None:
        sizes = [segment.path.stat().st_size for segment in partition.segments()]
        while gone < len(sealed) and sum(sizes[gone:]) > retention.bytes_max:
            gone += 1
    if not gone:
        if start > max(recorded_starts(partition.folder), default=0) and partition.folder_is_on_disk:
            _record_start(partition, start)  # recorded by an earlier release, in the state file alone
        return
    end = sealed[gone - 1][1]
    rewrite.save_producers(partition, end)
    _record_start(partition, max(start, end))
    reach("retention.marked")
    for one in sealed[:gone]:
        report.segments_expired += 1
        report.bytes_expired += one[0].path.stat().st_size
        _remove(handle, partition, one)
        reach("retention.unlinked")


def _last_appended_us(sealed: rewrite.Sealed) -> int:
    """When the last frame of a sealed segment was appended; 0 for one without frames."""
    segment, end = sealed
    last = 0
    for _, header in frames_to(SegmentMap(segment.path), segment, end):
        last = header.appended_at_us
    return last


def _record_start(partition: Partition, offset: int) -> None:
    """Record that a partition now begins at `offset`. The caller holds the maintenance lock.

    The offset is recorded twice, durably: in the state file, which every process reads, and as the name of a file beside
    the segments, for the case that the state file is lost or replaced by an older copy.
    """
    folder, state, number = partition.folder, partition.state, partition.number
    earlier = recorded_starts(folder)
    if offset not in earlier:
        with storage_errors(folder):
            os.close(open_file(start_path(folder, offset), os.O_WRONLY | os.O_CREAT))
    sync_folder(folder)
    reach("retention.recorded")
    if offset > (state.start(number) or 0):
        state.set_start(number, offset)
    state.sync()
    for old in earlier:
        if old < offset:
            start_path(folder, old).unlink(missing_ok=True)


def _remove(handle: TopicHandle, partition: Partition, sealed: rewrite.Sealed) -> None:
    """Archive or unlink a segment."""
    segment, end = sealed
    folder = handle.archive(partition.number)
    if handle.topic.archive:
        make_folder(folder, levels=3)
        try:
            os.rename(segment.path, folder / segment.path.name)
        except OSError:  # the archive is on another disk
            _copy(segment.path, folder / segment.path.name)
        sync_folder(folder)
    elif folder.is_dir() and not (folder / segment.path.name).exists():
        # An archive that exists covers these offsets by an empty segment, so that it has no hole.
        header = partition.segment_header(segment.base, size=SEGMENT_HEADER_BYTES)
        replace_file(segment_path(folder, segment.base, end), header, durable=True)
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
        ageing_at = time.monotonic() + AGEING_SECONDS
        while True:
            if time.monotonic() >= ageing_at:  # also in a process whose queue is never empty
                self._maintain_ageing()
                ageing_at = time.monotonic() + AGEING_SECONDS
            try:
                item = self._queue.get(timeout=max(0.0, ageing_at - time.monotonic()))
            except queue.Empty:
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
            maintain_partition(handle, partition, MaintenanceReport(), clock=log.clock)
        except HeadwaterError as error:
            # Appends continue. A reader of damaged rows gets the same error.
            _record_failure(partition, error)
        except OSError as error:
            if not handle.deleted and not log.closed:
                _record_failure(partition, storage_error(error, partition.folder))
        except ValueError:
            if not handle.deleted and not log.closed:
                raise
