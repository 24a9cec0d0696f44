"""Aggregates over the trailing period of each row.

Quantiles of many ranges of rows are computed at once: ranges of about the same length are laid side by side and sorted
together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import ARGUMENT, Aggregate, Argument, Computation, Groups, Int64s, is_number, order_of
from headwater.engine.ordered_rows import AT, Measured, Past, numbers
from headwater.engine.time_index import rows_before
from headwater.errors import ArgumentInvalid
from headwater.operators.aggregates.numbers import Count, Floats, Mean
from headwater.operators.aggregates.ranges import merged_ranges
from headwater.operators.aggregates.values import CountDistinct, Percentile

#: Which ends of the period count: its beginning is `left`, the row's own time is `right`.
Closed = Literal["both", "left", "right", "neither"]
#: What stands behind the name of a quantile where its values are remembered.
QUANTILE_VALUE = "__value"
#: Results that are lists while they are made are made from so many rows at a time.
CHUNK_ROWS = 2_000_000
#: So many values are sorted together.
CHUNK_VALUES = 2_000_000
#: What the only argument of an operator is called on its way: no column that a person names is.
VALUE = "its value"


@dataclass(frozen=True)
class Trailing:
    """What the rows of a key amount to over the period before each of them."""

    computation: Computation
    period_us: int
    closed: Closed = "both"

    @property
    def added(self) -> pa.Schema:
        return self.computation.results

    @property
    def memory(self) -> pa.Schema:
        values = [pa.field(f"{name}{QUANTILE_VALUE}", pa.float64()) for name in self._quantiles]
        return pa.schema([*self._others.partials, *values])

    @property
    def horizon_us(self) -> int:
        return self.period_us

    @property
    def _quantiles(self) -> dict[str, float]:
        """Quantiles, which are not put together from parts: of their rows the values are enough."""
        return {name: one.share for name, one in self.computation.compute.items() if isinstance(one, Percentile)}

    @property
    def _others(self) -> Computation:
        others = {name: one for name, one in self.computation.compute.items() if name not in self._quantiles}
        return Computation(others, self.computation.kinds)

    def remember(self, rows: pa.Table) -> pa.Table:
        alone = Groups(np.arange(rows.num_rows), rows.num_rows)
        columns = list(self._others.lift(rows, order_of(rows, numbers(rows, AT)), alone).columns)
        for name in self._quantiles:
            columns.append(rows.column(f"{ARGUMENT}{name}").combine_chunks().cast(pa.float64()))
        return pa.table(columns, schema=self.memory)

    def measure(self, past: Past) -> Measured:
        starts, stops = trailing(past, self.period_us, self.closed)
        return Measured(self.results(past, starts, stops), past.table)

    def results(self, past: Past, starts: Int64s, stops: Int64s) -> pa.Table:
        """The values of ranges of rows."""
        others = self._merged(past, starts, stops)
        columns = []
        for name in self.computation.results.names:
            if name in self._quantiles:
                values = past.table.column(f"{name}{QUANTILE_VALUE}").combine_chunks()
                columns.append(range_quantiles(values, starts, stops, self._quantiles[name]))
            else:
                columns.append(others.column(name))
        return pa.table(columns, schema=self.computation.results)

    def _merged(self, past: Past, starts: Int64s, stops: Int64s) -> pa.Table:
        """The same of what is put together from parts; of an empty range a count is 0, and everything else null."""
        others = self._others
        if not others.compute:
            return pa.table({})
        some = stops > starts
        found = [
            others.finish(merged_ranges(others, past.table.slice(low, high - low), keys, *bounds))
            for low, high, keys, bounds in self._chunks(past, starts[some], stops[some])
        ]
        table = pa.concat_tables([others.results.empty_table(), *found]).combine_chunks()
        if some.all():
            return table
        places = pa.array(np.cumsum(some) - 1, mask=~some)
        columns = [column.combine_chunks().take(places) for column in table.columns]
        counts = [isinstance(one, Count | CountDistinct) for one in others.compute.values()]
        columns = [pc.fill_null(one, 0) if count else one for one, count in zip(columns, counts, strict=True)]
        return pa.table(columns, schema=others.results)

    def _chunks(
        self, past: Past, starts: Int64s, stops: Int64s
    ) -> Iterator[tuple[int, int, Int64s, tuple[Int64s, Int64s]]]:
        """Ranges that are made together, and the rows from which they are made."""
        if not len(starts):
            return
        bounds = [0, len(starts)]
        if any(pa.types.is_nested(one.type) for one in self._others.partials):
            chunk = np.cumsum(stops - starts) // CHUNK_ROWS
            bounds = [0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(starts)]
        for begin, end in pairwise(bounds):
            low, high = int(starts[begin:end].min()), int(stops[begin:end].max())
            yield low, high, past.keys[low:high], (starts[begin:end] - low, stops[begin:end] - low)


def trailing(past: Past, period_us: int, closed: Closed) -> tuple[Int64s, Int64s]:
    """For each fresh row the rows of its period: from the first one up to, and without, the second."""
    keys, at = past.keys[past.fresh], past.at[past.fresh]
    begin = at - period_us + (0 if closed in ("both", "left") else 1)
    end = at + (1 if closed in ("both", "right") else 0)
    return rows_before(past.keys, past.at, keys, begin), rows_before(past.keys, past.at, keys, end)


def range_quantiles(values: pa.Array, starts: Int64s, stops: Int64s, share: float) -> pa.Array:
    """The quantile of the values from `starts[i]` up to, and without, `stops[i]`, for each i; null of none.

    >>> range_quantiles(pa.array([1.0, None, 3.0, 9.0]), np.array([0, 0, 1]), np.array([3, 4, 2]), 0.5).to_pylist()
    [2.0, 3.0, None]
    """
    valid = np.asarray(values.is_valid())
    until = np.concatenate([[0], np.cumsum(valid)])
    pool = np.asarray(values.drop_null())
    starts, counts = until[starts], until[stops] - until[starts]
    found = np.zeros(len(starts))
    for rows, width in _alike(counts):
        # NaN stands behind all numbers, whether it is a value or only fills a place.
        places = np.minimum(starts[rows, None] + np.arange(width), len(pool) - 1)
        held = np.where(np.arange(width) < counts[rows, None], pool[places], np.nan)
        held.sort(axis=1)
        found[rows] = _between(held, counts[rows], share)
    return pa.array(found, mask=counts == 0)


def _alike(counts: Int64s) -> Iterator[tuple[Int64s, int]]:
    """Ranges whose lengths differ by less than the half, some at a time, and the longest length among them."""
    longest = int(counts.max(initial=0))
    low = 0
    while low < longest:
        high = max(1, 2 * low)
        chosen = np.flatnonzero((counts > low) & (counts <= high))
        step = max(1, CHUNK_VALUES // high)
        for first in range(0, len(chosen), step):
            yield chosen[first : first + step], high
        low = high


def _between(held: Floats, counts: Int64s, share: float) -> Floats:
    """The value at a share of each row; between two values the straight line between them."""
    rows = np.arange(len(counts))
    wanted = (counts - 1) * share
    low = np.floor(wanted).astype(np.int64)
    lower, upper = held[rows, low], held[rows, np.minimum(low + 1, counts - 1)]
    found: Floats = lower + (upper - lower) * (wanted - low)
    return found


def number(of: Argument) -> Mapping[str, Aggregate]:
    """The one argument of an operator: a column, or any expression of Spark's; without one, each row counts."""
    return {VALUE: Count() if of is None else Mean(of)}


def check_number(of: Argument, rows: pa.Schema) -> None:
    """Raise unless the argument is a number."""
    kind = rows.field(f"{ARGUMENT}{VALUE}").type
    if not is_number(kind):
        raise ArgumentInvalid(name="of", value=f"{of} ({kind})", expected="a column of numbers")


def values_of(rows: pa.Table) -> Floats:
    """The argument of each row as a float: NaN where it is null, and where it is no finite number."""
    values = np.asarray(rows.column(f"{ARGUMENT}{VALUE}").combine_chunks().cast(pa.float64()))
    found: Floats = np.where(np.isfinite(values), values, np.nan)
    return found
