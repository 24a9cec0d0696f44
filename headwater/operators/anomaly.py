"""`Anomaly`: each row with how far it is from what was usual for its key.

Usual is the median of the key's latest values, with how far they mostly lie from it. Both are medians, so up to half of
the values may be anomalies without moving them far. They are exact, and the same for the same rows: no random numbers, no
dependence on how the stream was cut.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Aggregate, Argument, Int64s
from headwater.engine.ordered_rows import AT, Mask, Measure, Measured, OrderedOperator, Past, numbers
from headwater.engine.time_index import rows_before
from headwater.engine.window_spans import duration_us
from headwater.errors import ArgumentInvalid
from headwater.operators.aggregates.numbers import Floats
from headwater.operators.aggregates.trailing_period import check_number, number, values_of
from headwater.units import Duration

VALUE = "value"
SEASON = "season"
Season = Literal["hour of day", "day of week", "hour of week"]
Side = Literal["both", "above", "below"]
#: How many seasons there are of a kind.
SEASONS: dict[Season | None, int] = {None: 1, "hour of day": 24, "day of week": 7, "hour of week": 168}
HOUR_US = 3_600_000_000
#: The deviation that has the same meaning as a standard deviation has for a normal distribution.
FROM_MEDIAN = 1.4826
FROM_MEAN = 1.2533
#: No deviation is smaller than this share of the median: values that never differ still have a score that is finite.
LEAST_SHARE = 1e-6
LEAST = 1e-12
#: So many values are looked at together.
CHUNK_VALUES = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Anomaly(OrderedOperator):
    """Add to each row `score`, how many deviations its value is from what was usual before it, and `anomaly`.

    Usual is the median of the key's latest `memory` values that are no older than `period` and earlier than the row; the
    deviation is the median distance from it, scaled to be a standard deviation where values are normal. So anomalies
    hardly move what they are measured by. `expected`, `lower` and `upper` are what would have been usual. Until there are
    `warm_up` values nothing is judged: all is null. With `season`, a value is compared with those of the same hour of the
    day or week by the clock of `zone`. State: the last `memory` values per key and season.

    >>> from headwater.operators import Anomaly
    >>> Anomaly(of="orders", by="shop", season="hour of week", warm_up=4, zone="Europe/Berlin").season
    'hour of week'
    """

    of: Argument
    memory: int = 100
    warm_up: int = 20
    period: Duration = "28 days"
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


class Usual(NamedTuple):
    """The middle of the latest values and their deviation from it; NaN where there are too few."""

    middle: Floats
    deviation: Floats


@dataclass(frozen=True)
class Scores:
    """How far each row is from what was usual for its key before it."""

    prefix: str
    values_max: int
    values_min: int
    period_us: int
    threshold: float
    deviation_min: float
    side: Side
    season: Season | None
    zone: str

    @property
    def added(self) -> pa.Schema:
        floats = [pa.field(f"{self.prefix}{name}", pa.float64()) for name in ("score", "expected", "lower", "upper")]
        return pa.schema([*floats, pa.field(f"{self.prefix}anomaly", pa.bool_())])

    @property
    def memory(self) -> pa.Schema:
        return pa.schema([pa.field(VALUE, pa.float64()), pa.field(SEASON, pa.int64())])

    @property
    def horizon_us(self) -> int:
        return self.period_us

    def remember(self, rows: pa.Table) -> pa.Table:
        return pa.table([pa.array(values_of(rows)), pa.array(self._seasons(numbers(rows, AT)))], schema=self.memory)

    def measure(self, past: Past) -> Measured:
        values = np.asarray(past.table.column(VALUE).combine_chunks())[past.fresh]
        usual = self._usual(past)
        score = (values - usual.middle) / usual.deviation
        lower, upper = (usual.middle + sign * self.threshold * usual.deviation for sign in (-1, 1))
        beyond = {"both": np.abs(score), "above": score, "below": -score}[self.side] > self.threshold
        floats = [pa.array(one, mask=np.isnan(one)) for one in (score, usual.middle, lower, upper)]
        added = pa.table([*floats, pa.array(beyond, mask=np.isnan(score))], schema=self.added)
        return Measured(added, past.table, self._needed(past))

    def _needed(self, past: Past) -> Mask:
        """The latest values of each key and season."""
        groups, values = self._groups(past), np.asarray(past.table.column(VALUE).combine_chunks())
        there = np.flatnonzero(~np.isnan(values))
        order = there[np.argsort(groups[there], kind="stable")]
        ordered = groups[order]
        behind = np.searchsorted(ordered, ordered, side="right") - np.arange(len(order))
        needed = np.zeros(len(values), bool)
        needed[order[behind <= self.values_max]] = True
        return needed

    # -- what is usual ------------------------------------------------------------------------------------------------

    def _usual(self, past: Past) -> Usual:
        """The median and the deviation of the values before each fresh row: only what is earlier counts."""
        groups, values = self._groups(past), np.asarray(past.table.column(VALUE).combine_chunks())
        there = np.flatnonzero(~np.isnan(values))
        pool = there[np.argsort(groups[there], kind="stable")]
        of, at = groups[past.fresh], past.at[past.fresh]
        stops = rows_before(groups[pool], past.at[pool], of, at)
        starts = np.maximum(rows_before(groups[pool], past.at[pool], of, at - self.period_us), stops - self.values_max)
        counts = stops - starts
        middle, deviation = np.full(len(of), np.nan), np.full(len(of), np.nan)
        ready = np.flatnonzero(counts >= self.values_min)
        width = int(counts.max(initial=1))
        step = max(1, CHUNK_VALUES // width)
        for first in range(0, len(ready), step):
            rows = ready[first : first + step]
            middle[rows], deviation[rows] = self._medians(values[pool], starts[rows], counts[rows])
        return Usual(middle, deviation)

    def _medians(self, values: Floats, starts: Int64s, counts: Int64s) -> Usual:
        places = np.arange(int(counts.max()))
        inside = places < counts[:, None]
        held = values[np.minimum(starts[:, None] + places, len(values) - 1)]
        middle = _median(np.where(inside, held, np.inf), counts)
        away = np.where(inside, np.abs(held - middle[:, None]), np.inf)
        mean_away = np.where(inside, away, 0.0).sum(axis=1) / counts
        mostly = _median(away, counts)
        deviation = np.where(mostly > 0, FROM_MEDIAN * mostly, FROM_MEAN * mean_away)
        least = np.maximum(LEAST_SHARE * np.abs(middle), max(LEAST, self.deviation_min))
        return Usual(middle, np.maximum(deviation, least))

    def _groups(self, past: Past) -> Int64s:
        seasons = np.asarray(past.table.column(SEASON).combine_chunks())
        found: Int64s = past.keys * SEASONS[self.season] + seasons
        return found

    def _seasons(self, at: Int64s) -> Int64s:
        """Which hour of the day or the week it is, by the clock of the time zone."""
        if self.season is None:
            return np.zeros(len(at), np.int64)
        local = at
        if self.zone != "UTC":
            times = pa.array(at, pa.timestamp("us", "UTC")).cast(pa.timestamp("us", self.zone))
            local = np.asarray(pc.local_timestamp(times).cast(pa.int64()))
        hours = local // HOUR_US + 72  # time begins on a Thursday, and a week on Monday
        units = hours // 24 if self.season == "day of week" else hours
        found: Int64s = units % SEASONS[self.season]
        return found


def _median(values: Floats, counts: Int64s) -> Floats:
    """The median of each row's first values, where all behind them are infinite."""
    values = np.sort(values, axis=1)
    rows = np.arange(len(counts))
    found: Floats = (values[rows, (counts - 1) // 2] + values[rows, counts // 2]) / 2
    return found


def is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # a zone that is not found is a KeyError
        return False
    return True
