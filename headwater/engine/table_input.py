"""What an operator on tables takes: a changelog, a keyed topic whose rows replace one another, or a stream of insertions.

`Follow` makes a whole changelog of rows that replace one another: for each key the last row is kept, so that it can be
retracted. That is needed where a table is grouped by something else than its key: the old group must learn that a row
has left it, and only the row's own key knows which group that was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.engine.changelog import DELETE, INSERT, OP, UPDATE_AFTER
from headwater.engine.columns import KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import BatchTime
from headwater.engine.spark_plan import apply
from headwater.engine.table_changes import PLACE, Emit, TableUpdate, emitted, taken, told
from headwater.errors import ArgumentInvalid, ColumnUnknown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TOMBSTONE = "_tombstone"
#: Where a row stands in its topic, as far as rows know it.
PLACES = ("_topic", "_partition", "_offset")
Names = str | tuple[str, ...] | list[str]
# Any: a DataFrame, or a table of an app, which has `changes` and `key`.
TableLike = Any


def frame_of(table: TableLike) -> DataFrame:
    """The changes of a table, whichever way it is given."""
    frame: DataFrame = table.changes if hasattr(table, "changes") else table
    return frame


def key_of(table: TableLike, key: Names | None) -> tuple[str, ...] | None:
    """The primary key: as told, or as an app's table knows it."""
    known = getattr(table, "key", None) if hasattr(table, "changes") else None
    return names_of(key) if key is not None else known


def names_of(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def check_names(setting: str, names: Iterable[str], rows: DataFrame, *, operator: str) -> None:
    """Raise on columns that the rows do not have, that come twice, or that are the system's."""
    seen: set[str] = set()
    for name in names:
        if name.startswith("_"):
            raise ArgumentInvalid(name=setting, value=name, expected="columns of your own: `_` begins the system's")
        if name not in rows.columns:
            raise ColumnUnknown(topic=operator, column=name, columns=", ".join(own_columns(rows)))
        if name in seen:
            raise ArgumentInvalid(name=setting, value=name, expected="each column once")
        seen.add(name)


def own_columns(rows: DataFrame) -> list[str]:
    """The columns that are not the system's."""
    return [name for name in rows.columns if not name.startswith("_")]


def has_place(rows: DataFrame) -> bool:
    """Whether rows know where they stand in their topic."""
    return "_offset" in rows.columns


def check_key(rows: DataFrame, key: tuple[str, ...] | None, *, operator: str) -> None:
    """A table that was read from a topic says what replaces a row, not what is retracted: then a key is needed."""
    if key is None and has_place(rows) and {OP, TOMBSTONE} & set(rows.columns):
        expected = f"the primary key of the table that {operator} reads: its rows replace one another"
        raise ArgumentInvalid(name="key", value=None, expected=expected)
    if key is not None:
        if not key:
            raise ArgumentInvalid(name="key", value=key, expected="at least one column")
        check_names("key", key, rows, operator=operator)


def operation(rows: DataFrame, *, keyed: bool) -> Column:
    """What each row does to the table: rows without a word of it replace what their key has, or are added."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    plain = F.lit(UPDATE_AFTER if keyed else INSERT)
    told = F.coalesce(F.col(OP), plain) if OP in rows.columns else plain
    if TOMBSTONE in rows.columns:
        told = F.when(F.coalesce(F.col(TOMBSTONE), F.lit(False)), F.lit(DELETE)).otherwise(told)
    return told.alias(OP)


def places(rows: DataFrame) -> list[str]:
    return [name for name in PLACES if name in rows.columns]


@dataclass(frozen=True, kw_only=True)
class Follow:
    """The last row of each key, told as a changelog that retracts what it replaces. Nothing comes of a row that is equal.

    State: one row per key.
    """

    name: str
    key: tuple[str, ...]
    emit: Emit = "changes"
    partitions: int | None = None

    def __call__(self, rows: DataFrame) -> DataFrame:
        return apply(self.contract, rows, partitions=self.partitions)

    def contract(self, rows: pa.Schema) -> Contract:
        places = [name for name in PLACE if name in rows.names]
        plain = [one for one in rows if one.name not in (*places, OP, *self.key)]
        columns = tuple(one.name for one in plain)
        kept = places if self.emit == "every_change" else []
        names = [*self.key, OP, *columns, *kept]
        return Contract(
            name=self.name,
            step=FollowStep(TableUpdate(self.name, (KEY,), (*self.key, *columns), "_offset" in rows.names), self.emit),
            key=self.key,
            rows=rows,
            state=pa.schema(plain),
            output=pa.schema([rows.field(name) for name in names]),
        )


@dataclass(frozen=True)
class FollowStep:
    """One batch of changes to all keys of a partition."""

    following: TableUpdate
    emit: Emit

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit, places=True)

    def _net(self, state: pa.Table, rows: pa.Table) -> StepResult:
        names = [KEY, *self.following.columns]
        found = self.following.replaced(state, rows)
        gone, came = taken(state, found.gone, names), taken(rows, found.came, names)
        after = pa.concat_tables([taken(state, found.stay, names), came])
        ids = np.concatenate([np.asarray(one.column(KEY).combine_chunks()) for one in (gone, came)])
        return StepResult(after, told(gone, came, ids=ids, groups=ids))
