"""A bounded run delivers what a stream would: at once what is certain, and everything when no more rows follow."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.apps.runner import Runner
from headwater.operators import IntervalJoin, Tumbling, agg
from headwater.testing import AppTest

SCHEMA = {"user": "string", "n": "int64", "at": "timestamp"}


def declared(folder: Path, *, clicks: Mapping[str, Any] = MappingProxyType({})) -> hw.App:
    app = hw.App("site", log=folder / "data")
    app.input("clicks", SCHEMA, key="user", time="at", partitions=2, **clicks)
    app.input("buys", SCHEMA, key="user", time="at")

    @app.topic(key="user", time="window_start")
    def minutes(clicks: DataFrame) -> DataFrame:
        few = clicks.where("n < 100").select("user", "at")
        return few.transform(Tumbling(size="1 minute", by="user", compute={"clicks": agg.count()}))

    @app.topic(key="user")
    def hours(minutes: DataFrame) -> DataFrame:
        return minutes.transform(Tumbling(size="1 hour", by="user", compute={"busiest": agg.max("clicks")}))

    @app.topic(key="user")
    def abandoned(clicks: DataFrame, buys: DataFrame) -> DataFrame:
        join = IntervalJoin(buys, on="user", after="10 minutes", before=0, how="anti")
        return clicks.transform(join).select("user", "at")

    return app


def rows(log: hw.Log, topic: str) -> list[tuple[Any, ...]]:
    found = log.read(topic).rows()
    return sorted(tuple(value for name, value in row.items() if name[0] != "_")[:1] for row in found)


def test_a_run_until_caught_up_delivers_in_one_go_and_the_rest_when_no_rows_follow(
    spark: SparkSession, tmp_path: Path
) -> None:
    app = declared(tmp_path)
    with hw.open(tmp_path / "data") as log:
        for topic in ("clicks", "buys"):
            log.create(topic, SCHEMA, key="user", time="at", partitions=2 if topic == "clicks" else 1)
        log.append("clicks", [{"user": "ab"[n % 2], "n": n, "at": n * 10_000_000} for n in range(20)])
        log.append("buys", [{"user": "a", "n": 1, "at": 60_000_000}])
        runner = Runner(app, serve=False, until_caught_up=True, spark=spark)
        with runner.ready():
            runner.catch_up()
            totals = {one.name: one.rows_total for one in runner.statuses()}
        assert totals["minutes"] == 20
        assert rows(log, "minutes") == [("a",)] * 3 + [("b",)] * 3
        assert rows(log, "hours") == []
        assert runner.open_windows["minutes"] == 2
        ended = Runner(app, serve=False, until_caught_up=True, end_of_input=True, spark=spark)
        with ended.ready():
            ended.catch_up()
        assert rows(log, "minutes") == [("a",)] * 4 + [("b",)] * 4
        assert rows(log, "hours") == [("a",), ("b",)]
        assert set(rows(log, "abandoned")) == {("a",), ("b",)}


def test_what_is_made_of_bounded_inputs_alone_is_complete_and_the_rest_waits(
    spark: SparkSession, tmp_path: Path
) -> None:
    app = declared(tmp_path, clicks={"bounded": True})
    with hw.open(tmp_path / "data") as log:
        for topic in ("clicks", "buys"):
            log.create(topic, SCHEMA, key="user", time="at", partitions=2 if topic == "clicks" else 1)
        log.append("clicks", [{"user": "a", "n": n, "at": n * 10_000_000} for n in range(20)])
        log.append("buys", [{"user": "a", "n": 1, "at": 60_000_000}])
        runner = Runner(app, serve=False, until_caught_up=True, spark=spark)
        with runner.ready():
            runner.catch_up()
        assert rows(log, "minutes") == [("a",)] * 4
        assert rows(log, "hours") == [("a",)]  # made of bounded rows alone, by another query
        assert rows(log, "abandoned") == []  # a purchase may still follow
        assert runner.open_windows["minutes"] == runner.open_windows["hours"] == 0


def test_punctuations_and_the_end_reach_the_operators_of_an_app(spark: SparkSession, tmp_path: Path) -> None:
    with AppTest(declared(tmp_path), spark=spark) as test:
        test.feed("clicks", [{"user": "a", "n": 1, "at": test.now}])
        assert test.rows("minutes") == []
        test.log.punctuate("clicks", test.now + timedelta(minutes=1))
        test.feed("buys", [{"user": "a", "n": 1, "at": test.now}])
        assert [row["clicks"] for row in test.rows("minutes")] == [1]
        assert test.rows("hours") == []
        test.finish()
        assert [row["busiest"] for row in test.rows("hours")] == [1]
