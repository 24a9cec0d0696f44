"""A sync at work: it applies the changes of topics to a target, in order and once.

Only one process runs a sync: a second one opens a new epoch of the sync's name, which it writes into the target with
its first changes, and the first process then stops.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.errors import NotFound, NotPossible
from headwater.log.dead_letters import SUFFIX, DeadLetter, append_dead_letters
from headwater.log.errors import OffsetAhead, OffsetExpired
from headwater.log.port import Log, Offsets
from headwater.log.topic import Topic
from headwater.schema.encodings import json as json_lines
from headwater.sinks.retry import Retry
from headwater.sync.changes import TopicChanges, collapsed, in_order, null_keys, read_changes, table_columns
from headwater.sync.comparison import TableComparison, compare_table
from headwater.sync.config import SyncConfig
from headwater.sync.errors import ChangeRefused, SyncInvalid, TopicGap
from headwater.sync.port import Position, PositionMoved, TableChanges, Target, TargetTable
from headwater.sync.store import SyncStore
from headwater.sync.targets import open_target

#: The most rows of one step: they are one transaction of the target.
ROWS_MAX = 65_536
#: How long a sync waits for a row before it looks at its definition again.
WAIT_SECONDS = 1.0
#: How often a table is compared again that has changed before it could be repaired.
COMPARISONS_MAX = 5
#: What the table and the position of a rebuild are called.
REBUILD = "__rebuild"


@dataclass(frozen=True, kw_only=True)
class Applied:
    """What one step has applied: rows of the topics, and whether there is more to apply now."""

    rows: int = 0
    more: bool = False


class Sync:
    """One sync at work: it reads its topics in steps, and applies each step with the positions behind it.

    >>> import tempfile, headwater
    >>> folder = tempfile.mkdtemp()
    >>> log = headwater.open(f"{folder}/log")
    >>> _ = log.create("shop.orders", {"id": "int64", "item": "string"}, key="id", compact=True)
    >>> _ = log.append("shop.orders", [{"id": 1, "item": "tea"}, {"id": 1, "item": "milk"}])
    >>> _ = SyncStore(log).create(SyncConfig(name="copy", url=f"sqlite:///{folder}/copy.db", topics=("shop.*",)))
    >>> with Sync.open(log, "copy") as sync:
    ...     sync.catch_up()
    2
    >>> import sqlite3
    >>> sqlite3.connect(f"{folder}/copy.db").execute("SELECT * FROM orders").fetchall()
    [(1, 'milk')]
    """

    def __init__(self, log: Log, config: SyncConfig, target: Target, *, epoch: int = 0) -> None:
        self._log = log
        self.config = config
        self.target = target
        self._store = SyncStore(log)
        self._epoch = epoch
        self._retry = Retry()
        self._positions: dict[str, Position | None] = {}
        self._prepared: dict[str, TargetTable] = {}
        self._checked: set[str] = set()
        self.rows = 0
        """Rows that this process has applied."""

    @classmethod
    @contextlib.contextmanager
    def open(cls, log: Log, name: str) -> Iterator[Sync]:
        """Open a sync of the log for this process; another process that runs it stops."""
        config = SyncStore(log).config(name)
        with contextlib.closing(open_target(config)) as target:
            yield cls(log, config, target, epoch=log.open_producer(f"sync.{name}"))

    # -- steps --------------------------------------------------------------------------------------------------------

    def step(self) -> Applied:
        """Apply what the topics have now, at most `ROWS_MAX` rows."""
        room = ROWS_MAX
        changes: list[TableChanges] = []
        more = False
        for table in self.tables():
            if room <= 0:
                more = True
                break
            found = self._changes(table, self.position(table), rows_max=room)
            if found is not None:
                some, is_cut = found
                changes.append(some)
                room -= some.versions.num_rows
                more |= is_cut
        if changes:
            try:
                self._apply(changes)
            except PositionMoved:
                self._positions.clear()
                return Applied(more=True)
            for one in changes:
                self._positions[one.table.topic] = one.after
        rows = sum(one.versions.num_rows for one in changes)
        self.rows += rows
        return Applied(rows=rows, more=more)

    def catch_up(self) -> int:
        """Apply all that is there now; return the number of rows."""
        before = self.rows
        while self.step().more:
            pass
        return self.rows - before

    def run(self, stop: threading.Event, *, on_step: Callable[[Applied], None] = lambda _: None) -> None:
        """Apply changes until a stop is requested, and not while the sync is paused."""
        while not stop.is_set():
            if self._store.config(self.config.name).paused:
                self._checked.clear()  # it may be long
                stop.wait(WAIT_SECONDS)
                continue
            applied = self.step()
            on_step(applied)
            if not applied.more:
                self._wait()

    def _wait(self) -> None:
        ends: dict[str, Offsets] = {
            topic: dict(position.offsets) for topic, position in self._positions.items() if position is not None
        }
        if ends:
            self._log.wait(ends, seconds=WAIT_SECONDS)
        else:
            threading.Event().wait(WAIT_SECONDS)

    # -- topics as tables ---------------------------------------------------------------------------------------------

    def tables(self) -> list[TargetTable]:
        """The tables of the sync, created in the target and with all columns."""
        tables = topic_tables(self._log, self.config)
        for table in tables:
            if self._prepared.get(table.topic) != table:
                self._retry.run(self.target.name, lambda table=table: self.target.prepare(table))  # type: ignore[misc]
                self._prepared[table.topic] = table
        return tables

    def position(self, table: TargetTable) -> Position | None:
        if table.topic not in self._positions:
            self._positions[table.topic] = self._retry.run(self.target.name, lambda: self.target.position(table))
        return self._positions[table.topic]

    # -- comparison and rebuild ---------------------------------------------------------------------------------------

    def compare(self, *, repair: bool = False) -> list[TableComparison]:
        """Compare the target with its topics; with `repair`, correct the rows that differ."""
        return [self._compare(table, repair=repair) for table in self.tables()]

    def _compare(self, table: TargetTable, *, repair: bool) -> TableComparison:
        for _ in range(COMPARISONS_MAX):
            with contextlib.suppress(PositionMoved):
                return self._retry.run(
                    self.target.name, lambda: compare_table(self._log, self.target, table, repair=repair)
                )
        raise NotPossible(
            why=f"Table {table.name!r} changes while it is compared, so that nothing was repaired",
            instead=f"Run `headwater sync pause {self.config.name}`, compare again, and resume the sync",
        )

    def rebuild(self, topic: str | None = None) -> int:
        """Make the tables again from the whole topics, beside the old ones, and then replace these; return the rows.

        Until then readers of the target see the old rows.
        """
        chosen = [table for table in topic_tables(self._log, self.config) if topic in (None, table.topic)]
        if topic is not None and not chosen:
            raise NotFound(kind="topic of the sync", name=topic)
        return sum(map(self._rebuild, chosen))

    def _rebuild(self, table: TargetTable) -> int:
        beside = replace(table, topic=table.topic + REBUILD, name=table.name + REBUILD)
        self._retry.run(self.target.name, lambda: self.target.discard(beside))
        self._retry.run(self.target.name, lambda: self.target.prepare(beside))
        position: Position | None = None
        rows = 0
        while (found := self._changes(table, position, rows_max=ROWS_MAX)) is not None:
            self._apply([replace(found[0], table=beside)])
            position = found[0].after
            rows += found[0].versions.num_rows
        self._retry.run(self.target.name, lambda: self.target.switch(table, beside))
        self._positions.pop(table.topic, None)
        return rows

    # -- reading ------------------------------------------------------------------------------------------------------

    def _changes(
        self, table: TargetTable, before: Position | None, *, rows_max: int
    ) -> tuple[TableChanges, bool] | None:
        """What follows a position of a table; None if nothing does."""
        ends = self._log.end_offsets(table.topic)
        if before is not None and before.offsets == ends and before.topic_id == table.topic_id:
            return None
        if before is not None and before.topic_id != table.topic_id:
            why = "the topic was deleted and created again"
            raise TopicGap(sync=self.config.name, topic=table.topic, why=why)
        starts = {} if before is None else before.offsets
        if before is not None:
            self._check_tombstones(table, before)
        found = self._read(self._log.topic(table.topic), starts, ends, rows_max=rows_max)
        after = Position(topic_id=table.topic_id, offsets=found.offsets, epoch=self._epoch)
        rows = self._with_keys(table, found.rows)
        changes = TableChanges(table=table, before=before, after=after, versions=rows, steps=collapsed(rows, table))
        return changes, found.more

    def _check_tombstones(self, table: TargetTable, before: Position) -> None:
        """Raise if compaction may have removed deletions that the target has not applied.

        Compaction keeps a tombstone for a time. Behind a position that is older than that, a gap in the offsets may have
        been one.
        """
        topic = self._log.topic(table.topic)
        if not topic.compact or table.topic in self._checked:
            return
        since_us = self._log.clock.now_us() - round(topic.tombstone_seconds_max * 1e6)
        safe = self._log.offset_at(table.topic, since_us)
        for number, start in before.offsets.items():
            stop = min(safe.get(number, start), self._log.end_offsets(table.topic).get(number, start))
            if start >= stop:
                continue
            batches = self._log.read_range(table.topic, number, start=start, stop=stop, columns=["_offset"])
            if sum(batch.data.num_rows for batch in batches if batch.punctuation_us is None) < stop - start:
                why = (
                    f"compaction has removed rows behind offset {start} of partition {number}, and tombstones are kept for only "
                    f"{topic.tombstone_seconds_max:.0f} s: a deletion may be missing"
                )
                raise TopicGap(sync=self.config.name, topic=table.topic, why=why)
        self._checked.add(table.topic)  # while this process runs, it is not so far behind

    def _read(self, topic: Topic, starts: Mapping[int, int], ends: Offsets, *, rows_max: int) -> TopicChanges:
        oldest = self._log.start_offsets(topic.name)
        for number, start in starts.items():
            if start < oldest.get(number, 0):
                why = f"retention has deleted rows behind offset {start} of partition {number}"
                raise TopicGap(sync=self.config.name, topic=topic.name, why=why)
        try:
            return read_changes(self._log, topic, starts, ends, rows_max=rows_max)
        except (OffsetExpired, OffsetAhead) as error:
            raise TopicGap(sync=self.config.name, topic=topic.name, why=str(error)) from error

    # -- changes that a target refuses --------------------------------------------------------------------------------

    def _with_keys(self, table: TargetTable, rows: pa.Table) -> pa.Table:
        """The rows whose key is complete; the others are dead letters, or end the sync."""
        places = null_keys(rows, table.key)
        for place in places.tolist():
            self._set_aside(table, rows.slice(place, 1), "the key is null")
        if not len(places):
            return rows
        kept = sorted(set(range(rows.num_rows)) - set(places.tolist()))
        return rows.take(pa.array(kept, pa.int64()))

    def _apply(self, changes: Sequence[TableChanges]) -> None:
        """Apply changes; those that the target refuses are dead letters, or end the sync."""
        try:
            self._attempt(changes)
            return
        except ChangeRefused:
            pass  # perhaps only because the last rows of keys are not in the order of the topic
        changes = [replace(one, steps=in_order(one.versions, one.table)) for one in changes]
        good = 0
        while (refused := self._first_refused(changes, good)) is not None:
            good, place, error = refused
            row = changes[place[0]].versions.slice(place[1], 1)
            self._set_aside(changes[place[0]].table, row, error.why)
            changes = [_without(one, place[1]) if at == place[0] else one for at, one in enumerate(changes)]
        self._attempt(changes)

    def _attempt(self, changes: Sequence[TableChanges], *, trial: bool = False) -> None:
        self._retry.run(self.target.name, lambda: self.target.apply(changes, trial=trial))

    def _first_refused(
        self, changes: Sequence[TableChanges], good: int
    ) -> tuple[int, tuple[int, int], ChangeRefused] | None:
        """The first change that the target refuses: how many precede it, its place, and why; None if there is none.

        A search by halves: the first `good` changes are known to be accepted.
        """
        count = sum(one.versions.num_rows for one in changes)
        error = self._refusal(changes, count)
        if error is None:
            return None
        bad = count
        while bad - good > 1:
            middle = (good + bad) // 2
            found = self._refusal(changes, middle)
            if found is None:
                good = middle
            else:
                bad, error = middle, found
        place = good
        for at, one in enumerate(changes):
            if place < one.versions.num_rows:
                return good, (at, place), error
            place -= one.versions.num_rows
        raise AssertionError("the refused change is one of the changes")

    def _refusal(self, changes: Sequence[TableChanges], count: int) -> ChangeRefused | None:
        """Try the first `count` changes, without effect."""
        some = []
        for one in changes:
            rows = one.versions.slice(0, count)
            count -= rows.num_rows
            some.append(replace(one, versions=rows, steps=in_order(rows, one.table)))
        try:
            self._attempt(some, trial=True)
        except ChangeRefused as error:
            return error
        return None

    def _set_aside(self, table: TargetTable, row: pa.Table, why: str) -> None:
        """Append a dead letter for one row; raise if the sync is not to do so."""
        key = ", ".join(f"{name}={row.column(name)[0].as_py()!r}" for name in table.key)
        if not self.config.dead_letters:
            raise ChangeRefused(target=self.target.name, table=table.name, key=key, why=why)
        topic = table.topic.removesuffix(REBUILD)
        partition, offset = row.column("_partition")[0].as_py(), row.column("_offset")[0].as_py()
        mine = row.select([*table.columns.names]).combine_chunks().to_batches()[0]
        letter = DeadLetter(
            topic=topic,
            partition=partition,
            offset=offset,
            row=next(json_lines.encode_rows(mine)).decode(),
            query=f"sync {self.config.name}",
            error="ChangeRefused",
            message=f"{self.target.name}: {why}",
            at_us=self._log.clock.now_us(),
        )
        # One append for each row, in the order of offsets: a step that is repeated finds its dead letters there.
        producer = f"sync.{self.config.name}.{partition}"
        append_dead_letters(self._log, topic, [letter], producer=producer, sequence=offset)


def _without(changes: TableChanges, place: int) -> TableChanges:
    rows = pa.concat_tables([changes.versions.slice(0, place), changes.versions.slice(place + 1)])
    return replace(changes, versions=rows, steps=in_order(rows, changes.table))


def topic_tables(log: Log, config: SyncConfig) -> list[TargetTable]:
    """The topics of a sync as tables. A topic without a key that only a pattern names is left out."""
    names: dict[str, None] = {}
    for pattern in config.topics:
        found = [name for name in log.topics(pattern) if not name.endswith(SUFFIX)]
        if not found and not any(letter in pattern for letter in "*?["):
            log.topic(pattern)  # raises with the most similar name
        names |= dict.fromkeys(found)
    tables: dict[str, TargetTable] = {}
    for name in names:
        topic = log.topic(name)
        if not topic.key:
            if name in config.topics:
                raise SyncInvalid(
                    sync=config.name,
                    why=f"topic {name!r} has no key, and only a key says which row of the target a row replaces",
                    instead="Name topics with a key",
                )
            continue
        table = TargetTable(
            topic=name, topic_id=topic.id, name=config.table_of(name), columns=table_columns(topic), key=topic.key
        )
        if table.name in tables:
            raise SyncInvalid(
                sync=config.name,
                why=f"topics {tables[table.name].topic!r} and {name!r} would both be table {table.name!r}",
                instead="Give `--table '{topic}'`, or fewer topics",
            )
        tables[table.name] = table
    return list(tables.values())
