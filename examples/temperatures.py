"""Machines and their temperatures per minute, from sensors whose clocks are wrong and whose readings come late.

headwater run examples/temperatures.py
"""

from __future__ import annotations

from pyspark.sql import DataFrame

import headwater as hw
from headwater.operators import CorrectClock, Tumbling, agg

app = hw.App("temperatures", log="./data")
clocks = dict.fromkeys(("occurred_at", "sent_at", "received_at"), "timestamp")
app.input("measured", {"machine": "string", "celsius": "float64", **clocks}, key="machine", partitions=2)


@app.topic(key="machine", time="at")
def readings(measured: DataFrame) -> DataFrame:
    """The same, at the time at which it was really measured; the gateway's clock is right."""
    clock = CorrectClock(occurred="occurred_at", sent="sent_at", received="received_at", otherwise="received")
    return measured.transform(clock).select("machine", "celsius", "at")


@app.view(key=["machine", "minute"], late="readings.late")
def temperatures(readings: DataFrame) -> DataFrame:
    """Shown at once, with how much of the minute has come; corrected for an hour; later rows are a side output."""
    minutes = Tumbling(
        size="1 minute",
        by="machine",
        compute={"mean": agg.mean("celsius"), "highest": agg.max("celsius"), "readings": agg.count()},
        allowed_lateness="1 hour",
        emit="changes",
        completeness=True,
    )
    return readings.transform(minutes).withColumnRenamed("window_start", "minute").drop("window_end")
