"""One partition: frames are appended at its tail by one writer at a time, and synced for many at once.

Order of the durable steps of an append, each a named crash point:

1. under the append lock, frames are written behind *written* and *written* moves (readers of `os` topics see them);
2. under the sync lock, the first waiting writer syncs for all of them, then *visible* moves (readers of `fsync` topics
   see them), and the other writers find their rows synced.

A process killed between two steps leaves a file longer than *written*. The next writer detects that by the file's size
and recovers: it keeps whole frames, and moves a torn one to the quarantine.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headwater.clock import Clock
from headwater.errors import Closed, NotFound
from headwater.faults import reach, watched
from headwater.filelock import FileLock
from headwater.log.embedded import recovery
from headwater.log.embedded.files import (
    COPY_BYTES,
    RESERVED_FROM_BYTES,
    OpenFile,
    open_places,
    replace_file,
    reserve,
    storage_error,
    storage_errors,
    sync_folder,
)
from headwater.log.embedded.producers import Batch as ProducerBatch
from headwater.log.embedded.producers import PartitionProducers
from headwater.log.embedded.segment import (
    SEGMENT_HEADER_BYTES,
    Segment,
    SegmentIndex,
    SegmentMap,
    list_segments,
    segment_header,
    segment_path,
)
from headwater.log.embedded.state import DELETED, StateFile, Tail, boot_mark
from headwater.log.errors import FileCorrupt, ProducerFenced, ReadOnly, SyncFailed
from headwater.log.frame import Draft, padding
from headwater.log.topic import Topic

if TYPE_CHECKING:
    from headwater.log.embedded.writer import KeyOffsets

IOV_MAX = 1000
#: In the folder of a log: held by a backup, and shared by all that rewrites or deletes segments.
BACKUP_LOCK = "backup.lock"
INDEXES_KEPT = 16


@dataclass(frozen=True, kw_only=True)
class LogContext:
    """What all topics and partitions of a log share."""

    root: Path
    log_id: str
    archive: Path
    clock: Clock
    read_only: bool
    lock_seconds_max: float
    #: Whether the transaction with this number is committed.
    is_committed: Callable[[int], bool]


class Identity(NamedTuple):
    """The idempotent producer of an append: its id and epoch, and the sequence of this batch."""

    producer: int
    epoch: int
    sequence: int
    name: str


class Written(NamedTuple):
    """The offsets that an append wrote; `tail` is the end to wait for, None for a duplicate batch."""

    offset: int
    offset_next: int
    tail: Tail | None
    rolled: bool = False


class Partition:
    """The tail of one partition, and the files behind it."""

    def __init__(
        self,
        topic: Callable[[], Topic],
        number: int,
        folder: Path,
        state: StateFile,
        context: LogContext,
        *,
        floor: int,
    ) -> None:
        self._topic = topic
        self.number = number
        self.folder = folder
        self.state = state
        self.clock = context.clock
        self.is_committed = context.is_committed
        self.quarantine = context.root / "quarantine"
        self.backup_lock = context.root / BACKUP_LOCK
        self.lock_seconds_max = context.lock_seconds_max
        self.read_only = context.read_only
        #: The first offset of a topic in memory since the last boot; 0 for other topics.
        self.floor = floor
        self.append_lock = FileLock(folder / "append.lock", seconds_max=context.lock_seconds_max)
        self.sync_lock = FileLock(folder / "sync.lock", seconds_max=context.lock_seconds_max)
        self.maintenance_lock = FileLock(folder / "tidy.lock", seconds_max=context.lock_seconds_max)
        self.keys: KeyOffsets | None = None
        #: Maintenance has considered all sealed segments before this offset for coalescing; they do not change any more.
        self.coalesced_to = 0
        self._folder_name = str(folder)
        self._files: dict[int, OpenFile] = {}
        #: Segments whose last sync failed.
        self._sync_failed: set[int] = set()
        self._producers: PartitionProducers | None = None
        self._made = folder.is_dir()
        self._closed = False
        #: Whether the recorded tail has been compared with the files.
        self.tail_checked = False
        #: The end that a read-only process found in the segments, where the recorded tail is older.
        self.scanned_tail: Tail | None = None
        self._start: int | None = None
        self._indexes: dict[tuple[str, int], SegmentIndex] = {}
        self._index_lock = threading.Lock()

    @property
    def topic(self) -> Topic:
        return self._topic()

    @property
    def name(self) -> str:
        return f"{self.topic.name}/{self.number}"

    @property
    def folder_is_on_disk(self) -> bool:
        return self.topic.durability != "memory"

    @property
    def synced(self) -> bool:
        """Whether rows become visible only after a sync."""
        return self.topic.durability == "fsync"

    # -- the visible end and the start --------------------------------------------------------------------------------

    def visible(self) -> Tail:
        """The end for readers. Recovers first if the last writer died in the middle of an append."""
        tail = self.recorded()
        if tail is not None and tail.boot == boot_mark() and self.tail_checked and self.scanned_tail is None:
            return tail
        return recovery.visible_end(self, tail)

    def written(self) -> Tail:
        """The end of the whole frames, also of those that wait for the disk and that a power failure would take."""
        tail = self.state.written(self.number)
        return tail if tail is not None and tail.boot == boot_mark() and self.tail_checked else self.visible()

    def recorded(self) -> Tail | None:
        """The end for readers according to the state file alone; None if it has no valid record."""
        return self.state.visible(self.number) if self.synced else self.state.written(self.number)

    def start(self) -> int:
        """The oldest offset that can be read. Only retention's record moves it, never a missing file."""
        if self._start is None:
            start, is_corrected = recovery.recorded_start(self)
            if not is_corrected:
                return start
            self._start = start
        recorded = self.state.start(self.number)
        return self._start if recorded is None else max(self._start, recorded)

    def segments(self) -> list[Segment]:
        return list_segments(self.folder)[0]

    def try_recover(self) -> bool:
        """Keep or cut the frames of dead writers, and sync the rows behind *visible*; False if another one appends."""
        if self.read_only or not self.folder.is_dir():
            return True
        if not self.append_lock.try_acquire():
            return False
        try:
            self.check_alive()
            tail = self.tail()
            if self.synced:
                self.sync_to(tail.offset)
        finally:
            self.append_lock.release()
        return True

    def recover(self) -> None:
        """Wait for the writer of the moment; keep or cut the frames of one that died."""
        self.make()
        with self.append_lock:
            self.check_alive()
            self.tail()

    # -- appending ----------------------------------------------------------------------------------------------------

    def append(
        self,
        drafts: Sequence[Draft],
        *,
        identity: Identity | None = None,
        condition: Callable[[Tail], None] | None = None,
    ) -> Written:
        """Write frames at the tail. They are durable after `sync_to`, which one writer does for many."""
        self.make()
        with self.append_lock:
            self.check_alive()
            reach("append.locked")
            tail = self.tail()
            if identity is not None:
                duplicate = self.check_identity(identity, tail)
                if duplicate is not None:
                    return Written(duplicate.offset, duplicate.offset_next, None)
            if condition is not None:
                condition(tail)
            start, end = self.write(tail, drafts, identity=identity)
            reach("append.written")
            self.publish_written(start, end, identity)
        reach("append.published")
        return Written(start.offset, end.offset, end, end.segment != tail.segment)

    def publish_written(self, start: Tail, end: Tail, identity: Identity | None) -> None:
        """Move *written* behind frames that have been written. The caller holds the append lock."""
        self.state.set_written(self.number, end)
        if identity is not None and self._producers is not None:
            self._producers.record(identity, start.offset, end)

    def append_punctuation(self, draft: Draft, identity: Identity | None) -> None:
        """Write a frame without rows. It takes no offset and has no sequence of its producer."""
        self.make()
        with self.append_lock:
            self.check_alive()
            _, end = self.write(self.tail(), [draft], identity=identity)
            self.state.set_written(self.number, end)
        self.sync_punctuation(end)

    def write(
        self, tail: Tail, drafts: Sequence[Draft], *, identity: Identity | None = None, transaction: int = 0
    ) -> tuple[Tail, Tail]:
        """Write frames behind `tail`, in a new segment if they do not fit; return the tails before and after them.

        The caller holds the append lock.
        """
        size = sum(draft.size for draft in drafts)
        limit = self.topic.segment_bytes_max
        if tail.position + size > limit and tail.position > SEGMENT_HEADER_BYTES:
            tail = self.roll(tail)
        now_us = max(self.clock.now_us(), tail.appended_at_us)
        producer, epoch, sequence = (identity.producer, identity.epoch, identity.sequence) if identity else (0, 0, 0)
        buffers: list[object] = []
        offset = tail.offset
        last = len(drafts) - 1
        for index, draft in enumerate(drafts):
            buffers.append(
                draft.header(
                    offset=offset,
                    appended_at_us=now_us,
                    producer=producer,
                    sequence=sequence,
                    epoch=epoch,
                    transaction=transaction,
                    more=index < last,
                )
            )
            buffers.append(draft.payload)
            if draft.payload_size % 8:
                buffers.append(padding(draft.payload_size))
            offset += draft.span
        self._store(tail, buffers, size)
        return tail, Tail(boot_mark(), tail.segment, tail.position + size, offset, now_us)

    def truncate(self, tail: Tail) -> None:
        """Cut frames that were written behind `tail` and not published. The caller holds the append lock."""
        with contextlib.suppress(OSError):
            file = self.file(tail.segment)
            os.ftruncate(file.descriptor, tail.position)

    def tail(self) -> Tail:
        """The end of the written frames; recovers if needed. The caller holds the append lock."""
        tail = self.state.written(self.number)
        if tail is not None and tail.boot == boot_mark():
            try:
                file = self.file(tail.segment)
                size = os.fstat(file.descriptor).st_size
            except FileNotFoundError:
                size = -1
            if size == tail.position and (self.tail_checked or self._is_last(tail)):
                self.tail_checked = True
                # A process that died during a roll has left the next segment: finish the roll first, for readers look
                # for the next offsets in that segment.
                begun = self._size_of_next(tail)
                if begun is None:
                    return tail
                if begun <= SEGMENT_HEADER_BYTES:
                    return self.roll(tail)
        tail = recovery.recover(self)
        self.tail_checked = True
        return tail

    def _is_last(self, tail: Tail) -> bool:
        """Whether the segment of `tail` is the last one, or the next one was created by a roll at `tail`."""
        chain, _ = list_segments(self.folder)
        return bool(chain) and not chain[-1].rewritten and chain[-1].base in (tail.segment, tail.offset)

    def _size_of_next(self, tail: Tail) -> int | None:
        """The size of the segment that a roll has created at `tail`; None if there is none."""
        if tail.offset == tail.segment:
            return None
        path = f"{self._folder_name}/{tail.offset:020d}.log"
        if not os.access(path, os.F_OK):  # nearly always: an exception would take four times as long
            return None
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return None

    def sync_to(self, offset: int) -> None:
        """Return when all rows before `offset` are as durable as the topic promises.

        Group commit: a writer waits for the lock, or until its rows are synced by another one.
        """
        if not self.synced or not self.sync_lock.acquire_unless(lambda: self._is_visible(offset)):
            return
        try:
            tail = self.state.written(self.number)
            if tail is None or self._is_visible(offset):
                return
            reach("sync.before")
            self.sync_segment(tail.segment)
            reach("sync.synced")
            self.state.set_visible(self.number, tail)
            reach("sync.published")
        finally:
            self.sync_lock.release()

    def _is_visible(self, offset: int) -> bool:
        visible = self.state.visible(self.number)
        return visible is not None and visible.offset >= offset and visible.boot == boot_mark()

    def sync_punctuation(self, end: Tail) -> None:
        """Like `sync_to`, for a frame that takes no offset."""
        if not self.synced:
            return
        with self.sync_lock:
            visible = self.state.visible(self.number)
            if visible is None or (visible.segment, visible.position) < (end.segment, end.position):
                tail = self.state.written(self.number) or end
                self.sync_segment(tail.segment)
                self.state.set_visible(self.number, tail)

    def sync_segment(self, segment: int) -> None:
        try:
            file = self.file(segment)
            if segment in self._sync_failed:
                self._write_again(file, segment)
            os.fdatasync(file.descriptor)
        except OSError as error:
            self._sync_failed.add(segment)
            raise SyncFailed(path=str(segment_path(self.folder, segment)), why=str(error)) from error
        self._sync_failed.discard(segment)

    def _write_again(self, file: OpenFile, segment: int) -> None:
        """Write the bytes that may not be durable again.

        After a failed sync the kernel marks the pages as clean, and the next sync would succeed without storing them.
        Bytes before *written* never change, so they can be written again while other threads append.
        """
        visible, written = self.state.visible(self.number), self.state.written(self.number)
        start = visible.position if visible is not None and visible.segment == segment else 0
        stop = written.position if written is not None and written.segment == segment else None
        size = os.fstat(file.descriptor).st_size if stop is None else stop
        while start < size:
            data = os.pread(file.descriptor, min(COPY_BYTES, size - start), start)
            if not data:
                break
            os.pwrite(file.descriptor, data, start)
            start += len(data)

    def publish(self, tail: Tail) -> None:
        """Make everything up to `tail` visible; it is already as durable as promised."""
        self.state.set_written(self.number, tail)
        if self.synced:
            with self.sync_lock:
                self.state.set_visible(self.number, tail)

    # -- segments -----------------------------------------------------------------------------------------------------

    def roll(self, tail: Tail) -> Tail:
        """Begin a new segment at the tail. The caller holds the append lock.

        A segment without rows goes on: it may have punctuations, and the next one would have the same name.
        """
        if tail.offset == tail.segment:
            return tail
        if self.folder_is_on_disk:
            with contextlib.suppress(OSError):
                file = self.file(tail.segment)
                os.ftruncate(file.descriptor, tail.position)  # frees the space reserved behind it
        if self.synced:
            self.sync_segment(tail.segment)
        reach("roll.synced")
        self.create_segment(tail.offset)
        reach("roll.created")
        with contextlib.suppress(FileCorrupt):  # the next append of an idempotent producer raises it
            if self._producers is None and PartitionProducers.exist(self.folder):
                self._check_producers(tail)
            if self._producers is not None:
                self._producers.catch_up(tail)
                self._producers.save(tail.offset)
        fresh = Tail(boot_mark(), tail.offset, SEGMENT_HEADER_BYTES, tail.offset, tail.appended_at_us)
        self.publish(fresh)
        if self.synced:
            self.state.sync()
        reach("roll.published")
        self._files = {fresh.segment: self.file(fresh.segment)}
        return fresh

    def segment_header(self, base: int, *, size: int = 0, flags: int = 0) -> bytes:
        """The header of a segment of this partition; `size` of a rewritten one, which does not grow."""
        created_us, topic = self.clock.now_us(), int(self.topic.id[:15], 16)
        return segment_header(
            partition=self.number, base=base, created_us=created_us, topic=topic, size=size, flags=flags
        )

    def create_segment(self, base: int) -> None:
        """Create the file of a segment. A crash before it is published leaves an empty file, which the next roll uses."""
        header = self.segment_header(base)
        path = segment_path(self.folder, base)
        with storage_errors(path):
            file = OpenFile(path, os.O_RDWR | os.O_CREAT)
            os.pwrite(file.descriptor, header, 0)
            os.ftruncate(file.descriptor, len(header))
            if self.synced:
                os.fdatasync(file.descriptor)
                sync_folder(self.folder)
        self._files[base] = file
        open_places.opened(self)

    def create_gap(self, base: int, offset_next: int) -> None:
        """Cover lost offsets by a segment without frames, so that readers skip them. The caller holds the append lock."""
        path = segment_path(self.folder, base, offset_next)
        with storage_errors(path):
            replace_file(path, self.segment_header(base, size=SEGMENT_HEADER_BYTES), durable=True)

    def file(self, segment: int) -> OpenFile:
        """The open file of the segment with base `segment`. Keep a reference to it while its descriptor is used."""
        file = self._files.get(segment)
        if file is None:
            file = OpenFile(segment_path(self.folder, segment), os.O_RDONLY if self.read_only else os.O_RDWR)
            self._files[segment] = file
            open_places.opened(self)
        return file

    def index_of(self, mapped: SegmentMap, limit: int) -> SegmentIndex:
        """The frame index of a mapped segment; cached, and extended as the segment grows."""
        key = (mapped.path.name, mapped.inode)
        with self._index_lock:
            index = self._indexes.pop(key, None) or SegmentIndex()
            self._indexes[key] = index
            while len(self._indexes) > INDEXES_KEPT:
                del self._indexes[next(iter(self._indexes))]
            index.extend(mapped.view, limit)
        return index

    def producers(self, tail: Tail) -> PartitionProducers:
        """The batches of idempotent producers up to `tail`."""
        self._check_producers(tail)
        if self._producers is None:
            raise Closed(what="partition")
        return self._producers

    def forget_tails(self) -> None:
        """Make the next recovery find the end from the segments alone. For repair; the caller holds the append lock."""
        self.state.clear(self.number)
        self._files = {}

    def skip(self, offset: int, offset_next: int, *, last: bool) -> None:
        """Make readers skip lost offsets; if they were the `last` ones, appends continue behind them. For repair."""
        with self.append_lock:
            if offset < offset_next:
                self.create_gap(offset, offset_next)
            if last:
                self.create_segment(offset_next)
                self.publish(Tail(boot_mark(), offset_next, SEGMENT_HEADER_BYTES, offset_next, 0))

    def check_alive(self) -> None:
        """Raise if the topic has been deleted or the log closed."""
        if self.state.counters()[1] == DELETED:
            raise NotFound(kind="topic", name=self.topic.name)
        if self._closed:
            raise Closed(what="log")

    def close(self) -> None:
        self._closed = True
        self._files = {}
        for lock in (self.append_lock, self.sync_lock, self.maintenance_lock):
            lock.close()

    def release_files(self) -> None:
        """Close the files and locks that are not in use; the next use opens them again."""
        self._files = {}
        for lock in (self.append_lock, self.sync_lock, self.maintenance_lock):
            lock.release_file()

    def abandon(self) -> None:
        """In a forked child: close the inherited files without releasing the parent's locks."""
        self._files = {}
        for lock in (self.append_lock, self.sync_lock, self.maintenance_lock):
            lock.abandon()

    def make(self) -> None:
        if self.read_only:
            raise ReadOnly(path=str(self.folder))
        if not self._made:
            with storage_errors(self.folder):
                try:
                    # Not its parents: another process may have deleted the topic, and half of it would come back.
                    self.folder.mkdir(mode=os.stat(self.folder.parent).st_mode & 0o777, exist_ok=True)
                except FileNotFoundError:
                    raise NotFound(kind="topic", name=self.topic.name) from None
            self._made = True

    def _store(self, tail: Tail, buffers: list[object], size: int) -> None:
        file = self.file(tail.segment)
        descriptor = file.descriptor
        end = tail.position + size
        if end > file.reserved and end >= RESERVED_FROM_BYTES and self.folder_is_on_disk:
            file.reserved = reserve(descriptor, tail.position, end, size_max=self.topic.segment_bytes_max)
        try:
            if watched():
                self._store_in_halves(descriptor, buffers, tail.position)
                return
            written = os.pwritev(descriptor, buffers[:IOV_MAX], tail.position)  # type: ignore[arg-type]
            if written != size:
                self._store_rest(descriptor, buffers, tail.position, written)
        except OSError as error:
            self.truncate(tail)
            raise storage_error(error, segment_path(self.folder, tail.segment)) from error

    @staticmethod
    def _store_rest(descriptor: int, buffers: list[object], position: int, written: int) -> None:
        # More buffers than one call takes, or a short write (a nearly full disk): write the rest one by one.
        for buffer in buffers:
            view = memoryview(buffer)  # type: ignore[arg-type]
            done = min(max(written, 0), len(view))
            written -= len(view)
            while done < len(view):
                done += os.pwrite(descriptor, view[done:], position + done)
            position += len(view)

    @staticmethod
    def _store_in_halves(descriptor: int, buffers: list[object], position: int) -> None:
        # One call is never torn by `kill -9`. Crash tests write in two calls, so that recovery meets torn frames.
        data = b"".join(buffers)  # type: ignore[arg-type]
        half = len(data) // 2
        os.pwrite(descriptor, data[:half], position)
        reach("append.half")
        os.pwrite(descriptor, data[half:], position + half)

    def check_identity(self, identity: Identity, tail: Tail) -> ProducerBatch | None:
        """The earlier batch with the same sequence, if there is one. The caller holds the append lock."""
        self._check_producers(tail)
        if self._producers is None:
            return None
        current = self._producers.epoch(identity.producer)
        if current > identity.epoch:
            raise ProducerFenced(producer=identity.name, epoch=identity.epoch, current=current)
        return self._producers.find(identity.producer, identity.sequence)

    def _check_producers(self, tail: Tail) -> None:
        if self._producers is None:
            self._producers = PartitionProducers(self.folder)
        self._producers.catch_up(tail)


def append_together(places: Sequence[tuple[Partition, Sequence[Draft]]], identity: Identity | None) -> list[Written]:
    """Append to several partitions; an error in one cuts what was written to the others.

    A crash may still leave the rows of some partitions: only a transaction prevents that.
    """
    written: list[Written] = []
    undo: list[tuple[Partition, Tail, Tail]] = []
    with contextlib.ExitStack() as locks:
        for partition, _ in places:
            partition.make()
            locks.enter_context(partition.append_lock)
        try:
            for partition, drafts in places:
                partition.check_alive()
                reach("append.locked")
                tail = partition.tail()
                duplicate = None if identity is None else partition.check_identity(identity, tail)
                if duplicate is not None:
                    written.append(Written(duplicate.offset, duplicate.offset_next, None))
                    continue
                start, end = partition.write(tail, drafts, identity=identity)
                undo.append((partition, start, end))
                written.append(Written(start.offset, end.offset, end, end.segment != tail.segment))
        except BaseException:
            for partition, start, _ in undo:
                partition.truncate(start)
            raise
        reach("append.written")
        for partition, start, end in undo:
            partition.publish_written(start, end, identity)
    reach("append.published")
    return written
