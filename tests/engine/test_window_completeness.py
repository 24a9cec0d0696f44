"""What share of a window has been seen: learnt from how late rows were, and true where lateness stays what it was."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import EventTime
from headwater.engine.window_completeness import EDGES, counted, share_seen
from headwater.errors import ArgumentInvalid
from headwater.operators import Hopping, Tumbling, agg
from tests.laws import costly
from tests.operators.batches import bounded, streamed, table_of
from tests.operators.test_windows import COMPUTE, Row, arrivals, numbered, table

SECOND = 1_000_000
#: How far the estimates may be from the truth, on average, once lateness is known.
TOLERANCE = 0.05


# -- the arithmetic ---------------------------------------------------------------------------------------------------


@given(
    delays=st.lists(st.integers(0, 10**9), min_size=1, max_size=50),
    start=st.integers(-(10**9), 10**9),
    size=st.integers(10**4, 10**9),
    now=st.integers(-(10**9), 3 * 10**9),
)
def test_a_share_is_the_mean_over_the_window_of_what_has_come(
    delays: list[int], start: int, size: int, now: int
) -> None:
    counts = counted(np.array(delays))
    known = np.cumsum(counts) / len(delays)
    moments = start + (np.arange(20_000) + 0.5) * size / 20_000
    come = np.interp(now - moments, EDGES, known, left=0.0, right=1.0)
    (found,) = share_seen(counts, np.array([start]), np.array([start + size]), now_us=now)
    assert 0 < found <= 1
    assert found == pytest.approx(come.mean(), abs=2e-3)


# -- against a known lateness -----------------------------------------------------------------------------------------


def delayed(seed: int, kind: str, seconds: int) -> list[tuple[float, float]]:
    """Twenty rows a second, when they happened and when they came; half of them come at once."""
    chance = random.Random(seed)
    rows = []
    for number in range(seconds * 20):
        at = number / 20
        late = chance.random() < 0.5
        delay = {"exponential": chance.expovariate(1 / 20), "even": chance.uniform(0, 60)}[kind] if late else 0.0
        rows.append((at, at + delay))
    return rows


@pytest.mark.parametrize("kind", ["exponential", "even"])
@pytest.mark.parametrize(("seed", "every"), [(1, 10), (2, 15)])
def test_where_lateness_stays_what_it_was_estimates_come_true(kind: str, seed: int, every: int) -> None:
    rows = sorted(delayed(seed, kind, 1_200), key=lambda row: row[1])
    batches: dict[int, list[Row]] = {}
    for at, came in rows:
        batches.setdefault(int(came) // every, []).append(("a", 1, int(at)))
    operator = Tumbling(
        size=60,
        time=EventTime("at", delay=300, future_max=None),
        by="user",
        compute=COMPUTE,
        emit="changes",
        completeness=True,
    )
    tables, offset = [], 0
    for number in sorted(batches):
        tables.append(table(batches[number], first=offset))
        offset += len(batches[number])
    truly = Counter(int(at) // 60 * 60 for at, _ in rows)
    errors = []
    for number, output in enumerate(streamed(operator.contract, tables, partitions=1)):
        for row in output.to_pylist():
            start = round(row["window_start"].timestamp())
            assert 0 < row["completeness"] <= 1
            if row["_op"] in ("+I", "+U") and number > 300 / every and start < 1_100:
                errors.append(row["completeness"] - row["n"] / truly[start])
    assert len(errors) > 100
    assert np.abs(errors).mean() < TOLERANCE
    assert abs(np.mean(errors)) < TOLERANCE / 2


# -- as a changelog ---------------------------------------------------------------------------------------------------


@costly(9)
@given(
    batches=arrivals(late_by=10),
    size=st.integers(1, 30),
    every=st.integers(1, 40),
    emit=st.sampled_from(["changes", "every_change"]),
    replay=st.integers(0, 5),
    partitions=st.integers(1, 3),
)
def test_what_was_told_is_taken_back_and_what_is_closed_is_whole(
    batches: list[list[Row]], size: int, every: int, emit: Any, replay: int, partitions: int
) -> None:
    settings_: dict[str, Any] = {"size": size, "every": every, "by": "user", "compute": COMPUTE, "emit": emit}
    settings_ |= {"time": EventTime("at", delay=10, future_max=None)}
    outputs = streamed(
        Hopping(**settings_, completeness=True).contract, numbered(batches), replay=replay, partitions=partitions
    )
    found = table_of(outputs, ["user", "window_start"])
    assert all(0 < row["completeness"] <= 1 for output in outputs for row in output.to_pylist())
    ends = {at: row.pop("completeness") for at, row in found.items()}
    assert all(share == 1 for (user, _), share in ends.items() if user != "end")
    plain = table_of(streamed(Hopping(**settings_).contract, numbered(batches)), ["user", "window_start"])
    assert found == plain
    whole, _ = bounded(Hopping(**settings_, completeness=True).contract, pa.concat_tables(numbered(batches)))
    assert all(row["completeness"] == 1 for row in whole.to_pylist())


def test_windows_know_nothing_of_lateness_at_first_and_are_as_complete_as_they_are_old() -> None:
    operator = Tumbling(
        size=10, time=EventTime("at", delay=5), by="user", compute=COMPUTE, emit="changes", completeness=True
    )
    (output,) = streamed(operator.contract, [table([("a", 1, 0), ("a", 1, 4)])])
    assert [row["completeness"] for row in output.to_pylist()] == [0.4]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"emit": "final"}, 'say emit="changes"'),
        ({"time": EventTime("at", scope="key")}, "that of keys"),
        ({"compute": {"completeness": agg.count()}}, "names that are free"),
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(change: dict[str, Any], says: str) -> None:
    settings_ = {"size": 10, "time": "at", "by": "user", "compute": COMPUTE, "emit": "changes", "completeness": True}
    with pytest.raises(ArgumentInvalid, match=says):
        Tumbling(**{**settings_, **change})
