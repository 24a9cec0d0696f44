"""Click-through: how often each ad is shown and clicked, per ad and per minute.

headwater run examples/clicks.py
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.operators import Dedupe

app = hw.App("clicks", log="./data")
AT = hw.EventTime("at", delay="5 minutes")
app.input("impressions", {"id": "string", "ad": "string", "at": "timestamp"}, key="ad", time="at", partitions=2)
app.input("clicks", {"impression": "string", "ad": "string", "at": "timestamp"}, key="ad", time=AT, partitions=2)


@app.topic(key="ad")
def clicked(clicks: DataFrame) -> DataFrame:
    """People click twice; an impression counts once."""
    return clicks.transform(Dedupe(by="impression", within="1 hour"))


@app.view(key="ad")
def click_through(impressions: DataFrame, clicked: DataFrame) -> DataFrame:
    """Shown, clicked, and the rate between them."""
    shown = impressions.select("ad", F.lit(1).alias("shown"), F.lit(0).alias("clicks"))
    chosen = clicked.select("ad", F.lit(0).alias("shown"), F.lit(1).alias("clicks"))
    sums = shown.union(chosen).groupBy("ad").agg(F.sum("shown").alias("shown"), F.sum("clicks").alias("clicks"))
    return sums.withColumn("rate", F.when(F.col("shown") > 0, F.col("clicks") / F.col("shown")))


@app.view(key=["ad", "minute"])
def per_minute(clicked: DataFrame) -> DataFrame:
    """Clicks per ad and minute; a minute is corrected for as long as late clicks may come."""
    minutes = clicked.withWatermark("at", "5 minutes").groupBy("ad", F.window("at", "1 minute"))
    return minutes.count().select("ad", F.col("window.start").alias("minute"), F.col("count").alias("clicks"))
