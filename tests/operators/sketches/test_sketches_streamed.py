"""Sketches in real streaming queries: four partitions, a worker killed, and the same query as a batch job."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from headwater.operators import Hopping, KMeans, SeenBefore, agg
from headwater.operators.agg import Aggregate
from tests.operators.streaming import ONCE, Stream

SECOND = 1_000_000
END = 10_000
SCHEMA = {"user": "string", "amount": "int64", "at": "timestamp"}
TOPIC = {"orders": {"schema": SCHEMA, "key": "user"}}
#: What is a function of the rows alone, and what is within bounds.
COMPUTE: dict[str, Aggregate] = {
    "different": agg.distinct_approx("amount", error=0.1),
    "set": agg.sketch.theta("amount", lg_k=5),
    "some": agg.sample("amount", 3),
    "common": agg.top_approx("amount", 3),
    "ranks": agg.quantiles_approx("amount", [0.1, 0.5, 0.9], error=0.05),
}


def orders(seed: int, count: int, second: int, width: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(seed)
    users, amounts = random.integers(0, 5, count), random.integers(0, 400, count)
    times = random.integers(second * SECOND, (second + width) * SECOND, count)
    return [
        {"user": f"u{user}", "amount": int(amount), "at": int(at)}
        for user, amount, at in zip(users, amounts, np.sort(times), strict=True)
    ]


def closing() -> list[dict[str, Any]]:
    return [{"user": f"end{number}", "amount": 0, "at": END * SECOND} for number in range(40)]


def own(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(
        (row for row in rows if not row["user"].startswith("end")), key=lambda row: (row["user"], row["window_end"])
    )


@ONCE
@given(seed=st.integers(0, 1_000))
def test_approximate_windows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    def build(rows: DataFrame) -> DataFrame:
        return rows.transform(Hopping(size=20, every=10, on="at", by="user", compute=COMPUTE, ahead=None))

    stream = Stream(spark, tmp_path_factory.mktemp("approximate"), build, TOPIC)
    batches = [orders(seed + number, 1_500, 30 * number, 30) for number in range(3)]
    for number, batch in enumerate(batches):
        stream.run({"orders": batch}, kill=number == 1)
    stream.run({"orders": closing()})
    stream.run({"orders": closing()})
    assert stream.kills == 1
    streamed, bounded = own(stream.rows()), own(stream.bounded())
    assert len(streamed) == len(bounded) > 20
    for one, other in zip(streamed, bounded, strict=True):
        for name in ("user", "window_end", "different", "set", "some", "common"):
            assert one[name] == other[name], name
        end = round(one["window_end"].timestamp())
        amounts = sorted(
            row["amount"]
            for batch in batches
            for row in batch
            if row["user"] == one["user"] and end - 20 <= row["at"] / SECOND < end
        )
        assert one["different"]["lower"] <= len(set(amounts)) <= one["different"]["upper"]
        for rank in one["ranks"]:
            exact = amounts[min(int(rank["at"] * len(amounts)), len(amounts) - 1)]
            assert rank["lower"] <= exact <= rank["upper"]


@ONCE
@given(seed=st.integers(0, 1_000))
def test_seen_before_and_clusters(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    def build(rows: DataFrame) -> DataFrame:
        known = SeenBefore(
            by="user", of="amount", on="at", period=40, capacity=10_000, false_positives=1e-6, ahead=None
        )
        return rows.transform(known).transform(
            KMeans(columns="amount", k=3, on="at", by="user", warm_up=20, block=32, ahead=None)
        )

    stream = Stream(spark, tmp_path_factory.mktemp("seen"), build, {"orders": {**TOPIC["orders"], "partitions": 1}})
    batches = [orders(seed + number, 300, 30 * number, 30) for number in range(3)]
    for number, batch in enumerate(batches):
        stream.run({"orders": batch}, kill=number == 1)
    assert stream.kills == 1
    expected: dict[tuple[str, int, int], bool] = {}
    last: dict[tuple[str, int], float] = {}
    for row in (row for batch in batches for row in batch):
        value = (row["user"], row["amount"])
        at = row["at"] / SECOND
        expected[(*value, row["at"])] = value in last and last[value] > at - 40
        last[value] = at // 10 * 10 + 10
    found = {(row["user"], row["amount"], round(row["at"].timestamp() * SECOND)): row["seen"] for row in stream.rows()}
    assert found == expected
    clusters = sum(row["cluster"] is None for row in stream.rows())
    assert clusters == 5 * 20
    assert sorted(map(repr, stream.rows())) == sorted(map(repr, stream.bounded()))
