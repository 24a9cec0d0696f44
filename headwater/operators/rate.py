"""`Rate`: each row with how often such rows come, or how much they bring, per unit of time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.engine.aggregation import ARGUMENT, Aggregate, Argument, Computation, Groups, Int64s
from headwater.engine.ordered_rows import AT, Measure, Measured, OrderedOperator, Past
from headwater.engine.window_spans import duration_us
from headwater.operators.aggregates.numbers import Floats, Sum, summed
from headwater.operators.aggregates.trailing_period import VALUE, Trailing, check_number, number, trailing, values_of
from headwater.units import Duration

#: After so many half-lives nothing is left of what was: beside one new row it is less than a float can tell.
HALF_LIVES_MAX = 64
SUM = "sum"


@dataclass(frozen=True, kw_only=True)
class Rate(OrderedOperator):
    """Add to each row the column `rate`: the rows of its key, or the sum of `of`, per unit of time as of that row.

    The past `period` counts, without its beginning and with the row itself and others of its time. It is divided by the
    whole period also where the key is younger. With `half_life` there is no period: a row counts half after that time, a
    quarter after twice that, and all that is remembered of a key is one number. A value that is null, NaN or infinite
    counts nothing. State: one row for each row of the last `period`; with `half_life` one row per key.

    >>> from headwater.operators import Rate
    >>> Rate(by="host", of="bytes", per="1 second", period="1 minute").per
    '1 second'
    """

    of: Argument = None
    per: Duration = "1 second"
    period: Duration = "1 minute"
    half_life: Duration | None = None
    prefix: str = ""

    def check(self) -> None:
        duration_us("per", self.per)
        duration_us("period", self.period)
        if self.half_life is not None:
            duration_us("half_life", self.half_life)

    def arguments(self) -> Mapping[str, Aggregate]:
        return number(self.of)

    def measure(self, rows: pa.Schema) -> Measure:
        if self.of is not None:
            check_number(self.of, rows)
        name, per_us, counts = f"{self.prefix}rate", duration_us("per", self.per), self.of is None
        if self.half_life is not None:
            return DecayedRate(name, duration_us("half_life", self.half_life), per_us, counts)
        return PeriodRate(name, duration_us("period", self.period), per_us, counts)


@dataclass(frozen=True)
class PeriodRate:
    """The rows, or their sum, of the past period per unit of time."""

    name: str
    period_us: int
    per_us: int
    counts: bool

    @property
    def added(self) -> pa.Schema:
        return pa.schema([pa.field(self.name, pa.float64())])

    @property
    def memory(self) -> pa.Schema:
        return self._summing.memory

    @property
    def horizon_us(self) -> int:
        return self.period_us

    @property
    def _summing(self) -> Trailing:
        # Whole numbers are added up exactly, and once for all periods.
        kind = pa.int64() if self.counts else pa.float64()
        return Trailing(Computation({VALUE: Sum(VALUE)}, {VALUE: kind}), self.period_us, "right")

    def remember(self, rows: pa.Table) -> pa.Table:
        values = amounts(rows, counts=self.counts)
        values = values.astype(np.int64) if self.counts else values
        return self._summing.remember(pa.table({f"{ARGUMENT}{VALUE}": values, AT: rows.column(AT)}))

    def measure(self, past: Past) -> Measured:
        sums = self._summing.results(past, *trailing(past, self.period_us, "right")).column(VALUE)
        rates = np.asarray(sums.combine_chunks()).astype(np.float64) * (self.per_us / self.period_us)
        return Measured(pa.table([pa.array(rates)], schema=self.added), past.table)


@dataclass(frozen=True)
class DecayedRate:
    """The same with what is past counting half after each half-life. All that is remembered of a key is one number."""

    name: str
    half_life_us: int
    per_us: int
    counts: bool

    @property
    def added(self) -> pa.Schema:
        return pa.schema([pa.field(self.name, pa.float64())])

    @property
    def memory(self) -> pa.Schema:
        return pa.schema([pa.field(SUM, pa.float64())])

    @property
    def horizon_us(self) -> int:
        return HALF_LIVES_MAX * self.half_life_us

    def remember(self, rows: pa.Table) -> pa.Table:
        return pa.table([pa.array(amounts(rows, counts=self.counts))], schema=self.memory)

    def measure(self, past: Past) -> Measured:
        groups = Groups.of(past.keys, past.at)  # rows of one time count together
        sums = summed(np.asarray(past.table.column(SUM).combine_chunks()), groups).astype(np.float64)
        keys, at = past.keys[groups.starts], past.at[groups.starts]
        decayed = np.repeat(self._decayed(keys, at, sums), groups.sizes())
        # A rate that has always been r leaves a sum of r times the half-life, over the logarithm of two.
        rates = decayed[past.fresh] * (math.log(2) * self.per_us / self.half_life_us)
        # Of rows of one time the last stands for all of them.
        memory = pa.table([pa.array(decayed)], schema=self.memory)
        last = np.ones(len(past.keys), bool)
        last[:-1] = past.keys[1:] != past.keys[:-1]
        return Measured(pa.table([pa.array(rates)], schema=self.added), memory, last)

    def _decayed(self, keys: Int64s, at: Int64s, sums: Floats) -> Floats:
        """Each sum with what is left of those before it, in as many passes as the number of rows has bits."""
        passed = np.diff(at, prepend=at[:1])
        follows = np.zeros(len(keys), bool)
        follows[1:] = (keys[1:] == keys[:-1]) & (passed[1:] <= self.horizon_us)
        left = np.where(follows, np.exp2(-np.where(follows, passed, 0) / self.half_life_us), 0.0)
        sums = sums.copy()
        reach = 1
        while reach < len(sums) and left.any():
            sums[reach:] += left[reach:] * sums[:-reach]
            left[reach:] *= left[:-reach].copy()
            left[:reach] = 0.0
            reach *= 2
        return sums


def amounts(rows: pa.Table, *, counts: bool) -> Floats:
    """What each row counts: one, or its value; one that is missing counts nothing."""
    return np.ones(rows.num_rows) if counts else np.nan_to_num(values_of(rows), nan=0.0)
