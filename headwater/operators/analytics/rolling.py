"""Aggregates over the trailing period of each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.agg.computation import ARGUMENT, Computation, order_of
from headwater.operators.agg.groups import Groups, Int64s
from headwater.operators.agg.numbers import Count
from headwater.operators.agg.sets import Distinct, Quantile
from headwater.operators.analytics.ordered import AT, Measured, Past, numbers
from headwater.operators.analytics.quantiles import range_quantiles
from headwater.operators.windowed.ranges import merged_ranges
from headwater.operators.windowed.slides import rows_before

#: Which ends of the period count: its beginning is `left`, the row's own time is `right`.
Closed = Literal["both", "left", "right", "neither"]
#: What stands behind the name of a quantile where its values are remembered.
VALUE = "__value"
#: Results that are lists while they are made are made from so many rows at a time.
CHUNK_ROWS = 2_000_000


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
        values = [pa.field(f"{name}{VALUE}", pa.float64()) for name in self._quantiles]
        return pa.schema([*self._others.partials, *values])

    @property
    def horizon_us(self) -> int:
        return self.period_us

    @property
    def _quantiles(self) -> dict[str, float]:
        """Quantiles, which are not put together from parts: of their rows the values are enough."""
        return {name: one.share for name, one in self.computation.compute.items() if isinstance(one, Quantile)}

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
                values = past.table.column(f"{name}{VALUE}").combine_chunks()
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
        counts = [isinstance(one, Count | Distinct) for one in others.compute.values()]
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
