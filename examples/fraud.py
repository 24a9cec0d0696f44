"""Card payments: what each card spends, which country spends how much, and cards that were probably stolen.

headwater run examples/fraud.py
headwater query list
headwater sql "select * from spend order by total desc limit 5"
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.operators import Dedupe, Process

app = hw.App("fraud", log="./data")
app.input(
    "payments",
    {"id": "int64", "card": "int64", "country": "string", "amount": "float64", "at": "timestamp"},
    key="card",
    time=hw.EventTime("at", delay="10 minutes"),
    partitions=2,
)


@app.topic(key="card", time=hw.EventTime("at", delay="10 minutes"))
def paid(payments: DataFrame) -> DataFrame:
    """Payments, each once: terminals repeat themselves when a network is slow."""
    return payments.transform(Dedupe(by="id", within="1 hour"))


@app.view(key="card")
def spend(paid: DataFrame) -> DataFrame:
    """What each card has spent."""
    return paid.groupBy("card").agg(F.count("*").alias("payments"), F.sum("amount").alias("total"))


@app.view(key="card")
def big_spenders(spend: DataFrame) -> DataFrame:
    """A view on a view: a card that spends more than 1,000 enters, and its numbers stay fresh."""
    return spend.where("total > 1000 or _op = '-D'")


def after_small_ones(state: pa.Table, rows: pa.Table, time: object) -> tuple[pa.Table, pa.Table]:
    """A large payment after two small ones in a row: a thief has tried a stolen card out."""
    small = {row["_key"]: row["small"] for row in state.to_pylist()}
    found = []
    for row in rows.to_pylist():
        seen = small.get(row["_key"], 0)
        if row["amount"] > 500 and seen >= 2:
            found.append({"_key": row["_key"], "id": row["id"], "amount": row["amount"], "at": row["at"]})
        small[row["_key"]] = seen + 1 if row["amount"] < 5 else 0
    kept = {"_key": list(small), "small": list(small.values())}
    output = pa.schema([("_key", "int64"), ("id", "int64"), ("amount", "float64"), ("at", pa.timestamp("us", "UTC"))])
    return pa.table(kept, schema=pa.schema([("_key", "int64"), ("small", "int64")])), pa.Table.from_pylist(
        found, output
    )


@app.topic(key="card", late="stolen.late")
def stolen(paid: DataFrame) -> DataFrame:
    return paid.transform(
        Process(
            step=after_small_ones,
            by="card",
            state={"small": "int64"},
            output={"card": "int64", "id": "int64", "amount": "float64", "at": "timestamp"},
        )
    )
