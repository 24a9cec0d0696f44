"""One row of each id: any split, order and replay let the same rows pass."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.operators import Dedupe
from tests.operators.batches import bounded, streamed
from tests.operators.test_windows import Row, arrivals, table


def passing(rows: Sequence[Row], within: int) -> set[tuple[str, int]]:
    """By the definition: a row in the order of time passes unless one has passed less than `within` before it."""
    last: dict[str, int] = {}
    found = set()
    for user, _, at in sorted(rows, key=lambda row: row[2]):
        if user not in last or at - last[user] >= within:
            last[user] = at
            found.add((user, at))
    return found


def seen(tables: Sequence[pa.Table]) -> list[tuple[str, int]]:
    rows = [row for one in tables for row in one.to_pylist()]
    return [(row["user"], round(row["at"].timestamp())) for row in rows]


@given(
    batches=arrivals(late_by=0),
    within=st.integers(1, 60),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_rows_in_the_order_of_time_pass_as_the_definition_says(
    batches: list[list[Row]], within: int, replay: int, partitions: int
) -> None:
    operator = Dedupe(by="user", time=EventTime("at", future_max=None), within=within)
    firsts = [sum(len(one) for one in batches[:number]) for number in range(len(batches))]
    tables = [table(batch, first=first).select(range(5)) for batch, first in zip(batches, firsts, strict=True)]
    found = seen(streamed(operator.contract, tables, partitions=partitions, replay=replay))
    rows = [row for batch in batches for row in batch]
    assert len(found) == len(set(found))
    assert set(found) == passing(rows, within)
    whole, _ = bounded(operator.contract, table(rows).select(range(5)))
    assert sorted(seen([whole])) == sorted(found)


@given(batches=arrivals(late_by=20), within=st.integers(1, 60), replay=st.integers(0, 5))
def test_of_rows_in_any_order_none_is_dropped_unless_one_close_to_it_has_passed(
    batches: list[list[Row]], within: int, replay: int
) -> None:
    operator = Dedupe(by="user", time=EventTime("at", delay=20, future_max=None), within=within)
    firsts = [sum(len(one) for one in batches[:number]) for number in range(len(batches))]
    tables = [table(batch, first=first).select(range(5)) for batch, first in zip(batches, firsts, strict=True)]
    found = seen(streamed(operator.contract, tables, replay=replay))
    for user, _, at in (row for batch in batches for row in batch):
        close = [time for one, time in found if one == user and abs(time - at) <= within]
        assert close, f"{user} at {at} was dropped, and no row close to it has passed"


def test_of_each_id_the_row_that_passed_last_is_remembered() -> None:
    operator = Dedupe(by="user", time=EventTime("at", delay=60, future_max=None), within=10)
    tables = [table([("a", 1, at)], first=number).select(range(5)) for number, at in enumerate((0, 20, 9))]
    assert [at for _, at in seen(streamed(operator.contract, tables))] == [0, 20, 9]
    assert [at for _, at in seen(streamed(operator.contract, [tables[0], tables[2], tables[1]]))] == [0, 20]
