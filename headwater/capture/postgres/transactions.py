"""Transactions as they arrive, kept apart until they are committed.

Messages of ordinary transactions arrive at their commit, one transaction behind the other, and are collected in one run.
A large transaction is streamed in blocks while it is open: each has a run of its own, which is dropped if the
transaction is rolled back, and loses the rows of savepoints that are. Runs leave in commit order. A run that becomes
large waits in a temporary file without a name, which is gone with the process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO

import numpy as np

from headwater.capture.postgres.decoder import Places, transactions_of
from headwater.capture.postgres.messages import (
    Commit,
    LogicalMessage,
    Relation,
    Truncate,
    parse_begin,
    parse_commit,
    parse_message,
    parse_relation,
    parse_stream_abort,
    parse_stream_commit,
    parse_truncate,
)
from headwater.units import MIB

#: Messages of a run that are decoded together, in bytes.
SEGMENT_BYTES_MAX = 2 * MIB
#: A run up to this size stays in memory.
MEMORY_BYTES_MAX = 32 * MIB


@dataclass(slots=True)
class Group:
    """Messages of one relation that are decoded together, and their places in their run."""

    relation: Relation
    payloads: list[bytes] = field(default_factory=list)
    order: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RowSegment:
    """Messages of rows of one relation, joined."""

    relation: Relation
    joined: bytes
    lengths: Places
    order: Places


@dataclass(frozen=True, slots=True)
class EventSegment:
    """A truncation or a logical message, between rows."""

    event: LogicalMessage | tuple[Relation, ...]
    order: int
    part: int = 0
    """In a streamed transaction, the id of the part that it belongs to."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """A segment of rows in the file of its run."""

    relation: Relation
    at: int
    size: int
    count: int


class Run:
    """Changes of whole transactions in the order of arrival; of a streamed transaction, with the ids of its parts."""

    def __init__(self, *, streamed: bool = False) -> None:
        self.streamed = streamed
        self.groups: dict[bytes, Group] = {}
        self.count = 0
        self.size = 0
        self.relations: dict[int, Relation] = {}
        """Of a streamed transaction: the shapes of tables that it has told."""
        self.first: list[int] = []
        """For each transaction the place of its first change, its id and its time."""
        self.xids: list[int] = []
        self.at_us: list[int] = []
        self.aborted: set[int] = set()
        self._segments: list[RowSegment | EventSegment | _Stored] = []
        self._file: IO[bytes] | None = None
        self._file_size = 0
        self._bytes_open = 0
        self._counts: dict[int, int] = {}

    @property
    def is_stored(self) -> bool:
        return self._file is not None

    @property
    def rows(self) -> int:
        """The number of changes, without those of savepoints that were rolled back."""
        if not self.aborted:
            return self.count
        self.close_groups()
        return self.count - sum(self._counts.get(one, 0) for one in self.aborted)

    def begin(self, xid: int, at_us: int) -> None:
        self.first.append(self.count)
        self.xids.append(xid)
        self.at_us.append(at_us)

    def add(self, key: bytes, relation: Relation, payload: bytes) -> None:
        group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(relation)
        group.payloads.append(payload)
        group.order.append(self.count)
        self.count += 1
        size = len(payload)
        self.size += size
        self._bytes_open += size
        if self._bytes_open > SEGMENT_BYTES_MAX:
            self.close_groups()

    def add_event(self, event: LogicalMessage | tuple[Relation, ...], *, part: int = 0) -> None:
        self.close_groups()
        self._segments.append(EventSegment(event, self.count, part))
        self._counts[part] = self._counts.get(part, 0) + 1
        self.count += 1

    def close_groups(self) -> None:
        """Let later messages begin new groups: for the same table they come behind these."""
        for group in self.groups.values():
            lengths = np.fromiter(map(len, group.payloads), np.int64, len(group.payloads))
            segment = RowSegment(group.relation, b"".join(group.payloads), lengths, np.array(group.order, np.int64))
            if self.streamed:
                parts, counts = np.unique(transactions_of(segment.joined, lengths), return_counts=True)
                for part, count in zip(parts.tolist(), counts.tolist(), strict=True):
                    self._counts[part] = self._counts.get(part, 0) + count
            self._segments.append(segment)
        self.groups.clear()
        self._bytes_open = 0
        if self.size > MEMORY_BYTES_MAX:
            self._store()

    def segments(self) -> Iterator[RowSegment | EventSegment]:
        """The segments in order, those in the file read one by one."""
        self.close_groups()
        for segment in self._segments:
            if not isinstance(segment, _Stored):
                yield segment
                continue
            assert self._file is not None
            self._file.seek(segment.at)
            numbers = np.fromfile(self._file, np.int64, 2 * segment.count)
            yield RowSegment(
                segment.relation, self._file.read(segment.size), numbers[: segment.count], numbers[segment.count :]
            )

    def release(self) -> None:
        if self._file is not None:
            self._file.close()

    def _store(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="headwater-capture-")  # noqa: SIM115 - it lives as long as the run
        for place, segment in enumerate(self._segments):
            if isinstance(segment, RowSegment):
                self._file.seek(self._file_size)
                np.concatenate([segment.lengths, segment.order]).tofile(self._file)
                self._file.write(segment.joined)
                count, size = len(segment.lengths), len(segment.joined)
                self._segments[place] = _Stored(segment.relation, self._file_size, size, count)
                self._file_size += 16 * count + size
        self._file.flush()


@dataclass(frozen=True, slots=True)
class LastCommit:
    """The last transaction with changes in front of a position: where its commit begins, and its time.

    Together they tell a database from a copy of it that has gone another way: at the same place in the log it has another transaction, or none.
    """

    lsn: int
    at_us: int


@dataclass
class Batch:
    """Whole transactions in commit order, and the position behind them."""

    runs: list[Run]
    lsn: int
    at_us: int
    last: LastCommit | None = None
    """The last transaction that has changes, also of earlier batches."""

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    @property
    def is_stored(self) -> bool:
        return any(run.is_stored for run in self.runs)


class Assembler:
    """Takes the messages of a replication stream, and gives out whole transactions in commit order."""

    def __init__(
        self,
        lsn: int,
        *,
        mark_prefix: str = "headwater",
        last: LastCommit | None = None,
        is_sent_again: bool = False,
    ) -> None:
        """`last` is the last transaction in front of the position; with `is_sent_again` the server sends it first."""
        self.lsn = lsn
        """The position behind the last whole transaction that has arrived; what ends before it is left out."""
        self.at_us = 0
        self.marks: set[bytes] = set()
        """The contents of our own messages, which tell how far the stream is."""
        self.is_open = False
        """Whether a transaction has begun to arrive, and not ended."""
        self.is_other = False
        """Whether the stream is that of another history: in front of the position it has other transactions than those that arrived then."""
        self._last = last
        self._known = last
        self._is_awaited = is_sent_again
        self._count_before = 0
        self._has_skipped = False
        self._mark_prefix = mark_prefix
        self._relations: dict[int, Relation] = {}
        self._run = Run()
        self._ready: list[Run] = []
        self._streams: dict[int, Run] = {}
        self._stream: Run | None = None
        self._skip = False

    @property
    def count(self) -> int:
        """How many changes of whole transactions wait, about."""
        return self._run.count + sum(run.count for run in self._ready)

    @property
    def size(self) -> int:
        """The bytes of messages that wait."""
        return self._run.size + sum(run.size for run in self._ready)

    def take(self) -> Batch:
        """All whole transactions that have arrived; only between transactions."""
        assert not self.is_open
        runs = [*self._ready, self._run] if self._run.count else self._ready
        self._ready, self._run = [], Run()
        return Batch(runs, self.lsn, self.at_us, self._last)

    def close(self) -> None:
        """Drop all that has not left; it arrives again with the next stream."""
        for run in (*self._ready, self._run, *self._streams.values()):
            run.release()

    def feed(self, payload: bytes) -> None:
        """Take the next message."""
        kind = payload[0]
        if kind == 73 or kind == 85 or kind == 68:  # I, U, D
            if self._stream is not None:
                key = payload[5:9]
                self._stream.add(key, self._relation(key), payload)
            elif not self._skip:
                key = payload[1:5]
                self._run.add(key, self._relations[int.from_bytes(key, "big")], payload)
            else:
                self._has_skipped = True
        elif kind == 66:  # B
            begin = parse_begin(payload)
            self.is_open = True
            self._skip = begin.commit_lsn < self.lsn
            self._count_before = self._run.count
            self._has_skipped = False
            if not self._skip:
                self._run.begin(begin.xid, begin.at_us)
        elif kind == 67:  # C
            commit = parse_commit(payload)
            self.is_open = self._skip = False
            self._end(commit, has_changes=self._has_skipped or self._run.count > self._count_before)
        else:
            self._feed_other(kind, payload)

    def _feed_other(self, kind: int, payload: bytes) -> None:
        streamed = self._stream is not None
        match chr(kind):
            case "R":
                self._tell(parse_relation(payload, streamed=streamed))
            case "T":
                self._truncate(parse_truncate(payload, streamed=streamed), int.from_bytes(payload[1:5], "big"))
            case "M":
                self._message(parse_message(payload, streamed=streamed), int.from_bytes(payload[1:5], "big"))
            case "S":
                xid = int.from_bytes(payload[1:5], "big")
                if xid not in self._streams:
                    self._streams[xid] = Run(streamed=True)
                self._stream = self._streams[xid]
            case "E":
                self._stream = None
            case "c":
                self._commit_stream(payload)
            case "A":
                top, part = parse_stream_abort(payload)
                if top == part:
                    self._streams.pop(top, Run()).release()
                elif top in self._streams:
                    self._streams[top].aborted.add(part)

    def _commit_stream(self, payload: bytes) -> None:
        commit = parse_stream_commit(payload)
        run = self._streams.pop(commit.xid, None)
        if run is None:
            return
        for relation in run.relations.values():
            self._tell(relation)
        if commit.end_lsn <= self.lsn:
            run.release()
            self._end(commit, has_changes=run.count > 0)
            return
        run.first, run.xids, run.at_us = [0], [commit.xid], [commit.at_us]
        if self._run.count:
            self._ready.append(self._run)
            self._run = Run()
        if run.count:
            self._ready.append(run)
        self._end(commit, has_changes=run.count > 0)

    def _end(self, commit: Commit, *, has_changes: bool) -> None:
        """Note the end of a transaction: a new one, or one that had arrived before this stream."""
        last = LastCommit(commit.lsn, commit.at_us)
        if commit.end_lsn > self.lsn:
            self.check(commit.lsn)
            self.lsn, self.at_us = commit.end_lsn, commit.at_us
            self._last = last if has_changes else self._last
        elif last == self._known:
            self._is_awaited = False
        elif has_changes and self._known is not None:
            self.is_other = True

    def check(self, lsn: int) -> None:
        """Note that everything before a position has arrived: the transaction that is awaited must be there by then."""
        if self._is_awaited and self._known is not None and lsn > self._known.lsn:
            self.is_other = True

    def _relation(self, key: bytes) -> Relation:
        assert self._stream is not None
        number = int.from_bytes(key, "big")
        return self._stream.relations.get(number) or self._relations[number]

    def _tell(self, relation: Relation) -> None:
        """Note a table's shape. If it is another one, later rows begin a new group."""
        run = self._run if self._stream is None else self._stream
        key = relation.id.to_bytes(4, "big")
        if key in run.groups and run.groups[key].relation != relation:
            run.close_groups()
        known = self._relations if self._stream is None else self._stream.relations
        known[relation.id] = relation

    def _truncate(self, truncate: Truncate, part: int) -> None:
        if self._stream is not None:
            relations = tuple(self._relation(one.to_bytes(4, "big")) for one in truncate.relations)
            self._stream.add_event(relations, part=part)
        elif not self._skip:
            self._run.add_event(tuple(self._relations[one] for one in truncate.relations))
        else:
            self._has_skipped = True

    def _message(self, message: LogicalMessage, part: int) -> None:
        if message.prefix == self._mark_prefix:
            self.marks.add(message.content)
            return
        if message.transactional:
            if self._stream is not None:
                self._stream.add_event(message, part=part)
            elif not self._skip:
                self._run.add_event(message)
            else:
                self._has_skipped = True
            return
        if message.lsn >= self.lsn:  # it belongs to no transaction, and its own position tells whether it is new
            self._run.begin(0, self.at_us)
            self._run.add_event(message)
            self.lsn = message.lsn + 1
