"""Late rows in apps: they go to the topic that was named for them, also those of Spark's own operators, and are counted."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import headwater as hw
from headwater.engine.state_maintenance import states
from headwater.operators import Guard
from headwater.testing import AppTest


def orders_app(folder: Path) -> hw.App:
    app = hw.App("late", log=folder / "log")
    app.input("orders", {"user": "string", "at": "timestamp"}, key="user", time="at")
    return app


def test_a_guard_sends_what_spark_would_drop_to_a_topic(spark: SparkSession, tmp_path: Path) -> None:
    app = orders_app(tmp_path)

    @app.topic(late="orders.late")
    def per_minute(orders: DataFrame) -> DataFrame:
        guard = Guard(time=hw.EventTime("at", scope="input", future_max="1 hour"), late="side_output", name="guard")
        return orders.transform(guard).groupBy(F.window("at", "1 minute")).count().select("window.start", "count")

    with AppTest(app, spark=spark) as test:
        start = test.now
        for second in (0, 30, 600, 20, 700, 10**9):
            test.feed("orders", [{"user": "ada", "at": start + timedelta(seconds=second)}])
            test.drain()
        assert [(row["start"], row["count"]) for row in test.rows("per_minute")][:1] == [(start, 2)]
        (late,) = test.rows("orders.late")
        assert (late["at"], late["late_by_us"]) == (start + timedelta(seconds=20), 580_000_000)
        counts = [one.counts for one in states(app.home / "state", operator="guard")]
        assert sum(one["late"] for one in counts) == 1
        assert sum(one["early"] for one in counts) == 1
