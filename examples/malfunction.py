"""Malfunction: machines that shake as they never did, and machines that will be too hot within half an hour.

headwater run examples/malfunction.py
headwater tail shaking
"""

from __future__ import annotations

from pyspark.sql import DataFrame

import headwater as hw
from headwater.operators import Anomaly, Trend

CELSIUS_MAX = 90

app = hw.App("malfunction", log="./data")
app.input(
    "machines",
    {"machine": "string", "vibration": "float64", "celsius": "float64", "at": "timestamp"},
    key="machine",
    time="at",
    partitions=4,
)


@app.topic(key="machine")
def shaking(machines: DataFrame) -> DataFrame:
    """Readings far above what has been usual for their machine, whatever that is."""
    judged = machines.transform(
        Anomaly(of="vibration", by="machine", warm_up=10, threshold=6.0, side="above", deviation_min=0.01)
    )
    return judged.where("anomaly").select("machine", "vibration", "expected", "upper", "score", "at")


@app.view(key="machine")
def heating(machines: DataFrame) -> DataFrame:
    """Where each machine's temperature is going, and whether that is too hot in half an hour."""
    trend = Trend(of="celsius", by="machine", period="15 minutes", per="1 minute", horizon="30 minutes")
    return machines.transform(trend).selectExpr(
        "machine", "celsius", "slope", "forecast", f"direction = 'up' AND forecast > {CELSIUS_MAX} AS too_hot", "since"
    )
