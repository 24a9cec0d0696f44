"""The query that is killed: orders without repetitions, billed per user. Its result does not depend on batches.

A user's orders lie in one partition, in the order of time, so that the running number and total of each order follow
from the topic alone, and so do the windows that the watermark has closed.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater import EventTime
from headwater.engine.contract import StepResult
from headwater.engine.event_time import BatchTime
from headwater.operators import Dedupe, Process

ORDERS = "orders"
BILLS = "bills"
ORDERS_SCHEMA = {"id": "string", "user": "string", "amount": "int64", "at": "timestamp"}
BILLS_SCHEMA = {
    "kind": "string",
    "user": "string",
    "id": "string",
    "read_partition": "int32",
    "read_offset": "int64",
    "window": "int64",
    "n": "int64",
    "total": "int64",
}
REFUSED_SCHEMA = {"id": "string", "read_partition": "int32", "read_offset": "int64"}

WITHIN_SECONDS = 60
WINDOW_US = 10_000_000
LATE_BY_SECONDS = 5
WHOLE = -1
"""In place of a window: the user's whole history."""


def bill(state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
    """Number and total each order of a user; bill a window when the watermark has passed it."""
    held: dict[int, dict[int, list[int]]] = {}
    for row in state.to_pylist():
        held.setdefault(row["_key"], {})[row["window"]] = [row["n"], row["total"]]
    output: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for row, at_us in zip(rows.to_pylist(), rows.column("at").cast(pa.int64()).to_pylist(), strict=True):
        place = {"id": row["id"], "read_partition": row["_partition"], "read_offset": row["_offset"]}
        if row["amount"] < 0:
            refused.append(place)
            continue
        sums = held.setdefault(row["_key"], {})
        for window in (WHOLE, at_us // WINDOW_US * WINDOW_US):
            before = sums.get(window, [0, 0])
            sums[window] = [before[0] + 1, before[1] + row["amount"]]
        n, total = sums[WHOLE]
        output.append({"_key": row["_key"], "kind": "order", **place, "n": n, "total": total})
    for key, sums in held.items():
        for window in [one for one in sums if one != WHOLE and one + WINDOW_US <= time.watermark_us]:
            n, total = sums.pop(window)
            output.append({"_key": key, "kind": "window", "window": window, "n": n, "total": total})
    return StepResult(_state(held), _table(output, BILLS_COLUMNS), {"refused": _table(refused, REFUSED_COLUMNS)})


def _state(held: dict[int, dict[int, list[int]]]) -> pa.Table:
    rows = [
        {
            "_key": key,
            "window": window,
            "n": n,
            "total": total,
            "_wake_at": None if window == WHOLE else window + WINDOW_US,
        }
        for key, sums in sorted(held.items())
        for window, (n, total) in sums.items()
    ]
    return _table(rows, STATE_COLUMNS)


def _table(rows: list[dict[str, Any]], columns: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(rows, columns)


_TYPES = {"string": pa.string(), "int32": pa.int32(), "int64": pa.int64()}
_KEYED = {"_key": "int64"}
BILLS_COLUMNS = pa.schema([(name, _TYPES[kind]) for name, kind in {**_KEYED, **BILLS_SCHEMA}.items() if name != "user"])
REFUSED_COLUMNS = pa.schema([(name, _TYPES[kind]) for name, kind in REFUSED_SCHEMA.items()])
STATE_COLUMNS = pa.schema([(name, pa.int64()) for name in ("_key", "window", "n", "total", "_wake_at")])


def start(spark: SparkSession, log: str, *, checkpoint: str) -> StreamingQuery:
    """Start the query from its checkpoint, if it has one."""
    orders = (
        spark.readStream.format("headwater")
        .option("log", log)
        .option("columns", "id, user, amount, at, _partition, _offset")
        .option("rows_max", "1500")
        .option("tick", "0.3 seconds")
        .load(ORDERS)
    )
    return (
        bills(orders)
        .writeStream.format("headwater")
        .option("log", log)
        .option("topic", BILLS)
        .option("checkpointLocation", checkpoint)
        .start()
    )


def bills(orders: DataFrame) -> DataFrame:
    once = Dedupe(by="id", time=EventTime("at", delay=LATE_BY_SECONDS), within=WITHIN_SECONDS, name="once")
    billed = Process(
        step=bill,
        by="user",
        time=EventTime("at", delay=LATE_BY_SECONDS),
        state={"window": "int64", "n": "int64", "total": "int64", "_wake_at": "int64"},
        output=BILLS_SCHEMA,
        side_outputs={"refused": REFUSED_SCHEMA},
        name="billed",
    )
    return orders.transform(once).transform(billed)
