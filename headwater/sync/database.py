"""What targets share that are SQL databases: tables, positions, and one transaction for the changes of a step.

headwater_syncs    sync, topic, position: how far each table is, changed in the transaction of its rows
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headwater.faults import reach
from headwater.sync.errors import TargetRefused
from headwater.sync.port import Position, Step, TableChanges, TargetTable, is_pending

POSITIONS = "headwater_syncs"
#: Rows of one piece of a scan.
SCAN_ROWS = 20_000
# Any: values of a database.
Row = tuple[Any, ...]


class DatabaseTarget(ABC):
    """A SQL database as a target. Subclasses say how it is connected to, and how rows go in."""

    #: Whether rows may lack columns, which then keep their values.
    takes_parts = True
    #: What stands for a value in a statement.
    placeholder = "?"
    #: The type of text in a primary key.
    key_text = "TEXT"

    #: Added to the query of a position, so that a second writer waits.
    _for_update = ""
    #: A statement that checks before the commit what the database would check only at the commit.
    _check: str | None = None

    def __init__(self, name: str, *, sync: str) -> None:
        self._name = name
        self._sync = sync
        self._has_positions = False

    @property
    def name(self) -> str:
        return self._name

    # -- what a subclass says -----------------------------------------------------------------------------------------

    @abstractmethod
    def _session(self) -> contextlib.AbstractContextManager[None]:
        """Be connected in the block, and explain the database's errors."""

    @abstractmethod
    def _transaction(self, *, write: bool) -> contextlib.AbstractContextManager[None]:
        """Commit at the end of the block, or roll back."""

    @abstractmethod
    def _execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]: ...

    @abstractmethod
    def _stream(self, statement: str) -> Iterator[list[Row]]:
        """The rows of a query in pieces."""

    @abstractmethod
    def _existing(self, table: str) -> list[str]:
        """The columns of a table; none if there is no such table."""

    @abstractmethod
    def _type(self, column: pa.Field, *, is_key: bool) -> str | None:
        """The type of a column in SQL; None if the database has none for it."""

    @abstractmethod
    def _upsert(self, table: TargetTable, rows: pa.Table) -> None: ...

    @abstractmethod
    def _delete(self, table: TargetTable, keys: pa.Table) -> None: ...

    @abstractmethod
    def stored(self, rows: pa.Table) -> pa.Table: ...

    @abstractmethod
    def close(self) -> None: ...

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def _table(self, name: str) -> str:
        """The name of a table as SQL takes it."""
        return self.quoted(name)

    def _restored(self, rows: pa.Table, columns: pa.Schema) -> pa.Table:  # noqa: ARG002
        """Rows that were selected, with the values that `stored` has."""
        return rows

    def _selected(self, column: pa.Field) -> str:
        """How a column is selected so that its value is the one that `stored` has."""
        return self.quoted(column.name)

    # -- the port -----------------------------------------------------------------------------------------------------

    def prepare(self, table: TargetTable) -> None:
        with self._session():
            existing = self._existing(table.name)
            if not existing:
                self._create(table)
                return
            for name in table.key:
                if name not in existing:
                    raise TargetRefused(
                        target=self.name,
                        why=f"its table {table.name!r} has no column {name!r}, which is part of the key",
                        instead="Add the column, with a unique index over the key, or name another table with `--table`",
                    )
            for column in table.columns:
                if column.name not in existing:
                    kind = self._checked_type(table, column)
                    self._execute(f"ALTER TABLE {self._table(table.name)} ADD COLUMN {self.quoted(column.name)} {kind}")

    def _create(self, table: TargetTable) -> None:
        columns = [f"{self.quoted(one.name)} {self._checked_type(table, one)}" for one in table.columns]
        key = ", ".join(map(self.quoted, table.key))
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {self._table(table.name)} ({', '.join(columns)}, PRIMARY KEY ({key}))"
        )

    def _checked_type(self, table: TargetTable, column: pa.Field) -> str:
        kind = self._type(column, is_key=column.name in table.key)
        if kind is None:
            raise TargetRefused(
                target=self.name,
                why=f"column {column.name!r} of topic {table.topic!r} is {column.type}, for which it has no type",
                instead="Leave the topic out of the sync, or write it to another topic without the column",
            )
        return kind

    def position(self, table: TargetTable) -> Position | None:
        with self._session():
            return self._stored_position(table.topic)

    def _stored_position(self, topic: str, *, lock: bool = False) -> Position | None:
        if not self._has_positions:
            self._execute(
                f"CREATE TABLE IF NOT EXISTS {POSITIONS} (sync {self.key_text} NOT NULL, topic {self.key_text} NOT NULL, position TEXT NOT NULL, PRIMARY KEY (sync, topic))"
            )
            self._has_positions = True
        mark = self.placeholder
        rows = self._execute(
            f"SELECT position FROM {POSITIONS} WHERE sync = {mark} AND topic = {mark}{self._for_update if lock else ''}",
            (self._sync, topic),
        )
        return Position.from_json(rows[0][0]) if rows else None

    def apply(self, changes: Sequence[TableChanges], *, trial: bool = False) -> None:
        with self._session():
            for one in changes:
                self._stored_position(one.table.topic)  # outside of the transaction: it may create the table
            with contextlib.suppress(_TrialOver), self._transaction(write=True):
                for one in changes:
                    if is_pending(self._sync, self._stored_position(one.table.topic, lock=True), one):
                        for step in one.steps:
                            self._apply_step(one.table, step)
                        self._put_position(one.table.topic, one.after)
                reach("target.written")
                if self._check is not None:
                    self._execute(self._check)
                if trial:
                    raise _TrialOver
                reach("target.before_commit")
            reach("target.committed")

    def _apply_step(self, table: TargetTable, step: Step) -> None:
        if step.gone.num_rows:
            self._delete(table, step.gone)
        if step.rows.num_rows:
            self._upsert(table, step.rows)

    def _put_position(self, topic: str, position: Position) -> None:
        mark = self.placeholder
        self._execute(f"DELETE FROM {POSITIONS} WHERE sync = {mark} AND topic = {mark}", (self._sync, topic))
        self._execute(
            f"INSERT INTO {POSITIONS} (sync, topic, position) VALUES ({mark}, {mark}, {mark})",
            (self._sync, topic, position.to_json()),
        )

    def scan(self, table: TargetTable) -> tuple[Position | None, Iterator[pa.Table]]:
        self.position(table)  # outside of the transaction: it may create the table of positions
        found = self._scanned(table)
        return next(found), found  # the position comes first

    def _scanned(self, table: TargetTable) -> Iterator[Position | pa.Table | None]:
        """The position of a table, and then its rows, in one transaction."""
        shape = self.stored(table.columns.empty_table()).schema
        columns = ", ".join(self._selected(one) for one in table.columns)
        with self._session(), self._transaction(write=False):
            yield self._stored_position(table.topic)
            for rows in self._stream(f"SELECT {columns} FROM {self._table(table.name)}"):
                values = zip(*rows, strict=True)
                try:
                    arrays = [pa.array(some, one.type) for some, one in zip(values, shape, strict=True)]
                except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                    raise TargetRefused(
                        target=self.name,
                        why=f"table {table.name!r} has a value that its topic could not have: {error}",
                        instead="Correct the value, or run `headwater sync rebuild`",
                    ) from error
                yield self._restored(pa.Table.from_arrays(arrays, schema=shape), table.columns)

    def switch(self, table: TargetTable, new: TargetTable) -> None:
        # The rows are copied, not the table renamed: its indexes, constraints, views and grants stay.
        names = ", ".join(self.quoted(one.name) for one in table.columns)
        self.prepare(table)
        with self._session():
            position = self._stored_position(new.topic)
            with self._transaction(write=True):
                self._execute(f"DELETE FROM {self._table(table.name)}")
                self._execute(
                    f"INSERT INTO {self._table(table.name)} ({names}) SELECT {names} FROM {self._table(new.name)}"
                )
                if position is not None:
                    self._put_position(table.topic, position)
                reach("target.before_switch")
        self.discard(new)

    def discard(self, table: TargetTable) -> None:
        mark = self.placeholder
        with self._session():
            self._stored_position(table.topic)
            self._execute(f"DROP TABLE IF EXISTS {self._table(table.name)}")
            self._execute(f"DELETE FROM {POSITIONS} WHERE sync = {mark} AND topic = {mark}", (self._sync, table.topic))

    def forget(self) -> None:
        with self._session():
            self._stored_position("")
            self._execute(f"DELETE FROM {POSITIONS} WHERE sync = {self.placeholder}", (self._sync,))


class _TrialOver(Exception):
    """Rolls a trial back."""
