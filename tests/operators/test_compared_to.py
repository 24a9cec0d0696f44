"""`ComparedTo`: windows beside those of earlier periods, by SQL over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine.contract import StepResult
from headwater.errors import ArgumentInvalid
from headwater.operators import ComparedTo, agg
from tests.laws import costly
from tests.operators.batches import bounded, duck, streamed
from tests.operators.readings import LATE_BY, Reading, arrivals, batches_of, same, table

COMPUTE = {"n": agg.count(), "mean": agg.mean("celsius")}
SQL = """
    WITH windows AS (
        SELECT sensor, floor(epoch(rows."at") / {every}) * {every} AS s, count(*) AS n, avg(celsius) AS mean
        FROM rows GROUP BY ALL
    )
    SELECT now.sensor, now.s, now.n, one.n AS n_before, now.n - one.n AS n_difference, now.n / nullif(one.n, 0) AS n_ratio,
           (SELECT avg(n) FROM windows AS w WHERE w.sensor = now.sensor AND {earlier}) AS n_mean,
           (SELECT (now.n - avg(n)) / nullif(stddev_samp(n), 0) FROM windows AS w
            WHERE w.sensor = now.sensor AND {earlier}) AS n_zscore,
           now.mean, one.mean AS mean_before, now.mean - one.mean AS mean_difference,
           now.mean / nullif(one.mean, 0) AS mean_ratio,
           (SELECT avg(mean) FROM windows AS w WHERE w.sensor = now.sensor AND {earlier}) AS mean_mean,
           (SELECT count(*) FROM windows AS w WHERE w.sensor = now.sensor AND {earlier}) AS periods
    FROM windows AS now LEFT JOIN windows AS one ON one.sensor = now.sensor AND one.s = now.s - {period}
"""


def compared(rows: Sequence[Reading], every: int, period: int, periods: int) -> dict[tuple[str, int], dict[str, Any]]:
    earlier = "w.s IN (" + ", ".join(f"now.s - {period * number}" for number in range(1, periods + 1)) + ")"
    with duck() as connection:
        connection.register("rows", table(rows, {}))
        query = SQL.format(every=every, period=period, earlier=earlier)
        answer = connection.sql(query).to_arrow_table().to_pylist()
    return {(row.pop("sensor"), int(row.pop("s"))): row for row in answer}


def shown(tables: Sequence[pa.Table]) -> dict[tuple[str, int], dict[str, Any]]:
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in (row for one in tables for row in one.to_pylist() if row["sensor"] != "end"):
        start = row.pop("window_start")
        assert row.pop("window_end") > start
        place = (row.pop("sensor"), round(start.timestamp()))
        assert place not in found
        row.pop("mean_zscore")  # of means that are equal but for rounding, which SQL's deviation tells apart or not
        found[place] = row
    return found


def in_two_steps(operator: ComparedTo, batches: Sequence[pa.Table], **how: Any) -> list[pa.Table]:
    return streamed(operator.contract, streamed(operator.windows().contract, batches, **how), **how)


@costly(6)
@given(
    batches=arrivals(),
    every=st.sampled_from([1, 5, 10]),
    times=st.integers(1, 3),
    periods=st.integers(1, 4),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_each_window_has_what_the_same_window_had_before(
    batches: list[list[Reading]], every: int, times: int, periods: int, replay: int, partitions: int
) -> None:
    operator = ComparedTo(
        time=EventTime("at", delay=LATE_BY, future_max=None),
        by="sensor",
        every=every,
        period=every * times,
        periods=periods,
        compute=COMPUTE,
    )
    rows = [row for batch in batches for row in batch]
    wanted = compared(rows, every, every * times, periods)
    found = shown(in_two_steps(operator, batches_of(batches, COMPUTE), replay=replay, partitions=partitions))
    windows, _ = bounded(operator.windows().contract, table(rows, COMPUTE))
    whole, _ = bounded(operator.contract, windows)
    for one in (found, shown([whole])):
        assert one.keys() == wanted.keys()
        for place, values in wanted.items():
            assert same(one[place], values), f"{place}: {one[place]}, not {values}"


def test_what_is_not_known_is_null_and_never_zero() -> None:
    operator = ComparedTo(time="at", by="sensor", every=10, period=20, compute=COMPUTE)
    rows: list[Reading] = [("a", 1.0, 0), ("a", 3.0, 25), ("a", 0.0, 60)]
    windows, _ = bounded(operator.windows().contract, table(rows, COMPUTE))
    whole, _ = bounded(operator.contract, windows)
    first, second, third = shown([whole]).values()
    assert (first["n_before"], first["n_difference"], first["n_ratio"], first["n_mean"]) == (None, None, None, None)
    assert (second["mean_before"], second["mean_ratio"], second["n_zscore"], second["periods"]) == (1.0, 3.0, None, 1)
    assert (third["n_before"], third["n_mean"], third["periods"]) == (None, 1.0, 2)


def test_windows_that_nothing_is_compared_with_any_more_are_forgotten() -> None:
    operator = ComparedTo(
        time=EventTime("at", future_max=None), by="sensor", every=1, period=2, periods=3, compute=COMPUTE
    )
    batches = batches_of([[("a", 0.0, second)] for second in range(60)], COMPUTE)
    windows = streamed(operator.windows().contract, batches, partitions=1)
    contract = operator.contract(windows[0].schema)
    kept: list[int] = []

    def noting(state: Any, rows: Any, time: Any) -> Any:
        stepped = contract.step(state, rows, time)
        assert isinstance(stepped, StepResult)
        kept.append(stepped.state.num_rows)
        return stepped

    streamed(lambda _: replace(contract, step=noting), windows, partitions=1)
    assert max(kept) <= 10


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"period": 15}, "a multiple of `every`"),
        ({"period": 0}, "a length"),
        ({"every": 0}, "a length"),
        ({"periods": 0}, "from 1 to 1000"),
        ({"compute": {"n": agg.count(), "n_before": agg.count()}}, "no other result has"),
        ({"compute": {"periods": agg.count()}}, "no other result has"),
        ({"late": "never"}, '"drop" or "side_output"'),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        ComparedTo(**{"time": "at", "every": 10, "period": 20, "compute": COMPUTE, **wrong})


def test_only_numbers_are_compared() -> None:
    operator = ComparedTo(time="at", by="sensor", every=10, period=20, compute={"names": agg.collect_list("celsius")})
    with pytest.raises(ArgumentInvalid, match="numbers to compare"):
        windows, _ = bounded(operator.windows().contract, table([("a", 1.0, 0)], operator.compute))
        operator.contract(windows.schema)
