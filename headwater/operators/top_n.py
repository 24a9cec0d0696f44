"""`TopN`: the first n rows of each group of a table that changes, with their ranks.

All rows of a group are kept, and the first n of them are emitted as they change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Groups
from headwater.engine.changelog import OP, paired, signs_of
from headwater.engine.columns import ALL, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import BatchTime
from headwater.engine.spark_plan import apply, default_name
from headwater.engine.table_changes import PLACE, Emit, TableUpdate, check_emit, emitted, taken
from headwater.engine.table_input import (
    Follow,
    Names,
    TableLike,
    check_key,
    check_names,
    frame_of,
    key_of,
    names_of,
    operation,
    own_columns,
    places,
)
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIRECTIONS = {"asc": "ascending", "desc": "descending"}
#: Null where a row has no key: the engine sends such rows to the side output `rejected`.
KNOWN = "_known"
RANK = "rank"


@dataclass(frozen=True, kw_only=True)
class TopN:
    """Keep the first `n` rows of each group, and say how they change as the table does.

    `order` is columns with "asc" or "desc", the most important first; rows that are equal in all of them are in the order
    of their `key`, and nulls come last. `by` is the group; without it there is one, in a single partition. The result has
    all columns of the rows and `rank`, from 1. A view of it has the key `by` and `rank`, or `by` and `key`.

    State: all rows of all groups, as any of them may move up when others go; a batch costs what the groups it touches
    hold. Where a group is large, aggregate or filter first.

    >>> TopN(n=10, order=[("turnover", "desc")], key="symbol").n
    10
    """

    n: int
    order: Sequence[tuple[str, str]] | str
    key: Names | None = None
    by: Names = ()
    emit: Emit = "changes"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_emit(self.emit)
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise ArgumentInvalid(name="n", value=self.n, expected="a whole number, at least 1")
        self.ordered()

    def ordered(self) -> tuple[tuple[str, str], ...]:
        """The columns of the order, and their directions in Arrow's words."""
        each = [self.order] if isinstance(self.order, str) else list(self.order)
        pairs = [(one, "asc") if isinstance(one, str) else tuple(one) for one in each]
        if not pairs or any(len(one) != 2 or one[1] not in DIRECTIONS for one in pairs):
            expected = 'columns with "asc" or "desc", such as [("total", "desc")]'
            raise ArgumentInvalid(name="order", value=self.order, expected=expected)
        return tuple((name, DIRECTIONS[direction]) for name, direction in pairs)

    @property
    def called(self) -> str:
        return self.name or default_name(self)

    def __call__(self, rows: TableLike) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        frame, by = frame_of(rows), names_of(self.by)
        key = self._checked(frame, key_of(rows, self.key))
        columns = [F.col(f"`{name}`") for name in own_columns(frame)]
        made = frame.select(*columns, operation(frame, keyed=True), *places(frame))
        if not set(by) <= set(key):
            made = Follow(name=f"{self.called}-rows", key=key, emit=self.emit, partitions=self.partitions)(made)
        known = F.lit(True)
        for name in key:
            known = known & F.col(f"`{name}`").isNotNull()
        extra = {KNOWN: F.when(known, F.lit(0)), **({} if by else {ALL: F.lit(0)})}
        made = made.select("*", *(column.alias(name) for name, column in extra.items()))
        ordered = set(by) <= set(key) and "_offset" in frame.columns

        def contract(schema: pa.Schema) -> Contract:
            return self.contract(schema, key=key, ordered=ordered)

        return apply(contract, made, partitions=self.partitions if by else 1)

    def _checked(self, rows: DataFrame, key: tuple[str, ...] | None) -> tuple[str, ...]:
        called = self.name or type(self).__name__
        if not key:
            expected = "the primary key of the rows: it breaks ties, and tells which row replaces which"
            raise ArgumentInvalid(name="key", value=key, expected=expected)
        check_key(rows, key, operator=called)
        check_names("by", names_of(self.by), rows, operator=called)
        check_names("order", [name for name, _ in self.ordered()], rows, operator=called)
        if RANK in rows.columns:
            raise ArgumentInvalid(
                name=RANK, value="a column of the rows", expected="it another name: the result has it"
            )
        for name, _ in self.ordered():
            kind = rows.schema[name].dataType.typeName()
            if kind in ("array", "map", "struct", "void", "variant"):
                raise ArgumentInvalid(name="order", value=f"{name} ({kind})", expected="columns that have an order")
        return key

    def contract(self, rows: pa.Schema, *, key: tuple[str, ...], ordered: bool) -> Contract:
        groups = (*(names_of(self.by) or (ALL,)), KNOWN)
        plain = [one for one in rows if one.name not in (*PLACE, OP, *groups)]
        columns = tuple(one.name for one in rows if one.name not in (*PLACE, OP, ALL, KNOWN))
        within = tuple(name for name in key if name not in groups)
        return Contract(
            name=self.called,
            step=RankStep(
                TableUpdate(self.called, (KEY, *within), columns, ordered), self.n, self.ordered(), self.emit
            ),
            key=groups,
            rows=rows,
            state=pa.schema(plain),
            output=pa.schema(
                [pa.field(OP, pa.string()), *(rows.field(name) for name in columns), pa.field(RANK, pa.int64())]
            ),
        )


@dataclass(frozen=True)
class RankStep:
    """One batch of a ranking over all groups of a partition."""

    following: TableUpdate
    n: int
    order: tuple[tuple[str, str], ...]
    emit: Emit

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit)

    def answer(self, state: pa.Table) -> pa.Table:
        """The rankings as they stand."""
        return self._first(state.select([KEY, *self.following.columns]))

    def _net(self, state: pa.Table, rows: pa.Table) -> StepResult:
        names = [KEY, *self.following.columns]
        found = self.following.replaced(state, rows)
        after = pa.concat_tables([taken(state, found.stay, names), taken(rows, found.came, names)]).combine_chunks()
        changes = paired(self._first(state.select(names)), self._first(after), by=[KEY, RANK])
        return StepResult(after, retractions_first(changes))

    def _first(self, rows: pa.Table) -> pa.Table:
        """The first n rows of each group, with their rank. Nulls come last; ties are broken by the key."""
        by = [(KEY, "ascending"), *self.order, *((name, "ascending") for name in self.following.key if name != KEY)]
        order = pc.sort_indices(rows, sort_keys=by)  # nulls at the end, whichever the direction
        keys = np.asarray(rows.column(KEY).combine_chunks())[np.asarray(order)]
        groups = Groups.of(keys)
        ranks = np.arange(groups.rows) - np.repeat(groups.starts, groups.sizes()) + 1
        chosen = np.flatnonzero(ranks <= self.n)
        return rows.take(order.take(pa.array(chosen))).append_column(RANK, pa.array(ranks[chosen], pa.int64()))


def retractions_first(changes: pa.Table) -> pa.Table:
    """All retractions of a group before all that takes their place: rows change ranks with one another, so a reader
    that keeps them by rank or by their own key finds each place free."""
    signs = signs_of(changes.column(OP))
    order = np.lexsort([signs, np.asarray(changes.column(KEY).combine_chunks())])
    return changes.take(pa.array(order))
