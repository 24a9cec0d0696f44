"""`IntervalJoin`: rows of two streams that belong together and happen close to each other.

Rows of both inputs are kept until no row that is in time could still meet them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.aggregation import Int64s
from headwater.engine.columns import INPUT, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import (
    LATE_SAMPLE_ROWS,
    NEVER,
    BatchTime,
    Follow,
    Late,
    WatermarkStrategy,
    late_schema,
    with_late_by,
)
from headwater.engine.join_inputs import AT, Columns, JoinInputs, On, check_appends, check_times, pairs_of
from headwater.engine.operator import EventTimeOperator, event_time_of
from headwater.engine.rows import micros
from headwater.engine.spark_plan import apply
from headwater.engine.time_index import Line, Pairs, in_order
from headwater.engine.time_metadata import carried_times
from headwater.engine.window_spans import LONGEST_SECONDS
from headwater.errors import ArgumentInvalid
from headwater.operators.errors import unbounded
from headwater.schema.event_time import EventTime
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SIDE = "_side"
MATCHED = "_matched"
WAKE = "_wake_at"
#: How long after a row of the left input one of the right may happen, where each row says it itself.
AFTER = "_after_us"
DURATIONS = (str, int, float, timedelta)
LEFT, RIGHT = 0, 1
How = Literal["inner", "left", "right", "outer", "anti"]
#: Whose rows leave alone when they have met none.
ALONE: dict[str, tuple[int, ...]] = {
    "inner": (),
    "left": (LEFT,),
    "right": (RIGHT,),
    "outer": (LEFT, RIGHT),
    "anti": (LEFT,),
}


@dataclass(frozen=True, kw_only=True)
class IntervalJoin(EventTimeOperator):
    """Put rows of two streams together that have the same key and happen within a time of each other.

    A row meets each row of `other` whose time lies in [its own − `before`, its own + `after`], ends included; `within`
    sets both. `after` may also be a column of the row: `after=F.col("expires") - F.col("at")`. Pairs leave as soon as
    their second half is there. What an outer join leaves alone, and all that an anti join gives, leaves once: when the
    watermark has passed its time, the bound and `allowed_lateness`, so that nothing could still meet it. The watermark is
    that of the slower input, each with the delay of its own event time; with `follow="fastest"`, that of the faster, so
    that rows need not wait for an input that is silent. Rows behind the watermark by more than `allowed_lateness` are
    late. A row with a null in its key meets no other. State: the rows of both inputs that can still be met.

    >>> from headwater.operators import IntervalJoin
    >>> IntervalJoin(None, on="ad", after="1 hour", how="left").after
    '1 hour'
    """

    # None only where no row is ever joined, as in the example above.
    other: DataFrame | None = field(kw_only=False, repr=False)
    on: On
    other_time: EventTime | str | None = None
    within: Duration | None = None
    before: Duration | None = None
    after: Duration | Column | None = None
    how: How = "inner"
    follow: Follow = "slowest"
    allowed_lateness: Duration = 0
    late: Late = "drop"
    suffix: str | None = None

    def __post_init__(self) -> None:
        if self.how not in ALONE:
            raise ArgumentInvalid(name="how", value=self.how, expected=f"one of {', '.join(ALONE)}")
        if self.within is None and self.before is None and self.after is None:
            raise unbounded(self.name or "IntervalJoin", bounds='`within="1 hour"`, or `before` and `after`')
        pairs_of(self.on)
        self.bounds_us()
        WatermarkStrategy.of(None, follow=self.follow)

    def __call__(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        operator = self.name or "IntervalJoin"
        other = self.checked_other()
        check_appends("rows", rows)
        check_appends("other", other)
        join = self.resolved(rows)
        time, other_time = join.times
        check_times(operator, rows, other, time.column, other_time.column)
        meeting = JoinInputs.of(
            operator, rows, other, on=self.on, suffix=self.suffix, alone=ALONE[self.how], key_only=self.how == "anti"
        )
        extra = {} if self.own_after is None else {AFTER: micros_of(rows, self.own_after)}
        left = meeting.left_rows(F.col(f"`{time.column}`"), extra=extra)
        right = meeting.right_rows(F.col(f"`{other_time.column}`"))
        times = meeting.times(*join.times_of_results())
        # A row that says itself how long it waits may come any time later than others of its time.
        times = times[1:] if extra else times
        make = partial(join.contract, columns=meeting.columns(), output_times=times)
        return apply(make, left, right, partitions=self.partitions)

    def resolved(self, rows: DataFrame) -> Self:
        """With the event times of both inputs. One that is given for the rows holds for `other`, too, if it has no own."""
        other, join = self.checked_other(), super().resolved(rows)
        other_time = self.other_time
        if other_time is None and self.time is not None:
            other_time = carried_times(other.schema).get(join.event_time.column, join.event_time)
        return replace(join, other_time=event_time_of(other, other_time, operator="IntervalJoin"))

    def times_of_results(self) -> tuple[EventTime, EventTime]:
        """The event times of results: a row may wait for its partner, so that they come later than the rows did."""
        waits = sum(bound or 0 for bound in self.bounds_us()) / 1e6
        time, other = self.times
        return time.later(waits), other.later(waits)

    @property
    def times(self) -> tuple[EventTime, EventTime]:
        """The event times of both inputs."""
        other = self.event_time.column if self.other_time is None else self.other_time
        return self.event_time, other if isinstance(other, EventTime) else EventTime(other)

    def strategy(self) -> WatermarkStrategy:
        time, other = (WatermarkStrategy.of(time, column=AT, follow=self.follow, inputs=2) for time in self.times)
        return replace(time, other=other)

    def checked_other(self) -> DataFrame:
        if self.other is None:
            raise ArgumentInvalid(name="other", value=None, expected="a DataFrame")
        return self.other

    def bounds_us(self) -> tuple[int, int | None, int]:
        """How long before and after a row of the left input one of the right may happen, and the allowed lateness; None
        where each row says it itself."""
        both = 0.0 if self.within is None else self.within
        given = {
            "before": both if self.before is None else self.before,
            "after": self.after if isinstance(self.after, DURATIONS) else both,
            "allowed_lateness": self.allowed_lateness,
        }
        found = []
        for name, value in given.items():
            seconds = parse_seconds(value, name=name)
            if seconds > LONGEST_SECONDS:
                raise ArgumentInvalid(name=name, value=value, expected="ten years at most: all rows of it are kept")
            found.append(round(seconds * 1e6))
        before, after, allowed_lateness = found
        return before, after if self.own_after is None else None, allowed_lateness

    @property
    def own_after(self) -> Column | None:
        """The column in which each row says how long it waits, if one does."""
        return None if self.after is None or isinstance(self.after, DURATIONS) else self.after

    def contract(self, rows: pa.Schema, columns: Columns, output_times: tuple[EventTime, ...] = ()) -> Contract:
        before, after, allowed_lateness = self.bounds_us()
        return Contract(
            name=self.called,
            step=IntervalJoinStep(
                columns=columns, before_us=before, after_us=after, allowed_lateness_us=allowed_lateness, how=self.how
            ),
            key=columns.group,
            null_keys=columns.null_keys,
            rows=rows,
            state=state_schema(rows, columns),
            output=pa.schema([rows.field(name) for name in columns.shown]),
            side_outputs={"late": late_schema(rows)},
            event_time=self.strategy(),
            output_times=output_times,
            late="step",
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
        )


def micros_of(rows: DataFrame, bound: Column) -> Column:
    """A column of durations in microseconds: an interval, as the difference of two times is, or a number of seconds."""
    from pyspark.sql import functions as F  # noqa: N812

    kind = rows.select(bound).schema[0].dataType.typeName()
    if kind == "daytimeinterval":
        return F.unix_micros(F.timestamp_micros(F.lit(0)) + bound)
    if kind in ("byte", "short", "integer", "long", "float", "double", "decimal"):
        return (bound * 1_000_000).cast("long")
    raise ArgumentInvalid(name="after", value=f"{bound} ({kind})", expected="an interval, or a number of seconds")


def state_schema(rows: pa.Schema, columns: Columns) -> pa.Schema:
    """One row for each row that is kept: of which input, when it happened, whether it has met another."""
    own = [pa.field(SIDE, pa.int8()), pa.field(AT, pa.int64()), pa.field(MATCHED, pa.bool_())]
    own += [rows.field(AFTER)] if AFTER in rows.names else []
    data = [rows.field(name).with_nullable(True) for name in columns.data]
    return pa.schema([*own, *data, pa.field(WAKE, pa.int64())])


class Kept(NamedTuple):
    """The rows of a step, those of the state first, what is known of each, and their order by key and time."""

    table: pa.Table
    keys: Int64s
    side: npt.NDArray[np.int8]
    at: Int64s
    after: Int64s
    fresh: npt.NDArray[np.bool_]
    order: Int64s


@dataclass(frozen=True)
class IntervalJoinStep:
    """One batch of a join within bounds, over all keys of a partition."""

    columns: Columns
    before_us: int
    #: None where each row of the left input says it itself.
    after_us: int | None
    allowed_lateness_us: int
    how: How

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        rows, late = split_late(rows, time.watermark_us, self.allowed_lateness_us)
        kept = self._kept(state, rows)
        pairs = self._pairs(kept)
        matched = np.asarray(kept.table.column(MATCHED)).astype(bool)
        matched[pairs.left] = True
        matched[pairs.right] = True
        # A row is closed when every row that could meet it would be late.
        closes = kept.at + np.where(kept.side == LEFT, kept.after, self.before_us) + self.allowed_lateness_us
        closed = closes < time.watermark_us
        alone = np.flatnonzero(closed & ~matched & np.isin(kept.side, ALONE[self.how]))
        open_rows = kept.order[~closed[kept.order]]  # so that the next step finds them in their order
        after = kept.table.take(pa.array(open_rows)).drop_columns([MATCHED])
        after = after.append_column(MATCHED, pa.array(matched[open_rows]))
        after = after.append_column(WAKE, pa.array(closes[open_rows] + 1, pa.int64()))
        return StepResult(after, self._output(kept, pairs, alone), {} if late is None else {"late": late})

    def _kept(self, state: pa.Table, rows: pa.Table) -> Kept:
        entered = {
            KEY: rows.column(KEY),
            SIDE: rows.column(INPUT).cast(pa.int8()),
            AT: micros(rows.column(AT)),
            MATCHED: pa.array(np.zeros(rows.num_rows, bool)),
        }
        names = self.columns.data if self.after_us is not None else (*self.columns.data, AFTER)
        fresh = pa.table({**entered, **{name: rows.column(name) for name in names}})
        table = pa.concat_tables([state.select(fresh.column_names).cast(fresh.schema), fresh]).combine_chunks()
        keys, side, at = (np.asarray(table.column(name)) for name in (KEY, SIDE, AT))
        fresh_rows = np.arange(table.num_rows) >= state.num_rows
        return Kept(table, keys, side, at, self._after(table), fresh_rows, in_order(keys, at))

    def _after(self, table: pa.Table) -> Int64s:
        """How long after each row one of the right input may happen; a row that does not say it meets none."""
        if self.after_us is not None:
            return np.full(table.num_rows, self.after_us)
        return np.asarray(table.column(AFTER).combine_chunks().fill_null(-self.before_us - 1))

    def _pairs(self, kept: Kept) -> Pairs:
        """All rows that meet for the first time: of each pair at least one has come with this batch."""
        left, right = kept.side == LEFT, kept.side == RIGHT
        with_new_left = self._between(kept, left & kept.fresh, right)
        with_new_right = self._between(kept, left & ~kept.fresh, right & kept.fresh)
        found = (np.concatenate(one) for one in zip(with_new_left, with_new_right, strict=True))
        return Pairs(*found)

    def _between(self, kept: Kept, left: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]) -> Pairs:
        left = left & (kept.after >= -self.before_us)  # else its window has no time in it
        mine, others = (kept.order[chosen[kept.order]] for chosen in (left, right))
        if not len(mine) or not len(others):
            return Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
        line = Line(kept.keys[others], kept.at[others])
        at = kept.at[mine]
        found = line.between(kept.keys[mine], at - self.before_us, at + kept.after[mine])
        return Pairs(mine[found.left], others[found.right])

    def _output(self, kept: Kept, pairs: Pairs, alone: Int64s) -> pa.Table:
        """Pairs, and rows that stay alone, with nulls in the other half."""
        if self.how == "anti":
            pairs = Pairs(pairs.left[:0], pairs.right[:0])
        met = len(pairs.left)
        halves = {
            LEFT: (self.columns.left, np.concatenate([pairs.left, np.where(kept.side[alone] == LEFT, alone, -1)])),
            RIGHT: (self.columns.right, np.concatenate([pairs.right, np.where(kept.side[alone] == RIGHT, alone, -1)])),
        }
        keys = np.concatenate([kept.keys[pairs.left], kept.keys[alone]])
        output = {KEY: pa.array(keys, pa.int64())}
        for names, where in halves.values():
            places = pa.array(where, pa.int64(), mask=where < 0) if len(where) > met else pa.array(where, pa.int64())
            output |= {name: kept.table.column(name).take(places) for name in names}
        return pa.table(output)


def split_late(rows: pa.Table, watermark_us: int, allowed_lateness_us: int) -> tuple[pa.Table, pa.Table | None]:
    """Rows in time, and rows further behind the watermark than is allowed."""
    if watermark_us <= NEVER:
        return rows, None
    times = np.asarray(micros(rows.column(AT)).combine_chunks())
    late = times < watermark_us - allowed_lateness_us
    if not late.any():
        return rows, None
    side = rows.filter(pa.array(late)).drop_columns([KEY, AT])
    side = with_late_by(side, watermark_us - times[late])
    return rows.filter(pa.array(~late)), side
