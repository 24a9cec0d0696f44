"""Windows of so many rows: any order within what is allowed, any split and any replay give what the definition gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.errors import ArgumentInvalid
from headwater.operators import CountWindow, agg
from tests.laws import costly
from tests.operators.batches import bounded, streamed, table_of
from tests.operators.test_windows import COMPUTE, Row, arrivals, numbered, table


def windows(rows: Sequence[Row], size: int, every: int, *, full: bool = True) -> list[tuple[Any, ...]]:
    """By the definition: rows of a key numbered from 0; window k has `size` of them from k x every on."""
    found = []
    for user in sorted({user for user, _, _ in rows}):
        own = [row for row in rows if row[0] == user]
        for number, start in enumerate(range(0, len(own), every)):
            held = own[start : start + size]
            if len(held) == size or not full:
                amounts = tuple(amount for _, amount, _ in held)
                times = [at for _, _, at in held]
                found.append((user, number, min(times), max(times), sum(amounts), amounts[0], amounts))
    return sorted(found)


def in_time(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row[2])  # stable: rows at one time stay in the order of their offsets


def flat(row: dict[str, Any]) -> tuple[Any, ...]:
    times = (round(row[name].timestamp()) for name in ("window_start", "window_end"))
    return (row["user"], row["window_number"], *times, row["total"], row["first"], tuple(row["all"]))


def results(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted(flat(row) for row in rows if not row["user"].startswith("end"))


def shown(tables: Sequence[pa.Table]) -> list[tuple[Any, ...]]:
    return results([row for one in tables for row in one.to_pylist()])


@costly(6)
@given(
    batches=arrivals(late_by=7),
    size=st.integers(1, 6),
    every=st.integers(1, 8),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_full_windows_come_once_in_the_order_of_event_time(
    batches: list[list[Row]], size: int, every: int, replay: int, partitions: int
) -> None:
    operator = CountWindow(
        size=size, every=every, time=EventTime("at", delay=7, future_max=None), by="user", compute=COMPUTE
    )
    rows = [row for batch in batches for row in batch]
    wanted = windows(in_time(rows), size, every)
    assert shown(streamed(operator.contract, numbered(batches), partitions=partitions, replay=replay)) == wanted
    assert shown([bounded(operator.contract, table(rows))[0]]) == wanted


@costly(6)
@given(
    batches=arrivals(late_by=20),
    size=st.integers(1, 6),
    every=st.integers(1, 8),
    emit=st.sampled_from(["changes", "every_change"]),
    replay=st.integers(0, 5),
)
def test_a_changelog_also_tells_of_windows_that_are_filling(
    batches: list[list[Row]], size: int, every: int, emit: Any, replay: int
) -> None:
    operator = CountWindow(
        size=size, every=every, time=EventTime("at", delay=20, future_max=None), by="user", compute=COMPUTE, emit=emit
    )
    outputs = streamed(operator.contract, numbered(batches), replay=replay)
    found = results(list(table_of(outputs, ["user", "window_number"]).values()))
    rows = [row for batch in batches for row in batch]
    assert found == windows(in_time(rows), size, every, full=False)
    whole = table_of([bounded(operator.contract, table(rows))[0]], ["user", "window_number"])
    assert results(list(whole.values())) == found


@costly(2)
@given(
    batches=arrivals(late_by=50),
    size=st.integers(1, 6),
    every=st.integers(1, 8),
    emit=st.sampled_from(["final", "changes", "every_change"]),
    replay=st.integers(0, 5),
)
def test_in_the_order_of_arrival_nothing_waits_and_nothing_is_late(
    batches: list[list[Row]], size: int, every: int, emit: Any, replay: int
) -> None:
    compute = {"total": agg.sum("amount"), "first": agg.min("amount"), "all": agg.count_distinct("amount")}
    operator = CountWindow(size=size, every=every, order="arrival", time="at", by="user", compute=compute, emit=emit)
    outputs = streamed(operator.contract, numbered(batches), replay=replay)[: len(batches)]
    rows = [row for batch in batches for row in batch]
    if emit == "final":
        found = [row for one in outputs for row in one.to_pylist()]
    else:
        found = list(table_of(outputs, ["user", "window_number"]).values())
    wanted = [(*row[:5], min(row[6]), len(set(row[6]))) for row in windows(rows, size, every, full=emit == "final")]
    assert sorted((*flat({**row, "all": [row["all"]]})[:6], row["all"]) for row in found) == sorted(wanted)


@costly(3)
@given(batches=arrivals(late_by=40), size=st.integers(1, 4))
def test_every_row_is_counted_or_put_aside(batches: list[list[Row]], size: int) -> None:
    operator = CountWindow(
        size=size, time=EventTime("at", future_max=None), by="user", compute=COMPUTE, late="side_output", emit="changes"
    )
    sides: dict[str, list[pa.Table]] = {}
    outputs = streamed(operator.contract, numbered(batches), sides=sides, partitions=1)
    counted = results(list(table_of(outputs, ["user", "window_number"]).values()))
    late = sum(one.num_rows for one in sides.get("late", []))
    assert sum(len(row[6]) for row in counted) + late == sum(len(batch) for batch in batches)


def test_a_row_behind_the_watermark_is_late() -> None:
    operator = CountWindow(
        size=2, time=EventTime("at", future_max=None), by="user", compute=COMPUTE, late="side_output"
    )
    sides: dict[str, list[pa.Table]] = {}
    batches = [table([("a", 1, 10)]), table([("a", 2, 9), ("a", 3, 10)], first=1), *numbered([])]
    found = shown(streamed(operator.contract, batches, sides=sides, partitions=1))
    assert [(row[1], row[6]) for row in found] == [(0, (1, 3))]
    assert [row["amount"] for one in sides["late"] for row in one.to_pylist()] == [2]


def test_rows_between_windows_belong_to_none() -> None:
    operator = CountWindow(size=2, every=3, time="at", by="user", compute=COMPUTE)
    found, _ = bounded(operator.contract, table([("a", number, number) for number in range(8)]))
    assert [row["all"] for row in found.to_pylist()] == [[0, 1], [3, 4], [6, 7]]


def test_each_tells_of_every_row() -> None:
    operator = CountWindow(
        size=2, order="arrival", time="at", by="user", compute={"n": agg.count()}, emit="every_change"
    )
    (output,) = streamed(operator.contract, [table([("a", 1, 5), ("a", 2, 3), ("a", 3, 5)])])
    changes = [(row["_op"], row["window_number"], row["n"]) for row in output.to_pylist()]
    assert changes == [("+I", 0, 1), ("-U", 0, 1), ("+U", 0, 2), ("+I", 1, 1)]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: CountWindow(size=0, time="at"), "size"),
        (lambda: CountWindow(size=2.5, time="at"), "size"),  # type: ignore[arg-type]
        (lambda: CountWindow(size="5 minutes", time="at"), "a number of rows"),  # type: ignore[arg-type]
        (lambda: CountWindow(size=2, every=-1, time="at"), "every"),
        (lambda: CountWindow(size=1_000_000, every=1, time="at"), "at most 10,000 windows"),
        (lambda: CountWindow(size=2, order="random", time="at"), "order"),  # type: ignore[arg-type]
        (lambda: CountWindow(size=2, allowed_lateness=5, time="at"), "the delay of the event time"),
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(make: Any, why: str) -> None:
    with pytest.raises(ArgumentInvalid, match=why):
        make()
