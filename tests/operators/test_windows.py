"""Tumbling and hopping windows: any order within what is allowed, any split and any replay give what SQL gives."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.errors import ArgumentInvalid
from headwater.operators import Hopping, Tumbling, agg
from tests.laws import costly
from tests.operators.batches import bounded, duck, streamed, table_of, with_arguments

COMPUTE = {
    "total": agg.sum("amount"),
    "n": agg.count(),
    "first": agg.first("amount"),
    "all": agg.collect_list("amount"),
}
SECOND = 1_000_000
#: A time after which every window is closed.
END_OF_TIME = 10_000
Row = tuple[str, int, int]


def table(rows: Sequence[Row], *, first: int = 0, by: tuple[str, ...] | str = "user") -> pa.Table:
    """Rows of a topic: user, amount and the second in which it happened."""
    made = pa.table(
        {
            "user": pa.array([user for user, _, _ in rows], pa.string()),
            "amount": pa.array([amount for _, amount, _ in rows], pa.int64()),
            "at": pa.array([at * SECOND for _, _, at in rows], pa.timestamp("us", "UTC")),
            "_partition": pa.array([0] * len(rows), pa.int32()),
            "_offset": pa.array(range(first, first + len(rows)), pa.int64()),
        }
    )
    return with_arguments(made, COMPUTE, by=by)


def expected(rows: Sequence[Row], windows: Sequence[tuple[int, int]]) -> set[tuple[Any, ...]]:
    """Each user's rows in each window, by DuckDB."""
    found = table(rows)
    spans = pa.table({"s": [start for start, _ in windows], "e": [end for _, end in windows]})
    with duck() as connection:
        connection.register("rows", found)
        connection.register("spans", spans)
        result = connection.sql(
            """
            SELECT user, s, e, sum(amount)::BIGINT, count(*), first(amount ORDER BY epoch_us(rows.at), _offset),
                   list(amount ORDER BY epoch_us(rows.at), _offset)
            FROM rows JOIN spans ON epoch_us(rows.at) >= s * 1000000 AND epoch_us(rows.at) < e * 1000000 GROUP BY ALL
            """
        ).fetchall()
    return {(*row[:-1], tuple(row[-1])) for row in result if row[0] != "end"}


def windows_of(size: int, every: int, offset: int = 0) -> list[tuple[int, int]]:
    return [(start, start + size) for start in range(-20 * every - 100 // every * every + offset, 200, every)]


def seen(tables: Sequence[pa.Table]) -> list[tuple[Any, ...]]:
    return [flat(row) for one in tables for row in one.to_pylist() if row["user"] != "end"]


def flat(row: dict[str, Any]) -> tuple[Any, ...]:
    start, end = (round(row[name].timestamp()) for name in ("window_start", "window_end"))
    return (row["user"], start, end, row["total"], row["n"], row["first"], tuple(row["all"]))


ROW = st.tuples(st.sampled_from("abc"), st.integers(-9, 9), st.integers(-60, 100))


@st.composite
def arrivals(draw: st.DrawFn, *, late_by: int, rows_min: int = 1) -> list[list[Row]]:
    """Rows in batches; none comes more than `late_by` seconds after a later one."""
    rows = draw(st.lists(ROW, min_size=rows_min, max_size=40))
    delays = draw(st.lists(st.integers(0, late_by), min_size=len(rows), max_size=len(rows)))
    arrived = [row for _, row in sorted(zip(delays, rows, strict=True), key=lambda one: one[0] + one[1][2])]
    cuts = sorted(draw(st.lists(st.integers(0, len(arrived)), min_size=2, max_size=4)))
    return [arrived[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(arrived)], strict=True)]


def numbered(batches: Sequence[Sequence[Row]], *, by: tuple[str, ...] | str = "user") -> list[pa.Table]:
    """Batches with offsets, and at the end rows from far later, which close everything that came before."""
    tables, offset = [], 0
    for batch in [*batches, [("end", 0, END_OF_TIME)], [("end", 0, END_OF_TIME)]]:
        tables.append(table(batch, first=offset, by=by))
        offset += len(batch)
    return tables


@costly(2)
@given(
    batches=arrivals(late_by=7),
    size=st.integers(1, 30),
    every=st.integers(1, 40),
    offset=st.integers(-5, 5),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_final_results_come_once_and_are_those_of_sql(
    batches: list[list[Row]], size: int, every: int, offset: int, replay: int, partitions: int
) -> None:
    operator = Hopping(
        size=size,
        every=every,
        offset=offset,
        time=EventTime("at", delay=7, future_max=None),
        by="user",
        compute=COMPUTE,
    )
    found = seen(streamed(operator.contract, numbered(batches), partitions=partitions, replay=replay))
    rows = [row for batch in batches for row in batch]
    assert len(found) == len(set(found))
    assert set(found) == expected(rows, windows_of(size, every, offset))
    whole, _ = bounded(operator.contract, table(rows))
    assert set(seen([whole])) == set(found)


@costly(2)
@given(
    batches=arrivals(late_by=0) | arrivals(late_by=20),
    size=st.integers(1, 30),
    every=st.integers(1, 40),
    emit=st.sampled_from(["changes", "every_change"]),
    replay=st.integers(0, 5),
)
def test_a_changelog_leads_to_the_same_table(
    batches: list[list[Row]], size: int, every: int, emit: Any, replay: int
) -> None:
    operator = Hopping(
        size=size, every=every, time=EventTime("at", delay=20, future_max=None), by="user", compute=COMPUTE, emit=emit
    )
    outputs = streamed(operator.contract, numbered(batches), replay=replay)
    found = {flat(row) for row in table_of(outputs, ["user", "window_start"]).values() if row["user"] != "end"}
    rows = [row for batch in batches for row in batch]
    assert found == expected(rows, windows_of(size, every))
    if emit == "changes":
        for output in outputs:
            afters = [(row["user"], row["window_start"]) for row in output.to_pylist() if row["_op"] in ("+I", "+U")]
            assert len(afters) == len(set(afters)), "one correction per key and batch"


def test_each_says_every_change_in_the_order_of_event_time() -> None:
    operator = Tumbling(
        size=10, time="at", by="user", compute={"n": agg.count(), "last": agg.last("amount")}, emit="every_change"
    )
    rows = with_arguments(table([("a", 1, 5), ("a", 2, 3), ("a", 3, 5)]).select(range(5)), operator.compute or {})
    (output,) = streamed(operator.contract, [rows])
    changes = [(row["_op"], row["n"], row["last"]) for row in output.to_pylist()]
    assert changes == [("+I", 1, 2), ("-U", 1, 2), ("+U", 2, 1), ("-U", 2, 1), ("+U", 3, 3)]


def test_without_a_key_all_rows_are_one_group() -> None:
    operator = Tumbling(size=10, time="at", compute=COMPUTE)
    outputs = streamed(
        operator.contract, [table([("a", 1, 1), ("b", 2, 3)], by=()), *numbered([], by=())], partitions=1
    )
    assert [(row["total"], row["n"]) for one in outputs for row in one.to_pylist()] == [(3, 2)]


def test_a_row_is_late_only_when_all_its_windows_are_closed() -> None:
    operator = Hopping(size=20, every=10, time="at", by="user", compute=COMPUTE, late="side_output")
    sides: dict[str, list[pa.Table]] = {}
    batches = [table([("a", 1, 5), ("a", 2, 25)]), table([("a", 3, 15)], first=2), table([("a", 4, 8)], first=3)]
    outputs = streamed(operator.contract, [*batches, *numbered([])], sides=sides, partitions=1)
    totals = {(flat(row)[1], row["total"]) for one in outputs for row in one.to_pylist() if row["user"] == "a"}
    assert totals == {(-10, 1), (0, 4), (10, 5), (20, 2)}
    (late,) = sides["late"]
    assert late.select(["user", "amount", "late_by_us"]).to_pylist() == [
        {"user": "a", "amount": 4, "late_by_us": 17 * SECOND}
    ]


def test_a_row_changes_none_of_its_windows_that_are_closed() -> None:
    operator = Hopping(
        size=20, every=10, time=EventTime("at", future_max=None), by="user", compute=COMPUTE, emit="changes"
    )
    batches = [table([("a", 1, 5), ("a", 2, 25)]), table([("a", 8, 26)], first=2), table([("a", 3, 15)], first=3)]
    outputs = streamed(operator.contract, batches, partitions=1)
    changes = [(row["_op"], flat(row)[1], row["total"]) for row in outputs[2].to_pylist()]
    assert changes == [("-U", 10, 10), ("+U", 10, 13)]


def test_lateness_keeps_a_window_open() -> None:
    operator = Tumbling(size=10, time="at", by="user", compute=COMPUTE, allowed_lateness=15)
    batches = [table([("a", 1, 5), ("a", 2, 20)]), table([("a", 3, 9)], first=2), *numbered([])]
    totals = [
        (row["total"]) for one in streamed(operator.contract, batches) for row in one.to_pylist() if row["user"] == "a"
    ]
    assert totals == [4, 2]


def test_of_rows_that_are_dropped_a_sample_is_kept_and_all_are_counted() -> None:
    operator = Tumbling(size=10, time="at", by="user", compute=COMPUTE)
    sides: dict[str, list[pa.Table]] = {}
    late = table([("a", number, 5) for number in range(100)], first=1)
    streamed(operator.contract, [table([("a", 1, 50)]), late], sides=sides, partitions=1)
    (sample,) = sides["late"]
    assert sample.num_rows == 20


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2024-03-31T10:00+02:00", 23),
        ("Europe/Berlin", "2024-10-27T10:00+01:00", 25),
        ("Europe/Berlin", "2024-06-01T00:00+02:00", 24),
        ("America/Sao_Paulo", "2018-11-04T10:00-02:00", 23),  # clocks went forward at midnight: the day began at one
        ("Asia/Kathmandu", "2024-01-01T00:00+05:45", 24),
    ],
)
def test_a_day_is_as_long_as_its_clocks_say(zone: str, day: str, hours: int) -> None:
    operator = Tumbling(size="1 day", zone=zone, time="at", by="user", compute={"n": agg.count()})
    at = datetime.fromisoformat(day)
    seconds = round(at.timestamp())
    rows = with_arguments(table([("a", 1, seconds)]).select(range(5)), operator.compute or {})
    (row,) = bounded(operator.contract, rows)[0].to_pylist()
    assert (row["window_end"] - row["window_start"]).total_seconds() / 3600 == hours
    assert row["window_start"] <= at.astimezone(UTC) < row["window_end"]


@given(
    seconds=st.integers(-2_000_000_000, 4_000_000_000),
    size=st.sampled_from(["1 day", "3 days", "week", "2 weeks", "month", "5 months", "quarter", "year"]),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Monrovia"]),
)
def test_calendar_windows_follow_one_another_without_gaps(seconds: int, size: str, zone: str) -> None:
    spans = Tumbling(size=size, zone=zone, time="at", compute={"n": agg.count()}).spans()
    at = np.array([seconds * SECOND + 7])
    start = spans.slices(at)
    end = spans.ends(start)
    assert start[0] <= at[0] < end[0]
    assert spans.slices(start)[0] == start[0]
    assert spans.slices(end)[0] == end[0]
    assert spans.slices(end - 1)[0] == start[0]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Tumbling(size="0 seconds", time="at"), "size"),
        (lambda: Tumbling(size=-5, time="at"), "size"),
        (lambda: Tumbling(size="11 years", time="at", zone="UTC"), "ten years at most"),
        (lambda: Tumbling(size="5000 days", time="at"), "up to ten years"),
        (lambda: Tumbling(size="ten minutes", time="at"), "size"),
        (lambda: Tumbling(size="5 minutes", time="at", zone="UTC"), "days, weeks, months"),
        (lambda: Tumbling(size="1 day", time="at", zone="Berlin"), "a time zone such as"),
        (lambda: Tumbling(size="1 month", time="at", offset=5), "none beside a calendar"),
        (lambda: Tumbling(size=10, time="at", emit="sometimes"), "emit"),  # type: ignore[arg-type]
        (lambda: Hopping(size=10, every=0, time="at"), "period"),
        (lambda: Hopping(size="1 day", every="1 ms", time="at"), "at most 10,000 windows"),
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(make: Any, why: str) -> None:
    with pytest.raises(ArgumentInvalid, match=why):
        make()
