"""Favourites: the page that each age group visits most. When a user turns thirty, their visits count elsewhere.

headwater run examples/favourites.py
headwater sql "select age_group, page, visits from favourites order by age_group"
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.operators import AggregateTable, TableJoin, TopN, agg

app = hw.App("favourites", log="./data")
app.input("visits", {"id": "int64", "user": "string", "page": "string"}, key="id", partitions=2)
app.input("users", {"user": "string", "age": "int64"}, key="user", compact=True)


@app.view(key="age_group")
def favourites(visits: DataFrame, users: DataFrame) -> DataFrame:
    """Visits meet their users, are counted by age group and page, and of each group the first page stays."""
    known = visits.transform(TableJoin(users, on="user", key="id"))
    grouped = known.withColumn("age_group", (F.col("age") - F.col("age") % 10).cast("long"))
    counts = grouped.transform(AggregateTable(by=("age_group", "page"), compute={"visits": agg.count()}))
    return counts.transform(TopN(n=1, by="age_group", order=[("visits", "desc")], key=("age_group", "page")))
