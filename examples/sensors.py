"""Sensors: what each one says per minute, alarms above a limit that people may change, and a lake of all readings.

headwater run examples/sensors.py
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.sinks import LakeSink

app = hw.App("sensors", log="./data")
app.input(
    "readings", {"sensor": "string", "celsius": "float64", "at": "timestamp"}, key="sensor", time="at", partitions=2
)
app.input("limits", {"sensor": "string", "celsius_max": "float64"}, key="sensor", compact=True)


@app.view(key=["sensor", "minute"])
def climate(readings: DataFrame) -> DataFrame:
    minutes = readings.withWatermark("at", "2 minutes").groupBy("sensor", F.window("at", "1 minute"))
    means = minutes.agg(F.avg("celsius").alias("mean"), F.max("celsius").alias("highest"))
    return means.select("sensor", F.col("window.start").alias("minute"), "mean", "highest")


@app.topic(key="sensor")
def alarms(readings: DataFrame, limits: hw.Table) -> DataFrame:
    """Readings above the limit of their sensor, as it stands now."""
    return readings.join(limits.current(), "sensor").where("celsius > celsius_max")


@app.sink(LakeSink(path="./lake/readings", partition_by=("day",)))
def lake(readings: DataFrame) -> DataFrame:
    return readings.withColumn("day", F.to_date("at"))
