"""Headwater or bare Spark in a process of its own, as in the benchmark of Nexmark: `python -m benchmarks.peers.child spark FOLDER 2 3g`."""

from __future__ import annotations

import shutil
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.nexmark import spark_child
from benchmarks.nexmark.child import Request, serve
from benchmarks.peers.workloads import HEADWATER, ITEMS, SPARK, STATELESS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Headwater(spark_child.Headwater):
    """The workloads over topics."""

    def rows(self, request: Request) -> DataFrame:
        return HEADWATER[request["query"]](lambda topic: self._topic(request, topic))

    def _topic(self, request: Request, topic: str) -> DataFrame:
        if topic == ITEMS:
            return self.spark.read.parquet(request["items"])
        reader = self.spark.readStream.format("headwater").option("log", request["log"])
        reader = reader.option("rows_max", request["batch_rows"]).option("end_of_input", "true")
        if request["query"] in STATELESS:
            reader = reader.option("metadata", "none")
        return reader.load(topic)


class Spark(spark_child.Spark):
    """The workloads over Parquet files."""

    def rows(self, request: Request) -> DataFrame:
        return SPARK[request["query"]](lambda topic: self._topic(request, topic))

    def _topic(self, request: Request, topic: str) -> DataFrame:
        if topic == ITEMS:
            return self.spark.read.parquet(request["items"])
        return super()._topic(request, topic)


def run(engine: Headwater | Spark, folder: Path, request: Request) -> Mapping[str, Any]:
    """Run a workload into Spark's Parquet sink; returns the seconds inside of micro-batches, without the start of the query."""
    rows = engine.rows(request)
    checkpoint = folder / uuid.uuid4().hex
    writer = rows.writeStream.format("parquet").outputMode("append").trigger(availableNow=True)
    try:
        stream = writer.option("checkpointLocation", str(checkpoint)).start(request["out"])
        stream.awaitTermination()
        # Any: a report of Spark's is JSON with a class around it.
        reports: list[Any] = list(stream.recentProgress)
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
        engine.clean()
    read = sum(map(engine.rows_read, reports))
    if read != request["events"]:
        raise RuntimeError(f"{request['events']} events should have been read, {read} were")
    seconds = sum(dict(report.durationMs)["triggerExecution"] for report in reports) / 1_000
    return {"seconds": seconds, "batches": len(reports)}


def main(engine: str, folder: str, cores: str, memory: str) -> None:
    kind: type[Headwater | Spark] = Headwater if engine == "headwater" else Spark
    made = kind(Path(folder), int(cores), memory)
    serve(lambda request: run(made, Path(folder), request))


if __name__ == "__main__":
    main(*sys.argv[1:])
