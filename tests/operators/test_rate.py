"""`Rate`: rows per unit of time, over a period or fading, by the definition of each."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.errors import ArgumentInvalid
from headwater.operators import Rate
from headwater.operators.rate import HALF_LIVES_MAX
from tests.laws import costly
from tests.operators.batches import bounded
from tests.operators.readings import LATE_BY, Model, Reading, arrivals, check, table


def over_period(period: int, per: int, of: str | None) -> Model:
    def model(past: list[tuple[int, float | None]], row: tuple[int, float | None]) -> dict[str, Any]:
        rows = [value for at, value in past if at > row[0] - period]
        total = len(rows) if of is None else sum(value for value in rows if value is not None)
        return {"rate": total * per / period}

    return model


def fading(half_life: int, per: int, of: str | None) -> Model:
    def model(past: list[tuple[int, float | None]], row: tuple[int, float | None]) -> dict[str, Any]:
        times = sorted({at for at, _ in past})
        since = times[0]
        for before, after in pairwise(times):
            if after - before > HALF_LIVES_MAX * half_life:
                since = after
        left = sum(
            (1.0 if of is None else value or 0.0) * 0.5 ** ((row[0] - at) / half_life)
            for at, value in past
            if at >= since
        )
        return {"rate": left * per * math.log(2) / half_life}

    return model


@costly(3)
@given(
    batches=arrivals(),
    period=st.integers(1, 40),
    per=st.sampled_from([1, 60]),
    of=st.sampled_from([None, "celsius"]),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_a_rate_is_what_came_in_the_period_by_its_length(
    batches: list[list[Reading]], period: int, per: int, of: str | None, replay: int, partitions: int
) -> None:
    operator = Rate(time=EventTime("at", delay=LATE_BY, future_max=None), by="sensor", of=of, per=per, period=period)
    check(operator, batches, over_period(period, per, of), replay=replay, partitions=partitions)


@costly(3)
@given(
    batches=arrivals(),
    half_life=st.sampled_from([1, 5, 60]),
    of=st.sampled_from([None, "celsius"]),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_with_a_half_life_what_is_past_counts_ever_less(
    batches: list[list[Reading]], half_life: int, of: str | None, replay: int, partitions: int
) -> None:
    operator = Rate(time=EventTime("at", delay=LATE_BY, future_max=None), by="sensor", of=of, half_life=half_life)
    check(operator, batches, fading(half_life, 1, of), replay=replay, partitions=partitions)


@pytest.mark.parametrize("how", [{"period": "1 minute"}, {"half_life": "20 seconds"}])
def test_a_steady_stream_has_the_rate_that_it_has(how: dict[str, Any]) -> None:
    rows = [("a", 1.0, second) for second in range(0, 1000, 2)]
    operator = Rate(time="at", by="sensor", per="1 minute", **how)
    found, _ = bounded(operator.contract, table(rows, operator.arguments()))
    assert found.to_pylist()[-1]["rate"] == pytest.approx(30, rel=0.04)


def test_values_that_are_no_numbers_count_nothing() -> None:
    rows = [("a", 5.0, 0), ("a", math.nan, 1), ("a", None, 2), ("a", math.inf, 3)]
    chosen: list[dict[str, Any]] = [{"period": 10}, {"half_life": 1_000_000}]
    for how in chosen:
        operator = Rate(time="at", by="sensor", of="celsius", per=10, **how)
        found, _ = bounded(operator.contract, table(rows, operator.arguments()))
        rates = [row["rate"] for row in found.to_pylist()]
        assert rates == pytest.approx([rates[0]] * 4, rel=1e-5)


def test_settings_that_make_no_sense_are_refused() -> None:
    chosen: list[dict[str, Any]] = [{"period": 0}, {"per": "0 s"}, {"half_life": 0}]
    for wrong in chosen:
        with pytest.raises(ArgumentInvalid, match="a length"):
            Rate(time="at", **wrong)
    text = table([], {}).schema.append(pa.field("_of_its value", pa.string()))
    with pytest.raises(ArgumentInvalid, match="a column of numbers"):
        Rate(time="at", by="sensor", of="sensor").contract(text)
