"""`Trend`: each row with the straight line through the past period by least squares, and where it leads.

Times are counted from the first row that is remembered of a key, and sums of squares from their means: what is lost to
rounding is little, however late the day and however large the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.aggregation import Aggregate, Argument, Columns, Groups, Int64s
from headwater.engine.ordered_rows import AT, Measure, Measured, OrderedOperator, Past
from headwater.engine.window_spans import duration_us
from headwater.errors import ArgumentInvalid
from headwater.operators.aggregates.numbers import Floats, summed
from headwater.operators.aggregates.ranges import from_blocks
from headwater.operators.aggregates.trailing_period import check_number, number, trailing, values_of
from headwater.units import Duration

VALUE = "value"
DIRECTION = "direction"
SINCE = "since_us"
#: Where a line goes, by its number: unknown, down, nowhere, up.
DIRECTIONS = pa.array([None, "down", "flat", "up"], pa.string())
UNKNOWN, DOWN, FLAT, UP = range(4)
#: Values whose deviation is this much smaller than they are do not differ: that much is rounding.
ROUNDING = 1e-14
SUMS = ("count", "time", "value", "times", "mixed", "values")
Directions = npt.NDArray[np.int8]


@dataclass(frozen=True, kw_only=True)
class Trend(OrderedOperator):
    """Add to each row the line that fits the values of the past `period` best: `slope`, `intercept` and `r2`.

    The slope is per `per`, the intercept is the line's value at the row's own time, and with `horizon` a column
    `forecast` says where it leads by then. `direction` is "up" or "down" where the slope is at least `sure` times its
    standard error, otherwise "flat", and null with fewer than three values; `since` is the time of the row with which
    that began. A value that is null, NaN or infinite is left out. State: one row for each row of the last `period`.

    >>> from headwater.operators import Trend
    >>> Trend(of="celsius", by="machine", period="10 minutes", per="1 minute", horizon="1 hour").horizon
    '1 hour'
    """

    of: Argument
    period: Duration
    per: Duration = "1 second"
    horizon: Duration | None = None
    sure: float = 2.0
    prefix: str = ""

    def check(self) -> None:
        duration_us("period", self.period)
        duration_us("per", self.per)
        if self.horizon is not None:
            duration_us("horizon", self.horizon)
        if self.of is None:
            raise ArgumentInvalid(name="of", value=None, expected="a column of numbers")
        if not self.sure > 0:
            raise ArgumentInvalid(name="sure", value=self.sure, expected="a number above 0, such as 2.0")

    def arguments(self) -> Mapping[str, Aggregate]:
        return number(self.of)

    def measure(self, rows: pa.Schema) -> Measure:
        check_number(self.of, rows)
        return Lines(
            prefix=self.prefix,
            period_us=duration_us("period", self.period),
            per_us=duration_us("per", self.per),
            horizon_after_us=None if self.horizon is None else duration_us("horizon", self.horizon),
            sure=self.sure,
        )


class Sums:
    """Count, means, and squared and mixed distances from the means: of several such one is made."""

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        count, time, value, times, mixed, values = (np.asarray(partials[name]) for name in SUMS)
        total = summed(count, groups)
        mean_time, mean_value = (summed(count * one, groups) / np.maximum(total, 1.0) for one in (time, value))
        sizes = groups.sizes()
        from_time, from_value = time - np.repeat(mean_time, sizes), value - np.repeat(mean_value, sizes)
        merged = (
            total,
            mean_time,
            mean_value,
            summed(times + count * from_time**2, groups),
            summed(mixed + count * from_time * from_value, groups),
            summed(values + count * from_value**2, groups),
        )
        return {name: pa.array(one) for name, one in zip(SUMS, merged, strict=True)}


class Fitted(NamedTuple):
    """Lines: how many values each was laid through, its slope per second, its value at the row's time, and how well it
    fits. NaN where there is no line."""

    values: Floats
    slope: Floats
    level: Floats
    fit: Floats


@dataclass(frozen=True)
class Lines:
    """The line through the past period of each row."""

    prefix: str
    period_us: int
    per_us: int
    horizon_after_us: int | None
    sure: float

    @property
    def added(self) -> pa.Schema:
        floats = ["slope", "intercept", "r2", *(["forecast"] if self.horizon_after_us is not None else [])]
        fields = [
            *(pa.field(f"{self.prefix}{name}", pa.float64()) for name in floats),
            pa.field(f"{self.prefix}direction", pa.string()),
            pa.field(f"{self.prefix}since", pa.timestamp("us", "UTC")),
        ]
        return pa.schema(fields)

    @property
    def memory(self) -> pa.Schema:
        return pa.schema([pa.field(VALUE, pa.float64()), pa.field(DIRECTION, pa.int8()), pa.field(SINCE, pa.int64())])

    @property
    def horizon_us(self) -> int:
        return self.period_us

    def remember(self, rows: pa.Table) -> pa.Table:
        unknown = np.zeros(rows.num_rows, np.int8)
        return pa.table([pa.array(values_of(rows)), pa.array(unknown), rows.column(AT)], schema=self.memory)

    def measure(self, past: Past) -> Measured:
        found = self._fitted(past)
        directions, since = self._since(past, self._directions(found))
        fresh = past.fresh
        columns = [found.slope * (self.per_us / 1e6), found.level, found.fit]
        if self.horizon_after_us is not None:
            columns.append(found.level + found.slope * (self.horizon_after_us / 1e6))
        added = [pa.array(one, mask=np.isnan(one)) for one in columns]
        added.append(DIRECTIONS.take(pa.array(directions[fresh])))
        added.append(pa.array(since[fresh], pa.timestamp("us", "UTC"), mask=directions[fresh] == UNKNOWN))
        memory = pa.table([past.table.column(VALUE), pa.array(directions), pa.array(since)], schema=self.memory)
        return Measured(pa.table(added, schema=self.added), memory)

    def _fitted(self, past: Past) -> Fitted:
        groups = Groups.of(past.keys)
        seconds = (past.at - np.repeat(past.at[groups.starts], groups.sizes())) / 1e6
        values = np.asarray(past.table.column(VALUE).combine_chunks())
        there = ~np.isnan(values)
        zero = np.zeros(len(values))
        singles = (there.astype(np.float64), seconds, np.where(there, values, 0.0), zero, zero, zero)
        columns = {name: pa.array(one) for name, one in zip(SUMS, singles, strict=True)}
        starts, stops = trailing(past, self.period_us, "both")
        sums = from_blocks(Sums(), columns, past.keys, starts, stops)
        count, time, value, times, mixed, squares = (np.asarray(sums[name]) for name in SUMS)
        line = (count > 1) & (times > 0)
        level = squares <= count * (ROUNDING * np.abs(value)) ** 2
        slope = np.where(level, 0.0, mixed) / np.where(line, times, np.nan)
        fit = np.where(level, 1.0, slope * mixed / np.where(level, 1.0, squares))
        at_row = value + slope * (seconds[past.fresh] - time)
        return Fitted(count, slope, at_row, np.where(line, np.minimum(fit, 1.0), np.nan))

    def _directions(self, found: Fitted) -> Directions:
        """Up or down where the slope is `sure` times as large as its own standard error."""
        with np.errstate(invalid="ignore"):
            surely = (found.fit * (found.values - 2) >= self.sure**2 * (1 - found.fit)) & (found.slope != 0)
        known = (found.values > 2) & ~np.isnan(found.slope)
        directions = np.where(surely, np.where(found.slope > 0, UP, DOWN), FLAT)
        return np.where(known, directions, UNKNOWN).astype(np.int8)

    def _since(self, past: Past, fresh: Directions) -> tuple[Directions, Int64s]:
        """Where the line of each row goes, and since which row of the key's past it has gone there."""
        directions = np.asarray(past.table.column(DIRECTION).combine_chunks()).copy()
        directions[past.fresh] = fresh
        since = np.where(past.fresh, past.at, np.asarray(past.table.column(SINCE).combine_chunks()))
        begins = ~past.fresh
        begins[:1] = True
        begins[1:] |= (past.keys[1:] != past.keys[:-1]) | (directions[1:] != directions[:-1])
        begins[1:] |= past.at[1:] - past.at[:-1] > self.period_us
        first = np.maximum.accumulate(np.where(begins, np.arange(len(since)), 0))
        return directions, since[first]
