"""`Trend`: SQL's regression over a range of time, and since when its direction holds."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.errors import ArgumentInvalid
from headwater.operators import Trend
from tests.laws import costly
from tests.operators.batches import bounded, duck, streamed
from tests.operators.readings import (
    LATE_BY,
    Model,
    Reading,
    arrivals,
    batches_of,
    check,
    of_rows,
    same,
    table,
)

SQL = """
    SELECT _offset, regr_slope(celsius, epoch(rows."at")) OVER past AS slope,
           regr_slope(celsius, epoch(rows."at")) OVER past * epoch(rows."at")
             + regr_intercept(celsius, epoch(rows."at")) OVER past AS intercept,
           regr_r2(celsius, epoch(rows."at")) OVER past AS r2
    FROM rows WINDOW past AS (PARTITION BY sensor ORDER BY rows."at"
                              RANGE BETWEEN INTERVAL '{period} seconds' PRECEDING AND CURRENT ROW)
"""
Past = list[tuple[int, float | None]]


def line(points: list[tuple[int, float]]) -> tuple[float, float, float, float] | None:
    """Slope, mean time, mean value and fit of the line, by the textbook; None where there is none."""
    if len({at for at, _ in points}) < 2:
        return None
    time, value = (sum(one[axis] for one in points) / len(points) for axis in (0, 1))
    times = sum((at - time) ** 2 for at, _ in points)
    mixed = sum((at - time) * (one - value) for at, one in points)
    values = sum((one - value) ** 2 for _, one in points)
    return mixed / times, time, value, 1.0 if values == 0 else mixed**2 / (times * values)


def direction(past: Past, at: int, period: int) -> str | None:
    points = [(time, value) for time, value in past if at - period <= time <= at and value is not None]
    found = line(points)
    if found is None or len(points) < 3:
        return None
    slope, _, _, fit = found
    if slope == 0 or fit * (len(points) - 2) < 4 * (1 - fit) - 1e-9:
        return "flat"
    return "up" if slope > 0 else "down"


def trend(period: int, horizon: int) -> Model:
    def model(past: Past, row: tuple[int, float | None]) -> dict[str, Any]:
        at = row[0]
        found = line([(time, value) for time, value in past if time >= at - period and value is not None])
        slope, level, fit = (None, None, None)
        if found is not None:
            slope, fit = found[0], found[3]
            level = found[2] + slope * (at - found[1])
        now, since = direction(past, at, period), at
        times = sorted({time for time, _ in past})
        for before, after in zip(reversed(times[:-1]), reversed(times), strict=False):
            if after - before > period or direction(past, before, period) != now:
                break
            since = before
        return {
            "slope": slope,
            "intercept": level,
            "r2": fit,
            "forecast": None if level is None or slope is None else level + slope * horizon,
            "direction": now,
            "since": None if now is None else datetime.fromtimestamp(since, UTC),
        }

    return model


@costly(2)
@given(
    batches=arrivals(),
    period=st.integers(1, 60),
    horizon=st.integers(1, 60),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_each_row_has_the_line_through_its_period(
    batches: list[list[Reading]], period: int, horizon: int, replay: int, partitions: int
) -> None:
    operator = Trend(
        of="celsius", time=EventTime("at", delay=LATE_BY, future_max=None), by="sensor", period=period, horizon=horizon
    )
    check(operator, batches, trend(period, horizon), replay=replay, partitions=partitions)


@costly(4)
@given(batches=arrivals(), period=st.integers(1, 60))
def test_the_line_is_that_of_sql(batches: list[list[Reading]], period: int) -> None:
    operator = Trend(of="celsius", time=EventTime("at", delay=LATE_BY, future_max=None), by="sensor", period=period)
    rows = [row for batch in batches for row in batch]
    with duck() as connection:
        connection.register("rows", table(rows, {}))
        answer = connection.sql(SQL.format(period=period)).to_arrow_table().to_pylist()
    found = of_rows(
        streamed(operator.contract, batches_of(batches, operator.arguments())), ["slope", "intercept", "r2"]
    )
    for wanted in answer:
        place = wanted.pop("_offset")
        # DuckDB says NaN where SQL says null.
        wanted = {name: None if value is None or math.isnan(value) else value for name, value in wanted.items()}
        assert same(found[place], wanted), f"{found[place]}, not {wanted}"


def test_small_slopes_of_large_values_late_in_the_day_are_not_lost() -> None:
    seconds = 1_700_000_000 + np.arange(5000)
    rows = [("a", 1e9 + 1e-3 * number, int(at)) for number, at in enumerate(seconds)]
    operator = Trend(of="celsius", time="at", by="sensor", period="10 minutes")
    found, _ = bounded(operator.contract, table(rows, operator.arguments()))
    last = found.to_pylist()[-1]
    assert last["slope"] == pytest.approx(1e-3, rel=1e-6)
    assert last["r2"] == pytest.approx(1, abs=1e-6)
    assert (last["direction"], last["since"]) == ("up", datetime.fromtimestamp(1_700_000_002, UTC))


def test_values_that_never_differ_have_no_slope_and_fit() -> None:
    rows = [("a", 0.1, at) for at in range(50)]
    operator = Trend(of="celsius", time="at", by="sensor", period="1 minute")
    found, _ = bounded(operator.contract, table(rows, operator.arguments()))
    last = found.to_pylist()[-1]
    assert (last["slope"], last["r2"], last["direction"]) == (0.0, 1.0, "flat")


def test_values_that_are_no_numbers_are_left_out() -> None:
    rows = [("a", 1.0, 0), ("a", math.nan, 1), ("a", 3.0, 2), ("a", math.inf, 3), ("a", None, 4)]
    operator = Trend(of="celsius", time="at", by="sensor", period="1 minute", per="1 minute")
    found, _ = bounded(operator.contract, table(rows, operator.arguments()))
    last = found.to_pylist()[-1]
    assert (last["slope"], last["intercept"]) == (pytest.approx(60.0), pytest.approx(5.0))


def test_settings_that_make_no_sense_are_refused() -> None:
    for wrong in ({"period": 0}, {"period": 5, "horizon": 0}, {"period": 5, "sure": 0}, {"period": 5, "of": None}):
        chosen: dict[str, Any] = {"of": "celsius", "time": "at", **wrong}
        with pytest.raises(ArgumentInvalid):
            Trend(**chosen)
    text = table([], {}).schema.append(pa.field("_of_its value", pa.string()))
    with pytest.raises(ArgumentInvalid, match="a column of numbers"):
        Trend(of="sensor", time="at", by="sensor", period=5).contract(text)
