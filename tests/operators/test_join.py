"""Joins without time: what SQL's inner join gives as long as everything is remembered, and no more state than is allowed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.contract import Contract
from headwater.engine.event_time import BatchTime
from headwater.errors import ArgumentInvalid, NotPossible
from headwater.operators import Join
from tests.laws import costly
from tests.operators.batches import bounded, streamed
from tests.operators.test_interval_join import COLUMNS, SECOND, Numbered, Row, expected, numbered, ordered, seen, table

#: Far more than any two rows of a test are apart.
ALL_TIME = 10**6
Batches = list[list[Row]]
BATCHES = st.lists(
    st.lists(st.tuples(st.integers(0, 1), st.sampled_from("abc"), st.integers(0, 9)), max_size=12),
    min_size=1,
    max_size=5,
)


def make(**settings: Any) -> Callable[[pa.Schema], Contract]:
    return partial(Join(None, on="user", **settings).contract, columns=COLUMNS)


def rows_of(batches: Sequence[Sequence[Numbered]]) -> list[Numbered]:
    return [row for batch in batches for row in batch]


@costly(6)
@given(batches=BATCHES, replay=st.integers(0, 4), partitions=st.integers(1, 3))
def test_while_all_is_remembered_the_join_is_that_of_sql(batches: Batches, replay: int, partitions: int) -> None:
    rows = numbered(batches, close=False)
    tables = [table(batch) for batch in rows]
    wanted = expected(rows_of(rows), before=ALL_TIME, after=ALL_TIME, how="inner")
    both = {"rows_max_per_key": 60, "expire": ALL_TIME}
    for bounds in ({"rows_max_per_key": 60}, {"expire": ALL_TIME}, {"expire": "never"}, both):
        times = [SECOND * (1 + number) for number in range(len(tables))]
        outputs = streamed(make(**bounds), tables, replay=replay, partitions=partitions, processing_us=times)
        assert seen(outputs) == wanted
        assert seen([bounded(make(**bounds), table(rows_of(rows)))[0]]) == wanted


@given(batches=BATCHES, most=st.integers(1, 3), expire=st.integers(1, 3))
def test_rows_meet_those_of_their_batch_and_those_that_are_remembered(batches: Batches, most: int, expire: int) -> None:
    rows = numbered(batches, close=False)
    outputs = streamed(
        make(rows_max_per_key=most, expire=expire),
        [table(batch) for batch in rows],
        processing_us=[SECOND * number for number in range(len(rows))],
    )
    kept: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for now, (batch, output) in enumerate(zip(rows, outputs, strict=True)):
        found = []
        for user in "abc":
            before = {
                side: [number for came, number in kept.get((user, side), []) if came + expire >= now] for side in (0, 1)
            }
            fresh = {side: [row[3] for row in sorted(batch, key=place) if row[:2] == (side, user)] for side in (0, 1)}
            found += [(user, n, m) for n in fresh[0] for m in [*before[1], *fresh[1]]]
            found += [(user, n, m) for n in before[0] for m in fresh[1]]
            for side in (0, 1):
                known = kept.get((user, side), []) + [(now, number) for number in fresh[side]]
                kept[user, side] = known[-most:]
        assert seen([output]) == ordered(found)


def place(row: Numbered) -> int:
    return row[3]


def test_state_holds_no_more_than_the_bound_allows() -> None:
    contract = make(rows_max_per_key=5, expire=100)(table([(0, "a", 0, 0)]).schema)
    state = pa.schema([*contract.state, pa.field("_key", pa.int64())]).empty_table()
    for second in range(50):
        rows = table([(second % 2, "a", 0, second)]).append_column("_key", pa.array([0]))
        stepped = contract.step(state, rows, BatchTime(processing_us=second * SECOND, batch=second))
        assert not isinstance(stepped, tuple)
        state = stepped.state
        assert state.num_rows <= 10
    stepped = contract.step(state, rows.slice(0, 0), BatchTime(processing_us=200 * SECOND, batch=50))
    assert not isinstance(stepped, tuple)
    assert stepped.state.num_rows == 0


@pytest.mark.parametrize(
    ("settings", "error", "why"),
    [
        ({}, NotPossible, "for ever.*rows_max_per_key.*expire.*IntervalJoin"),
        ({"rows_max_per_key": 0}, ArgumentInvalid, "at least 1"),
        ({"expire": 0}, ArgumentInvalid, "1 hour"),
        ({"expire": "-5 minutes"}, ArgumentInvalid, "expire"),
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(
    settings: dict[str, Any], error: type[Exception], why: str
) -> None:
    with pytest.raises(error, match=why):
        Join(None, on="user", **settings)
