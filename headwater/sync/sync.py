"""A sync at work: it applies the changes of topics to a target, in order and once.

Only one process runs a sync: a second one opens a new epoch of the sync's name, which it writes into the target with
its first changes, and the first process then stops.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.errors import NotFound, NotPossible
from headwater.log.dead_letters import DeadLetter, append_dead_letters
from headwater.log.errors import OffsetAhead, OffsetExpired
from headwater.log.port import Log, Offsets
from headwater.log.topic import Topic
from headwater.schema.encodings import json as json_lines
from headwater.sinks.retry import Retry
from headwater.sync.changes import TOMBSTONE, TopicChanges, collapsed, is_partial, null_keys, read_changes
from headwater.sync.comparison import TableComparison, compare_table
from headwater.sync.config import SyncConfig
from headwater.sync.errors import ChangeRefused, TopicGap
from headwater.sync.order import apply_in_order
from headwater.sync.port import Position, PositionMoved, TableChanges, Target, TargetTable
from headwater.sync.source_comparison import captured_tables, compare_with_source
from headwater.sync.store import SyncStore
from headwater.sync.tables import topic_tables
from headwater.sync.targets import open_target
from headwater.sync.transactions import (
    Window,
    before_transactions,
    is_complete,
    marker_topic,
    of_window,
    read_window,
)

#: The most rows of one step: they are one transaction of the target.
ROWS_MAX = 65_536
#: How long a sync waits for a row before it looks at its definition again.
WAIT_SECONDS = 1.0
#: How often a table is compared again that has changed before it could be repaired.
COMPARISONS_MAX = 5
#: How long a sync of whole transactions waits for a commit of the log to become visible in all topics.
COMMIT_SECONDS_MAX = 60.0
COMMIT_PAUSE_SECONDS = 0.005
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
        self._waiting_since: float | None = None
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
        """Apply what the topics have now, at most `ROWS_MAX` rows, or one transaction if it is larger."""
        if self.config.transactions:
            return self._transaction_step()
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
        return self._applied(changes, more=more)

    def _applied(self, changes: Sequence[TableChanges], *, more: bool) -> Applied:
        if changes:
            self._waiting_since = None
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

    def _transaction_step(self) -> Applied:
        """Apply rows of snapshots, or else whole transactions with all their rows in all topics."""
        groups: dict[str, list[TargetTable]] = {}
        for table in self.tables():
            groups.setdefault(marker_topic(self._log, self.config.name, table.topic), []).append(table)
        changes: list[TableChanges] = []
        more = False
        for name, tables in groups.items():
            markers = _marker_table(self._log.topic(name))
            position = self.position(markers)
            starts = {} if position is None else position.offsets
            window = read_window(self._log, name, starts, rows_max=ROWS_MAX)
            found = {table: self._found(table, window) for table in tables}
            if any(before_transactions(one).rows.num_rows for one in found.values()):
                changes += [self._made(table, before_transactions(one)) for table, one in found.items()]
                more = True
            elif not all(is_complete(one, window, table.topic) for table, one in found.items()):
                self._await_commit(name)
                more = True
            elif window.offsets != starts:
                changes += [self._made(table, of_window(one, window)) for table, one in found.items()]
                after = Position(topic_id=markers.topic_id, offsets=window.offsets, epoch=self._epoch)
                nothing = markers.columns.append(pa.field(TOMBSTONE, pa.bool_())).empty_table()
                changes.append(TableChanges(table=markers, before=position, after=after, versions=nothing, steps=[]))
                more |= window.more
        changed = [one for one in changes if one.before is None or one.before.offsets != one.after.offsets]
        return self._applied(changed, more=more)

    def _found(self, table: TargetTable, window: Window) -> TopicChanges:
        """The rows of a topic behind its position, at least up to the last one of the window."""
        before = self.position(table)
        self._check_position(table, before)
        starts = {} if before is None else before.offsets
        rows_max = ROWS_MAX + 2 * window.rows(table.topic)  # a deletion may have a tombstone behind it
        while True:
            ends = self._log.end_offsets(table.topic)
            found = self._read(self._log.topic(table.topic), starts, ends, rows_max=rows_max)
            if not found.more or is_complete(found, window, table.topic):
                return found
            rows_max *= 2

    def _made(self, table: TargetTable, found: TopicChanges) -> TableChanges:
        after = Position(topic_id=table.topic_id, offsets=found.offsets, epoch=self._epoch)
        rows = self._with_keys(table, found.rows)
        changes = TableChanges(
            table=table, before=self.position(table), after=after, versions=rows, steps=collapsed(rows, table)
        )
        self._check_parts(changes)
        return changes

    def _await_commit(self, topic: str) -> None:
        """Wait until a transaction of the log whose markers are visible is visible in all topics."""
        self._log.resolve_transactions()
        now = time.monotonic()
        self._waiting_since = self._waiting_since if self._waiting_since is not None else now
        if now - self._waiting_since > COMMIT_SECONDS_MAX:
            why = "changes that a transaction marker names have not become visible"
            raise TopicGap(sync=self.config.name, topic=topic, why=why)
        time.sleep(COMMIT_PAUSE_SECONDS)

    def catch_up(self, *, on_step: Callable[[Applied], None] = lambda _: None) -> int:
        """Apply all that is there now; return the number of rows."""
        before = self.rows
        more = True
        while more:
            applied = self.step()
            on_step(applied)
            more = applied.more
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
        ends: dict[str, Offsets] = {topic: dict(offsets) for topic, offsets in self.offsets.items()}
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

    @property
    def offsets(self) -> dict[str, Mapping[int, int]]:
        """The next offset of each partition, by topic, as far as this process has looked."""
        return {topic: one.offsets for topic, one in self._positions.items() if one is not None}

    def position(self, table: TargetTable) -> Position | None:
        if table.topic not in self._positions:
            self._positions[table.topic] = self._retry.run(self.target.name, lambda: self.target.position(table))
        return self._positions[table.topic]

    # -- comparison and rebuild ---------------------------------------------------------------------------------------

    def compare(self, *, repair: bool = False) -> list[TableComparison]:
        """Compare the target with its topics; with `repair`, correct the rows that differ."""
        return [self._compare(table, repair=repair) for table in self.tables()]

    def compare_with_source(self) -> list[TableComparison]:
        """Compare the target with the databases that its topics capture. Neither has to stop."""
        tables = self.tables()
        with captured_tables(self._log, self.config.name, tables) as captured:
            return [compare_with_source(self._log, self.target, table, captured[table.topic]) for table in tables]

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
        if self.config.transactions:
            raise NotPossible(
                why="A rebuild replaces one table after the other, and readers of a sync of whole transactions would see halves of them",
                instead="Drop the sync and create it again, run it, and correct what is left with `headwater sync compare --repair`",
            )
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
        self._check_position(table, before)
        starts = {} if before is None else before.offsets
        found = self._read(self._log.topic(table.topic), starts, ends, rows_max=rows_max)
        after = Position(topic_id=table.topic_id, offsets=found.offsets, epoch=self._epoch)
        rows = self._with_keys(table, found.rows)
        changes = TableChanges(table=table, before=before, after=after, versions=rows, steps=collapsed(rows, table))
        self._check_parts(changes)
        return changes, found.more

    def _check_parts(self, changes: TableChanges) -> None:
        """Raise if rows lack values which neither the topic nor the target has."""
        table = changes.table
        if not is_partial(changes.steps, table):
            return
        if changes.before is None:  # a new table: the whole topic has to have the values
            ends = self._log.end_offsets(table.topic)
            found = read_changes(self._log, self._log.topic(table.topic), {}, ends, rows_max=2**62)
            if not is_partial(collapsed(found.rows, table), table):
                return
        elif getattr(self.target, "takes_parts", False):
            return
        why = (
            "some rows lack large values that had not changed, and no earlier row has them. Set REPLICA IDENTITY FULL "
            "on the table in the database, and read it again with `headwater capture snapshot`"
        )
        raise TopicGap(sync=self.config.name, topic=table.topic, why=why)

    def _check_position(self, table: TargetTable, before: Position | None) -> None:
        """Raise if the topic no longer has all changes behind a position."""
        if before is None:
            return
        if before.topic_id != table.topic_id:
            why = "the topic was deleted and created again"
            raise TopicGap(sync=self.config.name, topic=table.topic, why=why)
        self._check_tombstones(table, before)

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
            return read_changes(
                self._log, topic, starts, ends, rows_max=rows_max, transactions=self.config.transactions
            )
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
        apply_in_order(self._attempt, self._set_aside, changes)

    def _attempt(self, changes: Sequence[TableChanges], *, trial: bool = False) -> None:
        self._retry.run(self.target.name, lambda: self.target.apply(changes, trial=trial))

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


def _marker_table(topic: Topic) -> TargetTable:
    """The markers of a capture: no table of the target, but they have a position there."""
    return TargetTable(topic=topic.name, topic_id=topic.id, name="", columns=topic.schema, key=())
