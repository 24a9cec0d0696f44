"""The `Source` port: a database whose tables are captured, and the values that pass from it to the log.

A source is read in pieces. A piece holds changes in commit order, and perhaps a part of a snapshot, and the position
behind it. The capture appends the piece and its position to the log in one transaction, and
acknowledges the position to the source only after that. So a piece that is read again after a crash is never appended
twice, and the database deletes nothing that is not durable in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import pyarrow as pa

#: As Debezium has them: created, updated, deleted, read by a snapshot, truncated, a message of the database's log.
Operation = Literal["c", "u", "d", "r", "t", "m"]

# Any: JSON; each kind of source has its own.
Position = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A captured table: its columns as Arrow types, and its primary key; a table without one has the key ()."""

    name: str
    columns: pa.Schema
    key: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """A changed row that does not fit the columns of its table, as text."""

    table: str
    row: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes of one table in commit order, one row each.

    `rows` has the new row of an insertion or update, and the old row of a deletion, as far as the database tells it.
    `before` has the old rows, where the source knows them. `at_us` is when the database made the change.
    A truncation ("t") has one row without values: the capture deletes all keys that the topic holds.
    """

    table: Table
    operations: pa.Array
    rows: pa.RecordBatch
    at_us: pa.Array
    order: pa.Array
    """The place of each change among those of all tables."""
    before: pa.RecordBatch | None = None
    transaction: pa.Array | None = None
    """The id of the transaction of each change as text, where the source knows it."""
    unchanged: pa.Array | None = None
    """The columns of each row whose large value the database did not send because it had not changed, as lists of names."""

    @property
    def count(self) -> int:
        return int(self.rows.num_rows)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What one read of a source returned: changes in commit order, and the position behind them."""

    position: Position
    changes: Iterable[Changes] = ()
    misfits: Sequence[Misfit] = ()
    snapshot: Mapping[str, SnapshotProgress] = field(default_factory=dict)
    more: bool = False
    """Whether there is more to read now."""
    rows: int | None = None
    """How many changes there are, if `changes` makes them while they are appended: a transaction that is larger than memory."""

    @property
    def count(self) -> int:
        return sum(one.count for one in self.changes) if self.rows is None else self.rows


@dataclass(frozen=True, kw_only=True)
class SnapshotProgress:
    """How far the snapshot of a table is: the cursor behind the last row read, and whether it is complete.

    `version` counts the shapes that the table has had: one with other columns is read by a new snapshot.
    """

    version: int = 0
    rows: int = 0
    rows_expected: int | None = None
    # Any: the values of a key, as JSON.
    cursor: Any = None
    complete: bool = False

    # Any: JSON.
    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("version", "rows", "rows_expected", "cursor", "complete")}


@dataclass(frozen=True, kw_only=True)
class SourceHealth:
    """What a source tells of itself: how much is not captured yet, and how old the oldest change of it is.

    `details` are facts for people, by name; those that need an operator are in `warnings`.
    """

    pending: int
    delay_seconds: float
    unit: Literal["change", "byte"] = "change"
    """What `pending` counts."""
    details: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    retained_bytes: int | None = None
    """What the database keeps on its disk for the capture, where it can tell: the log behind a replication slot."""
    danger: str = ""
    """Why the database may soon delete changes that are not captured, and what to do; empty if it will not."""


class Source(Protocol):
    """A database, opened for one capture."""

    def tables(self) -> list[Table]:
        """The tables that the capture names, as they are now. Changes nothing in the database."""

    def prepare(self) -> list[Table]:
        """Create what capture needs in the database, and return the captured tables. Calling it again changes nothing."""

    def first_position(self) -> Position:
        """The position before the first change that is captured."""

    def read(self, position: Position, snapshot: Mapping[str, SnapshotProgress], *, rows_max: int) -> Piece:
        """Read what follows a position; never waits. Tables whose snapshot is not complete are read as well."""

    def rows(self, table: Table) -> Iterator[pa.RecordBatch]:
        """Read all rows of a table as they are now. Changes nothing, also not for a process that runs the capture."""

    def acknowledge(self, position: Position) -> None:
        """Allow the database to delete what lies before a position, which is durable in the log."""

    def wait(self, seconds: float) -> None:
        """Wait until the database may have changed."""

    def health(self, position: Position) -> SourceHealth:
        """Measure what is not captured yet."""

    def drop(self) -> None:
        """Remove what capture created in the database."""

    def close(self) -> None: ...
