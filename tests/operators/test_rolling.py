"""`Rolling`: the same as SQL's windows over a range of time, for any order, any split and any replay."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine.contract import StepResult
from headwater.errors import ArgumentInvalid
from headwater.operators import Rolling, agg
from headwater.operators.aggregates import trailing_period as quantiles
from headwater.operators.aggregates import trailing_period as rolling
from tests.laws import costly
from tests.operators.batches import bounded, duck, streamed
from tests.operators.readings import (
    LATE_BY,
    Model,
    Reading,
    arrivals,
    batches_of,
    check,
    expected,
    of_rows,
    same,
    table,
)

COMPUTE = {
    "n": agg.count(),
    "known": agg.count("celsius"),
    "total": agg.sum("celsius"),
    "mean": agg.mean("celsius"),
    "spread": agg.stddev("celsius"),
    "least": agg.min("celsius"),
    "most": agg.max("celsius"),
    "middle": agg.percentile("celsius", 0.5),
    "high": agg.percentile("celsius", 0.9),
}
SQL = """
    SELECT _offset, count(*) OVER past AS n, count(celsius) OVER past AS known, sum(celsius) OVER past AS total,
           avg(celsius) OVER past AS mean, stddev_samp(celsius) OVER past AS spread, min(celsius) OVER past AS least,
           max(celsius) OVER past AS most, quantile_cont(celsius, 0.5) OVER past AS middle,
           quantile_cont(celsius, 0.9) OVER past AS high
    FROM rows WINDOW past AS (PARTITION BY sensor ORDER BY rows."at"
                              RANGE BETWEEN INTERVAL '{period} seconds' PRECEDING AND CURRENT ROW)
"""


def quantile(values: list[float], share: float) -> float:
    place = (len(values) - 1) * share
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


def of_period(period: int, closed: str) -> Model:
    def model(past: list[tuple[int, float | None]], row: tuple[int, float | None]) -> dict[str, Any]:
        begin, end = row[0] - period, row[0]
        rows = [
            value
            for at, value in past
            if (at > begin or (at == begin and closed in ("both", "left")))
            and (at < end or (at == end and closed in ("both", "right")))
        ]
        known = sorted(value for value in rows if value is not None)
        mean = sum(known) / len(known) if known else None
        squares = sum((value - (mean or 0)) ** 2 for value in known)
        return {
            "n": len(rows),
            "known": len(known),
            "total": sum(known) if known else None,
            "mean": mean,
            "spread": math.sqrt(squares / (len(known) - 1)) if len(known) > 1 else None,
            "least": known[0] if known else None,
            "most": known[-1] if known else None,
            "middle": quantile(known, 0.5) if known else None,
            "high": quantile(known, 0.9) if known else None,
        }

    return model


@costly(6)
@given(
    batches=arrivals(),
    period=st.integers(1, 40),
    closed=st.sampled_from(["both", "left", "right", "neither"]),
    prompt=st.booleans(),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_each_row_comes_once_with_what_its_period_amounts_to(
    batches: list[list[Reading]], period: int, closed: Any, prompt: bool, replay: int, partitions: int
) -> None:
    operator = Rolling(
        period=period, closed=closed, time=EventTime("at", delay=LATE_BY, future_max=None), by="sensor", compute=COMPUTE
    )
    operator = replace(operator, prompt=prompt)
    check(operator, batches, of_period(period, closed), replay=replay, partitions=partitions)


@costly(6)
@given(batches=arrivals(), period=st.integers(1, 40))
def test_the_default_is_what_sql_says(batches: list[list[Reading]], period: int) -> None:
    operator = Rolling(
        period=period, time=EventTime("at", delay=LATE_BY, future_max=None), by="sensor", compute=COMPUTE
    )
    rows = [row for batch in batches for row in batch]
    with duck() as connection:
        connection.register("rows", table(rows, {}))
        answer = connection.sql(SQL.format(period=period)).to_arrow_table().to_pylist()
    wanted = {row.pop("_offset"): row for row in answer}
    found = of_rows(streamed(operator.contract, batches_of(batches, COMPUTE)), list(COMPUTE))
    assert found.keys() == wanted.keys()
    for place, values in wanted.items():
        assert same(found[place], values)


@costly(3)
@given(batches=arrivals(), quiet=st.sampled_from([None, 20]))
def test_a_watermark_of_each_key_lets_rows_out_with_their_own_key(batches: list[list[Reading]], quiet: Any) -> None:
    operator = Rolling(
        period=10,
        time=EventTime("at", delay=LATE_BY, future_max=None, scope="key", key_idle_timeout=quiet),
        by="sensor",
        compute=COMPUTE,
    )
    rows = [row for batch in batches for row in batch]
    wanted = expected(rows, of_period(10, "both"))
    last = {sensor: max(at for own, _, at in rows if own == sensor) for sensor, _, _ in rows}
    found = of_rows(streamed(operator.contract, batches_of(batches, COMPUTE)), list(COMPUTE))
    for place, values in found.items():
        assert same(values, wanted[place])
    # Without `quiet` the last rows of a key wait for more of it; with it the others' time passes for them, too.
    out = {place for place, (sensor, _, at) in enumerate(rows) if quiet is not None or at < last[sensor] - LATE_BY}
    assert found.keys() == out


def test_long_lists_are_made_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a", float(number % 7), number) for number in range(200)]
    compute = {**COMPUTE, "all": agg.collect_list("celsius"), "kinds": agg.count_distinct("celsius")}
    operator = Rolling(period=30, time="at", by="sensor", compute=compute)
    at_once, _ = bounded(operator.contract, table(rows, compute))
    monkeypatch.setattr(rolling, "CHUNK_ROWS", 50)
    monkeypatch.setattr(quantiles, "CHUNK_VALUES", 50)
    in_parts, _ = bounded(operator.contract, table(rows, compute))
    assert of_rows([in_parts], list(compute)) == of_rows([at_once], list(compute))


def test_quantiles_alone_are_enough() -> None:
    operator = Rolling(period=30, time="at", by="sensor", compute={"middle": agg.percentile("celsius")})
    found, _ = bounded(operator.contract, table([("a", 4.0, 0), ("a", math.nan, 1), ("a", 2.0, 40)], operator.compute))
    first, second, third = (row["middle"] for row in found.to_pylist())
    assert (first, third) == (4.0, 2.0)
    assert math.isnan(second)


def test_a_row_after_its_turn_is_late_and_changes_nothing() -> None:
    operator = Rolling(
        period=100, time=EventTime("at", future_max=None), by="sensor", compute=COMPUTE, late="side_output"
    )
    sides: dict[str, Any] = {}
    batches = [[("a", 1.0, 10)], [("a", 2.0, 20)], [], [("a", 3.0, 15)]]
    outputs = streamed(operator.contract, batches_of(batches, COMPUTE), sides=sides)
    assert {place: row["total"] for place, row in of_rows(outputs, ["total"]).items()} == {0: 1.0, 1: 3.0}
    (late,) = [row for one in sides["late"] for row in one.to_pylist()]
    assert (late["celsius"], late["late_by_us"]) == (3.0, 5_000_000)
    assert not [name for name in late if name.startswith("_of_")]


def test_prompt_rows_leave_in_their_own_batch() -> None:
    batches = [[("a", 1.0, 10)], [("a", 2.0, 20), ("a", 2.0, 30)], [("a", 2.0, 30)]]
    tables = batches_of(batches, {"n": agg.count()})
    for prompt, wanted in ((False, [[], [], [1, 2]]), (True, [[], [1, 2], []])):
        operator = Rolling(
            period=100, time=EventTime("at", future_max=None), by="sensor", compute={"n": agg.count()}, prompt=prompt
        )
        outputs = streamed(operator.contract, tables, partitions=1)
        assert [[row["n"] for row in one.to_pylist()] for one in outputs[:3]] == wanted


@costly(3)
@given(batches=arrivals(), partitions=st.integers(1, 3))
def test_what_leaves_is_never_earlier_than_what_has_left(batches: list[list[Reading]], partitions: int) -> None:
    """So an operator behind this one, which allows nothing to be late, still gets all rows."""
    compute = {"n": agg.count()}
    first = Rolling(period=10, time=EventTime("at", delay=LATE_BY, future_max=None), by="sensor", compute=compute)
    outputs = streamed(first.contract, batches_of([*batches, []], compute), partitions=partitions)
    latest = None
    for one in outputs:
        times = [row["at"] for row in one.to_pylist()]
        assert latest is None or not times or min(times) >= latest
        latest = max([*times, *([latest] if latest else [])], default=None)


def test_nan_is_a_value_of_the_periods_that_hold_it_and_of_no_other() -> None:
    rows = [("a", 1.0, 0), ("a", math.nan, 10), ("a", 2.0, 20), ("a", 4.0, 40)]
    operator = Rolling(period=15, time="at", by="sensor", compute={"mean": agg.mean("celsius")})
    found, _ = bounded(operator.contract, table(rows, operator.compute))
    means = [row["mean"] for row in found.to_pylist()]
    assert [means[0], means[3]] == [1.0, 4.0]
    assert all(math.isnan(one) for one in means[1:3])


def test_what_is_remembered_is_bounded_by_the_period() -> None:
    operator = Rolling(period=10, time=EventTime("at", future_max=None), by="sensor", compute={"n": agg.count()})
    contract = operator.contract(table([], operator.compute).schema)
    kept: list[int] = []

    def noting(state: Any, rows: Any, time: Any) -> Any:
        stepped = contract.step(state, rows, time)
        assert isinstance(stepped, StepResult)
        kept.append(stepped.state.num_rows)
        return stepped

    batches = [[("a", 0.0, second)] for second in range(0, 200, 2)]
    streamed(lambda _: replace(contract, step=noting), batches_of(batches, operator.compute), partitions=1)
    assert max(kept) <= 8
    assert kept[-1] <= 2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"period": 0}, "a length"),
        ({"period": "1 fortnight"}, "a duration"),
        ({"period": 5, "closed": "open"}, '"both", "left", "right" or "neither"'),
        ({"period": 5, "late": "keep"}, '"drop" or "side_output"'),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        Rolling(time="at", compute={"n": agg.count()}, **settings)


def test_a_name_that_the_rows_have_already_is_refused() -> None:
    operator = Rolling(period=5, time="at", by="sensor", compute={"celsius": agg.count()})
    with pytest.raises(ArgumentInvalid, match="already"):
        operator.contract(table([], {}).schema)
