"""Headwater and bare Spark, each in a process of its own: `python -m benchmarks.nexmark.spark_child headwater FOLDER 2 4g`.

Spark has what is best for it: Parquet of which it reads only the columns that it needs, one task a core, checkpoints
that commit quickly, and its default state store, which keeps state in memory and writes only what changed.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.nexmark.child import Changes, Request, serve
from benchmarks.nexmark.spark_queries import QUERIES

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
#: Queries without state, which need no position of a row.
STATELESS = ("q0", "q1", "q2", "q10", "q13", "q14", "q21", "q22")
#: The query whose sink are files.
FILES = "q10"
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


class QueryInexpressible(Exception):
    """An engine has no words for a query."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """The rows of a query; with a `key`, its output updates the rows that have the same."""

    rows: DataFrame
    key: Sequence[str] = ()


class Headwater:
    """The queries of `examples/nexmark.py` over topics."""

    def __init__(self, folder: Path, cores: int, memory: str) -> None:
        import headwater

        self._state = folder / "state"
        conf = {"spark.driver.memory": memory}
        self.spark = headwater.session("nexmark", master=f"local[{cores}]", state=self._state, conf=conf)
        sys.path.insert(0, str(EXAMPLES))
        import nexmark

        self._queries: Mapping[str, Callable[..., DataFrame]] = nexmark.QUERIES

    def query(self, request: Request) -> Query:
        query = self._queries[request["query"]]
        topics = inspect.signature(query).parameters
        return Query(rows=query(*(self._topic(request, topic) for topic in topics)))

    def _topic(self, request: Request, topic: str) -> DataFrame:
        columns = list(request["columns"][topic])
        if request["query"] not in STATELESS:
            columns += ["_partition", "_offset"]
        reader = self.spark.readStream.format("headwater").option("log", request["log"])
        reader = reader.option("rows_max", request["batch_rows"][topic]).option("columns", ",".join(columns))
        return reader.option("end_of_input", "true").load(topic)

    # Any: a report of Spark's is JSON with a class around it.
    def rows_read(self, report: Any) -> int:
        from headwater.spark.source.offsets import rows_read

        return rows_read(report)

    def clean(self) -> None:
        """Delete the state of the queries that have ended."""
        shutil.rmtree(self._state, ignore_errors=True)


class Spark:
    """The queries of `spark_queries.py` over Parquet files."""

    def __init__(self, folder: Path, cores: int, memory: str) -> None:
        from headwater.spark.java import find_java

        os.environ["JAVA_HOME"] = str(find_java().home)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings = {
            "spark.driver.memory": memory,
            "spark.sql.shuffle.partitions": str(cores),
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.ui.enabled": "false",
        }
        builder = SparkSession.builder.appName("nexmark").master(f"local[{cores}]")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        self._cores = cores

    def query(self, request: Request) -> Query:
        query = QUERIES.get(request["query"])
        if query is None:
            raise QueryInexpressible("a stream of Spark does not aggregate what an aggregation still changes")
        return Query(rows=query.build(lambda topic: self._topic(request, topic)), key=query.key)

    def _topic(self, request: Request, topic: str) -> DataFrame:
        folder = f"{request['parquet']}/{topic}"
        schema = self.spark.read.parquet(folder).schema
        reader = self.spark.readStream.schema(schema).option("maxFilesPerTrigger", self._cores)
        return reader.parquet(folder)

    # Any: a report of Spark's is JSON with a class around it.
    def rows_read(self, report: Any) -> int:
        return int(report.numInputRows)

    def clean(self) -> None:
        """Spark keeps its state with the checkpoint."""


def main(engine: str, folder: str, cores: str, memory: str) -> None:
    kind: type[Headwater | Spark] = Headwater if engine == "headwater" else Spark
    made = kind(Path(folder), int(cores), memory)
    serve(lambda request: run(made, Path(folder), request))


def run(engine: Headwater | Spark, folder: Path, request: Request) -> Mapping[str, Any]:
    """Run a query over all there is; returns the seconds inside of batches, without the start of the query."""
    try:
        query = engine.query(request)
    except QueryInexpressible as reason:
        return {"unsupported": str(reason)}
    place = folder / uuid.uuid4().hex
    writer = query.rows.writeStream.outputMode("update" if query.key else "append").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(place / "checkpoint"))
    changes = Changes(request["collect"]) if request.get("collect") else None
    if changes is not None:
        op = "update" if query.key else "+I"
        writer = writer.foreachBatch(lambda rows, _number: collect(rows, changes, op))
    elif request["query"] == FILES:
        writer = writer.format("parquet").option("path", str(place / "rows"))
    else:
        writer = writer.format("noop")
    try:
        stream = writer.start()
        stream.awaitTermination()
        # Any: a report of Spark's is JSON with a class around it.
        reports: list[Any] = list(stream.recentProgress)
    finally:
        shutil.rmtree(place, ignore_errors=True)
        engine.clean()
    if changes is not None:
        changes.close()
    return {
        "seconds": sum(dict(report.durationMs)["triggerExecution"] for report in reports) / 1_000,
        "rows": sum(map(engine.rows_read, reports)),
        "batches": len(reports),
        "key": list(query.key),
    }


def collect(rows: DataFrame, changes: Changes, op: str) -> None:
    """Write down the rows of a batch, with their operations."""
    for row in rows.collect():
        values = row.asDict(recursive=True)
        changes.add(
            values.pop("_op", op),
            {name: _plain(value) for name, value in values.items() if not name.startswith("_")},
        )


# Any: a value of a row.
def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value.astimezone(UTC) - EPOCH) // timedelta(milliseconds=1)  # one without a zone is local
    return value


if __name__ == "__main__":
    main(*sys.argv[1:])
