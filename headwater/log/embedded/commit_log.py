"""The commit log: one record for each committed transaction, in `transactions/commits.log`.

Its end decides which transactions are committed, so a torn end must be distinguished from damage:

- each record has a checksum, and a serial that is one more than that of the record before it: a record that was removed
  or overwritten leaves a gap;
- the *witness* in `transactions/state` (`commit_state.py`) is the serial of the last record that is known to be durable;
- bytes behind the last whole record are a torn end only if no whole record follows them and the witness is not higher.

`transactions/commits.copy` has the same bytes, written after the record was synced and never synced itself: repair
restores lost records from it. While the log is damaged, whole records stay valid, every question that needs another one
raises `CommitLogCorrupt`, and nothing is written.

One process at a time appends to a commit log. A process that is stopped meanwhile keeps its lock, so there are up to
eight commit logs: a commit that waits too long for one takes the next (`CommitLogs`). A record may be in any of them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from google_crc32c import value as crc32c

from headwater.errors import Locked
from headwater.faults import reach
from headwater.filelock import FileLock
from headwater.log.embedded.commit_state import COMMIT_LOGS, CommitSlot, CommitState, Counters
from headwater.log.embedded.files import OpenFile, make_folders, open_file, replace_file, storage_errors, sync_folder
from headwater.log.errors import CommitLogCorrupt

MAGIC = b"HWTX"
#: A transaction's number is a serial shifted by so many bits, and random bits.
SERIAL_SHIFT = 31
_RECORD = struct.Struct("<4sIII")
_READS_MAX = 3
#: How long a commit waits for the lock of one commit log before it tries the next.
_LOCK_SECONDS_MAX = 0.25

Record = dict[str, Any]  # Any: the values of a JSON object, each read in one place below


class Damage(NamedTuple):
    """The first place at which the commit log is damaged."""

    position: int
    why: str


class Whole(NamedTuple):
    """A record that matches its checksum, and its position in the file."""

    position: int
    size: int
    record: Record


class Rebuilt(NamedTuple):
    """The records of a rebuilt commit log, and where they come from."""

    records: list[Record]
    kept: int
    from_copy: int
    from_partitions: int
    #: Ranges of serials without a record, as first and last serial.
    lost: list[tuple[int, int]]


class CommitLog:
    """One commit log: its records, and the state that follows from them. Writers hold its lock."""

    def __init__(
        self, folder: Path, number: int, slot: CommitSlot, *, read_only: bool, lock_seconds_max: float
    ) -> None:
        suffix = f"-{number}" if number else ""
        self.path = folder / f"commits{suffix}.log"
        self.copy = folder / f"commits{suffix}.copy"
        self.lock = FileLock(folder / f"lock{suffix}", seconds_max=lock_seconds_max)
        self.slot = slot
        self._folder = folder
        self._quarantine = folder.parent / "quarantine"
        self._read_only = read_only
        self._reading = threading.Lock()
        self._witnessed = False
        self.damage: Damage | None = None
        self._forget()

    def _forget(self) -> None:
        self._inode = 0
        self.position = 0
        self._durable_to = 0
        self.numbers: set[int] = set()
        self.serial = 0
        #: Transactions whose number begins with this serial, or a lower one, were resolved before their records were removed.
        self.horizon = 0
        self.last: dict[str, Record] = {}
        self.prepared: dict[str, Record] = {}
        self.newest: Record | None = None
        self.recent: list[Record] = []
        #: How many old records a shortened file has behind its first one, and how many of them have been read.
        self._kept = (0, 0)

    # -- reading ------------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        return self.path.exists() or self.copy.exists()

    def content(self) -> bytes:
        """The bytes of all whole records, as of the last `catch_up`."""
        return _bytes_of(self.path)[: self.position]

    def catch_up(self) -> None:
        """Read the records that other processes have appended, and detect missing ones."""
        with self._reading:
            for attempt in range(_READS_MAX):
                # The witness first: its record was durable before, so the file that is read afterwards must have it.
                self._read_on(self.slot.witness())
                if self.damage is None:
                    return
                # A record that is being written may look damaged; the next read finds it whole.
                if attempt < _READS_MAX - 1:
                    time.sleep(0.001)

    def check(self) -> None:
        """Raise if the commit log is damaged."""
        if self.damage is not None:
            raise CommitLogCorrupt(path=str(self.path), position=self.damage.position, why=self.damage.why)

    def _read_on(self, witness: int | None) -> None:
        try:
            stat = os.stat(self.path)
        except FileNotFoundError:
            count = max(witness or 0, self.serial)
            # The copy is created after the name of the log is durable.
            gone = count > 0 or self.copy.exists()
            self.damage = Damage(0, f"the file is gone, with {count or 'some'} commits") if gone else None
            return
        if stat.st_ino != self._inode or stat.st_size < self.position or self.damage is not None:
            # It was replaced or repaired, or the last record was cut after a failed sync.
            self._forget()
            self._inode, self.damage = stat.st_ino, None
        if stat.st_size > self.position:
            with self.path.open("rb") as file:
                file.seek(self.position)
                self._learn_all(file.read())
        if self.damage is None:
            self._check_end(witness)

    def _learn_all(self, data: bytes) -> None:
        start, end = self.position, 0
        for whole in whole_records(data):
            if self.damage is None and whole.position != end:
                self.damage = Damage(start + end, "the record does not match its checksum, and whole ones follow")
            why = self._learn(whole.record)
            if self.damage is None and why:
                self.damage = Damage(start + whole.position, why)
            end = whole.position + whole.size
            if self.damage is None:
                self.position = start + end

    def _check_end(self, witness: int | None) -> None:
        expected, read = self._kept
        if read < expected:
            self.damage = Damage(self.position, f"{expected - read} records of older commits are missing")
        elif witness is not None and self.serial < witness:
            self.damage = Damage(self.position, f"it ends with commit {self.serial}, but {witness} is durable")

    def _learn(self, record: Record) -> str:
        """Apply a record; return what is wrong with its serial, or an empty string."""
        if "horizon" in record:
            self.serial = record["horizon"]
            self.horizon = _resolved(record)
            self._kept = (record.get("kept", 0), 0)
            return ""
        if "lost" in record:
            first, last = record["lost"]
            return self._follow(first, last)
        self.numbers.add(record["number"])
        if record.get("parts") and not record.get("old"):
            self.newest = record
            self.recent.append(record)
        if record["producer"] is not None and record["sequence"] is not None:
            last = self.last.get(record["producer"])
            if last is None or last["sequence"] <= record["sequence"]:
                self.last[record["producer"]] = record
        if record["prepared"]:
            self.prepared[record["name"]] = record
        if record.get("old"):
            self._kept = (self._kept[0], self._kept[1] + 1)
            return ""
        serial = _serial_of(record)
        return self._follow(serial, serial)

    def _follow(self, first: int, last: int) -> str:
        expected, self.serial = self.serial + 1, last
        if first == expected:
            return ""
        return f"commit {first} follows where {expected} was due"

    def is_in_doubt(self, record: Record) -> bool:
        """Whether a recorded transaction may not be durable, or not visible in all its partitions."""
        is_last = not self.slot.of_this_boot or _serial_of(record) == self.serial
        return is_last and not self.slot.is_finished

    # -- writing ------------------------------------------------------------------------------------------------------

    def append(self, record: Record) -> None:
        """Append a commit record durably. The caller has just caught up."""
        self.check()
        record["serial"] = self.serial + 1
        data = framed(record)
        with storage_errors(self.path):
            descriptor = open_file(self.path, os.O_RDWR | os.O_CREAT)
            try:
                # A torn record behind the last whole one is of a process that died before its commit.
                self._cut_torn_end(descriptor)
                os.pwrite(descriptor, data, self.position)
                reach("commit.recording")
                os.fdatasync(descriptor)
                if self._durable_to == 0:  # the process that created the file may have died before it synced the folder
                    sync_folder(self._folder)
                self._durable_to = start = self.position
            except BaseException:
                os.ftruncate(descriptor, self.position)
                raise
            finally:
                os.close(descriptor)
        self.catch_up()
        self._durable_to = start + len(data)
        reach("commit.durable")
        self._extend_copy(data, start)
        reach("commit.copied")
        self.bear_witness()
        if not self._witnessed:  # once in each process: a power cut must not lose the file of the witness
            self.slot.sync()
            self._witnessed = True

    def bear_witness(self) -> None:
        """Store the witness. The caller holds the lock, and all records that were read are durable."""
        if self.slot.witness() != self.serial and self.serial:
            self.slot.set_witness(self.serial)

    def make_durable(self) -> None:
        """Sync the records of other processes: the writer of the last one may have died before it synced."""
        if self._read_only or self._durable_to >= self.position:
            return
        file = OpenFile(self.path, os.O_RDWR)
        position = self.position
        os.fdatasync(file.descriptor)
        sync_folder(self._folder)
        self._durable_to = position

    def replace(self, records: Iterable[Record]) -> None:
        """Replace all records atomically."""
        data = b"".join(framed(record) for record in records)
        replace_file(self.path, data, durable=True)
        with contextlib.suppress(OSError):
            replace_file(self.copy, data, durable=False)
        self.catch_up()
        self.bear_witness()

    def renew_copy(self) -> None:
        """Replace the copy if it differs: it is never synced, so a power cut may leave anything in it."""
        with self.lock:
            self.catch_up()
            self.check()
            if self.copy.exists() and self.copy_differs():
                with contextlib.suppress(OSError):
                    replace_file(self.copy, _bytes_of(self.path)[: self.position], durable=False)

    def _cut_torn_end(self, descriptor: int) -> None:
        if os.fstat(descriptor).st_size > self.position:
            self.set_aside(self.position, why="torn")
            os.ftruncate(descriptor, self.position)

    def _extend_copy(self, data: bytes, position: int) -> None:
        # The transaction is committed already. If the copy cannot be written, the next commit writes all of it.
        with contextlib.suppress(OSError):
            file = OpenFile(self.copy, os.O_RDWR | os.O_CREAT)
            if os.fstat(file.descriptor).st_size != position:
                os.ftruncate(file.descriptor, 0)
                os.pwrite(file.descriptor, self.path.read_bytes()[:position], 0)
            os.pwrite(file.descriptor, data, position)

    def set_aside(self, position: int = 0, *, why: str) -> Path | None:
        """Copy the bytes from `position` on to the quarantine; return None if there are none, or only zeros."""
        try:
            data = self.path.read_bytes()[position:]
        except FileNotFoundError:
            return None
        if not data.strip(b"\0"):
            return None
        make_folders(self._quarantine)
        kept = self._quarantine / f"{self.path.name}-at-{position}-{time.time_ns()}-{why}.bytes"
        replace_file(kept, data, durable=True)
        return kept

    # -- repair -------------------------------------------------------------------------------------------------------

    def copy_differs(self) -> bool:
        """Whether the copy exists and is not a prefix of the log; a shorter copy is extended by the next commit."""
        copied = _bytes_of(self.copy)
        return copied != _bytes_of(self.path)[: len(copied)]

    def readable(self) -> list[Record]:
        """All records that match their checksums, first those of the copy."""
        return [whole.record for path in (self.copy, self.path) for whole in whole_records(_bytes_of(path))]

    def rebuild(self, proven: Mapping[int, Sequence[Sequence[Any]]]) -> Rebuilt:
        """The records of a rebuilt commit log.

        `proven` are visible transactions without a record, by number, each with its parts.
        """
        readable = self.readable()
        horizon = max((record["horizon"] for record in readable if "horizon" in record), default=0)
        resolved = max((_resolved(record) for record in readable if "horizon" in record), default=0)
        old: dict[int, Record] = {}
        chain: dict[int, Record] = {}
        gone: list[tuple[int, int]] = []
        for record in readable:
            if "lost" in record:
                gone.append((record["lost"][0], record["lost"][1]))
            elif "number" in record and (record.get("old") or _serial_of(record) <= horizon):
                old[record["number"]] = {**record, "old": True}
            elif "number" in record:
                chain[_serial_of(record)] = record
        mine = {whole.record.get("number") for whole in whole_records(_bytes_of(self.path))}
        known = {record["number"] for record in (*old.values(), *chain.values())}
        old |= {number: _proven_record(number, parts) for number, parts in proven.items()}
        end = max([horizon, self.slot.witness() or 0, *chain, *(last for _, last in gone)])
        lost = list(_gaps(chain, horizon + 1, end))
        body = sorted([*(((first, {"lost": [first, last]})) for first, last in lost), *chain.items()], key=_first)
        first = [{"horizon": horizon, "resolved": resolved, "kept": len(old)}] if horizon or old else []
        return Rebuilt(
            [*first, *old.values(), *(record for _, record in body)],
            kept=len(known & mine),
            from_copy=len(known - mine),
            from_partitions=len(proven),
            lost=[gap for gap in lost if gap not in gone],
        )


class Recorded(NamedTuple):
    """A record, and the commit log that has it."""

    log: CommitLog
    record: Record


class CommitLogs:
    """All commit logs of a log. The first one is used as long as no process holds its lock too long."""

    def __init__(self, folder: Path, *, read_only: bool, lock_seconds_max: float) -> None:
        self._state = CommitState(folder / "state", read_only=read_only)
        self._lock_seconds_max = lock_seconds_max
        seconds = min(_LOCK_SECONDS_MAX, lock_seconds_max / COMMIT_LOGS)
        self._logs: list[CommitLog] = [
            CommitLog(folder, number, slot, read_only=read_only, lock_seconds_max=seconds)
            for number, slot in enumerate(self._state.slots)
        ]
        self._first = 0
        self._is_used: tuple[bool, ...] = ()
        #: The commit logs that may have records, as of the last `catch_up`.
        self.in_use = [log for number, log in enumerate(self._logs) if read_only or number == 0 or log.exists()]

    def __iter__(self) -> Iterator[CommitLog]:
        return iter(self._logs)

    def counters(self) -> Counters:
        """(intent, started, finished) of each commit log."""
        return self._state.counters()

    def catch_up(self) -> None:
        """Read the records that other processes have appended."""
        self._find_used()
        for log in self.in_use:
            log.catch_up()

    def check(self) -> None:
        """Raise if a commit log is damaged."""
        for log in self.in_use:
            log.check()

    def unfinished(self) -> list[CommitLog]:
        """The commit logs whose last commit is not finished."""
        self._find_used()
        return [log for log in self.in_use if not log.slot.is_finished]

    def _find_used(self) -> None:
        is_used = tuple(map(any, zip(*self.counters(), strict=True)))
        if is_used != self._is_used:
            self._is_used = is_used
            self.in_use = [log for log in self._logs if log in self.in_use or log.slot.is_used]

    @property
    def horizon(self) -> int:
        """All transactions whose number begins with this serial, or a lower one, are resolved."""
        return max(log.horizon for log in self.in_use)

    @property
    def serial(self) -> int:
        """A serial that grows with each record, and is above the horizon's."""
        return max(self.horizon, sum(log.serial for log in self.in_use))

    def log_of(self, number: int) -> CommitLog | None:
        """The commit log that has the record of a transaction."""
        return next((log for log in self.in_use if number in log.numbers), None)

    def last(self, producer: str) -> Recorded | None:
        """The record with the highest sequence of a producer."""
        records = [Recorded(log, log.last[producer]) for log in self.in_use if producer in log.last]
        return max(records, key=lambda recorded: int(recorded.record["sequence"]), default=None)

    def prepared(self, name: str) -> Recorded | None:
        """The record of a prepared transaction."""
        return next((Recorded(log, log.prepared[name]) for log in self.in_use if name in log.prepared), None)

    def take(self, locks: ExitStack) -> CommitLog:
        """Lock a commit log for as long as `locks` is open: the one used last, or one that is free."""
        began = time.monotonic()
        while True:
            for number in itertools.chain(range(self._first, COMMIT_LOGS), range(self._first)):
                log = self._logs[number]
                with contextlib.suppress(Locked):
                    locks.enter_context(log.lock)
                    self._first = number
                    self.in_use = [other for other in self._logs if other is log or other in self.in_use]
                    return log
            waited = time.monotonic() - began
            if waited >= self._lock_seconds_max:
                raise self._logs[self._first].lock.held(waited)

    def rebuild(self, proven: Mapping[int, Sequence[Sequence[Any]]]) -> list[tuple[CommitLog, Rebuilt]]:
        """The damaged commit logs, or the first one if none is, each with its records as they can be rebuilt.

        `proven` are visible transactions by number, each with its parts: they were committed, whatever the logs say.
        """
        known = {record.get("number") for log in self.in_use for record in log.readable()}
        missing = {
            number: parts
            for number, parts in proven.items()
            if number not in known and number >> SERIAL_SHIFT > self.horizon
        }
        first, *others = [log for log in self.in_use if log.damage] or self._logs[:1]
        return [(first, first.rebuild(missing)), *((log, log.rebuild({})) for log in others)]


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _first(entry: tuple[int, Record]) -> int:
    return entry[0]


def _gaps(present: Mapping[int, object], start: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges of numbers from `start` to `end` that are missing.

    >>> list(_gaps({2: "", 5: ""}, 1, 6))
    [(1, 1), (3, 4), (6, 6)]
    """
    first = start
    for number in sorted(number for number in present if start <= number <= end):
        if number > first:
            yield first, number - 1
        first = number + 1
    if first <= end:
        yield first, end


def _proven_record(number: int, parts: Sequence[Sequence[Any]]) -> Record:
    about = {"name": f"rebuilt-{number}", "producer": None, "epoch": None, "sequence": None, "prepared": False}
    return about | {"number": number, "at_us": 0, "parts": list(parts), "old": True, "rebuilt": True}


def _serial_of(record: Record) -> int:
    # Records of earlier releases have their serial only in the number.
    serial: int = record.get("serial", record["number"] >> SERIAL_SHIFT)
    return serial


def _resolved(record: Record) -> int:
    # Records of earlier releases have only the horizon: they knew one commit log.
    return int(record["resolved"] if "resolved" in record else record["horizon"])


def whole_records(data: bytes) -> Iterator[Whole]:
    """The records that match their checksums, also those behind damaged ones."""
    at = 0
    while at < len(data):
        found = unframed(data, at)
        if found is None:
            at = data.find(MAGIC, at + 1)
            while at > 0 and at % 8:
                at = data.find(MAGIC, at + 1)
            if at < 0:
                return
            continue
        record, size = found
        yield Whole(at, size, record)
        at += size


def framed(record: Record) -> bytes:
    body = orjson.dumps(record)
    return _RECORD.pack(MAGIC, crc32c(body), len(body), 0) + body + bytes(-len(body) % 8)


def unframed(data: bytes, at: int) -> tuple[Record, int] | None:
    """The record that begins at `at`, and its size; None if it does not match its checksum."""
    if at + _RECORD.size > len(data):
        return None
    magic, crc, size, zero = _RECORD.unpack_from(data, at)
    start = at + _RECORD.size
    body = data[start : start + size]
    end = start + size + (-size % 8)
    padding = data[start + size : end]
    if magic != MAGIC or zero or end > len(data) or crc32c(body) != crc or padding.strip(b"\0"):
        return None
    return orjson.loads(body), end - at
