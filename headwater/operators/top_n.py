"""`TopN`: the first n rows of each group of a table that changes, with their ranks.

Of a table all rows of a group are kept, as any of them may move up when others go (`RankStep`). Of rows that are only
added none ever moves up, so that the first n are all that is kept (`AppendedRankStep`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Groups
from headwater.engine.changelog import OP, paired, signs_of
from headwater.engine.columns import ALL, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import BatchTime
from headwater.engine.rows import ranks
from headwater.engine.spark_plan import apply, default_name
from headwater.engine.table_changes import PLACE, Emit, TableUpdate, check_emit, codes, emitted, taken
from headwater.engine.table_input import (
    Follow,
    Names,
    TableLike,
    Versions,
    check_key,
    check_names,
    frame_of,
    key_of,
    names_of,
    operation,
    own_columns,
    places,
    version_column,
)
from headwater.engine.table_read import TOMBSTONE, as_table
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIRECTIONS = {"asc": "ascending", "desc": "descending"}
#: Null where a row has no key: the engine sends such rows to the side output `rejected`.
KNOWN = "_known"
RANK = "rank"
#: What rows get that are equal in the order: each a rank of its own, or all of them the same.
Ties = Literal["row_number", "rank"]


@dataclass(frozen=True, kw_only=True)
class TopN:
    """Keep the first `n` rows of each group, and say how they change as the table does.

    `order` is columns with "asc" or "desc", the most important first; rows that are equal in all of them are in the order
    of their `key`, and nulls come last. `by` is the group; without it there is one, in a single partition. The result has
    all columns of the rows and `rank`, from 1. A view of it has the key `by` and `rank`, or `by` and `key`. With
    `ties="rank"`, rows that are equal in `order` share a rank, as by SQL's `rank()`: more than `n` may stay, and a view
    has the key `by` and `key`.

    A table needs its `key`. State: all its rows, as any may move up when others go; a batch costs what the groups it
    touches hold. Where a group is large, aggregate or filter first. A stream whose rows are only added needs none: rows
    that are equal in `order` are in the order of their partitions and offsets, and `n` rows of each group are kept.

    >>> TopN(n=10, order=[("turnover", "desc")], key="symbol").n
    10
    """

    n: int
    order: Sequence[tuple[str, str]] | str
    key: Names | None = None
    by: Names = ()
    ties: Ties = "row_number"
    emit: Emit = "changes"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_emit(self.emit)
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise ArgumentInvalid(name="n", value=self.n, expected="a whole number, at least 1")
        if self.ties not in ("row_number", "rank"):
            raise ArgumentInvalid(name="ties", value=self.ties, expected='"row_number" or "rank"')
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

        by = names_of(self.by)
        key = self._checked(frame_of(rows), key_of(rows, self.key))
        frame = as_table(frame_of(rows), key, operator=self.name or "TopN")
        columns = [F.col(f"`{name}`") for name in own_columns(frame)]
        extra = {} if by else {ALL: F.lit(0)}
        partitions = self.partitions if by else 1
        if key is None:
            made = frame.select(*columns, *places(frame), *(column.alias(name) for name, column in extra.items()))
            return apply(self.appended_contract, made, partitions=partitions)
        versions = Versions.of(rows, frame)
        made = frame.select(*columns, operation(frame, keyed=True), *places(frame), *version_column(frame, versions))
        followed = not set(by) <= set(key) or versions is not None
        if followed:
            follow = Follow(
                name=f"{self.called}-rows", key=key, emit=self.emit, versions=versions, partitions=self.partitions
            )
            made = follow(made)
        known = F.lit(True)
        for name in key:
            known = known & F.col(f"`{name}`").isNotNull()
        extra |= {KNOWN: F.when(known, F.lit(0))}
        made = made.select("*", *(column.alias(name) for name, column in extra.items()))
        ordered = not followed and "_offset" in frame.columns

        def contract(schema: pa.Schema) -> Contract:
            return self.contract(schema, key=key, ordered=ordered)

        return apply(contract, made, partitions=partitions)

    def _checked(self, rows: DataFrame, key: tuple[str, ...] | None) -> tuple[str, ...] | None:
        """The primary key; None for rows that are only added and have none."""
        called = self.name or type(self).__name__
        if not key and ({OP, TOMBSTONE} & set(rows.columns) or self.ties == "rank"):
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
        """For a table."""
        groups = (*(names_of(self.by) or (ALL,)), KNOWN)
        plain = [one for one in rows if one.name not in (*PLACE, OP, *groups)]
        columns = tuple(one.name for one in rows if one.name not in (*PLACE, OP, ALL, KNOWN))
        within = tuple(name for name in key if name not in groups)
        return Contract(
            name=self.called,
            step=RankStep(
                TableUpdate(self.called, (KEY, *within), columns, ordered),
                Ranking(self.n, self.ordered(), within, self.ties),
                self.emit,
            ),
            key=groups,
            rows=rows,
            state=pa.schema(plain),
            output=self._output(rows, columns),
        )

    def appended_contract(self, rows: pa.Schema) -> Contract:
        """For rows that are only added."""
        groups = names_of(self.by) or (ALL,)
        columns = tuple(one.name for one in rows if one.name not in (*PLACE, ALL))
        place = tuple(name for name in PLACE if name in rows.names) if "_offset" in rows.names else ()
        # Rows that have lost their place are told apart by what they hold, so that every run sees them alike.
        return Contract(
            name=self.called,
            step=AppendedRankStep(
                (*columns, *place), place, Ranking(self.n, self.ordered(), place or columns, self.ties), self.emit
            ),
            key=groups,
            rows=rows,
            state=pa.schema([rows.field(name) for name in (*columns, *place) if name not in groups]),
            output=self._output(rows, columns),
        )

    def _output(self, rows: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
        return pa.schema(
            [pa.field(OP, pa.string()), *(rows.field(name) for name in columns), pa.field(RANK, pa.int64())]
        )


@dataclass(frozen=True)
class Ranking:
    """Which rows of a group come first: their order, the columns that break ties, how many stay, and what ties get."""

    n: int
    order: tuple[tuple[str, str], ...]
    then_by: tuple[str, ...]
    ties: Ties

    def first(self, rows: pa.Table) -> pa.Table:
        """The first n rows of each group, with their rank. Nulls come last."""
        by = [(KEY, "ascending"), *self.order, *((name, "ascending") for name in self.then_by)]
        sortable = pa.table({name: _sortable(rows.column(name)) for name, _ in by})
        order = pc.sort_indices(sortable, sort_keys=by)  # nulls at the end, whichever the direction
        groups = Groups.of(np.asarray(rows.column(KEY).combine_chunks())[np.asarray(order)])
        places = np.arange(groups.rows)
        if self.ties == "rank":
            equal = Groups.of(codes(sortable.take(order), [KEY, *(name for name, _ in self.order)]))
            places = np.repeat(equal.starts, equal.sizes())
        found = places - np.repeat(groups.starts, groups.sizes()) + 1
        chosen = np.flatnonzero(found <= self.n)
        return rows.take(order.take(pa.array(chosen))).append_column(RANK, pa.array(found[chosen], pa.int64()))


def _sortable(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    return pa.array(ranks(column)) if pa.types.is_nested(column.type) else column


@dataclass(frozen=True)
class RankStep:
    """One batch of a ranking over all groups of a partition."""

    following: TableUpdate
    ranking: Ranking
    emit: Emit

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit)

    def answer(self, state: pa.Table) -> pa.Table:
        """The rankings as they stand."""
        return self.ranking.first(state.select([KEY, *self.following.columns]))

    def _net(self, state: pa.Table, rows: pa.Table) -> StepResult:
        names = [KEY, *self.following.columns]
        found = self.following.replaced(state, rows)
        after = pa.concat_tables([taken(state, found.stay, names), taken(rows, found.came, names)]).combine_chunks()
        before, then = self.ranking.first(state.select(names)), self.ranking.first(after)
        # Where rows share a rank, their keys tell them apart.
        place = list(self.following.key) if self.ranking.ties == "rank" else [KEY, RANK]
        return StepResult(after, retractions_first(paired(before, then, by=place)))


@dataclass(frozen=True)
class AppendedRankStep:
    """The same for rows that are only added: what is not among the first n now never will be."""

    columns: tuple[str, ...]
    place: tuple[str, ...]
    ranking: Ranking
    emit: Emit

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit)

    def answer(self, state: pa.Table) -> pa.Table:
        """The rankings as they stand."""
        return self.ranking.first(state.select([KEY, *self.columns])).drop_columns(list(self.place))

    def _net(self, state: pa.Table, rows: pa.Table) -> StepResult:
        names = [KEY, *self.columns]
        after = self.ranking.first(pa.concat_tables([state.select(names), rows.select(names)]).combine_chunks())
        changes = paired(self.answer(state), after.drop_columns(list(self.place)), by=[KEY, RANK])
        return StepResult(after.drop_columns([RANK]), retractions_first(changes))


def retractions_first(changes: pa.Table) -> pa.Table:
    """All retractions of a group before all that takes their place: rows change ranks with one another, so a reader
    that keeps them by rank or by their own key finds each place free."""
    signs = signs_of(changes.column(OP))
    order = np.lexsort([signs, np.asarray(changes.column(KEY).combine_chunks())])
    return changes.take(pa.array(order))
