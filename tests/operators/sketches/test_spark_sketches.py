"""Spark's own sketches and ours: each reads what the other made. And sketches as columns of DataFrames."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators import KMeans, SeenBefore, Tumbling, agg, sketches
from headwater.operators.aggregates import Aggregate

COUNT = 30_000


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    """Numbers with times, of which half lie in each of two hours."""
    made = spark.range(COUNT).withColumn("at", F.timestamp_seconds(F.col("id") * F.lit(7200 / COUNT)))
    made = made.withColumn("text", F.concat(F.lit("number "), F.col("id") % 5_000)).withColumn("whole", F.col("id"))
    return made.withColumn("seconds", F.col("id").cast("double")).repartition(4).cache()


def hourly(rows: DataFrame, **compute: Aggregate) -> DataFrame:
    return rows.transform(Tumbling(size="1 hour", time="at", compute=compute))


def one(found: DataFrame) -> Any:
    (row,) = found.collect()
    return row


@pytest.mark.parametrize("column", ["whole", "text"])
def test_hll_goes_both_ways(rows: DataFrame, column: str) -> None:
    ours = hourly(rows, sketch=agg.sketch.hll(column)).agg(F.hll_union_agg("sketch").alias("sketch"))
    theirs = rows.agg(F.hll_sketch_agg(column, 12).alias("sketch"))
    truth = COUNT if column == "whole" else 5_000
    found = one(ours.select(F.hll_sketch_estimate("sketch").alias("n")))
    assert found["n"] == pytest.approx(truth, rel=0.05)
    both = one(theirs.select(sketches.estimate("sketch").alias("n"), "sketch"))["n"]
    assert both["lower"] <= truth <= both["upper"]
    own = one(hourly(rows, sketch=agg.sketch.hll(column)).agg(F.collect_list("sketch").alias("all")))["all"]
    direct = one(rows.transform(Tumbling(size="1 day", time="at", compute={"sketch": agg.sketch.hll(column)})))[
        "sketch"
    ]
    # Spark's registers are ours: after the preamble the bytes are the same.
    assert bytes(one(theirs)["sketch"])[40:] == bytes(direct)[40:]
    assert len(own) == 2


@pytest.mark.parametrize("column", ["whole", "text"])
def test_theta_goes_both_ways(rows: DataFrame, column: str) -> None:
    truth = COUNT if column == "whole" else 5_000
    ours = hourly(rows, sketch=agg.sketch.theta(column)).agg(F.theta_union_agg("sketch").alias("sketch"))
    assert one(ours.select(F.theta_sketch_estimate("sketch").alias("n")))["n"] == pytest.approx(truth, rel=0.05)
    theirs = rows.agg(F.theta_sketch_agg(column, 12).alias("sketch"))
    found = one(theirs.select(sketches.estimate("sketch").alias("n"), F.theta_sketch_estimate("sketch").alias("own")))
    assert found["n"]["estimate"] == pytest.approx(found["own"], abs=1)
    assert found["n"]["lower"] <= truth <= found["n"]["upper"]


def test_kll_goes_both_ways(rows: DataFrame) -> None:
    ours = hourly(rows, sketch=agg.sketch.kll("seconds"))
    merged = ours.agg(F.kll_merge_agg_double("sketch").alias("sketch"))
    found = one(merged.select(F.kll_sketch_get_quantile_double("sketch", F.lit(0.9)).alias("q")))
    assert found["q"] == pytest.approx(0.9 * COUNT, abs=0.0266 * COUNT)
    count = one(merged.select(F.kll_sketch_get_n_double("sketch").alias("n")))
    assert count["n"] == COUNT
    theirs = rows.agg(F.kll_sketch_agg_double("seconds").alias("sketch"))
    mine = one(theirs.select(sketches.quantile("sketch", 0.9).alias("q")))["q"]
    assert mine["lower"] <= 0.9 * COUNT <= mine["upper"]


def test_hours_are_merged_to_a_day(rows: DataFrame) -> None:
    compute = {
        "users": agg.sketch.hll("whole"),
        "set": agg.sketch.theta("text"),
        "seconds": agg.sketch.kll("seconds"),
        "digest": agg.sketch.tdigest("seconds"),
        "common": agg.sketch.frequent("text", tracked=8_000),
        "often": agg.sketch.count_min("text"),
    }
    hours = hourly(rows, **compute).drop("window_end")
    day = hours.transform(
        Tumbling(size="1 day", time="window_start", compute={name: agg.merge_sketches(name) for name in compute})
    )
    direct = rows.transform(Tumbling(size="1 day", time="at", compute=compute))
    for name in ("users", "set", "often"):
        assert one(day)[name] == one(direct)[name]
    asked = one(
        day.select(
            sketches.estimate("users").alias("users"),
            sketches.estimate(sketches.intersection("set", "set")).alias("set"),
            sketches.quantile("seconds", 0.5).alias("seconds"),
            sketches.quantile(F.col("digest"), 0.99).alias("digest"),
            sketches.top("common", 2).alias("common"),
            sketches.count_of("often", "number 7").alias("often"),
        )
    )
    assert asked["users"]["lower"] <= COUNT <= asked["users"]["upper"]
    assert asked["set"]["lower"] <= 5_000 <= asked["set"]["upper"]
    assert asked["seconds"]["estimate"] == pytest.approx(COUNT / 2, abs=0.0133 * COUNT)
    assert asked["digest"]["estimate"] == pytest.approx(0.99 * COUNT, abs=0.005 * COUNT)
    assert [row["estimate"] for row in asked["common"]] == [6, 6]
    assert 6 <= asked["often"]["estimate"] <= 6 + 0.001 * COUNT


def test_set_operations_between_columns(rows: DataFrame) -> None:
    early, late = (
        rows.filter(condition).transform(
            Tumbling(size="1 day", time="at", compute={name: agg.sketch.theta("whole")}, name=name)
        )
        for condition, name in ((F.col("id") < 20_000, "early"), (F.col("id") >= 10_000, "late"))
    )
    both = early.select("early").crossJoin(late.select("late"))
    asked = one(
        both.select(
            *(
                sketches.estimate(operation("early", "late")).alias(operation.__name__)
                for operation in (sketches.union, sketches.intersection, sketches.difference)
            )
        )
    )
    for name, truth in (("union", 30_000), ("intersection", 10_000), ("difference", 10_000)):
        assert asked[name]["lower"] <= truth <= asked[name]["upper"], name


def test_a_sketch_that_is_null_gives_null(spark: SparkSession) -> None:
    empty = spark.createDataFrame([(None,), (None,)], "sketch binary")
    asked = empty.select(sketches.estimate("sketch").alias("n"), sketches.union("sketch", "sketch").alias("u"))
    assert [tuple(row) for row in asked.collect()] == [(None, None)] * 2


def test_seen_before_and_k_means_over_bounded_rows(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("a", "x", 1.0), ("a", "y", 2.0), ("b", "x", 3.0), ("a", "x", 4.0), (None, "x", 5.0), ("a", None, 6.0)],
        "user string, device string, at double",
    ).withColumn("at", F.timestamp_seconds("at"))
    found = rows.transform(SeenBefore(by="user", of="device", time="at", period="1 hour"))
    assert sorted((row["user"], str(row["device"]), row["seen"]) for row in found.collect()) == [
        ("a", "None", None),
        ("a", "x", False),
        ("a", "x", True),
        ("a", "y", False),
        ("b", "x", False),
    ]
    points = spark.range(400).selectExpr("id", "cast(id % 2 * 10 as double) as x", "timestamp_seconds(id) as at")
    clusters = points.transform(KMeans(columns="x", k=2, time="at", warm_up=50)).filter("cluster is not null")
    assert {(row["x"], row["cluster"]) for row in clusters.collect()} == {(0.0, 0), (10.0, 1)}


@pytest.mark.parametrize(
    ("operator", "error", "says"),
    [
        (SeenBefore(of="card"), ColumnUnknown, "no column 'card'"),
        (SeenBefore(of="text", time="text", period=1), ArgumentInvalid, "a column of timestamps"),
        (SeenBefore(of="text", into="whole"), ArgumentInvalid, "a name that is free"),
        (KMeans(columns="weight", k=2, time="at"), ColumnUnknown, "no column 'weight'"),
        (KMeans(columns="seconds", k=2, time="at", into="whole"), ArgumentInvalid, "a name that is free"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused_at_once(
    rows: DataFrame, operator: Any, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        operator(rows)
