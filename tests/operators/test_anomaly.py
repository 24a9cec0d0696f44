"""`Anomaly`: scores by the definition, and what they are for: anomalies are found, also among anomalies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.errors import ArgumentInvalid
from headwater.operators import Anomaly
from headwater.operators import anomaly as usual
from tests.laws import costly
from tests.operators.batches import bounded
from tests.operators.readings import LATE_BY, Model, Reading, arrivals, check, table

Past = list[tuple[int, float | None]]
NOTHING = dict.fromkeys(("score", "expected", "lower", "upper", "anomaly"))


def scores(memory: int, warm_up: int, period: int) -> Model:
    def model(past: Past, row: tuple[int, float | None]) -> dict[str, Any]:
        at, value = row
        earlier = [one for time, one in past if at - period <= time < at and one is not None][-memory:]
        if len(earlier) < warm_up:
            return NOTHING
        middle = median(earlier)
        away = [abs(one - middle) for one in earlier]
        deviation = 1.4826 * median(away) or 1.2533 * sum(away) / len(away)
        deviation = max(deviation, 1e-6 * abs(middle), 1e-12)
        score = None if value is None else (value - middle) / deviation
        return {
            "score": score,
            "expected": middle,
            "lower": middle - 3.5 * deviation,
            "upper": middle + 3.5 * deviation,
            "anomaly": None if score is None else abs(score) > 3.5,
        }

    return model


@costly(3)
@given(
    batches=arrivals(),
    memory=st.integers(2, 10),
    warm_up=st.integers(2, 4),
    period=st.integers(1, 100),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_each_row_is_measured_by_the_values_before_it(
    batches: list[list[Reading]], memory: int, warm_up: int, period: int, replay: int, partitions: int
) -> None:
    operator = Anomaly(
        of="celsius",
        time=EventTime("at", delay=LATE_BY, future_max=None),
        by="sensor",
        memory=max(memory, warm_up),
        warm_up=warm_up,
        period=period,
    )
    check(operator, batches, scores(max(memory, warm_up), warm_up, period), replay=replay, partitions=partitions)


def judged(operator: Anomaly, rows: Sequence[Reading]) -> list[dict[str, Any]]:
    found, _ = bounded(operator.contract, table(rows, operator.arguments()))
    answer: list[dict[str, Any]] = found.to_pylist()
    return answer


def test_spikes_are_found_also_where_one_value_in_five_is_a_spike() -> None:
    chance = np.random.default_rng(7)
    usual_values = chance.normal(20, 1, 1000)
    spikes = chance.random(1000) < 0.2
    rows = [
        ("a", float(value + 30 * spike), at) for at, (value, spike) in enumerate(zip(usual_values, spikes, strict=True))
    ]
    found = judged(Anomaly(of="celsius", time="at", by="sensor"), rows)[100:]
    assert [row["anomaly"] for row in found if row["celsius"] > 40] == [True] * int(spikes[100:].sum())
    assert sum(row["anomaly"] for row in found if row["celsius"] < 40) < 10


def test_a_new_level_is_usual_once_it_has_filled_half_of_the_memory() -> None:
    rows = [("a", float(at % 3 + (100 if at >= 200 else 0)), at) for at in range(300)]
    found = judged(Anomaly(of="celsius", time="at", by="sensor", memory=40), rows)
    assert all(row["anomaly"] for row in found[200:215])
    assert not any(row["anomaly"] for row in found[225:])


def test_until_it_is_warm_nothing_is_judged() -> None:
    found = judged(Anomaly(of="celsius", time="at", by="sensor", warm_up=5), [("a", 1.0, at) for at in range(7)])
    assert [row["anomaly"] for row in found] == [None] * 5 + [False] * 2


def test_what_never_differed_has_a_score_that_is_finite_when_it_does() -> None:
    rows = [("a", 10.0, at) for at in range(30)] + [("a", 10.5, 30)]
    last = judged(Anomaly(of="celsius", time="at", by="sensor"), rows)[-1]
    assert last["anomaly"]
    assert math.isfinite(last["score"])
    calm = judged(Anomaly(of="celsius", time="at", by="sensor", deviation_min=1.0), rows)[-1]
    assert (calm["score"], calm["anomaly"]) == (0.5, False)


@pytest.mark.parametrize(
    ("side", "found"), [("both", [True, True]), ("above", [True, False]), ("below", [False, True])]
)
def test_a_side_is_chosen(side: Any, found: list[bool]) -> None:
    rows = [("a", float(at % 3), at) for at in range(30)] + [("a", 99.0, 30), ("a", -99.0, 31)]
    assert [
        row["anomaly"] for row in judged(Anomaly(of="celsius", time="at", by="sensor", side=side), rows)[-2:]
    ] == found


@pytest.mark.parametrize(
    ("season", "zone"), [("hour of day", "UTC"), ("day of week", "UTC"), ("hour of week", "Europe/Berlin")]
)
def test_a_season_is_compared_with_itself(season: Any, zone: str) -> None:
    """Values that are large in one hour or day of local time are usual then, and anomalies at any other."""
    begin = int(datetime(2024, 3, 1, tzinfo=UTC).timestamp())  # the clocks of Berlin change on the 31st

    def part(at: int) -> int:
        local = datetime.fromtimestamp(at, ZoneInfo(zone))
        hours = {
            "hour of day": local.hour,
            "day of week": local.weekday(),
            "hour of week": local.weekday() * 24 + local.hour,
        }
        return hours[season]

    rows = [("a", 10.0 * part(at), at) for at in range(begin, begin + 60 * 86_400, 3600)]
    operator = Anomaly(of="celsius", time="at", by="sensor", season=season, zone=zone, warm_up=4, deviation_min=1.0)
    found = judged(operator, rows)
    assert not any(row["anomaly"] for row in found)
    assert sum(row["anomaly"] is not None for row in found) > len(found) / 4
    (last,) = judged(operator, [*rows, ("a", 10.0 * part(rows[-1][2]) + 40, rows[-1][2] + 1)])[-1:]
    assert last["anomaly"]


def test_many_values_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("ab"[at % 2], float(at * at % 17), at) for at in range(300)]
    operator = Anomaly(of="celsius", time="at", by="sensor")
    at_once = judged(operator, rows)
    monkeypatch.setattr(usual, "CHUNK_VALUES", 500)
    assert judged(operator, rows) == at_once


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"warm_up": 1}, "at least 2"),
        ({"memory": 10}, "no more than `memory`"),
        ({"period": 0}, "a length"),
        ({"threshold": 0}, "above 0"),
        ({"threshold": math.nan}, "above 0"),
        ({"deviation_min": -1}, "at least 0"),
        ({"side": "left"}, '"above"'),
        ({"season": "winter"}, "hour of week"),
        ({"zone": "Atlantis"}, "a time zone"),
        ({"of": None}, "a column of numbers"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        Anomaly(**{"of": "celsius", "time": "at", **wrong})


def test_text_is_refused() -> None:
    text = table([], {}).schema.append(pa.field("_of_its value", pa.string()))
    with pytest.raises(ArgumentInvalid, match="a column of numbers"):
        Anomaly(of="sensor", time="at", by="sensor").contract(text)
