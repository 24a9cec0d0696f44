"""Rows without a key or a time become dead letters of their topic, whole, once, with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.apps.dead_letters import post_rejected
from headwater.operators import Tumbling, agg
from headwater.testing import AppTest

SCHEMA = {"user": "string", "amount": "int64", "note": "string", "at": "timestamp"}
ROWS: list[dict[str, Any]] = [
    {"user": "a", "amount": 1, "note": "fine", "at": 5_000_000},
    {"user": None, "amount": 2, "note": "whose?", "at": 6_000_000},
    {"user": "b", "amount": 3, "note": "when?", "at": None},
]


@pytest.mark.parametrize("combine", [True, False])
def test_rejected_rows_are_dead_letters_of_their_topic(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, combine: bool
) -> None:
    posted = []

    def post_twice(*given: Any, **more: Any) -> int:
        """Act like a runner that was killed after the dead letters were appended, and repeats the batch."""
        posted.append(post_rejected(*given, **more))
        return post_rejected(*given, **more)

    monkeypatch.setattr("headwater.apps.execution.post_rejected", post_twice)
    app = hw.App("shop", log=tmp_path / "data")
    app.input("orders", SCHEMA, time="at", partitions=2)

    @app.view(key=("user", "window_start"), name="totals")
    def totals(orders: DataFrame) -> DataFrame:
        compute = {"total": agg.sum("amount")}
        return orders.transform(
            Tumbling(size=10, time="at", by="user", compute=compute, emit="changes", combine=combine, name="totals")
        )

    with AppTest(app, spark=spark) as test:
        test.feed("orders", ROWS)
        assert [(row["user"], row["total"]) for row in test.views["totals"].rows()] == [("a", 1)]
        letters = {json.loads(row["row"])["note"]: row for row in test.rows("orders.dlq")}
        assert letters.keys() == {"whose?", "when?"}
        assert letters["whose?"]["message"] == "the key is null"
        assert letters["when?"]["message"] == "the event time is null"
        placed = {row["note"]: (row["_partition"], row["_offset"]) for row in test.rows("orders", system=True)}
        assert {note: (row["partition"], row["offset"]) for note, row in letters.items()} == {
            note: placed[note] for note in letters
        }
        assert len(test.rows("orders.dlq")) == 2
        assert 2 in posted
