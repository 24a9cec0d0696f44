"""`Anomaly`: each row with how far it is from what was usual for its key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Aggregate, Argument
from headwater.operators.analytics.operator import InOrder, check_number, number
from headwater.operators.analytics.ordered import Measure
from headwater.operators.analytics.usual import SEASONS, Scores, Season, Side, is_zone
from headwater.operators.windowed.spans import duration_us


@dataclass(frozen=True, kw_only=True)
class Anomaly(InOrder):
    """Add to each row `score`, how many deviations its value is from what was usual before it, and `anomaly`.

    Usual is the median of the key's latest `memory` values that are no older than `period` and earlier than the row; the
    deviation is the median distance from it, scaled to be a standard deviation where values are normal. So anomalies
    hardly move what they are measured by. `expected`, `lower` and `upper` are what would have been usual. Until there are
    `warm_up` values nothing is judged: all is null. With `season`, a value is compared with those of the same hour of the
    day or week by the clock of `zone`. State: the last `memory` values per key and season.

    >>> from headwater.operators import Anomaly
    >>> Anomaly(of="orders", on="at", by="shop", season="hour of week", warm_up=4, zone="Europe/Berlin").season
    'hour of week'
    """

    of: Argument
    memory: int = 100
    warm_up: int = 20
    period: str | float = "28 days"
    threshold: float = 3.5
    deviation_min: float = 0.0
    side: Side = "both"
    season: Season | None = None
    zone: str = "UTC"
    prefix: str = ""

    def check(self) -> None:
        duration_us("period", self.period)
        if self.of is None:
            raise ArgumentInvalid(name="of", value=None, expected="a column of numbers")
        if not 2 <= self.warm_up <= self.memory <= 10_000:
            expected = "at least 2, and no more than `memory`, which is 10,000 at most"
            raise ArgumentInvalid(name="warm_up", value=self.warm_up, expected=expected)
        for name, least in (("threshold", "above 0"), ("deviation_min", "at least 0")):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0 or (least == "above 0" and value == 0):
                raise ArgumentInvalid(name=name, value=value, expected=f"a number, {least}")
        if self.side not in get_args(Side):
            raise ArgumentInvalid(name="side", value=self.side, expected='"both", "above" or "below"')
        if self.season not in SEASONS:
            expected = '"hour of day", "day of week", "hour of week" or none'
            raise ArgumentInvalid(name="season", value=self.season, expected=expected)
        if not is_zone(self.zone):
            raise ArgumentInvalid(name="zone", value=self.zone, expected='a time zone such as "Europe/Berlin"')

    def arguments(self) -> Mapping[str, Aggregate]:
        return number(self.of)

    def measure(self, rows: pa.Schema) -> Measure:
        check_number(self.of, rows)
        return Scores(
            prefix=self.prefix,
            values_max=self.memory,
            values_min=self.warm_up,
            period_us=duration_us("period", self.period),
            threshold=self.threshold,
            deviation_min=self.deviation_min,
            side=self.side,
            season=self.season,
            zone=self.zone,
        )
