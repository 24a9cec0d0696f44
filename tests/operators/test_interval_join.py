"""Joins within bounds: any order within what is allowed, any split and any replay give the rows that SQL gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine.contract import Contract
from headwater.engine.join_inputs import Columns
from headwater.errors import ArgumentInvalid, NotPossible
from headwater.operators import IntervalJoin
from headwater.operators.interval_join import IntervalJoinStep
from tests.laws import costly
from tests.operators.batches import bounded, duck, streamed

SECOND = 1_000_000
END_OF_TIME = 100_000
COLUMNS = Columns(
    key=("user",),
    left=("shown", "n"),
    right=("clicked", "m"),
    shown=("user", "shown", "n", "clicked", "m"),
)
ALONE = Columns(key=("user",), left=("shown", "n"), right=(), shown=("user", "shown", "n"))
#: Which input, whose row, and the second in which it happened. Rows of one input are told apart by their number.
Row = tuple[int, str | None, int]
Numbered = tuple[int, str | None, int, int]
HOWS = {"inner": "", "left": "l", "right": "r", "outer": "lr", "anti": "l"}


def table(rows: Sequence[Numbered]) -> pa.Table:
    """Rows of two topics, as the engine gets them."""
    times = pa.array([at * SECOND for _, _, at, _ in rows], pa.timestamp("us", "UTC"))
    shown = pa.array([side == 0 for side, _, _, _ in rows], pa.bool_())
    number = pa.array([number for _, _, _, number in rows], pa.int64())
    none = pa.array([None] * len(rows), pa.int64())
    no_time = none.cast(times.type)
    return pa.table(
        {
            "user": pa.array([user for _, user, _, _ in rows], pa.string()),
            "shown": pa.chunked_array([pa.compute.if_else(shown, times, no_time)]),
            "n": pa.chunked_array([pa.compute.if_else(shown, number, none)]),
            "clicked": pa.chunked_array([pa.compute.if_else(shown, no_time, times)]),
            "m": pa.chunked_array([pa.compute.if_else(shown, none, number)]),
            "_at": times,
            "_spread": pa.array([0 if user else 1 - 2 * side for side, user, _, _ in rows], pa.int64()),
            "_input": pa.array([side for side, _, _, _ in rows], pa.int32()),
            "_partition": pa.array([0] * len(rows), pa.int32()),
            "_offset": number,
        }
    )


def joinable(rows: Sequence[Numbered], how: str) -> list[Numbered]:
    """Rows without a key are left out, unless their input's rows leave alone when they meet none."""
    return [row for row in rows if row[1] or "lr"[row[0]] in HOWS[how]]


def expected(rows: Sequence[Numbered], *, before: int, after: int | str, how: str) -> list[tuple[Any, ...]]:
    """The join by DuckDB: user, number of the left row, number of the right row."""
    shape = {"names": ["user", "t", "n"]}
    sides = [[(user, at, number) for side, user, at, number in rows if side == one] for one in (0, 1)]
    kinds = [pa.string(), pa.int64(), pa.int64()]
    left, right = (
        pa.table([pa.array([row[place] for row in one], kinds[place]) for place in range(3)], **shape) for one in sides
    )
    join = {"anti": "LEFT", "outer": "FULL"}.get(how, how.upper())
    where = "WHERE r.n IS NULL" if how == "anti" else ""
    with duck() as connection:
        connection.register("l", left)
        connection.register("r", right)
        found = connection.sql(
            f"""SELECT coalesce(l.user, r.user), l.n, r.n FROM l {join} JOIN r
                ON l.user = r.user AND r.t >= l.t - {before} AND r.t <= l.t + {after} {where}"""
        ).fetchall()
    return ordered(found)


def ordered(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def seen(tables: Sequence[pa.Table]) -> list[tuple[Any, ...]]:
    rows = [row for one in tables for row in one.to_pylist() if row["user"] != "end"]
    return ordered([(row["user"], row["n"], row.get("m")) for row in rows])


def make(operator: IntervalJoin) -> Callable[[pa.Schema], Contract]:
    columns = ALONE if operator.how == "anti" else COLUMNS
    return partial(operator.contract, columns=replace(columns, null_keys=bool(HOWS[operator.how])))


def join(*, delay: float = 0, idle_timeout: float | None = None, **settings: Any) -> IntervalJoin:
    shown, clicked = (
        EventTime(column, delay=delay, idle_timeout=idle_timeout, future_max=None) for column in ("shown", "clicked")
    )
    return IntervalJoin(None, **{"on": "user", "time": shown, "other_time": clicked, **settings})


def numbered(batches: Sequence[Sequence[Row]], *, close: bool = True) -> list[list[Numbered]]:
    """Batches with a number for each row, and at the end rows of both inputs from far later, which close everything."""
    ends: list[Row] = [(0, "end", END_OF_TIME), (1, "end", END_OF_TIME + 50_000)]
    found, number = [], 0
    for batch in [*batches, *([ends, ends] if close else [])]:
        found.append([(*row, number + place) for place, row in enumerate(batch)])
        number += len(batch)
    return found


@st.composite
def arrivals(draw: st.DrawFn, *, late_by: int, rows_min: int = 20) -> list[list[Row]]:
    """Rows of both inputs in batches; none comes more than `late_by` seconds after a later one of its input."""
    row = st.tuples(st.integers(0, 1), st.sampled_from(["a", "b", "b", None]), st.integers(-10, 40))
    rows = draw(st.lists(row, min_size=rows_min, max_size=40))
    delays = draw(st.lists(st.integers(0, late_by), min_size=len(rows), max_size=len(rows)))
    arrived = [one for _, one in sorted(zip(delays, rows, strict=True), key=lambda pair: pair[0] + pair[1][2])]
    cuts = sorted(draw(st.lists(st.integers(0, len(arrived)), min_size=2, max_size=4)))
    return [arrived[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(arrived)], strict=True)]


@costly(6)
@given(
    batches=arrivals(late_by=9),
    before=st.integers(0, 20),
    after=st.integers(0, 20),
    how=st.sampled_from([*HOWS]),
    allowed=st.integers(0, 9),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_a_join_is_that_of_sql_and_nothing_comes_twice(
    batches: list[list[Row]], before: int, after: int, how: Any, allowed: int, replay: int, partitions: int
) -> None:
    # What rows may be out of order is told as the watermark's delay, as allowed lateness, or in part as each.
    operator = join(before=before, after=after, how=how, delay=allowed, allowed_lateness=9 - allowed)
    rows = numbered(batches)
    given = [table(joinable(batch, how)) for batch in rows]
    outputs = streamed(make(operator), given, partitions=partitions, replay=replay)
    everything = [row for batch in rows[:-2] for row in batch]
    assert seen(outputs) == expected(everything, before=before, after=after, how=how)
    assert seen([bounded(make(operator), table(joinable(everything, how)))[0]]) == seen(outputs)


@costly(4)
@given(batches=arrivals(late_by=9), before=st.integers(0, 20), how=st.sampled_from([*HOWS]), replay=st.integers(0, 5))
def test_each_row_may_say_itself_how_long_it_waits(
    batches: list[list[Row]], before: int, how: Any, replay: int
) -> None:
    """The bound of a row follows from its number here; some windows are empty, and some rows do not say it."""
    operator = join(before=before, after=0, how=how, delay=9)

    def own_bounds(rows: Sequence[Numbered]) -> pa.Table:
        bounds = [None if side or n % 7 == 0 else (n * 5 % 30 - 5) * SECOND for side, _, _, n in rows]
        return table(rows).append_column("_after_us", pa.array(bounds, pa.int64()))

    def make_it(rows: pa.Schema) -> Contract:
        contract = make(operator)(rows)
        assert isinstance(contract.step, IntervalJoinStep)
        return replace(contract, step=replace(contract.step, after_us=None))

    rows = numbered(batches)
    given = [own_bounds(joinable(batch, how)) for batch in rows]
    outputs = streamed(make_it, given, replay=replay)
    everything = [row for batch in rows[:-2] for row in batch]
    own = "CASE WHEN l.n % 7 <> 0 THEN l.n * 5 % 30 - 5 END"
    assert seen(outputs) == expected(everything, before=before, after=own, how=how)
    assert seen([bounded(make_it, own_bounds(joinable(everything, how)))[0]]) == seen(outputs)


def test_lonely_rows_need_not_wait_for_a_silent_input() -> None:
    batches = [table([(0, "a", 100 + 100 * place, place)]) for place in range(4)]
    assert seen(streamed(make(join(within=10, how="left")), batches)) == []
    outputs = streamed(make(join(within=10, how="left", follow="fastest")), batches)
    assert seen(outputs)[:2] == [("a", 0, None), ("a", 1, None)]


@costly(3)
@given(batches=arrivals(late_by=0), how=st.sampled_from([*HOWS]))
def test_pairs_leave_at_once_and_lonely_rows_when_their_window_has_closed(batches: list[list[Row]], how: Any) -> None:
    operator = join(within=10, how=how, delay=100)
    rows = numbered(batches, close=False)
    outputs = streamed(make(operator), [table(joinable(batch, how)) for batch in rows])
    everything: list[Numbered] = []
    met: set[tuple[Any, ...]] = set()
    for batch, output in zip(rows, outputs, strict=True):
        everything += batch
        so_far = set(expected(everything, before=10, after=10, how="inner")) if how != "anti" else set()
        assert set(seen([output])) == so_far - met  # the watermark is behind everything: no row is alone yet
        met = so_far


def test_both_ends_of_the_window_belong_to_it() -> None:
    rows = [(0, "a", 100, 0), *((1, "a", at, 1 + place) for place, at in enumerate((89, 90, 105, 106)))]
    outputs = streamed(make(join(before=10, after=5)), [table(rows)])
    assert seen(outputs) == [("a", 0, 2), ("a", 0, 3)]


def test_a_row_waits_as_long_as_a_row_at_the_end_of_its_window_is_not_late() -> None:
    """The watermark stands at the end of the window, the key has a step there, and its partner comes after that."""
    batches = [
        table([(0, "a", 0, 0), (0, "b", 10, 1), (1, "b", 10, 2)]),
        table([(0, "a", 10, 3)]),
        table([(1, "a", 10, 4)]),
    ]
    outputs = streamed(make(join(before=0, after=10, how="left")), batches)
    assert seen(outputs) == [("a", 0, 4), ("a", 3, 4), ("b", 1, 2)]


def test_an_input_that_was_never_heard_of_holds_time_until_it_is_idle() -> None:
    operator = join(within=10, how="left", idle_timeout=60)
    shown = [table([(0, "a", 100 + 100 * place, place)]) for place in range(4)]
    waiting = streamed(make(operator), shown, processing_us=[second * SECOND for second in (0, 10, 20, 30)])
    assert seen(waiting) == []
    idle = streamed(make(operator), shown, processing_us=[second * SECOND for second in (0, 40, 80, 120)])
    assert seen(idle) == [("a", 0, None), ("a", 1, None)]


def test_late_rows_are_put_aside_and_grace_takes_them_in() -> None:
    batches = [
        table([(0, "a", 100, 0), (1, "a", 100, 1)]),
        table([(0, "a", 95, 2)]),
        table([(1, "a", 89, 3)]),
    ]
    sides: dict[str, list[pa.Table]] = {}
    outputs = streamed(make(join(within=10, allowed_lateness=10)), batches, sides=sides, partitions=1)
    assert seen(outputs) == [("a", 0, 1), ("a", 2, 1)]
    (late,) = sides["late"]
    (row,) = late.to_pylist()
    assert (row["user"], row["m"], row["late_by_us"]) == ("a", 3, 11 * SECOND)
    assert not {"_key", "_at"} & set(row)


def test_state_holds_no_more_than_the_bound() -> None:
    from headwater.engine.event_time import BatchTime

    contract = make(join(within=10, allowed_lateness=5, how="outer"))(table([(0, "a", 0, 0)]).schema)
    state = pa.schema([*contract.state, pa.field("_key", pa.int64())]).empty_table()
    for second in range(300):
        rows = table([(second % 2, "a", second, second)]).append_column("_key", pa.array([0]))
        stepped = contract.step(state, rows, BatchTime(watermark_us=(second - 1) * SECOND, batch=second))
        assert not isinstance(stepped, tuple)
        state = stepped.state
        assert state.num_rows <= 10 + 5 + 2


@pytest.mark.parametrize(
    ("make_it", "error", "why"),
    [
        (lambda: join(), NotPossible, "for ever.*within"),
        (lambda: join(within=-1), ArgumentInvalid, "before"),
        (lambda: join(before="-1 hour"), ArgumentInvalid, "before"),
        (lambda: join(within="5000 days"), ArgumentInvalid, "ten years at most"),
        (lambda: join(within=1, allowed_lateness=-1), ArgumentInvalid, "allowed_lateness"),
        (lambda: join(within=1, how="cross"), ArgumentInvalid, "one of inner, left, right, outer, anti"),
        (lambda: join(within=1, follow="both"), ArgumentInvalid, '"slowest" or "fastest"'),
        (lambda: join(before=object()), ArgumentInvalid, "`before`.*a duration such as"),
        (lambda: join(within=1, on=()), ArgumentInvalid, "pairs such as"),
        (lambda: join(within=1, on={"a": 3}), ArgumentInvalid, "pairs such as"),
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(make_it: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        make_it()
