"""Transactions: appends to many partitions that become visible all at once or never.

Rows of an open transaction are in memory or, once *prepared*, in a file of their own: an open or prepared transaction
blocks no reader and no writer. To commit, a process

1. takes the append locks of all its partitions and writes the frames, marked with the transaction's number, behind
   their tails, where no reader reads yet;
2. syncs them, and takes the sync locks of these partitions;
3. takes the lock of its producer, if it has one and numbers its transactions, and of a commit log (`commit_log.py`),
   appends one record to it and syncs it: **this is the commit**;
4. moves the tails.

For each commit log, one process at a time is in 3 and 4. A process that is stopped anywhere in these steps blocks only
its own partitions, its producer and one commit log: others take another commit log.

Three counters of each commit log in `transactions/state` are the progress of its current commit: *intent* grows before
3, *started* before 4 and *finished* after it. If the first and the last differ while no process holds the lock, a process
has died in between.

If a process is killed before 3, its frames are behind *written* without a record, and the next writer cuts them. If it
is killed after 3, the transaction is in doubt: the next process that finds the record resolves it by moving the tails.
Since the append locks are held all the time, marked frames are the last of their partition until that is done.

A process that holds the lock of a producer or a commit log never waits for an append lock, which a commit that waits for
one of those may hold. To resolve a transaction it tries to take the append locks, and if a partition is in use it
releases the commit log and retries. A commit that depends on a transaction in doubt cuts its own frames, resolves that
transaction and starts again (`_Doubt`).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from headwater.errors import HeadwaterError, Locked, NotFound
from headwater.faults import reach
from headwater.filelock import FileLock, unlock, wait_for_lock
from headwater.log.embedded.catalogue import Catalogue
from headwater.log.embedded.commit_log import (
    SERIAL_SHIFT,
    CommitLog,
    CommitLogs,
    Rebuilt,
    Record,
    Recorded,
)
from headwater.log.embedded.commit_state import FINISHED, INTENT, STARTED
from headwater.log.embedded.files import OpenFile, make_folder, make_folders, sync_folder
from headwater.log.embedded.partition import LogContext, Partition
from headwater.log.embedded.prepared_file import load_prepared, write_prepared
from headwater.log.embedded.producers import Registry
from headwater.log.embedded.state import Tail
from headwater.log.embedded.transaction_parts import Part, sync_parts, truncate_parts, write_parts
from headwater.log.errors import ProducerFenced, TransactionFinished
from headwater.log.port import Appended, Offsets

#: The longest pause between two checks of a commit of another process.
PAUSE_SECONDS_MAX = 0.01
COMMITS_BYTES_MAX = 8 * 1024 * 1024


T = TypeVar("T")


class _Doubt(Exception):
    """The answer depends on the last transaction of a commit log, which is in doubt."""

    def __init__(self, log: CommitLog) -> None:
        super().__init__(log.path)
        self.log = log


class Commits:
    """Commits transactions, and resolves those of dead processes."""

    def __init__(self, context: LogContext, catalogue: Catalogue, registry: Registry) -> None:
        self._folder = folder = context.root / "transactions"
        self._clock = context.clock
        self._catalogue = catalogue
        self._registry = registry
        self._read_only = context.read_only
        self._lock_seconds_max = context.lock_seconds_max
        self._shorten_from = 0
        self._logs = CommitLogs(folder, read_only=context.read_only, lock_seconds_max=context.lock_seconds_max)
        self._producer_locks: dict[str, FileLock] = {}

    # -- state --------------------------------------------------------------------------------------------------------

    def is_committed(self, number: int) -> bool:
        """Whether the transaction `number` is committed. All transactions before the oldest records are."""
        log = self._logs.log_of(number)
        if log is None:
            if number >> SERIAL_SHIFT <= self._logs.horizon:
                return True
            self._logs.catch_up()
            log = self._logs.log_of(number)
        if log is not None:
            log.make_durable()
            self._announce(log, number)
            return True
        if number >> SERIAL_SHIFT > self._logs.horizon:
            self._logs.check()  # its record may be among the lost ones
        return number >> SERIAL_SHIFT <= self._logs.horizon

    def last_sequence(self, producer: str) -> int:
        """The sequence of the last transaction that `producer` committed, -1 for none."""
        record = self._last(producer)
        return -1 if record is None else int(record["sequence"])

    def last_metadata(self, producer: str) -> dict[str, Any] | None:
        """The metadata of the last transaction that `producer` committed."""
        record = self._last(producer)
        return None if record is None else record.get("metadata")

    def _last(self, producer: str) -> Record | None:
        def ask() -> Record | None:
            # A producer that never took its lock has no commit in progress.
            is_new = self._read_only or not self._producer_lock(producer).exists()
            with contextlib.nullcontext() if is_new else self._exclusive(producer):
                self._logs.catch_up()
                self._logs.check()
                return self._finished_record(self._logs.last(producer))

        return self._without_doubt(ask)

    def snapshot(self, read: Callable[[], Offsets], topic: str, partitions: Collection[int]) -> Offsets:
        """The result of `read` at a moment when no transaction is partly visible in these partitions."""
        if self._read_only:
            return read()
        began, seen = time.monotonic(), None
        while True:
            before = intent, started, finished = self._logs.counters()
            if not intent == started == finished and self.resolve():
                continue
            log = None if started == finished else self._moving(topic, partitions)
            if log is None:
                offsets = read()
                if self._logs.counters() == before:
                    return offsets
                continue
            # Another process is moving these tails, which takes microseconds unless the process has been stopped.
            commit = (log, log.slot.counters())
            if commit != seen:
                began, seen = time.monotonic(), commit
            waited = time.monotonic() - began
            if waited >= self._lock_seconds_max:
                raise self._busy(log, waited)
            time.sleep(min(PAUSE_SECONDS_MAX, waited / 4))

    def _moving(self, topic: str, partitions: Collection[int]) -> CommitLog | None:
        """The commit log whose last transaction is becoming visible in one of these partitions."""
        for log in self._logs.unfinished():
            _, started, finished = log.slot.counters()
            if started != finished:
                log.catch_up()
                parts = [] if log.newest is None else log.newest["parts"]
                if any(name == topic and number in partitions for name, number, *_ in parts):
                    return log
        return None

    def pending(self) -> bool:
        """Whether a commit is in progress; if its process died, `resolve` finishes it."""
        intent, started, finished = self._logs.counters()
        return not intent == started == finished

    def resolve(self) -> bool:
        """Finish the commits of processes that died, if there are any.

        Return False while such a process is alive or one of its partitions is in use.
        """
        resolved = [] if self._read_only else [self._resolve(log) for log in self._logs.unfinished()]
        return not self._read_only and all(resolved)

    def _resolve(self, log: CommitLog) -> bool:
        if not log.lock.try_acquire():
            return False
        try:
            return self._finish_last(log)
        finally:
            log.lock.release()

    @contextmanager
    def quiet(self) -> Iterator[dict[str, bytes]]:
        """Let no transaction become visible while the block runs; give it the commit logs' bytes by file name.

        The block must be short: commits of all processes wait for it.
        """
        began = time.monotonic()
        while True:
            with ExitStack() as locks:
                try:
                    for log in self._logs:
                        locks.enter_context(log.lock)
                except Locked:  # by a commit; it may be one of many
                    if time.monotonic() - began >= self._lock_seconds_max:
                        raise
                    continue
                self._logs.catch_up()
                self._logs.check()
                doubtful = [log for log in self._logs.in_use if not self._finish_last(log)]
                if not doubtful:
                    yield {log.path.name: data for log in self._logs if (data := log.content())}
                    return
            waited = time.monotonic() - began
            if waited >= self._lock_seconds_max:
                raise self._busy(doubtful[0], waited)
            time.sleep(min(PAUSE_SECONDS_MAX, waited / 4))

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
    ) -> dict[str, Appended]:
        """Make all parts visible at once; a transaction whose sequence was committed before changes nothing.

        A transaction without parts is recorded only if it has metadata. The caller holds the lock of a `prepared` one.
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
            """The result, if it is known without writing. The caller holds the lock of the producer."""
            self._logs.catch_up()
            self._logs.check()
            earlier = self._earlier(name, producer, sequence, prepared)
            if earlier is not None:
                return _appended(earlier, duplicate=True)
            if not prepared:  # checked by `prepare`; a prepared transaction can always be committed
                self._check_epoch(producer, epoch)
            return {} if not parts and metadata is None else None

        def exclusive() -> AbstractContextManager[None]:
            """Exclude other commits that may have the same sequence."""
            if producer is None or sequence is None:
                return contextlib.nullcontext()
            return self._exclusive(producer)

        ordered = sorted(parts, key=lambda part: (part.topic, part.partition))  # one order of locks: no deadlock

        def attempt() -> dict[str, Appended]:
            self.resolve()
            with exclusive():
                decided = outcome()
            return self._commit(ordered, dict(record), outcome, exclusive) if decided is None else decided

        decided = self._without_doubt(attempt)
        self._shorten_if_due()
        return decided

    def _commit(
        self,
        parts: Sequence[Part],
        record: Record,
        outcome: Callable[[], dict[str, Appended] | None],
        exclusive: Callable[[], AbstractContextManager[None]],
    ) -> dict[str, Appended]:
        """Write, record and publish."""
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
                self._logs.catch_up()
                number = ((self._logs.serial + 1) << SERIAL_SHIFT) | secrets.randbits(SERIAL_SHIFT)
                places = [self._partition(part.topic, part.partition) for part in parts]
                begun = [(place, place.tail(), part.drafts) for place, part in zip(places, parts, strict=True)]
                write_parts(begun, number, tails)
                reach("commit.written")
                sync_parts([(partition, end) for partition, _, end in tails if partition.synced])
                reach("commit.synced")
                # Before the commit log: a process that was stopped while it syncs one of these partitions must not
                # block commits to other partitions.
                for partition in places:
                    if partition.synced:
                        locks.enter_context(partition.sync_lock)
                locks.enter_context(exclusive())
                log = self._logs.take(locks)
                decided = outcome()
                if decided is None:
                    if not log.slot.is_finished:
                        raise _Doubt(log)
                    decided = self._record(log, number, parts, tails, record)
            except BaseException:
                if self._logs.log_of(number) is None:
                    truncate_parts(tails)
                raise
            if number not in log.numbers:
                truncate_parts(tails)
                return decided
            reach("commit.recorded")
            self._flip(log, [(partition, end) for partition, _, end in tails])
        reach("commit.finished")
        return decided

    def _record(
        self,
        log: CommitLog,
        number: int,
        parts: Sequence[Part],
        tails: Sequence[tuple[Partition, Tail, Tail]],
        record: Record,
    ) -> dict[str, Appended]:
        """Append the commit record. The caller holds the lock of the commit log."""
        log.slot.count(INTENT, log.slot.counters()[2] + 1)
        record |= {
            "number": number,
            "at_us": self._clock.now_us(),
            "parts": [
                [part.topic, part.partition, start.offset, end.offset]
                for part, (_, start, end) in zip(parts, tails, strict=True)
            ],
        }
        try:
            log.append(record)
        except BaseException:
            if number not in log.numbers:
                log.slot.count(INTENT, log.slot.counters()[2])
            raise
        return _appended(record, duplicate=False)

    def _partition(self, topic: str, number: int) -> Partition:
        return self._catalogue.get(topic).partition(number)

    @staticmethod
    def _flip(log: CommitLog, tails: Sequence[tuple[Partition, Tail]]) -> None:
        intent, _, _ = log.slot.counters()
        log.slot.count(STARTED, intent)
        for partition, end in tails:
            partition.publish(end)
            reach("commit.flipped")
        log.slot.count(FINISHED, intent)

    def _producer_lock(self, producer: str) -> FileLock:
        lock = self._producer_locks.get(producer)
        if lock is None:
            path = self._folder / "producers" / f"{quote(producer, safe='')}.lock"
            lock = self._producer_locks.setdefault(producer, FileLock(path, seconds_max=self._lock_seconds_max))
        return lock

    @contextmanager
    def _exclusive(self, producer: str) -> Iterator[None]:
        """Hold the lock of a producer: no other process commits one of its transactions meanwhile."""
        make_folders(self._folder / "producers")
        lock = self._producer_lock(producer)
        try:
            with lock:
                yield
        finally:
            lock.release_file()

    # -- transactions in doubt ----------------------------------------------------------------------------------------

    def _without_doubt(self, ask: Callable[[], T]) -> T:
        """The result of `ask`. If it depends on a transaction in doubt, resolve that one and ask again."""
        began = time.monotonic()
        while True:
            try:
                return ask()
            except _Doubt as doubt:
                log = doubt.log
            while not log.slot.is_finished and not self._resolve(log):
                waited = time.monotonic() - began
                if waited >= self._lock_seconds_max:
                    raise self._busy(log, waited)
                time.sleep(min(PAUSE_SECONDS_MAX, waited / 4))

    def _finished_record(self, recorded: Recorded | None) -> Record | None:
        """The record; raise `_Doubt` if its transaction is not resolved yet."""
        if recorded is None:
            return None
        if not self._read_only and recorded.log.is_in_doubt(recorded.record):
            raise _Doubt(recorded.log)
        return recorded.record

    def _finish_last(self, log: CommitLog) -> bool:
        """Move the tails of a recorded transaction whose process died. The caller holds the lock of the commit log.

        Return False if one of its partitions is in use. The caller must then release the lock, for which the user of
        that partition may wait.
        """
        log.catch_up()
        log.check()
        if log.slot.is_finished:
            return True
        intent, _, _ = log.slot.counters()
        log.make_durable()
        log.bear_witness()
        log.slot.count(STARTED, intent)
        for partition in self._last_partitions(log):
            with contextlib.suppress(NotFound):
                if not partition.try_recover():
                    return False
        log.slot.count(FINISHED, intent)
        if not log.slot.of_this_boot:
            log.renew_copy()
            log.slot.mark_boot()
        return True

    def _last_partitions(self, log: CommitLog) -> Iterator[Partition]:
        """The partitions whose tails may be behind their last transaction in this commit log."""
        # After a power cut that may be any partition; otherwise only those of the last transaction.
        records = [log.newest] if log.slot.of_this_boot else list(log.recent)
        places = {(topic, number) for record in records if record is not None for topic, number, *_ in record["parts"]}
        for topic, number in sorted(places):
            with contextlib.suppress(NotFound):  # the topic was deleted
                yield self._partition(topic, number)

    def _busy(self, log: CommitLog, waited: float) -> Locked:
        """The error that names the process which prevents the last commit from being finished."""
        for partition in self._last_partitions(log):
            if partition.append_lock.try_acquire():
                partition.append_lock.release()
            else:
                return partition.append_lock.held(waited)
        return log.lock.held(waited)

    def _earlier(self, name: str, producer: str | None, sequence: int | None, prepared: bool) -> Record | None:
        done = self._finished_record(self._logs.prepared(name)) if prepared else None
        if done is not None:
            return done
        if producer is None or sequence is None:
            return None
        last = self._finished_record(self._logs.last(producer))
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

    def _announce(self, log: CommitLog, number: int) -> None:
        """Mark a transaction of a dead process as started, because one of its partitions is being recovered.

        Otherwise readers could see this partition before the others: a dying process releases its locks one by one.
        """
        intent, _, finished = log.slot.counters()
        is_last = log.newest is not None and log.newest["number"] == number
        if is_last and intent != finished and not self._read_only:
            log.slot.count(STARTED, intent)

    # -- a commit log that has grown ----------------------------------------------------------------------------------

    def _shorten_if_due(self) -> None:
        """Remove the records that are no longer needed, once the commit logs are large."""
        size = sum(log.position for log in self._logs.in_use)
        if size < max(COMMITS_BYTES_MAX, self._shorten_from):
            return
        # If a partition or a commit log is in use or damaged, retry when the files have grown some more. This transaction
        # is committed in any case, and users of the partition get the error.
        self._shorten_from = size + COMMITS_BYTES_MAX // 8
        with contextlib.suppress(HeadwaterError), ExitStack() as locks:
            for log in self._logs:
                locks.enter_context(log.lock)
            self._logs.catch_up()
            if all(self._finish_last(log) for log in self._logs.in_use):
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
        logs = [log for log in self._logs.in_use if log.serial]
        # A process may have read a record that was then cut after a failed sync: its own number is higher then.
        resolved = max([self._logs.serial, *(number >> SERIAL_SHIFT for log in logs for number in log.numbers)])
        for log in logs:
            kept = [{**record, "old": True} for record in log.last.values()]
            log.replace([{"horizon": log.serial, "resolved": resolved, "kept": len(kept)}, *kept])

    def _forget_committed_files(self) -> None:
        """Remove the files of prepared transactions that were committed, before their records are removed."""
        folder = self._folder / "prepared"
        if folder.is_dir():
            for name in os.listdir(folder):
                if self._logs.prepared(name) is not None:
                    (folder / name).unlink(missing_ok=True)
            sync_folder(folder)

    def close(self) -> None:
        for lock in self._locks():
            lock.close()

    def abandon(self) -> None:
        """In a forked child: close the inherited locks without releasing them for the parent."""
        for lock in self._locks():
            lock.abandon()

    def _locks(self) -> list[FileLock]:
        return [*(log.lock for log in self._logs), *self._producer_locks.values()]

    # -- repair -------------------------------------------------------------------------------------------------------

    def damaged(self) -> list[CommitLog]:
        """The commit logs that are damaged."""
        self._logs.catch_up()
        return [log for log in self._logs.in_use if log.damage is not None]

    def with_other_copy(self) -> list[CommitLog]:
        """The commit logs whose copy differs from them."""
        return [log for log in self._logs.in_use if log.copy_differs()]

    def recorded(self, number: int) -> bool:
        """Whether the commit logs cover this transaction."""
        return self._logs.log_of(number) is not None or number >> SERIAL_SHIFT <= self._logs.horizon

    def rebuild(
        self, proven: Mapping[int, Sequence[Sequence[Any]]], *, dry_run: bool
    ) -> list[tuple[CommitLog, Rebuilt]]:
        """Rebuild damaged commit logs from their whole records, their copies and the visible frames of the partitions."""
        if dry_run:
            return self._logs.rebuild(proven)
        with ExitStack() as locks:
            for log in self._logs:
                locks.enter_context(log.lock)
            rebuilt = self._logs.rebuild(proven)
            for log, result in rebuilt:
                log.set_aside(why="rebuilt")
                log.replace(result.records)
        return rebuilt

    # -- prepared transactions ----------------------------------------------------------------------------------------

    def prepare(self, name: str, parts: Sequence[Part], about: dict[str, Any]) -> None:
        """Make a transaction durable without making it visible."""
        self._check_epoch(about["producer"], about["epoch"])
        folder = self._folder / "prepared"
        make_folder(folder, levels=1)
        write_prepared(folder / name, parts, about)
        reach("prepare.published")

    def prepared(self) -> list[str]:
        folder = self._folder / "prepared"
        self._logs.catch_up()
        self._logs.check()
        names = os.listdir(folder) if folder.is_dir() else []
        # A file whose transaction is committed belongs to a process that died before it removed it.
        return sorted(name for name in names if not name.startswith(".") and self._logs.prepared(name) is None)

    def commit_prepared(self, name: str) -> dict[str, Appended]:
        """Commit by id; a repeated call changes nothing, also after a crash."""
        path = self._folder / "prepared" / name
        with self._held(path):
            done = self._without_doubt(partial(self._committed, name))
            if done is not None:
                result = _appended(done, duplicate=True)
            else:
                if not path.exists():
                    raise NotFound(kind="prepared transaction", name=name)
                about, parts = load_prepared(path)
                result = self.commit(
                    parts,
                    name=name,
                    producer=about["producer"],
                    epoch=about["epoch"],
                    sequence=about["sequence"],
                    prepared=True,
                )
            path.unlink(missing_ok=True)
        return result

    def rollback_prepared(self, name: str) -> None:
        path = self._folder / "prepared" / name
        with self._held(path):
            if self._without_doubt(partial(self._committed, name)) is not None:
                raise TransactionFinished(transaction=name, outcome="committed")
            if not path.exists():
                raise NotFound(kind="prepared transaction", name=name)
            path.unlink()
            sync_folder(path.parent)

    def _committed(self, name: str) -> Record | None:
        """The record of a prepared transaction that was committed."""
        self._logs.catch_up()
        self._logs.check()
        return self._finished_record(self._logs.prepared(name))

    @contextmanager
    def _held(self, path: Path) -> Iterator[None]:
        """Hold the lock of a prepared transaction: its own file. It may be gone, since it was committed or rolled back."""
        try:
            file = OpenFile(path, os.O_RDWR)
        except FileNotFoundError:
            yield
            return
        wait_for_lock(file.descriptor, path, seconds_max=self._lock_seconds_max)
        try:
            yield
        finally:
            unlock(file.descriptor)


def _appended(record: dict[str, Any], *, duplicate: bool) -> dict[str, Appended]:
    ranges: dict[str, dict[int, tuple[int, int]]] = {}
    for topic, partition, start, end in record["parts"]:
        ranges.setdefault(topic, {})[partition] = (start, end)
    return {topic: Appended(topic=topic, ranges=places, duplicate=duplicate) for topic, places in ranges.items()}
