"""Streams that meet tables: what held at a row's time is what SQL's as-of join finds, for any order, split and replay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine.contract import Contract
from headwater.engine.event_time import BatchTime
from headwater.engine.join_inputs import Columns
from headwater.errors import ArgumentInvalid
from headwater.operators import Enrich
from tests.laws import costly
from tests.operators.batches import bounded, duck, streamed

SECOND = 1_000_000
DAY = 86_400
END_OF_TIME = 30 * DAY
COLUMNS = Columns(
    key=("land",), left=("sold", "n"), right=("since", "rate"), shown=("land", "sold", "n", "since", "rate")
)
#: Which input (0 sales, 1 rates), whose row, the second from which it holds or in which it happened, and what it says of
#: the table: "+U", "-D" or nothing. Rows are told apart by their number, which is also the rate.
Row = tuple[int, str | None, int, str | None]
Numbered = tuple[int, str | None, int, str | None, int]


def table(rows: Sequence[Numbered]) -> pa.Table:
    """Rows of both topics, as the engine gets them."""
    stream = [row[0] == 0 for row in rows]
    times = [row[2] * SECOND for row in rows]
    stamp = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "land": pa.array([row[1] for row in rows], pa.string()),
            "sold": pa.array([at if own else None for at, own in zip(times, stream, strict=True)], stamp),
            "n": pa.array([row[4] if row[0] == 0 else None for row in rows], pa.int64()),
            "since": pa.array([None if own else at for at, own in zip(times, stream, strict=True)], stamp),
            "rate": pa.array([row[4] if row[0] == 1 else None for row in rows], pa.int64()),
            "_op": pa.array([row[3] for row in rows], pa.string()),
            "_at": pa.array(times, stamp),
            "_input": pa.array([row[0] for row in rows], pa.int32()),
            "_partition": pa.array([0] * len(rows), pa.int32()),
            "_offset": pa.array([row[4] for row in rows], pa.int64()),
        }
    )


def as_of(rows: Sequence[Numbered], *, how: str, meets: str = "true") -> list[tuple[Any, ...]]:
    """Each sale with the rate that held and meets a condition, by DuckDB; of two from one time the one that was written later."""
    facts = table(rows)
    with duck() as connection:
        connection.register("facts", facts)
        found = connection.sql(
            f"""
            WITH sales AS (SELECT land, epoch_us(sold) AS t, n FROM facts WHERE _input = 0),
            rates AS (SELECT land, epoch_us(since) AS t, arg_max(rate, _offset) AS rate,
                             arg_max(coalesce(_op, ''), _offset) = '-D' AS gone
                      FROM facts WHERE _input = 1 GROUP BY ALL)
            SELECT s.land, s.n, CASE WHEN gone OR NOT ({meets}) THEN NULL ELSE rate END AS found
            FROM sales s ASOF LEFT JOIN rates r ON s.land = r.land AND s.t >= r.t
            WHERE {"found IS NOT NULL" if how == "inner" else "true"}
            """
        ).fetchall()
    return ordered(found)


def ordered(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def seen(tables: Sequence[pa.Table]) -> list[tuple[Any, ...]]:
    rows = [row for one in tables for row in one.to_pylist() if row["land"] != "end"]
    return ordered([(row["land"], row["n"], row["rate"]) for row in rows])


def make(operator: Enrich) -> Callable[[pa.Schema], Contract]:
    return partial(operator.contract, columns=COLUMNS)


def enrich(*, delay: float = 0, idle_timeout: float | None = None, **settings: Any) -> Enrich:
    as_of = EventTime("sold", delay=delay, idle_timeout=idle_timeout, future_max=None)
    return Enrich(None, **{"on": "land", "as_of": as_of, "valid_from": "since", **settings})


def numbered(batches: Sequence[Sequence[Row]], *, close: bool = True) -> list[list[Numbered]]:
    ends: list[Row] = [(0, "end", END_OF_TIME, None), (1, "end", END_OF_TIME, None)]
    found, number = [], 0
    for batch in [*batches, *([ends, ends] if close else [])]:
        found.append([(*row, number + place) for place, row in enumerate(batch)])
        number += len(batch)
    return found


def flat(batches: Sequence[Sequence[Numbered]]) -> list[Numbered]:
    return [row for batch in batches for row in batch if row[1] != "end"]


SALE = st.tuples(st.just(0), st.sampled_from("ab"), st.integers(-10, 40), st.none())
RATE = st.tuples(st.just(1), st.sampled_from("ab"), st.integers(-10, 40), st.sampled_from([None, "+U", "-D"]))


@st.composite
def arrivals(draw: st.DrawFn, *, sale_delay: int, rate_delay: int, rows_min: int = 20) -> list[list[Row]]:
    """Sales and rates in batches; each comes at most so many seconds after its time."""
    rows: list[Row] = draw(st.lists(SALE | RATE, min_size=rows_min, max_size=40))
    longest = [sale_delay if row[0] == 0 else rate_delay for row in rows]
    delays = [draw(st.integers(0, one)) for one in longest]
    # Of what arrives at one moment the rates come first, and in the order of their times.
    arrived = sorted(zip(delays, rows, strict=True), key=lambda one: (one[0] + one[1][2], -one[1][0]))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), min_size=2, max_size=4)))
    ordered_rows = [row for _, row in arrived]
    return [ordered_rows[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True)]


@costly(4)
@given(
    batches=arrivals(sale_delay=9, rate_delay=0),
    how=st.sampled_from(["left", "inner"]),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_each_row_gets_what_held_at_its_time(batches: list[list[Row]], how: Any, replay: int, partitions: int) -> None:
    operator = enrich(how=how, delay=9)
    rows = numbered(batches)
    outputs = streamed(make(operator), [table(batch) for batch in rows], partitions=partitions, replay=replay)
    assert seen(outputs) == as_of(flat(rows), how=how)
    assert seen([bounded(make(operator), table(flat(rows)))[0]]) == seen(outputs)
    for batch, output in zip(rows, outputs, strict=True):
        if how == "left":  # nothing waits
            assert {row[1] for row in seen([output])} == {row[4] for row in flat([batch]) if row[0] == 0}


@costly(6)
@given(
    batches=arrivals(sale_delay=9, rate_delay=9),
    how=st.sampled_from(["left", "inner"]),
    allowed_lateness=st.integers(1, 20),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_with_grace_a_table_that_arrives_late_still_counts(
    batches: list[list[Row]], how: Any, allowed_lateness: int, replay: int, partitions: int
) -> None:
    operator = enrich(how=how, delay=9, allowed_lateness=allowed_lateness)
    rows = numbered(batches)
    outputs = streamed(make(operator), [table(batch) for batch in rows], partitions=partitions, replay=replay)
    assert seen(outputs) == as_of(flat(rows), how=how)
    assert seen([bounded(make(operator), table(flat(rows)))[0]]) == seen(outputs)


@costly(6)
@given(
    batches=arrivals(sale_delay=9, rate_delay=3),
    how=st.sampled_from(["left", "inner"]),
    allowed_lateness=st.integers(3, 5),
    history=st.integers(9, 30),
    replay=st.integers(0, 5),
)
def test_a_late_row_finds_its_version_as_far_back_as_history_goes(
    batches: list[list[Row]], how: Any, allowed_lateness: int, history: int, replay: int
) -> None:
    operator = enrich(how=how, allowed_lateness=allowed_lateness, history=history)
    rows = numbered(batches)
    outputs = streamed(make(operator), [table(batch) for batch in rows], replay=replay)
    assert seen(outputs) == as_of(flat(rows), how=how)


def test_history_keeps_versions_and_makes_no_row_wait() -> None:
    rates: list[Numbered] = [(1, "a", 0, None, 0), (1, "a", 100, None, 1)]
    batches: list[list[Numbered]] = [
        [*rates, (0, "a", 500, None, 2)],
        [(0, "a", 99, None, 3)],
        [(0, "a", 800, None, 4)],
        [(0, "a", 99, None, 5)],
    ]
    sides: dict[str, list[pa.Table]] = {}
    outputs = streamed(make(enrich(history=600)), [table(one) for one in batches], partitions=1, sides=sides)
    assert [seen([one]) for one in outputs] == [[("a", 2, 1)], [("a", 3, 0)], [("a", 4, 1)], []]
    assert [row["n"] for one in sides["late"] for row in one.to_pylist()] == [5]


@given(
    batches=st.lists(st.lists(SALE | RATE, max_size=15), min_size=1, max_size=5),
    how=st.sampled_from(["left", "inner"]),
    replay=st.integers(0, 4),
    partitions=st.integers(1, 3),
)
def test_without_a_time_it_is_what_the_table_holds_by_the_batch(
    batches: list[list[Row]], how: Any, replay: int, partitions: int
) -> None:
    operator = enrich(as_of=None, valid_from=None, how=how)
    rows = numbered(batches, close=False)
    outputs = streamed(make(operator), [table(batch) for batch in rows], partitions=partitions, replay=replay)
    held: dict[str | None, int] = {}
    for batch, output in zip(rows, outputs, strict=True):
        for _, land, _, op, number in (row for row in batch if row[0] == 1):
            held[land] = number
            if op == "-D":
                del held[land]
        sales = [(land, number, held.get(land)) for kind, land, _, _, number in batch if kind == 0]
        assert seen([output]) == ordered([sale for sale in sales if how == "left" or sale[2] is not None])


def test_rows_wait_until_the_table_has_passed_their_time_or_the_grace_is_over() -> None:
    operator = enrich(allowed_lateness=100)
    sale: Numbered = (0, "a", 50, None, 0)
    by_table: list[list[Numbered]] = [[sale], [(1, "b", 50, "+U", 1)], [], [(1, "b", 51, "+U", 2)], []]
    found = streamed(make(operator), [table(batch) for batch in by_table])
    assert [output.num_rows for output in found] == [0, 0, 0, 0, 1]
    by_grace: list[list[Numbered]] = [[sale], [(0, "b", 149, None, 1)], [], [(0, "b", 150, None, 2)], []]
    found = streamed(make(operator), [table(batch) for batch in by_grace])
    assert [[row["n"] for row in output.to_pylist()] for output in found] == [[], [], [], [], [0]]


def test_a_table_that_is_silent_for_long_is_not_waited_for() -> None:
    batches = [[(0, "a", 50, None, 0)], [(0, "a", 60, None, 1)], [(0, "a", 70, None, 2)], []]
    outputs = streamed(
        make(enrich(allowed_lateness=1000, idle_timeout=30)),
        [table(batch) for batch in batches],
        processing_us=[second * SECOND for second in (0, 10, 40, 40)],
    )
    assert [[row["n"] for row in output.to_pylist()] for output in outputs] == [[], [], [0], [1]]


def test_a_row_is_late_only_when_its_version_is_forgotten() -> None:
    rates = [(1, "a", 0, None, 0), (1, "a", 100, None, 1), (1, "b", 0, None, 2)]
    batches = [
        [*rates, (0, "a", 500, None, 3)],
        [(0, "a", 100, None, 4), (0, "a", 99, None, 5), (0, "b", 1, None, 6), (0, "c", 1, None, 7)],
        [(0, "a", 3 * DAY, None, 8)],
        [(0, "c", 1, None, 9)],
    ]
    sides: dict[str, list[pa.Table]] = {}
    outputs = streamed(make(enrich()), [table(batch) for batch in batches], partitions=1, sides=sides)
    assert seen(outputs[:2]) == [("a", 3, 1), ("a", 4, 1), ("b", 6, 2), ("c", 7, None)]
    late = [(row["n"], row["late_by_us"] // SECOND) for one in sides["late"] for row in one.to_pylist()]
    assert late == [(5, 401), (9, 3 * DAY - 1)]


def test_versions_that_nobody_can_ask_for_are_forgotten() -> None:
    contract = make(enrich(delay=10, allowed_lateness=5))(table([(0, "a", 0, None, 0)]).schema)
    state = pa.schema([*contract.state, pa.field("_key", pa.int64())]).empty_table()
    for second in range(200):
        rows = table([(1, "a", second, None, second), (0, "a", second, None, second)])
        rows = rows.append_column("_key", pa.array([0, 0])).append_column("_none", pa.nulls(2))
        passed = (second - 11) * SECOND
        time = BatchTime(watermark_us=passed, batch=second, of_inputs_us={"0": passed, "1": passed})
        stepped = contract.step(with_land(state), rows, time)
        assert not isinstance(stepped, tuple)
        state = stepped.state
        assert state.num_rows <= 2 * (11 + 5 + 2)
    idle = contract.step(with_land(state), rows.slice(0, 0), at_end(END_OF_TIME * SECOND))
    assert not isinstance(idle, tuple)
    assert idle.state.num_rows == 1, "the version that holds now stays"


def with_land(state: pa.Table) -> pa.Table:
    return state.append_column("land", pa.array(["a"] * state.num_rows, pa.string()))


def at_end(end_us: int) -> BatchTime:
    return BatchTime(watermark_us=end_us, batch=999, of_inputs_us={"0": end_us, "1": end_us})


def test_a_deleted_key_is_forgotten_in_the_end() -> None:
    contract = make(enrich())(table([(0, "a", 0, None, 0)]).schema)
    state = pa.schema([*contract.state, pa.field("_key", pa.int64())]).empty_table()
    rows = table([(1, "a", 5, None, 0), (1, "a", 9, "-D", 1)]).append_column("_key", pa.array([0, 0]))
    first = contract.step(state, rows, BatchTime(batch=0))
    assert not isinstance(first, tuple)
    assert first.state.num_rows == 2
    deleted = contract.step(first.state, rows.slice(0, 0), at_end(50 * SECOND))
    assert not isinstance(deleted, tuple)
    assert deleted.state.column("_gone").to_pylist() == [True]
    gone = contract.step(deleted.state, rows.slice(0, 0), at_end((9 + DAY) * SECOND))
    assert not isinstance(gone, tuple)
    assert gone.state.num_rows == 0


def test_rows_that_change_nothing_in_the_table_write_no_state() -> None:
    contract = make(enrich())(table([(0, "a", 0, None, 0)]).schema)
    state = pa.schema([*contract.state, pa.field("_key", pa.int64())]).empty_table()
    rows = table([(1, "a", 5, None, 0), (0, "a", 9, None, 1)]).append_column("_key", pa.array([0, 0]))
    first = contract.step(state, rows, BatchTime(batch=0))
    assert not isinstance(first, tuple)
    second = contract.step(first.state, rows.slice(1), BatchTime(batch=1))
    assert not isinstance(second, tuple)
    assert second.changed is not None
    assert len(second.changed) == 0
    assert second.output is not None
    assert second.output.column("rate").to_pylist() == [0]


@pytest.mark.parametrize(
    ("make_it", "why"),
    [
        (lambda: enrich(how="outer"), '"left" or "inner"'),
        (lambda: enrich(allowed_lateness=-1), "allowed_lateness"),
        (lambda: enrich(allowed_lateness="5000 days"), "ten years at most"),
        (lambda: enrich(as_of=None), "none without `as_of`"),
        (lambda: enrich(as_of=None, valid_from=None, allowed_lateness=5), "none without `as_of`"),
        (lambda: enrich(as_of=None, valid_from=None, history=5), "none without `as_of`"),
        (lambda: enrich(allowed_lateness=5, history=4), "at least `allowed_lateness`"),
        (lambda: enrich(on=()), "pairs such as"),
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(make_it: Any, why: str) -> None:
    with pytest.raises(ArgumentInvalid, match=why):
        make_it()
