"""Trading: a rule on price changes. Buy what rises by more than three percent above its last five minutes, sell what falls.

headwater run examples/trading.py
headwater tail signals
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.operators import Rolling, Trend, agg

app = hw.App("trading", log="./data")
AT = hw.EventTime("at", delay="2 seconds")
app.input("prices", {"symbol": "string", "price": "float64", "at": "timestamp"}, key="symbol", time=AT, partitions=4)


@app.topic(key="symbol")
def signals(prices: DataFrame) -> DataFrame:
    """Prices that left the mean of the five minutes before them, in the direction in which they have been going."""
    before = {"mean": agg.mean("price"), "spread": agg.stddev("price"), "trades": agg.count()}
    usual = prices.transform(Rolling(by="symbol", period="5 minutes", closed="left", compute=before))
    moving = usual.transform(Trend(of="price", by="symbol", period="5 minutes", per="1 minute"))
    change = F.col("price") / F.col("mean") - 1
    side = F.when((change > 0.03) & (F.col("direction") == "up"), "buy")
    side = side.when((change < -0.03) & (F.col("direction") == "down"), "sell")
    rules = moving.where("trades >= 3").withColumn("change", change).withColumn("side", side)
    return rules.where("side is not null").select("symbol", "side", "price", "change", "slope", "since", "at")
