"""How tests run streams into topics, and look at what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from headwater.log import Log
from headwater.sinks import Fanout, LakeSink, TopicSink, TopicStreamWriter
from tests.log.adapters import folder_of


def rows_of(spark: SparkSession, log: Log, *, rows_max: int = 40) -> DataFrame:
    """The topic `in` as a stream of several batches."""
    stream = spark.readStream.format("headwater").option("log", log.address).option("rows_max", str(rows_max))
    return stream.load("in")


def to_topic(rows: DataFrame, log: Log, *, format: str = "headwater", **options: Any) -> DataStreamWriter:
    writer = rows.writeStream.format(format).option("log", log.address).option("topic", "out")
    for name, value in options.items():
        writer = writer.option(name, str(value))
    return writer


def writer_of(rows: DataFrame, log: Log, way: str) -> DataStreamWriter:
    """To the topic `out`, in one of the two ways; or to two lakes."""
    if way == "format":
        return to_topic(rows, log)
    if way == "lakes":
        rows = rows.select("id", "name")
        return rows.writeStream.foreachBatch(Fanout(sinks=tuple(LakeSink(path=path) for path in lakes_of(log))))
    return rows.writeStream.foreachBatch(TopicSink(log=log.home, topic="out"))


def lakes_of(log: Log) -> list[Path]:
    return [log.home.parent / name for name in ("first", "last")]


def run(writer: DataStreamWriter, checkpoint: Path) -> StreamingQuery:
    """Run a query until it has caught up."""
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def run_until_it_fails(writer: DataStreamWriter, checkpoint: Path) -> str:
    try:
        run(writer, checkpoint)
    except StreamingQueryException as error:
        return str(error)
    raise AssertionError("the query did not fail")


def ids(log: Log, topic: str = "out") -> list[int]:
    return sorted(row["id"] for row in log.read(topic, columns=["id"]).rows())


def staged_files(log: Log) -> list[str]:
    return [path.name for path in (folder_of(log) / "transactions/staged").rglob("*") if path.is_file()]


class FailsAfterCommit(DataSource):
    """Our writer, in a driver that dies between the sink's commit of batch 1 and Spark's own, the first time."""

    @classmethod
    def name(cls) -> str:
        return "fails_after_commit"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        return _FailingWriter(self.options, schema)


class _FailingWriter(TopicStreamWriter):
    def __init__(self, options: Any, schema: StructType) -> None:
        super().__init__(options, schema)
        self.once = Path(options["once"])

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        super().commit(messages, batchId)
        if batchId == 1 and not self.once.exists():
            self.once.touch()
            raise OSError("between the two commits")
