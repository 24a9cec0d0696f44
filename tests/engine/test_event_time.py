"""Whose latest time counts: the slowest partition's, the fastest's, or each key's own; and promises that need no rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from headwater import EventTime
from headwater.engine.contract import StepResult
from headwater.engine.event_time import BatchTime, WatermarkStrategy
from headwater.engine.key_watermark import REACHED
from headwater.errors import ArgumentInvalid
from headwater.operators import Dedupe, Process, Tumbling, agg
from tests.laws import costly
from tests.operators.batches import bounded, streamed, table_of, together, with_arguments
from tests.operators.stream_runs import Stream

SECOND = 1_000_000
SCHEMA = {"user": "string", "at": "timestamp"}
Row = tuple[str, int, int]


def table(rows: Sequence[Row], *, first: int = 0) -> pa.Table:
    """Rows of a topic: user, the second in which it happened, and the partition."""
    numbers = pa.array(range(first, first + len(rows)), pa.int64())
    return pa.table(
        {
            "user": pa.array([user for user, _, _ in rows], pa.string()),
            "at": pa.array([at * SECOND for _, at, _ in rows], pa.timestamp("us", "UTC")),
            "_partition": pa.array([partition for _, _, partition in rows], pa.int32()),
            "_offset": numbers,
            "number": numbers,
        }
    )


def numbered(batches: Sequence[Sequence[Row]]) -> list[pa.Table]:
    starts = [sum(len(one) for one in batches[:number]) for number in range(len(batches))]
    return [table(batch, first=first) for batch, first in zip(batches, starts, strict=True)]


def passes(state: pa.Table, rows: pa.Table, _time: BatchTime) -> StepResult:
    return StepResult(state, rows)


def passing(*, late: Any = "side_output", follow: Any = "slowest", **time: Any) -> Process:
    return Process(
        step=passes,
        by="user",
        time=EventTime("at", **{"future_max": None, **time}),
        state={"n": "int64"},
        output={"number": "int64"},
        late=late,
        follow=follow,
        name="p",
    )


def numbers(tables: Sequence[pa.Table]) -> list[int]:
    return sorted(number for one in tables for number in one.column("number").to_pylist())


BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.integers(0, 1)), max_size=8),
    min_size=2,
    max_size=5,
)


# -- partitions and inputs --------------------------------------------------------------------------------------------


def in_time(batches: Sequence[Sequence[Row]], *, delay: int, follow: Any) -> list[int]:
    """The offsets of rows in time, where the watermark follows the least or the most of what partitions have seen."""
    latest: dict[int, int] = {}
    watermark, offset, passed = -1000, 0, []
    for batch in batches:
        if latest:
            watermark = max(watermark, follow(latest.values()) - delay)
        for _, at, _ in batch:
            passed += [offset] if at >= watermark else []
            offset += 1
        for _, at, partition in batch:
            latest[partition] = max(at, latest.get(partition, at))
    return passed


@given(
    batches=BATCHES,
    delay=st.integers(0, 10),
    scope=st.sampled_from(["partition", "input"]),
    replay=st.integers(0, 4),
    partitions=st.integers(1, 3),
)
def test_time_is_that_of_the_slowest_partition_or_of_the_fastest(
    batches: list[list[Row]], delay: int, scope: Any, replay: int, partitions: int
) -> None:
    operator = passing(delay=delay, scope=scope)
    found = numbers(streamed(operator.contract, numbered(batches), replay=replay, partitions=partitions))
    assert found == in_time(batches, delay=delay, follow=min if scope == "partition" else max)


@given(batches=BATCHES, follow=st.sampled_from(["slowest", "fastest"]), replay=st.integers(0, 4))
def test_of_several_inputs_the_slowest_or_the_fastest_is_followed(
    batches: list[list[Row]], follow: Any, replay: int
) -> None:
    tables = []
    for batch in numbered(batches):  # what was a partition is an input now
        left, right = (batch.filter(pc.equal(batch.column("_partition"), number)) for number in (0, 1))
        zero = pa.array([0] * right.num_rows, pa.int32())
        tables.append(together(left, right.set_column(2, "_partition", zero)))
    operator = passing(delay=3, follow=follow)
    found = numbers(streamed(operator.contract, tables, replay=replay))
    assert found == in_time(batches, delay=3, follow=min if follow == "slowest" else max)


# -- keys -------------------------------------------------------------------------------------------------------------


def in_time_by_key(batches: Sequence[Sequence[Row]], *, delay: int, timeout: int | None) -> list[int]:
    """The offsets of rows in time, where each key has its own, and all are at most `timeout` behind the slowest partition."""
    latest: dict[int, int] = {}
    own: dict[str, int] = {}
    floor, offset, passed = -1000, 0, []
    for batch in batches:
        if latest and timeout is not None:
            floor = max(floor, min(latest.values()) - delay - timeout)
        for user, at, _ in batch:
            passed += [offset] if at >= max(own.get(user, -1000), floor) else []
            offset += 1
        for user, at, partition in batch:
            own[user] = max(own.get(user, -1000), at - delay)
            latest[partition] = max(at, latest.get(partition, at))
    return passed


@given(
    batches=BATCHES,
    delay=st.integers(0, 10),
    timeout=st.none() | st.integers(0, 20),
    replay=st.integers(0, 4),
    partitions=st.integers(1, 3),
)
def test_a_row_is_late_by_the_time_of_its_own_key(
    batches: list[list[Row]], delay: int, timeout: int | None, replay: int, partitions: int
) -> None:
    operator = passing(delay=delay, scope="key", key_idle_timeout=timeout)
    sides: dict[str, list[pa.Table]] = {}
    tables = numbered(batches)
    found = numbers(streamed(operator.contract, tables, replay=replay, partitions=partitions, sides=sides))
    assert found == in_time_by_key(batches, delay=delay, timeout=timeout)
    late = numbers(sides.get("late", []))
    assert sorted([*found, *late]) == list(range(sum(len(batch) for batch in batches)))
    assert numbers([bounded(operator.contract, pa.concat_tables(tables))[0]]) == numbers(tables)


def test_idle_keys_are_forgotten_when_the_others_have_moved_on() -> None:
    made = passing(scope="key", key_idle_timeout=10).contract(table([]).schema)
    step: Any = made.step
    state = made.state.append(pa.field("user", pa.string())).append(pa.field("_key", pa.int64()))
    rows = table([("a", 5, 0), ("b", 50, 0)]).append_column("_key", pa.array([0, 1]))
    first = step(state.empty_table(), rows, BatchTime(batch=0)).state
    assert first.column(REACHED).to_pylist() == [5 * SECOND, 50 * SECOND]
    held = first.append_column("user", pa.array(["a", "b"])).select(state.names)
    time = BatchTime(batch=1, watermark_us=50 * SECOND)
    assert step(held, rows.slice(0, 0), time).state.column("_key").to_pylist() == [1]


def test_dedupe_forgets_an_id_by_its_own_time() -> None:
    operator = Dedupe(by="user", time=EventTime("at", future_max=None, scope="key"), within=10, late="side_output")
    batches = [[("a", 0, 0), ("b", 100, 0)], [("a", 5, 0), ("a", 12, 0)], [("b", 105, 0), ("a", 3, 0)]]
    sides: dict[str, list[pa.Table]] = {}
    assert numbers(streamed(operator.contract, numbered(batches), sides=sides)) == [0, 1, 3]
    assert numbers(sides["late"]) == [5]


def windows_by_key(batches: Sequence[Sequence[Row]], *, delay: int, size: int) -> set[tuple[str, int, int]]:
    """Each user's rows in each window, without those that come when the window has closed for their user."""
    own: dict[str, int] = {}
    counts: dict[tuple[str, int], int] = {}
    for batch in batches:
        reached = dict(own)
        for user, at, _ in batch:
            start = at // size * size
            if reached.get(user, -1000) < start + size:
                counts[user, start] = counts.get((user, start), 0) + 1
            own[user] = max(own.get(user, -1000), at - delay)
    return {(user, start, count) for (user, start), count in counts.items()}


@costly(3)
@given(
    batches=BATCHES,
    delay=st.integers(0, 10),
    size=st.integers(1, 20),
    emit=st.sampled_from(["final", "changes"]),
    replay=st.integers(0, 4),
    partitions=st.integers(1, 3),
)
def test_windows_close_by_the_time_of_their_own_key(
    batches: list[list[Row]], delay: int, size: int, emit: Any, replay: int, partitions: int
) -> None:
    compute = {"n": agg.count()}
    operator = Tumbling(
        size=size,
        time=EventTime("at", delay=delay, future_max=None, scope="key"),
        by="user",
        compute=compute,
        emit=emit,
    )
    ends = [[(user, 10_000, 0) for user in "abc"]]
    tables = [with_arguments(one, compute) for one in numbered([*batches, *ends])]
    outputs = streamed(operator.contract, tables, replay=replay, partitions=partitions)
    found = list(table_of(outputs, ["user", "window_start"]).values()) if emit == "changes" else rows_of(outputs)
    results = [(row["user"], round(row["window_start"].timestamp()), row["n"]) for row in found]
    results = [row for row in results if row[1] < 9_000]
    assert len(results) == len(set(results))
    assert set(results) == windows_by_key(batches, delay=delay, size=size)


def rows_of(tables: Sequence[pa.Table]) -> list[dict[str, Any]]:
    return [row for one in tables for row in one.to_pylist()]


def test_silent_keys_are_closed_once_the_others_are_far_enough() -> None:
    compute = {"n": agg.count()}
    operator = Tumbling(
        size=10, time=EventTime("at", future_max=None, scope="key", key_idle_timeout=30), by="user", compute=compute
    )
    batches = [[("a", 5, 0)], [("b", 20, 0)], [("b", 39, 0)], [("b", 40, 0)], [("b", 41, 0)], [("a", 8, 0)]]
    tables = [with_arguments(one, compute) for one in numbered(batches)]
    outputs = streamed(operator.contract, tables)
    closed = [[row["user"] for row in rows_of([one])] for one in outputs]
    assert closed == [[], [], ["b"], ["b"], ["a"], []]


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: passing(delay=-1), "delay"),
        (lambda: passing(delay="-5 minutes"), "delay"),
        (lambda: passing(idle_timeout="soon"), "idle_timeout"),
        (lambda: passing(scope="row"), "scope"),
        (lambda: passing(follow="first"), "follow"),
        (lambda: passing(key_idle_timeout=5), "key_idle_timeout"),
        (lambda: passing(late="keep"), "late"),
        (lambda: Dedupe(by="user", time="at", within=5, late="step"), "late"),  # type: ignore[arg-type]
        (lambda: Dedupe(by="user", time=EventTime("at", delay=-1), within=5), "delay"),
        (lambda: WatermarkStrategy(combine="mean"), "combine"),  # type: ignore[arg-type]
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(make: Any, says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        make()


# -- in a real query ----------------------------------------------------------------------------------------------------


def test_a_promise_in_the_log_closes_windows_without_a_row(spark: SparkSession, tmp_path: Path) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def build(rows: DataFrame) -> DataFrame:
        operator = Tumbling(
            size=10, time=EventTime("at", delay="1 hour", future_max=None), by="user", compute={"n": agg.count()}
        )
        return rows.transform(operator)

    topic = {"orders": {"schema": {"user": "string", "at": "timestamp"}, "key": "user", "time": "at"}}
    stream = Stream(spark, tmp_path, build, topic, punctuations="true")
    rows = [{"user": user, "at": start + timedelta(seconds=second)} for user in "abcdef" for second in (1, 2, 12)]
    stream.run({"orders": rows})
    with stream.log() as log:
        log.punctuate("orders", start + timedelta(seconds=10))
    stream.run()
    assert stream.rows() == []  # what a batch sees moves the watermark of the next
    with stream.log() as log:
        log.punctuate("orders", start + timedelta(seconds=15))
    stream.run()
    assert sorted((row["user"], row["n"]) for row in stream.rows()) == [(user, 2) for user in "abcdef"]
