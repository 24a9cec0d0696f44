"""Sliding windows: any order within what is allowed, any split and any replay give what Kafka Streams' documentation says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine import time_index as slides
from headwater.engine.aggregation import Computation, Groups, order_of
from headwater.engine.errors import NumberTooLarge
from headwater.errors import ArgumentInvalid
from headwater.operators import Sliding, agg
from headwater.operators.aggregates import Aggregate, ranges
from tests.laws import costly
from tests.operators.batches import bounded, streamed, table_of, with_arguments
from tests.operators.test_windows import COMPUTE, SECOND, Row, arrivals, numbered, table

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def windows(
    rows: Sequence[Row], size: int, *, tick_us: int = 1, trailing: bool = False, floor: bool = False
) -> list[tuple[Any, ...]]:
    """By the documentation: a window is made when a row enters it, and when a row has just dropped out of it."""
    size_us = size * SECOND
    found = []
    for user in sorted({user for user, _, _ in rows}):
        own = sorted(((at * SECOND, amount) for one, amount, at in rows if one == user), key=lambda pair: pair[0])
        starts = {max(at - size_us, 0) if floor else at - size_us for at, _ in own}
        if not trailing:
            starts |= {at + tick_us for at, _ in own}
        for start in starts:
            amounts = [amount for at, amount in own if start <= at <= start + size_us]
            if amounts:
                found.append((user, start, start + size_us, sum(amounts), len(amounts), amounts[0], tuple(amounts)))
    return sorted(found)


def flat(row: dict[str, Any]) -> tuple[Any, ...]:
    start, end = ((row[name] - EPOCH) // timedelta(microseconds=1) for name in ("window_start", "window_end"))
    return (row["user"], start, end, row["total"], row["n"], row["first"], tuple(row["all"]))


def results(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(flat(row) for row in rows if not row["user"].startswith("end"))


def shown(tables: Sequence[pa.Table]) -> list[tuple[Any, ...]]:
    return results([row for one in tables for row in one.to_pylist()])


@costly(2)
@given(
    batches=arrivals(late_by=7),
    size=st.integers(1, 30),
    tick=st.sampled_from([1e-6, 1]),
    which=st.sampled_from(["all", "trailing"]),
    allowed_lateness=st.integers(0, 9),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_final_results_come_once_and_are_those_of_the_documentation(
    batches: list[list[Row]], size: int, tick: float, which: Any, allowed_lateness: int, replay: int, partitions: int
) -> None:
    operator = Sliding(
        size=size,
        tick=tick,
        windows=which,
        time=EventTime("at", delay=7, future_max=None),
        by="user",
        compute=COMPUTE,
        allowed_lateness=allowed_lateness,
    )
    found = shown(streamed(operator.contract, numbered(batches), partitions=partitions, replay=replay))
    rows = [row for batch in batches for row in batch]
    wanted = windows(rows, size, tick_us=round(tick * SECOND), trailing=which == "trailing")
    assert found == wanted
    whole, _ = bounded(operator.contract, table(rows))
    assert shown([whole]) == wanted


@costly(6)
@given(
    batches=arrivals(late_by=20),
    size=st.integers(1, 30),
    tick=st.sampled_from([1e-6, 1]),
    which=st.sampled_from(["all", "trailing"]),
    emit=st.sampled_from(["changes", "every_change"]),
    replay=st.integers(0, 5),
)
def test_a_changelog_leads_to_the_same_table(
    batches: list[list[Row]], size: int, tick: float, which: Any, emit: Any, replay: int
) -> None:
    operator = Sliding(
        size=size,
        tick=tick,
        windows=which,
        time=EventTime("at", delay=20, future_max=None),
        by="user",
        compute=COMPUTE,
        emit=emit,
    )
    outputs = streamed(operator.contract, numbered(batches), replay=replay)
    for count in range(1, len(batches) + 1):  # what stands after each batch is what that much input makes
        rows = [row for batch in batches[:count] for row in batch]
        current = table_of(outputs[:count], ["user", "window_start"]).values()
        wanted = windows(rows, size, tick_us=round(tick * SECOND), trailing=which == "trailing")
        assert results(list(current)) == wanted
    if emit == "changes":
        for output in outputs:
            afters = [(row["user"], row["window_start"]) for row in output.to_pylist() if row["_op"] in ("+I", "+U")]
            assert len(afters) == len(set(afters)), "one correction per window and batch"


@costly(3)
@given(
    rows=st.lists(st.tuples(st.sampled_from("ab"), st.integers(-9, 9), st.integers(0, 40)), min_size=1, max_size=20),
    cut=st.integers(0, 20),
    size=st.integers(1, 30),
    emit=st.sampled_from(["final", "changes"]),
)
def test_with_a_floor_no_window_begins_before_1970(rows: list[Row], cut: int, size: int, emit: Any) -> None:
    operator = Sliding(
        size=size, floor=True, time=EventTime("at", delay=50, future_max=None), by="user", compute=COMPUTE, emit=emit
    )
    outputs = streamed(operator.contract, numbered([rows[:cut], rows[cut:]]))
    wanted = windows([*rows[:cut], *rows[cut:]], size, floor=True)
    if emit == "final":
        assert shown(outputs) == wanted
    else:
        assert results(list(table_of(outputs, ["user", "window_start"]).values())) == wanted


def test_the_example_of_kafka_streams() -> None:
    compute = {"all": agg.collect_list("amount")}
    operator = Sliding(size="5000 ms", tick="1 ms", time="at", by="user", compute=compute)
    rows = pa.table(
        {
            "user": ["A", "A", "A"],
            "amount": [1, 2, 3],
            "at": pa.array([8_000_000, 9_200_000, 12_400_000], pa.timestamp("us", "UTC")),
        }
    )
    found, _ = bounded(operator.contract, with_arguments(rows, compute))
    made = {
        ((row["window_start"] - EPOCH) // timedelta(milliseconds=1), tuple(row["all"])) for row in found.to_pylist()
    }
    assert made == {(3000, (1,)), (4200, (1, 2)), (7400, (1, 2, 3)), (8001, (2, 3)), (9201, (3,))}


def test_times_are_taken_down_to_a_tick() -> None:
    operator = Sliding(size=5, tick=1, time="at", by="user", compute={"n": agg.count()})
    rows = table([("a", 1, 3)]).select(["user", "at"])
    rows = pa.concat_tables([rows, rows.set_column(1, "at", pa.array([3_999_999], pa.timestamp("us", "UTC")))])
    (row,) = bounded(operator.contract, rows)[0].to_pylist()
    assert ((row["window_end"] - EPOCH).total_seconds(), row["n"]) == (3, 2)


def run_with_late(*batches: Sequence[Row], **settings: Any) -> tuple[list[tuple[Any, ...]], list[int]]:
    """Trailing windows of user a as (end, total), and the amounts of rows that came late."""
    operator = Sliding(
        size=10,
        windows="trailing",
        time=EventTime("at", future_max=None),
        by="user",
        compute=COMPUTE,
        late="side_output",
        **settings,
    )
    sides: dict[str, list[pa.Table]] = {}
    tables = [table(batch, first=100 * number) for number, batch in enumerate([*batches, [("z", 0, 999)], []])]
    outputs = streamed(operator.contract, tables, sides=sides, partitions=1)
    found = sorted((flat(row)[2] // SECOND, row["total"]) for one in outputs for row in one.to_pylist())
    return found, [row["amount"] for one in sides.get("late", []) for row in one.to_pylist()]


@costly(6)
@given(batches=arrivals(late_by=40), size=st.integers(1, 20), allowed_lateness=st.integers(0, 9))
def test_however_late_rows_come_a_window_comes_once_and_what_is_told_is_taken_back_before_it_changes(
    batches: list[list[Row]], size: int, allowed_lateness: int
) -> None:
    final = Sliding(
        size=size, time=EventTime("at", future_max=None), by="user", compute=COMPUTE, allowed_lateness=allowed_lateness
    )
    found = shown(streamed(final.contract, numbered(batches)))
    assert len(found) == len({row[:2] for row in found})
    # A changelog in which a retraction named something else, or something came twice, would be refused here.
    live = table_of(streamed(replace(final, emit="changes").contract, numbered(batches)), ["user", "window_start"])
    told = {flat(row)[:2]: flat(row) for row in live.values()}
    assert {row[:2] for row in found} <= set(told)
    assert all(told[row[:2]] == row for row in found)


def test_a_row_counts_in_the_windows_that_are_still_open() -> None:
    # The watermark is 20 in the second batch. The window that ends at 15 is closed; those that end at 20 and 21 are not.
    found, late = run_with_late([("a", 1, 15), ("a", 2, 20)], [("a", 4, 14), ("a", 8, 21)])
    assert (found, late) == ([(15, 1), (20, 7), (21, 15)], [])


def test_a_row_that_no_open_window_could_hold_is_late() -> None:
    found, late = run_with_late([("a", 1, 20), ("a", 0, 40)], [("a", 4, 30), ("a", 8, 29)])
    assert late == [8]
    assert (20, 1) in found
    assert (40, 4) in found


def test_a_window_is_open_while_the_watermark_is_at_its_end_and_its_lateness() -> None:
    found, late = run_with_late([("a", 1, 15), ("a", 2, 20)], [("a", 4, 15)], allowed_lateness=5)
    assert (found[:2], late) == ([(15, 5), (20, 7)], [])
    found, late = run_with_late([("a", 1, 15), ("a", 2, 20)], [("a", 4, 15)], allowed_lateness=4)
    assert (found[:2], late) == ([(15, 1), (20, 7)], [])


def test_state_is_bounded_by_size_and_lateness() -> None:
    operator = Sliding(size=10, time="at", by="user", compute=COMPUTE, allowed_lateness=5)
    contract = operator.contract(table([("a", 1, 0)]).schema)
    sizes: list[int] = []
    step = contract.step

    def watched(state: pa.Table, rows: pa.Table, time: Any) -> Any:
        stepped: Any = step(state, rows, time)
        sizes.append(stepped.state.num_rows)
        return stepped

    batches = [table([("a", 1, at)], first=at) for at in range(200)]
    streamed(lambda _: replace(contract, step=watched), batches, partitions=1)
    assert max(sizes) <= 10 + 5 + 3


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Sliding(size=0, time="at"), "size"),
        (lambda: Sliding(size="4000 days", time="at"), "up to ten years"),
        (lambda: Sliding(size=10, tick=3, time="at"), "a multiple"),
        (lambda: Sliding(size=10, windows="some", time="at"), "windows"),  # type: ignore[arg-type]
        (lambda: Sliding(size=10, emit="some", time="at"), "emit"),  # type: ignore[arg-type]
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(make: Any, why: str) -> None:
    with pytest.raises(ArgumentInvalid, match=why):
        make()


# -- the parts --------------------------------------------------------------------------------------------------------

KINDS: dict[str, Aggregate] = {
    "count": agg.count(),
    "counted": agg.count("amount"),
    "sum": agg.sum("amount"),
    "mean": agg.mean("amount"),
    "min": agg.min("amount"),
    "max": agg.max("amount"),
    "stddev": agg.stddev("amount"),
    "first": agg.first("amount"),
    "last": agg.last("amount"),
    "collect": agg.collect_list("amount"),
    "distinct": agg.count_distinct("amount"),
    "median": agg.percentile("amount"),
    "top": agg.top_k("amount", 2),
}


@given(
    amounts=st.lists(st.none() | st.integers(-50, 50), min_size=1, max_size=30),
    kind=st.sampled_from([pa.int64(), pa.float64(), pa.decimal128(22, 2)]),
    bounds=st.lists(st.tuples(st.integers(0, 29), st.integers(1, 30)), max_size=20),
    long=st.sampled_from([0, 64]),
)
def test_ranges_are_what_their_rows_make(
    amounts: list[int | None], kind: pa.DataType, bounds: list[tuple[int, int]], long: int
) -> None:
    count = len(amounts)
    spans = [(min(first, count - 1), min(max(stop, first + 1), count)) for first, stop in bounds]
    rows = pa.table({"user": ["a"] * count, "amount": pa.array(amounts, pa.int64()).cast(kind)})
    rows = with_arguments(rows, KINDS)
    computation = Computation.over(KINDS, rows.schema)
    order = order_of(rows, np.arange(count))
    singles = computation.lift(rows, order, Groups(np.arange(count), count))
    starts, stops = (
        (np.array(values, np.int64) for values in zip(*spans, strict=True)) if spans else [np.array([], int)] * 2
    )
    before, ranges.LONG_ROWS = ranges.LONG_ROWS, long
    try:
        merged = ranges.merged_ranges(computation, singles, np.zeros(count, np.int64), starts, stops)
    finally:
        ranges.LONG_ROWS = before
    for (first, stop), found in zip(spans, computation.finish(merged).to_pylist(), strict=True):
        part = rows.slice(first, stop - first)
        at = np.arange(first, stop)
        (alone,) = computation.finish(
            computation.lift(part, order_of(part, at), Groups(np.array([0]), stop - first))
        ).to_pylist()
        for name in KINDS:
            assert found[name] == (pytest.approx(alone[name]) if name in ("stddev", "mean") else alone[name]), name


def test_a_range_keeps_what_is_small_beside_what_is_long_past() -> None:
    computation = Computation.over({"sum": agg.sum("amount")}, pa.schema([("_of_sum", pa.float64())]))
    rows = pa.table({"_of_sum": [1e18, 0.5, 0.25]})
    singles = computation.lift(rows, order_of(rows, np.arange(3)), Groups(np.arange(3), 3))
    merged = ranges.merged_ranges(computation, singles, np.zeros(3, np.int64), np.array([1]), np.array([3]))
    assert computation.finish(merged).column("sum").to_pylist() == [0.75]


def test_sums_in_ranges_never_wrap_round() -> None:
    computation = Computation.over({"sum": agg.sum("amount")}, pa.schema([("_of_sum", pa.int64())]))
    rows = pa.table({"_of_sum": [2**62, 2**62, -(2**62)]})
    singles = computation.lift(rows, order_of(rows, np.arange(3)), Groups(np.arange(3), 3))
    keys = np.zeros(3, np.int64)
    merged = ranges.merged_ranges(computation, singles, keys, np.array([1]), np.array([3]))
    assert computation.finish(merged).column("sum").to_pylist() == [0]
    with pytest.raises(NumberTooLarge):
        ranges.merged_ranges(computation, singles, keys, np.array([0]), np.array([2]))


@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 5)), max_size=12),
    asked=st.lists(st.tuples(st.integers(0, 3), st.integers(-6, 6)), max_size=12),
    scale=st.sampled_from([1, 2**58]),
)
def test_places_among_rows_are_found_however_far_apart_they_are(
    rows: list[tuple[int, int]], asked: list[tuple[int, int]], scale: int
) -> None:
    have = sorted((key, at * scale) for key, at in rows)
    want = [(key, at * scale) for key, at in asked]
    columns = [
        np.array(values, np.int64)
        for pairs in (have, want)
        for values in (zip(*pairs, strict=True) if pairs else ([], []))
    ]
    assert slides.rows_before(*columns).tolist() == [sum(one < place for one in have) for place in want]
