"""The rows of a query reach its topic, wherever they are made: in the reader of a topic, in an operator, or by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructType

import headwater as hw
from headwater.apps.runner import Runner
from headwater.engine.analyzed_plan import analyzed_plan
from headwater.engine.reader_protocol import map_in_arrow
from headwater.operators import Tumbling, agg

SCHEMA = {"user": "string", "n": "int64", "at": "timestamp"}


def even(clicks: DataFrame) -> DataFrame:
    return clicks.where("n % 2 = 0").select("user", (F.col("n") + 1).alias("m"))


def loud(clicks: DataFrame) -> DataFrame:
    return clicks.select(F.upper("user").alias("user"), "n")


def minutes(clicks: DataFrame) -> DataFrame:
    return clicks.transform(Tumbling(size="1 minute", by="user", compute={"clicks": agg.count()}))


def renamed(clicks: DataFrame) -> DataFrame:
    return minutes(clicks).where("clicks > 0").select("user", F.col("window_start").alias("minute"), "clicks")


@pytest.fixture
def app(tmp_path: Path) -> hw.App:
    with hw.open(tmp_path / "data", create=True) as log:
        log.create("clicks", SCHEMA, key="user", time="at", partitions=2)
        log.append("clicks", [{"user": "ab"[n % 2], "n": n, "at": n * 10_000_000} for n in range(24)])
    app = hw.App("site", log=tmp_path / "data")
    app.input("clicks", SCHEMA, key="user", time="at", partitions=2)
    for function in (even, loud, minutes, renamed):
        app.topic(function)
    return app


def test_the_rows_of_each_query_are_in_its_topic(app: hw.App, spark: SparkSession, tmp_path: Path) -> None:
    runner = Runner(app, serve=False, until_caught_up=True, end_of_input=True, spark=spark)
    with runner.ready():
        runner.catch_up()
    with hw.open(tmp_path / "data") as log:
        assert sorted(row["m"] for row in log.read("even").rows()) == list(range(1, 24, 2))
        assert sorted((row["user"], row["n"]) for row in log.read("loud").rows()) == sorted(
            ("AB"[n % 2], n) for n in range(24)
        )
        assert (
            sorted((row["user"], row["clicks"]) for row in log.read("minutes").rows())
            == [("a", 3)] * 4 + [("b", 3)] * 4
        )


@pytest.mark.parametrize(("query", "passes"), [(even, 0), (loud, 1), (minutes, 1), (renamed, 1)])
def test_rows_pass_through_python_once(
    app: hw.App, spark: SparkSession, tmp_path: Path, query: Callable[[DataFrame], DataFrame], passes: int
) -> None:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch([pa.array([str(sum(batch.num_rows for batch in batches))])], names=["staged"])

    log = str(tmp_path / "data")
    clicks = spark.readStream.format("headwater").option("log", log).load(app.inputs[0].name)
    made = map_in_arrow(query(clicks), counted, StructType().add("staged", StringType()), name="counted")
    assert str(analyzed_plan(made)).count("MapInArrow") == passes
