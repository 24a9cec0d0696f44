"""Sketches in views: minutes are stored, merged to hours by another query, and asked in Python."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.operators import Tumbling, agg, sketches
from headwater.testing import AppTest

app = hw.App("visits", log="./data")
app.input("visits", {"user": "string", "seconds": "float64", "at": "timestamp"}, key="user", time="at", partitions=1)


@app.view(key="minute")
def minutes(visits: DataFrame) -> DataFrame:
    compute = {"users": agg.sketch.hll("user"), "seconds": agg.sketch.kll("seconds")}
    per_minute = visits.transform(Tumbling(size="1 minute", time="at", compute=compute))
    return per_minute.withColumnRenamed("window_start", "minute").drop("window_end")


@app.topic()
def hours(minutes: DataFrame) -> DataFrame:
    merged = {name: agg.merge_sketches(name) for name in ("users", "seconds")}
    return minutes.where("_op is null or _op in ('+I', '+U')").transform(
        Tumbling(size="1 hour", time="minute", compute=merged)
    )


def test_minutes_of_a_view_become_hours(spark: SparkSession) -> None:
    with AppTest(app, spark=spark) as test:
        start = test.now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        for minute in (0, 20):
            at = start + timedelta(minutes=minute)
            visitors = range(minute, minute + 30)  # ten of them come again
            test.feed("visits", [{"user": f"u{number}", "seconds": float(number), "at": at} for number in visitors])
        for later in (2, 3, 4, 5):
            test.drain()
            test.feed("visits", [{"user": "later", "seconds": 0.0, "at": start + timedelta(hours=later)}])
        found = {row["minute"]: row for row in test.views["minutes"].rows()}
        assert round(sketches.estimate(bytes(found[start]["users"])).estimate) == 30
        (hour,) = [row for row in test.rows("hours") if row["window_start"] == start]
        assert round(sketches.estimate(hour["users"]).estimate) == 50
        assert sketches.quantile(hour["seconds"], 1.0).estimate == 49.0
