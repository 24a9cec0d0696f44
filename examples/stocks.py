"""Stocks: the ten with the largest turnover, in two phases. Totals per symbol in many partitions, then a ranking in one.

headwater run examples/stocks.py
headwater sql "select * from top_stocks order by rank"
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.operators import AggregateTable, TopN, agg

app = hw.App("stocks", log="./data")
app.input(
    "trades",
    {"symbol": "string", "price": "decimal(18, 2)", "pieces": "int64", "at": "timestamp"},
    key="symbol",
    time="at",
    partitions=4,
)


@app.view(key="rank")
def top_stocks(trades: DataFrame) -> DataFrame:
    """Every trade moves one total; only what changes among the first ten goes on."""
    turnover = agg.sum((F.col("price") * F.col("pieces")).cast("decimal(38, 2)"))
    totals = trades.transform(AggregateTable(by="symbol", compute={"turnover": turnover, "trades": agg.count()}))
    return totals.transform(TopN(n=10, order=[("turnover", "desc")], key="symbol"))
