"""The current batch of a streaming query, and the offsets of its sources in Spark's checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import orjson

from headwater.engine.analyzed_plan import require_java
from headwater.engine.micro_batch import BATCH_ID, QUERY_ID, RUN_ID, MicroBatch
from headwater.engine.object_folder import is_configured
from headwater.engine.state_folder import OBJECT_SCHEMES, Folder, open_folder
from headwater.errors import StorageError
from headwater.optional import is_installed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_CHECKPOINTS_MAX = 1_000


def driver_batch(spark: SparkSession) -> MicroBatch | None:
    """The batch that the driver works on, inside of `foreachBatch`; None outside of a streaming query."""
    require_java(spark, "A sink in `foreachBatch`")
    context = spark.sparkContext
    query, number = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
    if query is None or number is None:
        return None
    return MicroBatch(query=query, number=int(number), run=context.getLocalProperty(RUN_ID) or "")


#: The checkpoints of runs of queries: each question to Java takes five calls.
_checkpoints: dict[tuple[str, str], str] = {}


def checkpoint_of(spark: SparkSession, batch: MicroBatch) -> str | None:
    """Where a running query keeps its checkpoint. Spark has no public way to ask from inside `foreachBatch`."""
    key = (batch.query, batch.run)
    if key in _checkpoints:
        return _checkpoints[key]
    found = _asked_for(spark, batch.query)
    if found is not None:
        if len(_checkpoints) >= _CHECKPOINTS_MAX:
            _checkpoints.clear()
        _checkpoints[key] = found
    return found


def _asked_for(spark: SparkSession, query: str) -> str | None:
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
    """The end offsets of all sources of a batch, in Spark's order; empty where the checkpoint lies out of our reach."""
    folder = checkpoint_folder(checkpoint)
    try:
        text = None if folder is None else folder.within("offsets").read_text(str(batch))
    except StorageError:  # Spark has credentials that this process does not have
        text = None
    return [] if text is None else [_parsed(line) for line in text.splitlines()[2:]]


def checkpoint_folder(address: str | None) -> Folder | None:
    """A checkpoint as a folder on disk or in an object store; None if Spark reaches it by other means.

    >>> checkpoint_folder("file:/data/my%20query").path, checkpoint_folder("hdfs://host/query")
    (PosixPath('/data/my query'), None)
    """
    if not address:
        return None
    parsed = urlparse(address)
    if parsed.scheme == "file":
        return open_folder(unquote(parsed.path))
    if parsed.scheme in OBJECT_SCHEMES:
        return open_folder(address) if is_installed("obstore") and is_configured() else None
    return None if parsed.scheme else open_folder(address)


def _parsed(line: str) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return line  # "-" for a source that has not begun
