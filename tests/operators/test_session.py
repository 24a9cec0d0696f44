"""Sessions: any order within what is allowed, any split and any replay give what the definition gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.errors import ArgumentInvalid
from headwater.operators import Session
from tests.laws import costly
from tests.operators.batches import bounded, streamed, table_of
from tests.operators.test_windows import COMPUTE, Row, arrivals, flat, numbered, seen, table


def sessions(rows: Sequence[Row], gap: int, *, inclusive: bool = True) -> set[tuple[Any, ...]]:
    """By the definition: a row belongs to the session of the row before it if it comes soon enough after it."""
    made: dict[str, list[list[Row]]] = {}
    for row in sorted(rows, key=lambda one: one[2]):  # stable: rows at one time stay in the order of their offsets
        mine = made.setdefault(row[0], [])
        apart = row[2] - mine[-1][-1][2] if mine else gap + 1
        if apart < gap or (inclusive and apart == gap):
            mine[-1].append(row)
        else:
            mine.append([row])
    return {
        (user, one[0][2], one[-1][2] + gap, sum(amounts), len(one), amounts[0], tuple(amounts))
        for user, mine in made.items()
        for one in mine
        for amounts in [[amount for _, amount, _ in one]]
    }


@costly(2)
@given(
    batches=arrivals(late_by=7),
    gap=st.integers(1, 15),
    inclusive=st.booleans(),
    allowed_lateness=st.integers(0, 9),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_final_sessions_come_once_and_are_those_of_the_definition(
    batches: list[list[Row]], gap: int, inclusive: bool, allowed_lateness: int, replay: int, partitions: int
) -> None:
    operator = Session(
        gap=gap,
        inclusive=inclusive,
        time=EventTime("at", delay=7, future_max=None),
        by="user",
        compute=COMPUTE,
        allowed_lateness=allowed_lateness,
    )
    found = seen(streamed(operator.contract, numbered(batches), partitions=partitions, replay=replay))
    rows = [row for batch in batches for row in batch]
    assert len(found) == len(set(found))
    assert set(found) == sessions(rows, gap, inclusive=inclusive)
    whole, _ = bounded(operator.contract, table(rows))
    assert set(seen([whole])) == set(found)


@costly(6)
@given(
    batches=arrivals(late_by=20),
    gap=st.integers(1, 15),
    inclusive=st.booleans(),
    emit=st.sampled_from(["changes", "every_change"]),
    replay=st.integers(0, 5),
)
def test_live_sessions_merge_and_retract_the_old_ones(
    batches: list[list[Row]], gap: int, inclusive: bool, emit: Any, replay: int
) -> None:
    operator = Session(
        gap=gap,
        inclusive=inclusive,
        time=EventTime("at", delay=20, future_max=None),
        by="user",
        compute=COMPUTE,
        emit=emit,
    )
    outputs = streamed(operator.contract, numbered(batches), replay=replay)
    for count in range(1, len(batches) + 1):  # what stands after each batch is what that much input makes
        current = table_of(outputs[:count], ["user", "window_start"]).values()
        rows = [row for batch in batches[:count] for row in batch]
        assert {flat(row) for row in current} == sessions(rows, gap, inclusive=inclusive)
    if emit == "changes":
        for output in outputs:
            afters = [(row["user"], row["window_start"]) for row in output.to_pylist() if row["_op"] in ("+I", "+U")]
            assert len(afters) == len(set(afters)), "one correction per session and batch"


def live(batches: Sequence[Sequence[Row]], **settings: Any) -> list[list[tuple[Any, ...]]]:
    """The changes of each batch: what, from when, until when, how many rows."""
    operator = Session(gap=10, time=EventTime("at", delay=50, future_max=None), by="user", compute=COMPUTE, **settings)
    tables = [table(batch, first=100 * number) for number, batch in enumerate(batches)]
    return [
        [(row["_op"], flat(row)[1], flat(row)[2], row["n"]) for row in one.to_pylist()]
        for one in streamed(operator.contract, tables)
    ]


def test_a_row_between_two_sessions_makes_one_of_them() -> None:
    assert live([[("a", 1, 0), ("a", 1, 16)], [("a", 1, 8)]], emit="changes") == [
        [("+I", 0, 10, 1), ("+I", 16, 26, 1)],
        [("-D", 16, 26, 1), ("-U", 0, 10, 1), ("+U", 0, 26, 3)],
    ]


def test_a_row_before_a_session_moves_its_start() -> None:
    assert live([[("a", 1, 20)], [("a", 1, 15)]], emit="changes")[1] == [("-D", 20, 30, 1), ("+I", 15, 30, 2)]


def test_each_says_every_change_of_a_batch() -> None:
    assert live([[("a", 1, 16), ("a", 1, 0), ("a", 1, 8)]], emit="every_change") == [
        [("+I", 0, 10, 1), ("-U", 0, 10, 1), ("+U", 0, 18, 2), ("-U", 0, 18, 2), ("+U", 0, 26, 3)]
    ]


@pytest.mark.parametrize(("inclusive", "counts"), [(False, [1, 1]), (True, [2])])
def test_a_gap_exactly_as_long_as_allowed(inclusive: bool, counts: list[int]) -> None:
    operator = Session(gap=10, inclusive=inclusive, time="at", by="user", compute=COMPUTE)
    found, _ = bounded(operator.contract, table([("a", 1, 0), ("a", 1, 10)]))
    assert [row["n"] for row in found.to_pylist()] == counts


def run_with_late(
    *batches: Sequence[Row], scope: Any = "partition", **settings: Any
) -> tuple[list[tuple[Any, ...]], list[int]]:
    """Sessions of user a as (start, end, total), and the amounts of rows that came late."""
    operator = Session(
        gap=10,
        time=EventTime("at", future_max=None, scope=scope),
        by="user",
        compute=COMPUTE,
        late="side_output",
        **settings,
    )
    sides: dict[str, list[pa.Table]] = {}
    tables = [table(batch, first=100 * number) for number, batch in enumerate([*batches, [("z", 0, 999)], []])]
    outputs = streamed(operator.contract, tables, sides=sides, partitions=1)
    found = [flat(row)[1:4] for one in outputs for row in one.to_pylist() if row["user"] == "a"]
    return found, [row["amount"] for one in sides.get("late", []) for row in one.to_pylist()]


def test_a_row_that_an_open_session_takes_is_not_late() -> None:
    # The watermark is 30: the row at 12 alone would be closed after 22, but the session from 20 to 39 takes it.
    found, late = run_with_late([("a", 1, 20), ("a", 2, 29), ("b", 0, 30)], [("a", 4, 12)])
    assert (found, late) == ([(12, 39, 7)], [])


def test_a_row_that_no_open_session_takes_is_late_once_its_own_would_be_closed() -> None:
    found, late = run_with_late([("a", 1, 0), ("b", 0, 30)], [("a", 4, 5), ("a", 8, 20), ("a", 16, 21)])
    # The session from 0 ended at 10: what comes for it is late. That of a row at 20 ends with 30, and is open still.
    assert (found, late) == ([(0, 10, 1), (20, 31, 24)], [4])


def test_lateness_keeps_a_session_open() -> None:
    found, late = run_with_late([("a", 1, 0), ("b", 0, 12)], [("a", 4, 5)], allowed_lateness=3)
    assert (found, late) == ([(0, 15, 5)], [])


@costly(3)
@given(
    batches=arrivals(late_by=40),
    allowed_lateness=st.integers(0, 9),
    emit=st.sampled_from(["final", "changes", "every_change"]),
)
def test_every_row_is_in_a_session_or_put_aside(batches: list[list[Row]], allowed_lateness: int, emit: Any) -> None:
    operator = Session(
        gap=5,
        time=EventTime("at", future_max=None),
        by="user",
        compute=COMPUTE,
        late="side_output",
        allowed_lateness=allowed_lateness,
        emit=emit,
    )
    sides: dict[str, list[pa.Table]] = {}
    outputs = streamed(operator.contract, numbered(batches), sides=sides, partitions=1)
    counts = [
        row["n"] * (-1 if row.get("_op") in ("-U", "-D") else 1)
        for one in outputs
        for row in one.to_pylist()
        if row["user"] != "end"
    ]
    late = sum(one.num_rows for one in sides.get("late", []))
    assert sum(counts) + late == sum(len(batch) for batch in batches)


def test_with_a_watermark_per_key_nobody_is_late_because_of_others() -> None:
    batches = [[("a", 1, 5), ("b", 0, 500)], [("a", 2, 12), ("b", 0, 501)], [("a", 4, 60)], [("a", 8, 61)]]
    found, late = run_with_late(*batches, scope="key")
    assert (found, late) == ([(5, 22, 3)], [])
    assert run_with_late(*batches)[1] != []


@pytest.mark.parametrize("gap", [0, -1, "soon", "0 seconds", "20 years"])
def test_nonsense_is_refused_when_it_is_written_down(gap: Any) -> None:
    with pytest.raises(ArgumentInvalid, match="gap"):
        Session(gap=gap, time="at")


def test_settings_that_are_none_are_refused() -> None:
    with pytest.raises(ArgumentInvalid, match="emit"):
        Session(gap=1, time="at", emit="sometimes")  # type: ignore[arg-type]
    with pytest.raises(ArgumentInvalid, match="late"):
        Session(gap=1, time="at", late="never")  # type: ignore[arg-type]


def test_times_before_1970_are_like_any_other() -> None:
    operator = Session(gap=10, time="at", by="user", compute=COMPUTE)
    found, _ = bounded(operator.contract, table([("a", 1, -25), ("a", 2, -20), ("a", 4, -3)]))
    assert [flat(row)[1:4] for row in found.to_pylist()] == [(-25, -10, 3), (-3, 7, 4)]
