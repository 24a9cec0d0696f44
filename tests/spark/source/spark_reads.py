"""How tests read topics: as a table, and as a stream that is run until it has caught up."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pyspark.sql import DataFrame, DataFrameReader, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from headwater.log import Log

R = TypeVar("R", DataFrameReader, DataStreamReader)


def with_options(reader: R, log: Log, options: dict[str, Any]) -> R:
    """Rows without the system's columns, unless a test asks for them."""
    for name, value in {"log": log.home, "metadata": "none", **options}.items():
        reader = reader.option(name, str(value).lower() if isinstance(value, bool) else str(value))
    return reader


def table(spark: SparkSession, log: Log, topics: str = "orders", **options: Any) -> DataFrame:
    return with_options(spark.read.format("headwater"), log, options).load(topics)


def stream(spark: SparkSession, log: Log, topics: str = "orders", **options: Any) -> DataFrame:
    return with_options(spark.readStream.format("headwater"), log, options).load(topics)


class Run:
    """A streaming query that writes what it reads to files, so that a restart adds to them."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint"
        self.output = folder / "output"
        self.query: StreamingQuery | None = None

    def __call__(self, rows: DataFrame, *, available_now: bool = True, sink: str = "json") -> StreamingQuery:
        """Run until everything that is there now has been read; the query, as it was when it ended."""
        writer = rows.writeStream.format(sink).option("checkpointLocation", str(self.checkpoint))
        if available_now:
            writer = writer.trigger(availableNow=True)
        query = writer.start(str(self.output))
        self.query = query
        if available_now:
            query.awaitTermination(120)
        return query

    def rows(self, spark: SparkSession, schema: str) -> list[Row]:
        return spark.read.schema(schema).json(str(self.output)).collect()


def batch_sizes(query: StreamingQuery) -> list[int]:
    return [progress.numInputRows for progress in query.recentProgress]
