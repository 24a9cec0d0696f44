"""`AggregateTable`: aggregates over a table that changes, kept up to date.

There are two ways to aggregate a table whose rows come and go: add rows to results and retract them (`MergeStep`), or compute
them again from the rows that are there (`RecomputeStep`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import (
    ARGUMENT,
    Aggregate,
    Computation,
    Groups,
    Int64s,
    Order,
    arguments,
    check_arguments,
    check_compute,
)
from headwater.engine.changelog import DELETE, OP, paired, signs_of
from headwater.engine.columns import ALL, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.errors import ChangelogInvalid
from headwater.engine.event_time import NEVER, BatchTime
from headwater.engine.operator import event_time_of
from headwater.engine.rows import micros, ranks
from headwater.engine.spark_plan import apply, default_name
from headwater.engine.suppress import HeldChanges, Suppress
from headwater.engine.table_changes import Emit, check_emit, codes, emitted
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
    places,
    timed,
    version_column,
)
from headwater.engine.table_read import TOMBSTONE, as_table
from headwater.errors import ArgumentInvalid
from headwater.operators.aggregates.approximate import Approximate
from headwater.operators.aggregates.numbers import steady
from headwater.operators.aggregates.values import CollectList, First, Last
from headwater.schema.event_time import EventTime

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What the columns of a primary key are called on their way, beside groups and arguments that may be made of the same.
ROW_KEY = "_row_"
#: How many rows a group has, or how often the same row is there.
ROWS = "rows"
#: What first, last and collect_list go by.
ORDER = "_order"
#: The event time of a change, and the latest of those of a group.
CHANGED_AT = "_changed_at"


@dataclass(frozen=True, kw_only=True)
class AggregateTable:
    """Aggregate the rows of a table by group; as rows come, change and go, so do the results.

    The input is a changelog (`_op`, with what is retracted), a table whose rows replace one another by their `key`, or a
    plain stream, of which every row is added. The output is a changelog with one row per group; a group without rows
    has none. Aggregates over this output, and over theirs, work alike.

    `count`, `sum`, `mean`, `count_distinct`, `percentile` and `top_k` retract a row at the cost of a row; state is
    one row per group; so it is for `min`, `max` and the like over a plain stream, which retracts nothing. With any other among
    them, the arguments of all rows are kept, and a group that changes is computed again. With `emit=Suppress(…)` the changes of a group are held back for a time, or until there are so many, and emitted as one
    correction. With `key`, the last row of each key is kept as well. `order_by` is the column by whose order first, last and
    collect_list go. With `time`, a column of event time, each result has it, too: the latest time of the changes that made the
    result. Operators that go by event time can follow.

    >>> from headwater.operators import AggregateTable, agg
    >>> AggregateTable(by="country", compute={"customers": agg.count()}, key="id").by
    'country'
    """

    by: Names = ()
    compute: Mapping[str, Aggregate]
    key: Names | None = None
    order_by: str | None = None
    emit: Emit | Suppress = "changes"
    time: EventTime | str | None = None
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_emit(self.emit_of_batch)
        check_compute(self.compute, taken=names_of(self.by))
        for name, one in self.compute.items():
            if isinstance(one, Approximate):
                expected = "an exact aggregate: a table takes rows back, and a sketch cannot forget what it has seen"
                raise ArgumentInvalid(name=f"compute[{name!r}]", value=one, expected=expected)
            if one.by_place:
                expected = "`order_by` a column that has the order of arrival, such as one that `RowId` adds"
                raise ArgumentInvalid(name=f"compute[{name!r}]", value=one, expected=expected)
        if self._time is not None and self._time.column in (*names_of(self.by), *self.compute):
            expected = "a column that is neither in `by` nor the name of an aggregate: the result has it beside them"
            raise ArgumentInvalid(name="time", value=self._time.column, expected=expected)
        if self.order_by is None:
            for name, one in self.compute.items():
                if isinstance(one, First | Last | CollectList):
                    expected = f"the column by whose order {name!r} goes: a table has no order of its own"
                    raise ArgumentInvalid(name="order_by", value=None, expected=expected)

    @property
    def groups(self) -> tuple[str, ...]:
        return names_of(self.by) or (ALL,)

    @property
    def called(self) -> str:
        return self.name or default_name(self)

    @property
    def emit_of_batch(self) -> Emit:
        """What a batch emits: of changes that are held back, one correction per group."""
        return "changes" if isinstance(self.emit, Suppress) else self.emit

    @property
    def _time(self) -> EventTime | None:
        return EventTime(self.time) if isinstance(self.time, str) else self.time

    def __call__(self, rows: TableLike) -> DataFrame:
        if isinstance(self.time, str):  # with the settings that the column carries
            time = event_time_of(frame_of(rows), self.time, operator=self.name or "AggregateTable")
            return replace(self, time=time, name=self.called)(rows)
        key = key_of(rows, self.key)
        frame = as_table(frame_of(rows), key, operator=self.name or type(self).__name__)
        versions = Versions.of(rows, frame)
        made = self._prepared(frame, key, versions)
        # A deletion without a time gets one below; where the watermark is recorded is found in the column as it came.
        timed = None if self._time is None else frame.selectExpr(f"`{self._time.column}` AS {CHANGED_AT}")
        keys = tuple(name for name in made.columns if name.startswith(ROW_KEY))
        if keys:
            follow = Follow(
                name=f"{self.called}-rows",
                key=keys,
                emit=self.emit_of_batch,
                versions=versions,
                time=None if self._time is None else replace(self._time, column=CHANGED_AT),
                partitions=self.partitions,
            )
            made, timed = follow(made, timed=None if versions is not None else timed).drop(*keys), None
        appends = not keys and versions is None and not {OP, TOMBSTONE} & {*frame.columns}
        contract = partial(self.contract, appends=appends)
        results = apply(contract, made, timed=timed, partitions=self.partitions if names_of(self.by) else 1)
        if not isinstance(self.emit, Suppress):
            return results
        held = HeldChanges(
            name=f"{self.called}-held",
            key=names_of(self.by),
            suppress=self.emit,
            time=self._time,
            partitions=self.partitions,
        )
        return held(results)

    def _prepared(self, rows: DataFrame, key: tuple[str, ...] | None, versions: Versions | None) -> DataFrame:
        """The rows with their groups, the arguments of the aggregates, what they do, and their key."""
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        called = self.name or type(self).__name__
        check_names("by", names_of(self.by), rows, operator=called)
        check_key(rows, key, operator=called)
        check_arguments(called, self.compute, rows)
        columns = {name: F.col(f"`{name}`") for name in names_of(self.by)} or {ALL: F.lit(0)}
        columns |= arguments(self.compute)
        if self.order_by is not None:
            check_names("order_by", [self.order_by], rows, operator=called)
            columns[ORDER] = F.col(f"`{self.order_by}`")
        does = operation(rows, keyed=key is not None)
        if self._time is not None:
            columns[CHANGED_AT] = changed_at(rows, self._time.column, does, operator=called)
        columns |= {f"{ROW_KEY}{name}": F.col(f"`{name}`") for name in key or ()}
        made = (column.alias(name) for name, column in columns.items())
        return rows.select(*made, does, *places(rows), *version_column(rows, versions))

    def contract(self, rows: pa.Schema, *, appends: bool = False) -> Contract:
        """What the operator does; if the input `appends`, no row is retracted."""
        plain = Computation.over(self.compute, rows)
        computation = Computation(steady(plain.compute, plain.kinds), plain.kinds)
        step = (
            MergeStep(self.called, computation, self.emit_of_batch, self._time_field(rows))
            if computation.invertible or (appends and not plain.ordered)
            else RecomputeStep(self.called, plain, self.emit_of_batch, rows, self._time_field(rows))
        )
        times = {} if self._time is None else timed(replace(self._time, column=CHANGED_AT))
        if self._time is not None:
            times["output_times"] = (self._time,)
        shown = [rows.field(name) for name in self.groups if name != ALL]
        return Contract(
            name=self.called,
            step=step,
            key=self.groups,
            rows=rows,
            state=step.state(),
            output=pa.schema([*shown, pa.field(OP, pa.string()), *computation.results, *step.time_fields]),
            **times,
        )

    def _time_field(self, rows: pa.Schema) -> pa.Field | None:
        """The column of event time in the result."""
        return None if self._time is None else pa.field(self._time.column, rows.field(CHANGED_AT).type)


@dataclass(frozen=True)
class MergeStep:
    """For aggregates that can retract a row, and where none is retracted: state is one row per group, and a change costs the
    same in a large group."""

    operator: str
    computation: Computation
    emit: Emit
    time: pa.Field | None = None

    @property
    def time_fields(self) -> list[pa.Field]:
        return [] if self.time is None else [self.time]

    def state(self) -> pa.Schema:
        times = [] if self.time is None else [pa.field(CHANGED_AT, pa.int64())]
        return pa.schema([*self.computation.partials, pa.field(ROWS, pa.int64()), *times])

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit)

    def answer(self, state: pa.Table) -> pa.Table:
        """The results of the groups as they stand."""
        return self._results(state)

    def _net(self, state: pa.Table, rows: pa.Table) -> StepResult:
        signs = signs_of(rows.column(OP))
        parts = [state.select([KEY, *self.state().names])]
        for sign in (1, -1):
            part = rows.filter(pa.array(signs == sign))
            if part.num_rows:
                parts.append(self._lifted(part, sign))
        merged = self._merged(pa.concat_tables(parts).combine_chunks())
        counts = np.asarray(merged.column(ROWS).combine_chunks())
        check_counts(self.operator, counts)
        after = merged.filter(pa.array(counts > 0))
        return StepResult(after, paired(self._results(state), self._results(after), by=[KEY]))

    def _lifted(self, rows: pa.Table, sign: int) -> pa.Table:
        keys = np.asarray(rows.column(KEY).combine_chunks())
        groups = Groups.of(keys)
        nowhere = np.zeros(groups.rows, np.int64)
        partials = self.computation.lift(rows, Order(nowhere, nowhere), groups)
        if sign < 0:
            partials = self.computation.remove(partials)
        return self._table(keys[groups.starts], partials, sign * groups.sizes(), self._latest(rows, groups))

    def _merged(self, parts: pa.Table) -> pa.Table:
        keys = np.asarray(parts.column(KEY).combine_chunks())
        order = np.argsort(keys, kind="stable")
        parts, keys = parts.take(pa.array(order)), keys[order]
        groups = Groups.of(keys)
        counts = np.asarray(parts.column(ROWS).combine_chunks())
        totals = np.add.reduceat(counts, groups.starts) if groups.count else counts
        return self._table(
            keys[groups.starts], self.computation.merge(parts, groups), totals, self._latest(parts, groups)
        )

    def _latest(self, rows: pa.Table, groups: Groups) -> pa.Table:
        """The latest time of each group, whether rows came or were retracted."""
        if self.time is None:
            return pa.table({})
        return pa.table({CHANGED_AT: pa.array(latest(rows, groups), pa.int64())})

    def _table(self, keys: Int64s, partials: pa.Table, counts: Int64s, times: pa.Table) -> pa.Table:
        columns = [pa.array(keys, pa.int64()), *partials.columns, pa.array(counts, pa.int64()), *times.columns]
        return pa.table(columns, names=[KEY, *partials.column_names, ROWS, *times.column_names])

    def _results(self, state: pa.Table) -> pa.Table:
        results = self.computation.finish(state).add_column(0, KEY, state.column(KEY))
        return results if self.time is None else with_time(results, self.time, state.column(CHANGED_AT))


@dataclass(frozen=True)
class RecomputeStep:
    """For all other aggregates: the arguments of all rows are kept, and groups that are touched are computed again."""

    operator: str
    computation: Computation
    emit: Emit
    rows: pa.Schema
    time: pa.Field | None = None

    @property
    def time_fields(self) -> list[pa.Field]:
        return [] if self.time is None else [self.time]

    def state(self) -> pa.Schema:
        kept = [one for one in self.rows if one.name.startswith(ARGUMENT) or one.name == ORDER]
        times = [] if self.time is None else [pa.field(CHANGED_AT, pa.int64())]
        return pa.schema([*kept, pa.field(ROWS, pa.int64()), *times])

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit)

    def answer(self, state: pa.Table) -> pa.Table:
        """The results of the groups as they stand."""
        return self._results(state)

    def _net(self, state: pa.Table, rows: pa.Table) -> StepResult:
        names = [KEY, *(name for name in self.state().names if name not in (ROWS, CHANGED_AT))]
        both = pa.concat_tables([state.select(names), rows.select(names)]).combine_chunks()
        times = np.concatenate([np.asarray(state.column(ROWS).combine_chunks()), signs_of(rows.column(OP))])
        content = codes(both, names)
        counts = np.bincount(content, weights=times).astype(np.int64)
        check_counts(self.operator, counts)
        first = np.zeros(len(counts), np.int64)
        first[content[::-1]] = np.arange(len(content))[::-1]
        held = counts > 0
        after = both.take(pa.array(first[held])).append_column(ROWS, pa.array(counts[held], pa.int64()))
        if self.time is not None:
            after = after.append_column(CHANGED_AT, pa.array(self._latest(state, rows, after), pa.int64()))
        return StepResult(after, paired(self._results(state), self._results(after), by=[KEY]))

    def _latest(self, state: pa.Table, rows: pa.Table, after: pa.Table) -> Int64s:
        """For each row of the state that follows the latest time of its group, whether rows came or were retracted."""
        times = np.full(int(max(_keys(one).max(initial=-1) for one in (state, rows))) + 1, NEVER, np.int64)
        for one in (state, rows):
            np.maximum.at(times, _keys(one), _micros(one))
        found: Int64s = times[_keys(after)]
        return found

    def _results(self, state: pa.Table) -> pa.Table:
        times = np.asarray(state.column(ROWS).combine_chunks())
        rows = state.take(pa.array(np.repeat(np.arange(state.num_rows), times)))
        keys = np.asarray(rows.column(KEY).combine_chunks())
        at = ranks(rows.column(ORDER)) if ORDER in rows.column_names else np.zeros(len(keys), np.int64)
        # Rows at one place of the order are told apart by what they hold, so that every run sees them alike.
        ties = [ranks(rows.column(name)) for name in rows.column_names if name.startswith(ARGUMENT)]
        order = np.lexsort([*ties, at, keys])
        groups = Groups.of(keys[order])
        places = Order(at[order], np.arange(len(order)))
        partials = self.computation.lift(rows.take(pa.array(order)), places, groups)
        results = self.computation.finish(partials)
        results = results.add_column(0, KEY, pa.array(keys[order][groups.starts], pa.int64()))
        if self.time is None:
            return results
        return with_time(results, self.time, pa.array(latest(rows.take(pa.array(order)), groups), pa.int64()))


def changed_at(rows: DataFrame, column: str, does: Column, *, operator: str) -> Column:
    """The event time of each change; a deletion that has none changes the result, and not the time of it."""
    from pyspark.sql import functions as F  # noqa: N812

    check_names("time", [column], rows, operator=operator)
    kind = rows.schema[column].dataType
    if kind.typeName() not in ("timestamp", "timestamp_ntz"):
        raise ArgumentInvalid(name="time", value=f"{column} ({kind.typeName()})", expected="a column of timestamps")
    never = F.lit("1970-01-01 00:00:00").cast(kind)
    return F.coalesce(F.col(f"`{column}`"), F.when(does == DELETE, never))


def latest(rows: pa.Table, groups: Groups) -> Int64s:
    """The latest time of each group."""
    times = _micros(rows)
    return np.maximum.reduceat(times, groups.starts) if groups.count else times


def with_time(results: pa.Table, time: pa.Field, times: pa.Array | pa.ChunkedArray) -> pa.Table:
    column = times.cast(pa.timestamp("us", tz=time.type.tz)).cast(time.type)
    return results.append_column(time, column)


def _micros(rows: pa.Table) -> Int64s:
    return np.asarray(pc.fill_null(micros(rows.column(CHANGED_AT)), NEVER).combine_chunks())


def _keys(rows: pa.Table) -> Int64s:
    return np.asarray(rows.column(KEY).combine_chunks())


def check_counts(operator: str, counts: Int64s) -> None:
    """A row that is retracted more often than it came was never there."""
    if (counts < 0).any():
        why = "a row is retracted that is not there"
        raise ChangelogInvalid(operator=operator, key=f"one of {len(counts)} groups", why=why)
