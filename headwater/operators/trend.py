"""`Trend`: each row with the straight line through the past period, and where it leads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Aggregate, Argument
from headwater.operators.analytics.lines import Lines
from headwater.operators.analytics.operator import InOrder, check_number, number
from headwater.operators.analytics.ordered import Measure
from headwater.operators.windowed.spans import duration_us


@dataclass(frozen=True, kw_only=True)
class Trend(InOrder):
    """Add to each row the line that fits the values of the past `period` best: `slope`, `intercept` and `r2`.

    The slope is per `per`, the intercept is the line's value at the row's own time, and with `horizon` a column
    `forecast` says where it leads by then. `direction` is "up" or "down" where the slope is at least `sure` times its
    standard error, otherwise "flat", and null with fewer than three values; `since` is the time of the row with which
    that began. A value that is null, NaN or infinite is left out. State: one row for each row of the last `period`.

    >>> from headwater.operators import Trend
    >>> Trend(of="celsius", on="at", by="machine", period="10 minutes", per="1 minute", horizon="1 hour").horizon
    '1 hour'
    """

    of: Argument
    period: str | float
    per: str | float = "1 second"
    horizon: str | float | None = None
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
