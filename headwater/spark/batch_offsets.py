"""The current batch of a streaming query, and the offsets of its sources in Spark's checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import orjson

from headwater.engine.analyzed_plan import require_java
from headwater.engine.micro_batch import BATCH_ID, QUERY_ID, RUN_ID, MicroBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def driver_batch(spark: SparkSession) -> MicroBatch | None:
    """The batch that the driver works on, inside of `foreachBatch`; None outside of a streaming query."""
    require_java(spark, "A sink in `foreachBatch`")
    context = spark.sparkContext
    query, number = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is None or number is None:
        return None
    return MicroBatch(query=query, number=int(number), run=context.getLocalProperty(RUN_ID) or "")


def checkpoint_of(spark: SparkSession, query: str) -> str | None:
    """Where a running query keeps its checkpoint. Spark has no public way to ask from inside `foreachBatch`."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    # Any: py4j objects have no types.
    java: Any = spark
    try:
        queries = java._jsparkSession.sharedState().activeStreamingQueries()
        found = queries.get(java._jvm.java.util.UUID.fromString(query))
        return None if found is None else str(found.resolvedCheckpointRoot())
    except (Py4JError, AttributeError):  # another release: the batch is named all the same
        return None


# Any: whatever JSON the sources have made of their offsets.
def source_offsets(checkpoint: str | None, batch: int) -> list[Any]:
    """The end offsets of all sources of a batch, in Spark's order; empty where the checkpoint is not a local folder."""
    folder = local_folder(checkpoint)
    if folder is None:
        return []
    try:
        lines = (folder / "offsets" / str(batch)).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    return [_parsed(line) for line in lines[2:]]


def local_folder(address: str | None) -> Path | None:
    """A checkpoint's address as a path, if it is one on this machine.

    >>> str(local_folder("file:/data/my%20query")), local_folder("s3a://bucket/query")
    ('/data/my query', None)
    """
    if not address:
        return None
    parsed = urlparse(address)
    if parsed.scheme == "file":
        return Path(unquote(parsed.path))
    return None if parsed.scheme else Path(address)


def _parsed(line: str) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return line  # "-" for a source that has not begun
