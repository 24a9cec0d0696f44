"""Tax: each sale is taxed at the rate that held in its country when it was made, though rates change and arrive late.

headwater run examples/tax_rates.py
headwater sql "select * from owed"
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.operators import Enrich

app = hw.App("tax", log="./data")
app.input(
    "sales",
    {"country": "string", "net": "float64", "sold_at": "timestamp"},
    key="country",
    time=hw.EventTime("sold_at", delay="10 minutes"),
)
# Not compacted: the rates of the past are asked for, too.
app.input(
    "rates",
    {"country": "string", "percent": "float64", "since": "timestamp"},
    key="country",
    time=hw.EventTime("since", delay="10 minutes"),
)


@app.topic(key="country")
def taxed(sales: DataFrame, rates: hw.Table) -> DataFrame:
    """A sale waits up to an hour for rates that come late, and is taxed by what held when it was made."""
    found = sales.transform(Enrich(rates, on="country", as_of="sold_at", allowed_lateness="1 hour"))
    return found.withColumn("tax", F.round(F.col("net") * F.col("percent") / 100, 2))


@app.view(key="country")
def owed(taxed: DataFrame) -> DataFrame:
    """What is owed to each country; sales without a rate are counted, not forgotten."""
    without = F.count_if(F.col("percent").isNull()).alias("without_rate")
    return taxed.groupBy("country").agg(F.sum("tax").alias("tax"), F.count("*").alias("sales"), without)
