"""`Rate`: each row with how often such rows come, or how much they bring, per unit of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headwater.operators.agg.aggregate import Aggregate, Argument
from headwater.operators.analytics.operator import InOrder, check_number, number
from headwater.operators.analytics.ordered import Measure
from headwater.operators.analytics.rates import DecayedRate, PeriodRate
from headwater.operators.windowed.spans import duration_us


@dataclass(frozen=True, kw_only=True)
class Rate(InOrder):
    """Add to each row the column `rate`: the rows of its key, or the sum of `of`, per unit of time as of that row.

    The past `period` counts, without its beginning and with the row itself and others of its time. It is divided by the
    whole period also where the key is younger. With `half_life` there is no period: a row counts half after that time, a
    quarter after twice that, and all that is remembered of a key is one number. A value that is null, NaN or infinite
    counts nothing. State: one row for each row of the last `period`; with `half_life` one row per key.

    >>> from headwater.operators import Rate
    >>> Rate(on="at", by="host", of="bytes", per="1 second", period="1 minute").per
    '1 second'
    """

    of: Argument = None
    per: str | float = "1 second"
    period: str | float = "1 minute"
    half_life: str | float | None = None
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
