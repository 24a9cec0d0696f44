"""Transactions: appends to many partitions that become visible all at once or never.

Rows of an open transaction are in memory or, once *prepared*, in a file of their own: an open or prepared transaction
blocks no reader and no writer. To commit, a process

1. takes the append locks of all its partitions and writes the frames, marked with the transaction's number, behind
   their tails, where no reader reads yet;
2. syncs them, and takes the sync locks of these partitions;
3. takes the transaction lock, appends one record to the commit log (`commit_log.py`) and syncs it: **this is the
   commit**;
4. moves the tails.

One process at a time is in 3 and 4. A transaction that is slow, or stopped, in 1 or 2 blocks only its own partitions.

Three counters in `transactions/state` are the progress of the current commit: *intent* grows before 3, *started* before
4 and *finished* after it. If the first and the last differ while no process holds the lock, a process has died in
between.

If a process is killed before 3, its frames are behind *written* without a record, and the next writer cuts them. If it
is killed after 3, the transaction is in doubt: the next process that finds the record resolves it by moving the tails.
Since the append locks are held all the time, marked frames are the last of their partition until that is done.

A process that holds the transaction lock never waits for an append lock, which a commit that waits for the transaction
lock may hold. To resolve a transaction it tries to take the append locks, and if a partition is in use it releases the
transaction lock and retries. A commit that finds a transaction in doubt cuts its own frames, resolves that transaction
and starts again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from headwater.errors import HeadwaterError, Locked, NotFound
from headwater.faults import reach
from headwater.filelock import FileLock
from headwater.log.embedded.catalogue import Catalogue
from headwater.log.embedded.commit_log import (
    FINISHED,
    INTENT,
    SERIAL_SHIFT,
    STARTED,
    CommitLog,
    CommitState,
    Damage,
    Rebuilt,
    Record,
    framed,
    unframed,
)
from headwater.log.embedded.files import make_folder, replace_file, sync_folder
from headwater.log.embedded.frame import HEADER_BYTES, Draft, draft_of, payload_is_whole
from headwater.log.embedded.partition import LogContext, Partition
from headwater.log.embedded.producers import Registry
from headwater.log.embedded.segment import walk
from headwater.log.embedded.state import Tail
from headwater.log.errors import FrameCorrupt, ProducerFenced, TransactionFinished
from headwater.log.port import Appended, Offsets

#: The longest pause between two checks of a commit of another process.
PAUSE_SECONDS_MAX = 0.01
COMMITS_BYTES_MAX = 8 * 1024 * 1024
SIDE_BY_SIDE_BYTES_MIN = 4 * 1024 * 1024


class Part(NamedTuple):
    """The frames that a transaction adds to one partition."""

    topic: str
    partition: int
    drafts: list[Draft]


class Commits:
    """Commits transactions, and resolves those of dead processes."""

    def __init__(self, context: LogContext, catalogue: Catalogue, registry: Registry) -> None:
        self._folder = folder = context.root / "transactions"
        self._clock = context.clock
        self._catalogue = catalogue
        self._registry = registry
        self._read_only = context.read_only
        self._lock_seconds_max = context.lock_seconds_max
        self._lock = FileLock(folder / "lock", seconds_max=context.lock_seconds_max)
        self._shorten_from = 0
        self._state = CommitState(folder / "state", read_only=context.read_only)
        self._records = CommitLog(folder, self._state, read_only=context.read_only)

    # -- state --------------------------------------------------------------------------------------------------------

    def is_committed(self, number: int) -> bool:
        """Whether the transaction `number` is committed. All transactions before the oldest record are."""
        if number >> SERIAL_SHIFT <= self._records.horizon:
            return True
        if number not in self._records.numbers:
            self._records.catch_up()
        if number in self._records.numbers:
            self._records.make_durable()
            self._announce()
            return True
        if number >> SERIAL_SHIFT > self._records.horizon:
            self._records.check()  # its record may be among the lost ones
        return number >> SERIAL_SHIFT <= self._records.horizon

    def last_sequence(self, producer: str) -> int:
        """The sequence of the last transaction that `producer` committed, -1 for none."""
        if self._read_only:
            self._records.catch_up()
            self._records.check()
        else:
            with self._finished():  # not while a record is written but not yet durable
                pass
        record = self._records.last.get(producer)
        return -1 if record is None else int(record["sequence"])

    def last_metadata(self, producer: str) -> dict[str, Any] | None:
        """The metadata of the last transaction that `producer` committed."""
        self.last_sequence(producer)
        record = self._records.last.get(producer)
        return None if record is None else record.get("metadata")

    def snapshot(self, read: Callable[[], Offsets]) -> Offsets:
        """The result of `read` at a moment when no transaction is partly visible."""
        if self._read_only:
            return read()
        began, changed = time.monotonic(), (-1, -1, -1)
        while True:
            before = intent, started, finished = self._state.counters()
            if before != changed:
                began, changed = time.monotonic(), before
            if not intent == started == finished and self.resolve():
                continue
            if started == finished:
                offsets = read()
                if self._state.counters() == before:
                    return offsets
                continue
            # Another process is moving the tails, which takes microseconds unless the process has been stopped.
            waited = time.monotonic() - began
            if waited >= self._lock_seconds_max:
                raise self._busy(waited)
            time.sleep(min(PAUSE_SECONDS_MAX, waited / 4))

    def pending(self) -> bool:
        """Whether a commit is in progress; if its process died, `resolve` finishes it."""
        intent, started, finished = self._state.counters()
        return not intent == started == finished

    def resolve(self) -> bool:
        """Finish the commit of a process that died, if there is one.

        Return False while the process is alive or one of its partitions is in use.
        """
        if self._read_only or not self._lock.try_acquire():
            return False
        try:
            return self._finish_last()
        finally:
            self._lock.release()

    # -- committing ---------------------------------------------------------------------------------------------------

    def commit(
        self,
        parts: Sequence[Part],
        *,
        name: str,
        producer: str | None = None,
        epoch: int | None = None,
        sequence: int | None = None,
        prepared: bool = False,
        metadata: dict[str, Any] | None = None,
        source: Path | None = None,
    ) -> dict[str, Appended]:
        """Make all parts visible at once; a transaction whose sequence was committed before changes nothing.

        A transaction without parts is recorded only if it has metadata. With a `source`, the file must still exist:
        another process may have rolled the transaction back.
        """
        record: Record = {
            "name": name,
            "producer": producer,
            "epoch": epoch,
            "sequence": sequence,
            "prepared": prepared,
        }
        if metadata is not None:
            record["metadata"] = metadata

        def outcome() -> dict[str, Appended] | None:
            """The result, if it is known without writing. The caller holds the transaction lock."""
            earlier = self._earlier(name, producer, sequence, prepared)
            if earlier is not None:
                return _appended(earlier, duplicate=True)
            if source is not None and not source.exists():
                raise NotFound(kind="prepared transaction", name=name)
            if not prepared:  # checked by `prepare`; a prepared transaction can always be committed
                self._check_epoch(producer, epoch)
            return {} if not parts and metadata is None else None

        ordered = sorted(parts, key=lambda part: (part.topic, part.partition))  # one order of locks: no deadlock
        while True:
            with self._finished():
                decided = outcome()
            if decided is None:
                decided = self._commit(ordered, dict(record), outcome)
            if decided is not None:
                self._shorten_if_due()
                return decided

    def _commit(
        self, parts: Sequence[Part], record: Record, outcome: Callable[[], dict[str, Appended] | None]
    ) -> dict[str, Appended] | None:
        """Write, record and publish; None if the commit of a dead process must be finished first."""
        tails: list[tuple[Partition, Tail, Tail]] = []
        number = 0
        with ExitStack() as locks:
            for part in parts:
                partition = self._partition(part.topic, part.partition)
                partition.make()
                locks.enter_context(partition.append_lock)
                partition.check_alive()
            try:
                # Under the append locks, so that shortening the commit log never passes this number. Another process
                # may use the same serial, hence the random bits.
                self._records.catch_up()
                number = ((self._records.serial + 1) << SERIAL_SHIFT) | secrets.randbits(SERIAL_SHIFT)
                places = [self._partition(part.topic, part.partition) for part in parts]
                begun = [(place, place.tail(), part.drafts) for place, part in zip(places, parts, strict=True)]
                _write(begun, number, tails)
                reach("commit.written")
                _sync([(partition, end) for partition, _, end in tails if partition.synced])
                reach("commit.synced")
                # Before the transaction lock: a process that was stopped while it syncs one of these partitions must not
                # block commits to other partitions.
                for partition in places:
                    if partition.synced:
                        locks.enter_context(partition.sync_lock)
                locks.enter_context(self._lock)
                self._records.catch_up()
                self._records.check()
                decided = None if self._unfinished() else outcome()
                if decided is None and not self._unfinished():
                    decided = self._record(number, parts, tails, record)
            except BaseException:
                if number not in self._records.numbers:
                    _truncate(tails)
                raise
            if number not in self._records.numbers:
                _truncate(tails)
                return decided
            reach("commit.recorded")
            self._flip([(partition, end) for partition, _, end in tails])
        reach("commit.finished")
        return decided

    def _record(
        self, number: int, parts: Sequence[Part], tails: Sequence[tuple[Partition, Tail, Tail]], record: Record
    ) -> dict[str, Appended]:
        """Append the commit record. The caller holds the transaction lock."""
        self._state.count(INTENT, self._state.counters()[2] + 1)
        record |= {
            "number": number,
            "at_us": self._clock.now_us(),
            "parts": [
                [part.topic, part.partition, start.offset, end.offset]
                for part, (_, start, end) in zip(parts, tails, strict=True)
            ],
        }
        try:
            self._records.append(record)
        except BaseException:
            if number not in self._records.numbers:
                self._state.count(INTENT, self._state.counters()[2])
            raise
        return _appended(record, duplicate=False)

    def _partition(self, topic: str, number: int) -> Partition:
        return self._catalogue.get(topic).partition(number)

    def _flip(self, tails: Sequence[tuple[Partition, Tail]]) -> None:
        intent, _, _ = self._state.counters()
        self._state.count(STARTED, intent)
        for partition, end in tails:
            partition.publish(end)
            reach("commit.flipped")
        self._state.count(FINISHED, intent)

    @contextmanager
    def _finished(self) -> Iterator[None]:
        """Hold the transaction lock, with the last commit finished."""
        began = time.monotonic()
        while True:
            with self._lock:
                if self._finish_last():
                    yield
                    return
            waited = time.monotonic() - began
            if waited >= self._lock_seconds_max:
                raise self._busy(waited)
            time.sleep(min(PAUSE_SECONDS_MAX, waited / 4))

    def _unfinished(self) -> bool:
        intent, started, finished = self._state.counters()
        return not intent == started == finished or not self._state.of_this_boot

    def _finish_last(self) -> bool:
        """Move the tails of a recorded transaction whose process died. The caller holds the transaction lock.

        Return False if one of its partitions is in use. The caller must then release the lock, for which the user of
        that partition may wait.
        """
        self._records.catch_up()
        self._records.check()
        if not self._unfinished():
            return True
        intent, _, _ = self._state.counters()
        self._records.make_durable()
        self._records.bear_witness()
        self._state.count(STARTED, intent)
        for partition in self._last_partitions():
            with contextlib.suppress(NotFound):
                if not partition.try_recover():
                    return False
        self._state.count(FINISHED, intent)
        if not self._state.of_this_boot:
            self._records.renew_copy()
            self._state.mark_boot()
        return True

    def _last_partitions(self) -> Iterator[Partition]:
        """The partitions whose tails may be behind their last transaction."""
        # After a power cut that may be any partition; otherwise only those of the last transaction.
        records = [self._records.newest] if self._state.of_this_boot else list(self._records.recent)
        places = {(topic, number) for record in records if record is not None for topic, number, *_ in record["parts"]}
        for topic, number in sorted(places):
            with contextlib.suppress(NotFound):  # the topic was deleted
                yield self._partition(topic, number)

    def _busy(self, waited: float) -> Locked:
        """The error that names the process which prevents the last commit from being finished."""
        for partition in self._last_partitions():
            if partition.append_lock.try_acquire():
                partition.append_lock.release()
            else:
                return partition.append_lock.held(waited)
        return self._lock.held(waited)

    def _earlier(self, name: str, producer: str | None, sequence: int | None, prepared: bool) -> Record | None:
        if prepared and name in self._records.prepared:
            return self._records.prepared[name]
        if producer is None or sequence is None:
            return None
        last = self._records.last.get(producer)
        if last is None or sequence > last["sequence"]:
            return None
        if last["sequence"] == sequence:
            return last
        # A prepared transaction is committed even if its producer has committed later ones.
        return None if prepared else {"parts": []}

    def _check_epoch(self, producer: str | None, epoch: int | None) -> None:
        if producer is None or epoch is None:
            return
        current = self._registry.epoch(producer)
        if epoch < current:
            raise ProducerFenced(producer=producer, epoch=epoch, current=current)

    def _announce(self) -> None:
        """Mark a transaction of a dead process as started, because one of its partitions is being recovered.

        Otherwise readers could see this partition before the others: a dying process releases its locks one by one.
        """
        intent, _, finished = self._state.counters()
        if intent != finished and not self._read_only:
            self._state.count(STARTED, intent)

    def _shorten_if_due(self) -> None:
        """Remove the records that are no longer needed, once the commit log is large."""
        if self._records.position < max(COMMITS_BYTES_MAX, self._shorten_from):
            return
        # If a partition is in use or damaged, retry when the file has grown some more. This transaction is committed in
        # any case, and users of the partition get the error.
        self._shorten_from = self._records.position + COMMITS_BYTES_MAX // 8
        with contextlib.suppress(HeadwaterError), self._finished():
            self._shorten()

    def _shorten(self) -> None:
        # An old number is only needed to recover a tail. Recover all tails, and record the horizon from which numbers are
        # needed again. A commit in progress, whose number may be older, holds the locks of its partitions.
        for name in self._catalogue.names(internal=True):
            for partition in self._catalogue.get(name).partitions():
                if not partition.try_recover():
                    return
                partition.state.sync()
        self._forget_committed_files()
        kept = [{**record, "old": True} for record in self._records.last.values()]
        self._records.replace([{"horizon": self._records.serial, "kept": len(kept)}, *kept])

    def _forget_committed_files(self) -> None:
        """Remove the files of prepared transactions that were committed, before their records are removed."""
        folder = self._folder / "prepared"
        if folder.is_dir():
            for name in os.listdir(folder):
                if name in self._records.prepared:
                    (folder / name).unlink(missing_ok=True)
            sync_folder(folder)

    def close(self) -> None:
        self._lock.close()

    def abandon(self) -> None:
        """In a forked child: close the inherited lock without releasing it for the parent."""
        self._lock.abandon()

    # -- repair -------------------------------------------------------------------------------------------------------

    def damage(self) -> Damage | None:
        """The first damage of the commit log, if there is any."""
        self._records.catch_up()
        return self._records.damage

    def copy_differs(self) -> bool:
        """Whether the copy of the commit log differs from it."""
        return self._records.copy_differs()

    def renew_copy(self) -> None:
        """Replace the copy of the commit log."""
        with self._lock:
            self._records.catch_up()
            self._records.check()
            self._records.renew_copy()

    def recorded(self, number: int) -> bool:
        """Whether the commit log covers this transaction."""
        return number in self._records.numbers or number >> SERIAL_SHIFT <= self._records.horizon

    def rebuild(self, proven: Mapping[int, Sequence[Sequence[Any]]], *, dry_run: bool) -> Rebuilt:
        """Rebuild the commit log from its whole records, its copy and the visible frames of the partitions."""
        if dry_run:
            return self._records.rebuild(proven)
        with self._lock:
            rebuilt = self._records.rebuild(proven)
            self._records.set_aside(why="rebuilt")
            self._records.replace(rebuilt.records)
        return rebuilt

    # -- prepared transactions ----------------------------------------------------------------------------------------

    def prepare(self, name: str, parts: Sequence[Part], about: dict[str, Any]) -> None:
        """Make a transaction durable without making it visible."""
        self._check_epoch(about["producer"], about["epoch"])
        folder = self._folder / "prepared"
        make_folder(folder, levels=1)
        places = [[part.topic, part.partition, len(part.drafts)] for part in parts]
        frames = b"".join(
            bytes(piece)
            for part in parts
            for draft in part.drafts
            for piece in (draft.header(offset=0, appended_at_us=0), draft.payload, bytes(-draft.payload_size % 8))
        )
        replace_file(folder / name, framed({**about, "parts": places}) + frames, durable=True, point="prepare.written")
        reach("prepare.published")

    def prepared(self) -> list[str]:
        folder = self._folder / "prepared"
        self._records.catch_up()
        self._records.check()
        names = os.listdir(folder) if folder.is_dir() else []
        # A file whose transaction is committed belongs to a process that died before it removed it.
        return sorted(name for name in names if not name.startswith(".") and name not in self._records.prepared)

    def commit_prepared(self, name: str) -> dict[str, Appended]:
        """Commit by id; a repeated call changes nothing, also after a crash."""
        path = self._folder / "prepared" / name
        with self._finished():
            done = self._records.prepared.get(name)
            if done is None:
                if not path.exists():
                    raise NotFound(kind="prepared transaction", name=name)
                about, parts = _load_prepared(path)
        if done is None:
            result = self.commit(
                parts,
                name=name,
                producer=about["producer"],
                epoch=about["epoch"],
                sequence=about["sequence"],
                prepared=True,
                source=path,
            )
        else:
            result = _appended(done, duplicate=True)
        path.unlink(missing_ok=True)
        return result

    def rollback_prepared(self, name: str) -> None:
        path = self._folder / "prepared" / name
        with self._lock:
            self._records.catch_up()
            self._records.check()
            if name in self._records.prepared:
                raise TransactionFinished(transaction=name, outcome="committed")
            if not path.exists():
                raise NotFound(kind="prepared transaction", name=name)
            path.unlink()
            sync_folder(path.parent)


def _appended(record: dict[str, Any], *, duplicate: bool) -> dict[str, Appended]:
    ranges: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partition, start, end in record["parts"]:
        ranges.setdefault(topic, {})[partition] = (start, end)
    return {topic: Appended(topic=topic, ranges=places, duplicate=duplicate) for topic, places in ranges.items()}


def _load_prepared(path: Path) -> tuple[dict[str, Any], list[Part]]:
    data = path.read_bytes()
    framed = unframed(data, 0)
    if framed is None:
        raise FrameCorrupt(
            path=str(path), position=0, offset=-1, why="the prepared transaction does not match its checksum"
        )
    about, start = framed
    drafts = []
    for position, header in walk(data, position=start):
        payload = data[position + HEADER_BYTES : position + HEADER_BYTES + header.payload_size]
        if not payload_is_whole(header, payload):
            raise FrameCorrupt(
                path=str(path), position=position, offset=-1, why="a prepared frame does not match its checksum"
            )
        drafts.append(draft_of(header, payload))
    if sum(count for *_, count in about["parts"]) != len(drafts):
        raise FrameCorrupt(path=str(path), position=len(data), offset=-1, why="prepared frames are missing")
    parts = []
    for topic, partition, count in about["parts"]:
        parts.append(Part(topic, partition, drafts[:count]))
        drafts = drafts[count:]
    return about, parts


def _write(
    begun: Sequence[tuple[Partition, Tail, list[Draft]]], number: int, tails: list[tuple[Partition, Tail, Tail]]
) -> None:
    """Write the frames of several partitions. Add the tails before and after them to `tails`, even if one fails."""

    def write(place: tuple[Partition, Tail, list[Draft]]) -> tuple[Partition, Tail, Tail]:
        partition, tail, drafts = place
        return partition, *partition.write(tail, drafts, transaction=number)

    size = sum(draft.size for *_, drafts in begun for draft in drafts)
    if len(begun) == 1 or size < SIDE_BY_SIDE_BYTES_MIN:
        for place in begun:
            tails.append(write(place))
        return
    # Most of the time is spent by the kernel on allocating pages, which runs in parallel.
    with ThreadPoolExecutor(max_workers=min(4, len(begun))) as pool:
        writes = [pool.submit(write, place) for place in begun]
    tails.extend(one.result() for one in writes if one.exception() is None)
    for one in writes:
        one.result()


def _truncate(tails: Sequence[tuple[Partition, Tail, Tail]]) -> None:
    """Cut frames that were written but not committed. The caller holds the append locks."""
    for partition, start, _ in tails:
        partition.truncate(start)


def _sync(ends: Sequence[tuple[Partition, Tail]]) -> None:
    """Sync several partitions in parallel, so that the disk can order the writes."""
    if len(ends) <= 1:
        for partition, end in ends:
            partition.sync_segment(end.segment)
        return
    with ThreadPoolExecutor(max_workers=min(8, len(ends))) as pool:
        list(pool.map(lambda place: place[0].sync_segment(place[1].segment), ends))
