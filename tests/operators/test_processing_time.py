"""Windows of processing time, as the source recorded it, and of log-append time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import ArgumentInvalid
from headwater.operators import Hopping, Tumbling, agg
from tests.laws import costly
from tests.operators.batches import bounded, streamed, table_of
from tests.operators.test_windows import SECOND, table, windows_of

#: Batches: when each was taken, and whose rows it had.
BATCHES = st.lists(
    st.tuples(st.integers(-100, 150), st.lists(st.sampled_from("abc"), max_size=5)), min_size=1, max_size=6
)
COMPUTE = {"n": agg.count()}


def tables(batches: list[tuple[int, list[str]]]) -> tuple[list[pa.Table], list[int]]:
    """Rows whose event times mean nothing, and when each batch was taken; the last one closes every window."""
    made = [table([(user, 1, 7) for user in users], first=10 * number) for number, (_, users) in enumerate(batches)]
    return [*made, table([], first=99)], [*(at * SECOND for at, _ in batches), 10_000 * SECOND]


def expected(batches: list[tuple[int, list[str]]], size: int, every: int) -> dict[tuple[str, int], int]:
    counts: Counter[tuple[str, int]] = Counter()
    latest = batches[0][0]
    for at, users in batches:
        latest = max(latest, at)  # a clock that was set back does not take time with it
        for start, end in windows_of(size, every):
            if start <= latest < end:
                counts.update((user, start) for user in users)
    return dict(counts)


@given(batches=BATCHES, size=st.integers(1, 30), every=st.integers(1, 40), replay=st.integers(0, 5))
def test_final_windows_hold_the_rows_of_the_batches_taken_in_them(
    batches: list[tuple[int, list[str]]], size: int, every: int, replay: int
) -> None:
    operator = Hopping(size=size, every=every, clock="processing", by="user", compute=COMPUTE)
    rows, times = tables(batches)
    outputs = streamed(operator.contract, rows, processing_us=times, replay=replay)
    found = [
        ((row["user"], round(row["window_start"].timestamp())), row["n"]) for one in outputs for row in one.to_pylist()
    ]
    assert len(found) == len(dict(found))
    assert dict(found) == expected(batches, size, every)


@costly(3)
@given(
    batches=BATCHES,
    size=st.integers(1, 30),
    emit=st.sampled_from(["changes", "every_change"]),
    replay=st.integers(0, 5),
)
def test_a_changelog_leads_to_the_same_table(
    batches: list[tuple[int, list[str]]], size: int, emit: Any, replay: int
) -> None:
    operator = Tumbling(size=size, clock="processing", by="user", compute=COMPUTE, emit=emit)
    rows, times = tables(batches)
    outputs = streamed(operator.contract, rows, processing_us=times, replay=replay)
    found = {
        (user, round(start.timestamp())): row["n"]
        for (user, start), row in table_of(outputs, ["user", "window_start"]).items()
    }
    assert found == expected(batches, size, size)


def test_a_window_closes_with_the_first_batch_after_its_end() -> None:
    operator = Tumbling(size=10, clock="processing", by="user", compute=COMPUTE)
    rows = [table([("a", 1, 0)]), table([]), table([("b", 1, 0)], first=5)]
    outputs = streamed(operator.contract, rows, processing_us=[3 * SECOND, 9 * SECOND, 10 * SECOND])
    assert [[row["user"] for row in one.to_pylist()] for one in outputs] == [[], [], ["a"]]


def test_state_is_gone_when_its_windows_are() -> None:
    operator = Hopping(size=20, every=10, clock="processing", by="user", compute=COMPUTE)
    contract = operator.contract(table([]).schema)
    assert "_wake_at_processing" in contract.state.names
    assert "_wake_at" not in contract.state.names
    assert contract.time is None


def test_bounded_rows_have_no_processing_time() -> None:
    operator = Tumbling(size=10, clock="processing", by="user", compute=COMPUTE)
    with pytest.raises(ArgumentInvalid, match="_appended_at"):
        bounded(operator.contract, table([("a", 1, 0)]))


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Tumbling(size=10, clock="lunch"), '"event" or "processing"'),  # type: ignore[arg-type]
        (lambda: Tumbling(size=10, clock="processing", time="at"), "nothing is late"),
        (lambda: Hopping(size=10, every=5, clock="processing", allowed_lateness=5), "nothing is late"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(make: Any, why: str) -> None:
    with pytest.raises(ArgumentInvalid, match=why):
        make()
