"""Copies topics from one log to another of any kind.

Invariants. Rows, and the place up to which they are copied, are committed in one transaction of the target: after a
crash the mirror goes on there, and no row is missing or doubled. A mirror that starts fences those of the same name.
Rows of a partition stay in their partition and in order. Punctuations and positions of groups follow the rows that are
before them; they are repeated after a crash, which changes nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import NotFound, NotPossible
from headwater.faults import reach
from headwater.log.errors import OffsetExpired, ProducerFenced
from headwater.log.mirror.positions import (
    MIRROR_TOPIC,
    Copies,
    Copy,
    Translation,
    copy_rows,
    load_copies,
    make_mirror_topic,
)
from headwater.log.port import Appended, Batch, Cursor, Log, Offsets
from headwater.log.topic import TOPIC_SETTINGS, Topic, TopicChanges, TopicSettings
from headwater.units import MIB

ROWS_MAX = 100_000
BYTES_MAX = 32 * MIB
#: Rows that are read from one partition before the next one has its turn.
_TURN_ROWS = 8_192
#: How long a mirror that follows waits for rows before it looks for new topics and positions of groups.
_WAIT_SECONDS = 1.0
_ALTERED = tuple(TopicChanges.__annotations__)


@dataclass(frozen=True, kw_only=True)
class MirrorProgress:
    """How far a mirror is: the rows that this run has copied, and how many are left in the source.

    Where offsets have gaps, as in frames on Kafka, what is left is estimated by the rows that were copied.
    """

    topics: int
    rows: int
    left: int


@dataclass
class _Partition:
    """One partition of a topic, and how far it is copied."""

    number: int
    copies: Copies
    cursor: Cursor
    #: Where the partition of the target ends.
    target_next: int
    #: Where the rows end there that this mirror has copied. Others write there once the target has taken over.
    copied_next: int
    #: What was read and is not copied yet: a punctuation and what follows it.
    rest: list[Batch] = field(default_factory=list)
    #: The latest punctuation of each producer that is not in the target yet; all rows before it are.
    punctuations: dict[int, int] = field(default_factory=dict)

    @property
    def offset(self) -> int:
        """Where the next rows of the source begin."""
        return self.rest[0].offset if self.rest else self.cursor.offset

    def rewind(self, cursor: Cursor) -> None:
        """Read again from the position of a cursor on."""
        self.cursor = cursor
        self.rest.clear()
        self.punctuations.clear()


@dataclass
class _Copied:
    """A topic that is copied: as it was when its cursors were opened, and its partitions."""

    source: Topic
    target: Topic
    columns: tuple[str, ...]
    partitions: dict[int, _Partition] = field(default_factory=dict)


@dataclass
class _Piece:
    """The rows of one partition for the next transaction."""

    topic: _Copied
    partition: _Partition
    offset: int
    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def take(self, batches: list[Batch]) -> None:
        """Add rows up to a punctuation that follows them: it goes to the target between this transaction and the next."""
        for place, batch in enumerate(batches):
            if batch.punctuation_us is None:
                self.batches.append(batch.data)
                self.rows += batch.data.num_rows
                self.bytes += batch.data.nbytes
            elif not self.rows:
                self.partition.punctuations[batch.producer] = batch.punctuation_us
            else:
                self.partition.rest = batches[place:]
                return


class Mirror:
    """Copies topics of one log to another of any kind, exactly once, and translates the positions of groups.

    `topics` is a pattern such as `shop.*`. Only the mirror may write to the topics of the target.

    >>> import tempfile, headwater
    >>> source, target = headwater.open(tempfile.mkdtemp()), headwater.open(tempfile.mkdtemp())
    >>> _ = source.create("greetings", {"text": "string"})
    >>> _ = source.append("greetings", [{"text": "hello"}])
    >>> Mirror(source, target).run().rows
    1
    >>> [row["text"] for row in target.read("greetings").rows()]
    ['hello']
    """

    def __init__(
        self,
        source: Log,
        target: Log,
        *,
        topics: str = "*",
        groups: bool = False,
        rows_max: int = ROWS_MAX,
        on_progress: Callable[[MirrorProgress], None] | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._pattern = topics
        self._groups = groups
        self._rows_max = rows_max
        self._on_progress = on_progress
        # One name for each source: a second mirror of the same source fences the first, whatever its pattern.
        self._producer = f"mirror.{hashlib.sha256(source.address.encode()).hexdigest()[:16]}"
        self._topics: dict[str, _Copied] = {}
        self._positions: dict[tuple[str, str], Offsets] = {}
        self._epoch: int | None = None
        self._sequence = 0
        self._rows = 0
        #: The offsets of the source that this run has copied: as many as rows, unless they have gaps.
        self._passed = 0

    def run(self, *, follow: bool = False, stop: threading.Event | None = None) -> MirrorProgress:
        """Copy what there is; with `follow` also what comes, until `stop` is set."""
        if self._source.address == self._target.address:
            why = "A log cannot be mirrored to itself"
            raise NotPossible(why=why, instead="Give another log as the target")
        self._begin()
        while not (stop is not None and stop.is_set()):
            self._find_topics()
            while self._copy() and not (stop is not None and stop.is_set()):
                self._report()
            self._copy_groups()
            self._report()
            if not follow:
                break
            ends = {name: self._offsets(topic) for name, topic in self._topics.items()}
            self._source.wait(ends, seconds=_WAIT_SECONDS) if ends else _pause(stop)
        return self.progress()

    def progress(self) -> MirrorProgress:
        """How far the mirror is."""
        left = 0
        for name, topic in self._topics.items():
            with contextlib.suppress(NotFound):
                ends = self._source.end_offsets(name)
                left += sum(max(0, ends[number] - offset) for number, offset in self._offsets(topic).items())
        if left and self._passed:
            left = max(1, round(left * self._rows / self._passed))
        return MirrorProgress(topics=len(self._topics), rows=self._rows, left=left)

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self.progress())

    @staticmethod
    def _offsets(topic: _Copied) -> Offsets:
        return {number: partition.offset for number, partition in topic.partitions.items()}

    # -- topics -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        make_mirror_topic(self._target)
        self._epoch = self._target.open_producer(self._producer)
        self._target.resolve_transactions()
        self._sequence = self._target.committed_sequence(self._producer) + 1
        self._known = load_copies(self._target)
        self._origins = load_copies(self._source)
        self._topics.clear()

    def _find_topics(self) -> None:
        """Begin with topics that are new, and forget those that are deleted; the target keeps theirs."""
        names = self._source.topics(self._pattern)
        for name in self._topics.keys() - set(names):
            del self._topics[name]
        for name in names:
            with contextlib.suppress(NotFound):  # deleted meanwhile
                self._open(name)

    def _open(self, name: str) -> None:
        """Bring the topic of the target up to date, and open cursors where the copy ends."""
        source = self._source.topic(name)
        current = self._topics.get(name)
        if current is not None and current.source == source:
            return
        target = self._matched(source)
        topic = _Copied(source, target, tuple(source.schema.names))
        starts, ends = self._source.start_offsets(name), self._target.end_offsets(name)
        known = self._known.setdefault((source.id, target.id), {})
        if not known and any(self._target.describe(name).partitions[n].rows for n in range(target.partitions)):
            why = f"Topic {name!r} of the target has rows that are no copies of this source's"
            raise NotPossible(why=why, instead="Delete it there, or mirror only other topics with `--topics`")
        for number in range(source.partitions):
            copies = known.setdefault(number, Copies())
            earlier = None if current is None else current.partitions.get(number)
            offset = copies.offset_next if earlier is None else earlier.offset
            offset = starts[number] if offset is None else max(offset, starts[number])
            cursor = self._cursor(topic, number, offset)
            if earlier is None:
                end = Translation(self._source, self._target, source).end(copies, number, ends[number])
                topic.partitions[number] = _Partition(number, copies, cursor, ends[number], end)
            else:
                earlier.rewind(cursor)
                topic.partitions[number] = earlier
        self._topics[name] = topic

    def _matched(self, source: Topic) -> Topic:
        """The topic of the target, created or altered so that it has the schema and the settings of the source's."""
        wanted = {setting: getattr(source, setting) for setting in TOPIC_SETTINGS}
        try:
            target = self._target.topic(source.name)
        except NotFound:
            schema = None if source.schemaless else source.schema
            return self._target.create(source.name, schema, **cast(TopicSettings, wanted))
        if (target.id, source.id) in self._origins:
            why = f"Topic {source.name!r} of the source is itself a copy of this target's"
            raise NotPossible(why=why, instead="Mirror in one direction only")
        if target.key != source.key:
            why = f"Topic {source.name!r} of the target has another key"
            raise NotPossible(why=why, instead="Delete it there, or mirror only other topics with `--topics`")
        changes = {name: wanted[name] for name in _ALTERED if wanted[name] != getattr(target, name)}
        if changes or not target.schema.equals(source.schema):
            return self._target.alter(source.name, schema=source.schema, **cast(TopicChanges, changes))
        return target

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _copy(self) -> bool:
        """Copy rows of all topics in one transaction; return False if there were none."""
        pieces = self._read()
        self._punctuate()
        if any(piece.rows for piece in pieces):
            self._commit([piece for piece in pieces if piece.rows])
        return bool(pieces)

    def _read(self) -> list[_Piece]:
        """Rows for a transaction, in turn from all partitions."""
        pieces: dict[tuple[str, int], _Piece] = {}
        rows = size = 0
        waiting = [(topic, partition) for topic in self._topics.values() for partition in topic.partitions.values()]
        while waiting and rows < self._rows_max and size < BYTES_MAX:
            more = []
            for topic, partition in waiting:
                offset = partition.offset
                batches = self._next(topic, partition, min(_TURN_ROWS, self._rows_max - rows))
                if not batches:
                    continue
                place = topic.source.name, partition.number
                piece = pieces.setdefault(place, _Piece(topic, partition, offset))
                rows, size = rows - piece.rows, size - piece.bytes
                piece.take(batches)
                rows, size = rows + piece.rows, size + piece.bytes
                if not partition.rest:
                    more.append((topic, partition))
                if rows >= self._rows_max or size >= BYTES_MAX:
                    break
            waiting = more
        if self._changed(list(pieces.values())):
            return self._read()
        return list(pieces.values())

    def _next(self, topic: _Copied, partition: _Partition, rows_max: int) -> list[Batch]:
        if partition.rest:
            batches, partition.rest = partition.rest, []
            return batches
        try:
            return partition.cursor.read(rows_max=rows_max)
        except OffsetExpired as error:  # retention of the source was faster: go on with its oldest row
            partition.cursor = self._cursor(topic, partition.number, error.oldest)
            return partition.cursor.read(rows_max=rows_max)
        except NotFound:  # the topic was deleted
            return []

    def _changed(self, pieces: list[_Piece]) -> bool:
        """Whether a topic was altered before its rows were read: then all are read again, with all of their columns."""
        changed = set()
        for name in {piece.topic.source.name for piece in pieces}:
            with contextlib.suppress(NotFound):
                if self._source.topic(name) != self._topics[name].source:
                    changed.add(name)
        if not changed:
            return False
        for piece in pieces:
            piece.partition.rewind(self._cursor(piece.topic, piece.partition.number, piece.offset))
        for name in changed:
            self._open(name)
        return True

    def _cursor(self, topic: _Copied, number: int, offset: int) -> Cursor:
        tombstones = ("_tombstone",) if topic.source.compact else ()
        columns = [*topic.columns, "_sent_at", "_headers", *tombstones]
        return self._source.cursor(topic.source.name, number, offset, columns=columns)

    def _commit(self, pieces: list[_Piece]) -> None:
        """Commit rows and the places behind them in one transaction."""
        transaction = self._target.transaction(self._producer, epoch=self._epoch, sequence=self._sequence)
        copies: list[tuple[_Piece, Copy]] = []
        for piece in pieces:
            partition = piece.partition
            for sent_at_us, rows in _runs(piece.batches, piece.topic.columns):
                transaction.append(piece.topic.source.name, rows, partition=partition.number, sent_at_us=sent_at_us)
            copy = Copy(
                number=partition.copies.number_next,
                offset=piece.offset,
                offset_next=partition.offset,
                rows=piece.rows,
                target_offset=partition.target_next,
            )
            copies.append((piece, copy))
        places = [(piece.topic.source, piece.topic.target, piece.partition.number, copy) for piece, copy in copies]
        transaction.append(MIRROR_TOPIC, copy_rows(places))
        reach("mirror.before_commit")
        appended = transaction.commit()
        reach("mirror.committed")
        if not appended or any(one.duplicate for one in appended.values()):
            self._check_copies(copies)
        self._sequence += 1
        for piece, copy in copies:
            piece.partition.copies.add(copy)
            end = self._end(piece, appended)
            piece.partition.target_next = piece.partition.copied_next = end
            self._rows += piece.rows
            self._passed += copy.offset_next - copy.offset

    def _end(self, piece: _Piece, appended: dict[str, Appended]) -> int:
        """Where a partition of the target ends after a transaction."""
        found = appended.get(piece.topic.source.name)
        if found is not None and piece.partition.number in found.ranges:
            return found.ranges[piece.partition.number][1]
        return self._target.end_offsets(piece.topic.source.name)[piece.partition.number]

    def _check_copies(self, copies: list[tuple[_Piece, Copy]]) -> None:
        """Raise unless a transaction that was committed before is this one, whose first answer was lost."""
        known = load_copies(self._target)
        for piece, copy in copies:
            places = known.get((piece.topic.source.id, piece.topic.target.id), {})
            if piece.partition.number not in places or places[piece.partition.number].known[-1] != copy:
                epoch = self._epoch or 0
                raise ProducerFenced(producer=self._producer, epoch=epoch, current=epoch + 1)

    def _punctuate(self) -> None:
        """Repeat punctuations, all of whose earlier rows are copied."""
        for name, topic in self._topics.items():
            for partition in topic.partitions.values():
                for producer, time_us in partition.punctuations.items():
                    sender = f"{self._producer}.{producer}" if producer else None
                    self._target.punctuate(name, time_us, producer=sender, partition=partition.number)
                partition.punctuations.clear()

    # -- groups -------------------------------------------------------------------------------------------------------

    def _copy_groups(self) -> None:
        """Commit translated positions in the target. A group that is further there already is left alone."""
        if not self._groups:
            return
        for group, names in sorted(self._source.committed_groups().items()):
            for name in sorted(names & self._topics.keys()):
                topic = self._topics[name]
                committed = self._source.committed(group, name)
                copied = self._offsets(topic)
                wanted = {number: min(at, copied[number]) for number, at in committed.items() if number in copied}
                if self._positions.get((group, name)) == wanted:
                    continue
                translation = Translation(self._source, self._target, topic.source)
                current = self._target.committed(group, name)
                offsets = {}
                for number, offset in wanted.items():
                    partition = topic.partitions[number]
                    translated = translation.offset(partition.copies, number, offset, end=partition.copied_next)
                    if translated > current.get(number, -1):
                        offsets[number] = translated
                if offsets:
                    self._target.commit_offsets(group, name, offsets, metadata="mirror")
                self._positions[group, name] = wanted


def _pause(stop: threading.Event | None) -> None:
    (stop or threading.Event()).wait(_WAIT_SECONDS)


def _runs(batches: list[pa.RecordBatch], columns: tuple[str, ...]) -> list[tuple[int, pa.Table]]:
    """Rows as they are appended: those sent within one second together, with the time of the first of them."""
    table = pa.Table.from_batches(batches)
    names = list(columns)
    if table.column("_headers").null_count < table.num_rows:
        names.append("_headers")
    if "_tombstone" in table.schema.names and pc.any(table.column("_tombstone")).as_py():
        names.append("_tombstone")
    rows = table.select(names)
    sent = np.concatenate([np.asarray(chunk.view(pa.int64())) for chunk in table.column("_sent_at").chunks])
    borders = [0, *(np.flatnonzero(np.diff(sent // 1_000_000)) + 1).tolist(), len(sent)]
    return [(int(sent[begin]), rows.slice(begin, end - begin)) for begin, end in pairwise(borders)]
