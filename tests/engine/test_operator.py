"""Event time travels with the rows of a topic: operators find it there, behind whatever Spark does with the columns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

import headwater as hw
from headwater.engine.contract import Contract
from headwater.engine.errors import EventTimeUnknown
from headwater.engine.operator import event_time_of, wanted_side_outputs
from headwater.engine.spark_plan import applied_operators
from headwater.operators import Dedupe, Enrich, IntervalJoin, Process, Rolling, Session, Tumbling, agg

TIME = hw.EventTime("at", delay="30 seconds", idle_timeout="1 minute", future_max="1 hour")
COLUMNS = {"user": "string", "amount": "int64", "at": "timestamp"}


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> DataFrame:
    with hw.open(tmp_path / "log") as log:
        log.create("orders", COLUMNS, key="user", time=TIME)
    return spark.readStream.format("headwater").option("log", str(tmp_path / "log")).load("orders")


def applied(rows: DataFrame, operator: Any) -> Contract:
    with applied_operators() as found:
        rows.transform(operator)
    return found[-1]


def test_the_time_of_a_topic_survives_what_spark_does_with_its_columns(orders: DataFrame) -> None:
    changed = [
        orders,
        orders.select("user", "at"),
        orders.where("amount > 5").withColumn("double", F.col("amount") * 2),
        orders.withColumnRenamed("user", "customer").drop("_partition"),
        orders.select("user", "at", "amount").union(orders.select("user", "at", "amount")),
        orders.transform(Dedupe(by="user", within="1 hour")),
    ]
    assert [event_time_of(rows, None, operator="Tumbling") for rows in changed] == [TIME] * len(changed)
    renamed = event_time_of(orders.withColumnRenamed("at", "paid_at"), None, operator="Tumbling")
    assert (renamed.column, renamed.delay) == ("paid_at", 30.0)


def test_operators_go_by_the_time_of_the_topic(orders: DataFrame) -> None:
    count = {"n": agg.count()}
    for operator in (
        Tumbling(size=10, by="user", compute=count),
        Session(gap=10, by="user", compute=count),
        Rolling(period=10, by="user", compute=count),
        Dedupe(by="user", within=10),
    ):
        strategy = applied(orders, operator).event_time
        assert (strategy.time, strategy.delay_us, strategy.idle_us, strategy.future_us) == (
            "at",
            30_000_000,
            60_000_000,
            3_600_000_000,
        )


def test_an_operator_may_be_told_another_time(orders: DataFrame) -> None:
    count = {"n": agg.count()}
    plain = applied(orders, Tumbling(size=10, time=hw.EventTime("at", delay=5), compute=count)).event_time
    assert (plain.delay_us, plain.idle_us) == (5_000_000, None)
    named = applied(orders, Tumbling(size=10, time="at", compute=count)).event_time
    assert named.delay_us == 30_000_000, "a column that is named keeps the settings that it carries"
    other = orders.withColumn("seen", F.current_timestamp())
    assert applied(other, Tumbling(size=10, time="seen", compute=count)).event_time.delay_us == 0


def test_a_new_delay_of_the_topic_does_not_lose_the_operators_state(orders: DataFrame, tmp_path: Path) -> None:
    operator = Tumbling(size=10, compute={"n": agg.count()})
    before = applied(orders, operator)
    with hw.open(tmp_path / "log") as log:
        log.alter("orders", time=hw.EventTime("at", delay="5 minutes"))
    reader = orders.sparkSession.readStream.format("headwater").option("log", str(tmp_path / "log"))
    after = applied(reader.load("orders"), operator)
    assert (before.name, before.event_time.delay_us) == (after.name, 30_000_000)
    assert after.event_time.delay_us == 300_000_000


def test_where_no_time_is_known_the_error_says_how_to_declare_it(orders: DataFrame, spark: SparkSession) -> None:
    count = {"n": agg.count()}
    with pytest.raises(EventTimeUnknown, match=r"none of its columns.*log\.create\(…, time='at'\)"):
        orders.drop("at").transform(Tumbling(size=10, compute=count))
    plain = spark.createDataFrame([], "user string, at timestamp")
    with pytest.raises(EventTimeUnknown, match="none of its columns is event time"):
        plain.transform(Dedupe(by="user", within=10))
    both = orders.withColumn("paid_at", F.col("at"))
    with pytest.raises(EventTimeUnknown, match=r"several columns are event time \(at, paid_at\)"):
        both.transform(Tumbling(size=10, compute=count))


def test_results_of_closed_windows_have_a_time_of_their_own(orders: DataFrame) -> None:
    count = {"n": agg.count()}
    minutes = orders.transform(Tumbling(size="1 minute", by="user", compute=count, name="minutes"))
    assert applied(minutes, Tumbling(size="1 hour", compute={"n": agg.sum("n")})).time == "window_start"
    sessions = orders.transform(Session(gap="1 minute", by="user", compute=count, name="sessions"))
    assert applied(sessions, Tumbling(size="1 hour", compute={"n": agg.sum("n")})).time == "window_end"
    changes = orders.transform(Tumbling(size="1 minute", by="user", compute=count, emit="changes", name="changes"))
    with pytest.raises(EventTimeUnknown):
        event_time_of(changes, None, operator="Tumbling")


def test_each_input_of_a_join_has_its_own_time(orders: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    with hw.open(tmp_path / "log") as log:
        log.create("clicks", {"user": "string", "clicked": "timestamp"}, time=hw.EventTime("clicked", delay=5))
    clicks = spark.readStream.format("headwater").option("log", str(tmp_path / "log")).load("clicks")
    join = IntervalJoin(clicks, on="user", within="1 hour")
    strategy = applied(orders, join).event_time
    assert (strategy.of_input("0").delay_us, strategy.of_input("1").delay_us) == (30_000_000, 5_000_000)
    with pytest.raises(EventTimeUnknown, match=r"at, clicked"):
        event_time_of(orders.transform(join), None, operator="Tumbling")
    enriched = applied(orders, Enrich(clicks, on="user", as_of="at", valid_from="clicked")).event_time
    assert (enriched.of_input("0").delay_us, enriched.of_input("1").delay_us) == (30_000_000, 5_000_000)


def test_a_step_of_the_users_own_may_do_without_a_time(orders: DataFrame) -> None:
    step = Process(step=lambda state, rows, _: (state, rows), by="user", state={"n": "int64"}, output=COLUMNS, name="p")
    assert applied(orders, step).time is None, "it gets all rows, also those without a time"
    assert applied(orders, replace(step, state={"_wake_at": "timestamp"})).time == "at"
    assert applied(orders, replace(step, late="side_output")).time == "at"
    with wanted_side_outputs({"late"}):
        assert applied(orders, step).time == "at"


def test_an_app_turns_side_outputs_on(orders: DataFrame) -> None:
    windows = Tumbling(size=10, by="user", compute={"n": agg.count()})
    assert applied(orders, windows).late_rows_max is not None
    with wanted_side_outputs({"late"}):
        assert applied(orders, windows).late_rows_max is None


def test_a_read_may_declare_the_time_of_a_topic_without_one(spark: SparkSession, tmp_path: Path) -> None:
    with hw.open(tmp_path / "log") as log:
        log.create("plain", COLUMNS)
    reader = spark.readStream.format("headwater").option("log", str(tmp_path / "log"))
    rows = reader.option("time", "at, delay=30 seconds").load("plain")
    assert event_time_of(rows, None, operator="Tumbling").delay == 30.0
