"""The `Target` port: a system that is kept in sync with topics, and the values that pass to it.

A target keeps the position of each table where the rows are, and changes both in one step. So a step that is repeated
after a crash finds its position there and changes nothing, and a process that another has replaced is noticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import orjson
import pyarrow as pa

from headwater.sync.errors import SyncFenced


@dataclass(frozen=True, kw_only=True)
class TargetTable:
    """The table of a topic in a target. `columns` are those of the rows, without the envelope of a capture."""

    topic: str
    topic_id: str
    name: str
    columns: pa.Schema
    key: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far a table is: the next offset of each partition of its topic, and the epoch of the process that wrote it.

    >>> Position.from_json(Position(topic_id="t", offsets={0: 7}, epoch=2).to_json())
    Position(topic_id='t', offsets={0: 7}, epoch=2)
    """

    topic_id: str
    offsets: Mapping[int, int] = field(default_factory=dict)
    epoch: int = 0

    def to_json(self) -> str:
        offsets = {str(number): offset for number, offset in self.offsets.items()}
        return orjson.dumps({"topic_id": self.topic_id, "offsets": offsets, "epoch": self.epoch}).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Position:
        body = orjson.loads(text)
        offsets = {int(number): offset for number, offset in body["offsets"].items()}
        return cls(topic_id=body["topic_id"], offsets=offsets, epoch=body["epoch"])


@dataclass(frozen=True, kw_only=True)
class Step:
    """Keys that are deleted, and then rows that are inserted or replaced; no key is there twice."""

    gone: pa.Table
    rows: pa.Table


@dataclass(frozen=True, kw_only=True)
class TableChanges:
    """Changes of one table between two positions.

    `versions` has every row in the order of the topic: the columns of the table, `_tombstone` for a deletion, and `_at`, the time of
    the change. `steps` are what a target with one row per key applies, one after the other.
    """

    table: TargetTable
    before: Position | None
    after: Position
    versions: pa.Table
    steps: Sequence[Step]


class PositionMoved(Exception):
    """Another process has moved the position of a table: read it again."""


def is_pending(sync: str, stored: Position | None, changes: TableChanges) -> bool:
    """Whether changes are still to be applied to a table whose position is `stored`.

    False if an earlier attempt was committed and its answer was lost. Raises if another process has taken over.
    """
    is_repair = changes.before == changes.after
    if stored is not None and stored.epoch > changes.after.epoch and not is_repair:
        raise SyncFenced(sync=sync)
    if stored == changes.after and not is_repair:
        return False
    if stored != changes.before:
        raise PositionMoved
    return True


class Target(Protocol):
    """A system that is kept in sync, opened for one sync.

    Every method may raise `RetryLater` while the system is down.
    """

    @property
    def name(self) -> str:
        """How messages name the target; without a password."""

    def prepare(self, table: TargetTable) -> None:
        """Create the table, or add the columns that it lacks."""

    def position(self, table: TargetTable) -> Position | None:
        """How far a table is; None if nothing was applied."""

    def apply(self, changes: Sequence[TableChanges], *, trial: bool = False) -> None:
        """Apply changes and their positions. A target with transactions applies all of them or none.

        Raises `ChangeRefused` if a constraint is violated. A `trial` is rolled back.
        """

    def scan(self, table: TargetTable) -> tuple[Position | None, Iterator[pa.Table]]:
        """The position of a table, and all its rows at that position, as `stored` has them."""

    def stored(self, rows: pa.Table) -> pa.Table:
        """Rows of the topic with the values that `scan` returns for them."""

    def switch(self, table: TargetTable, new: TargetTable) -> None:
        """Replace the rows and the position of a table by those of a new one, and remove the new one."""

    def discard(self, table: TargetTable) -> None:
        """Remove a table and its position."""

    def forget(self) -> None:
        """Remove the positions of this sync. Its tables stay."""

    def close(self) -> None: ...
