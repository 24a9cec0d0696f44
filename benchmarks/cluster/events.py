"""The events of this benchmark and its query, and how a run of the query is measured."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.spark.workbench import tree_cpu_seconds
from headwater.operators import Tumbling, agg

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "events"
SCHEMA = {"user": "int64", "amount": "int64", "at": "timestamp"}
PARTITIONS = 4
#: 50,000 events in a second of event time.
EVENT_US = 20
APPEND_ROWS = 100_000


@dataclass(frozen=True, kw_only=True)
class Run:
    """A query that has read all events: the batches behind the first one, which waits for whatever starts late."""

    rows: int
    seconds: float
    cpu_seconds: float
    batch_ms: Sequence[int]

    @property
    def batch_ms_median(self) -> float:
        return statistics.median(self.batch_ms)


def fill(log: Path, *, rows: int, users: int) -> None:
    """Append events of random users in the order of time, spread over all partitions."""
    chance = np.random.default_rng(7)
    with hwlog.open(log) as opened:
        opened.create(TOPIC, SCHEMA, partitions=PARTITIONS, time="at", durability="os")
        for first in range(0, rows, APPEND_ROWS):
            count = min(APPEND_ROWS, rows - first)
            times = (first + np.arange(count)) * EVENT_US
            columns = {
                "user": chance.integers(0, users, count),
                "amount": chance.integers(0, 1_000, count),
                "at": pa.array(times).cast(pa.timestamp("us", "UTC")),
            }
            table = pa.table(columns)
            for partition in range(PARTITIONS):
                opened.append(TOPIC, table.take(np.arange(partition, count, PARTITIONS)), partition=partition)


def run(spark: SparkSession, log: Path, *, checkpoint: str, topic: str, rows: int, batches: int) -> Run:
    """Sum and count the amounts of each user in windows of ten seconds, exactly once into a topic of its own."""
    reader = spark.readStream.format("headwater").option("log", str(log)).option("rows_max", rows // batches)
    compute = {"total": agg.sum("amount"), "count": agg.count()}
    windows = reader.load(TOPIC).transform(Tumbling(size="10 seconds", by="user", time="at", compute=compute))
    writer = windows.writeStream.format("headwater").option("log", str(log)).option("topic", topic)
    writer = writer.option("create", "true").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    cpu, began = 0.0, 0.0
    while not query.awaitTermination(0.02):  # type: ignore[arg-type]  # a part of a second is allowed
        if not began and query.lastProgress is not None:
            cpu, began = tree_cpu_seconds(), time.perf_counter()
    seconds, cpu_seconds = time.perf_counter() - began, tree_cpu_seconds() - cpu
    # Any: a report of Spark's is JSON with a class around it.
    reports: list[Any] = list(query.recentProgress)
    batch_ms = [report.durationMs["triggerExecution"] for report in reports[1:]]
    if not began or len(batch_ms) < batches - 1:
        raise RuntimeError(f"{batches} batches should have run, {len(reports)} did")
    return Run(rows=rows - rows // batches, seconds=seconds, cpu_seconds=cpu_seconds, batch_ms=batch_ms)
