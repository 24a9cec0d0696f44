"""The last word on each key counts, in the order of the topic, whatever order Spark brings rows in."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.engine.micro_batch import MicroBatch
from headwater.sinks import Retry
from headwater.sinks.changes import appended, collapsed
from headwater.sinks.driver import PAST_MAX, Progress
from headwater.sinks.errors import SinkFenced, SinkUnavailable
from headwater.sinks.retry import RetryLater

words = st.tuples(st.sampled_from(["+I", "+U", "-U", "-D", None]), st.booleans(), st.integers(0, 3), st.integers())


def table_of(rows: list[tuple[str | None, bool, int, int]], seed: int) -> pa.Table:
    """The rows with their places in a topic, in any order."""
    placed = list(enumerate(rows))
    random.Random(seed).shuffle(placed)
    return pa.table(
        {
            "k": pa.array([row[2] for _, row in placed], pa.int64()),
            "v": pa.array([row[3] % 1000 for _, row in placed], pa.int64()),
            "_op": pa.array([row[0] for _, row in placed], pa.string()),
            "_tombstone": pa.array([row[1] for _, row in placed], pa.bool_()),
            "_partition": pa.array([row[2] % 2 for _, row in placed], pa.int32()),
            "_offset": pa.array([offset for offset, _ in placed], pa.int64()),
        }
    )


@given(rows=st.lists(words, max_size=20), seed=st.integers(0, 100))
def test_any_order_of_rows_with_places_gives_the_same_changes(
    rows: list[tuple[str | None, bool, int, int]], seed: int
) -> None:
    expected: dict[int, int | None] = {}
    for operation, tombstone, key, value in rows:
        expected[key] = None if operation in ("-D", "-U") or tombstone else value % 1000
    table = table_of(rows, seed)
    changes, refused = collapsed(table, ["k"])
    found: dict[int, Any] = {row["k"]: row["v"] for row in changes.rows.to_pylist()}
    found |= {row["k"]: None for row in changes.gone.to_pylist()}
    assert found == expected
    assert refused == []
    for row, position in zip(changes.rows.to_pylist(), changes.positions, strict=True):
        assert table.slice(int(position), 1).select(["k", "v"]).to_pylist() == [row], "positions lead back to the rows"


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(["a", "b", "a"]),
        pa.array([b"a", b"b", b"a"]),
        pa.array([1.5, float("nan"), 1.5]),
        pa.array([Decimal("1.50"), Decimal("2.00"), Decimal("1.50")]),
        pa.array([datetime.date(2026, 1, 1), datetime.date(2026, 1, 2), datetime.date(2026, 1, 1)]),
        pa.array([True, False, True]),
    ],
    ids=lambda keys: str(keys.type),
)
def test_keys_of_any_plain_type_are_told_apart(keys: pa.Array) -> None:
    changes, _ = collapsed(pa.table({"k": keys, "v": [1, 2, 3]}), ["k"])
    assert changes.rows.column("v").to_pylist() == [2, 3]


def test_without_a_key_all_rows_stay_and_bad_ones_are_named_by_their_place_in_the_batch() -> None:
    rows = pa.table({"v": [1, 2, 3], "_op": ["+I", "?", "-D"], "_offset": [2, 1, 0], "_partition": [0, 0, 0]})
    changes, refused = appended(rows)
    assert changes.rows.to_pylist() == [{"v": 3, "_op": "-D"}, {"v": 1, "_op": "+I"}]
    assert [refusal.position for refusal in refused] == [1]


def test_a_replaced_run_is_remembered_for_a_hundred_others() -> None:
    progress = Progress()
    for number in range(PAST_MAX + 1):
        progress = progress.admit("s", MicroBatch(query="q", number=0, run=f"r{number}"))
    with pytest.raises(SinkFenced):
        progress.admit("s", MicroBatch(query="q", number=0, run="r0"))
    assert Progress.from_json(progress.as_json()) == progress


def test_work_that_is_not_possible_now_is_tried_again_until_the_time_is_up() -> None:
    tries: list[int] = []

    def work() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise RetryLater("down")
        return "done"

    assert Retry(seconds_max=10, first_seconds=0.001).run("s", work) == "done"
    tries.clear()
    with pytest.raises(SinkUnavailable, match="down"):
        Retry(seconds_max=0).run("s", work)
    assert len(tries) == 1
