"""`Rolling`: each row with what the past period amounts to, as of that row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import pyarrow as pa

from headwater.engine.aggregation import Aggregate, Computation
from headwater.engine.ordered_rows import Measure, OrderedOperator
from headwater.engine.window_spans import duration_us
from headwater.errors import ArgumentInvalid
from headwater.operators.aggregates.trailing_period import Closed, Trailing
from headwater.units import Duration


@dataclass(frozen=True, kw_only=True)
class Rolling(OrderedOperator):
    """Add to each row the aggregates of the rows of its key from the past `period`, itself included.

    A row leaves when the watermark is later than its time, in the order of event time, so that in whichever order rows
    come it sees the same past. Rows of one time see each other: this is SQL's `RANGE BETWEEN INTERVAL … PRECEDING AND
    CURRENT ROW`. `closed` says which ends of the period count: `"both"`, `"right"` (pandas' default), or without the row
    itself and others of its time `"left"` and `"neither"`. State: one row for each row of the last `period`, and those
    that wait.

    >>> from headwater.operators import Rolling, agg
    >>> Rolling(period="1 hour", by="card", compute={"usual": agg.mean("amount")}, closed="left").closed
    'left'
    """

    period: Duration
    compute: Mapping[str, Aggregate]
    closed: Closed = "both"

    def check(self) -> None:
        duration_us("period", self.period)
        if self.closed not in get_args(Closed):
            raise ArgumentInvalid(name="closed", value=self.closed, expected='"both", "left", "right" or "neither"')

    def arguments(self) -> Mapping[str, Aggregate]:
        return self.compute

    def measure(self, rows: pa.Schema) -> Measure:
        return Trailing(Computation.over(self.compute, rows), duration_us("period", self.period), self.closed)
