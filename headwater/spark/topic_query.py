"""A streaming query into a topic, in one plan and one job for each micro-batch.

`foreachBatch(TopicSink(…))` serves any query, but Spark plans each micro-batch twice there: once to know its rows, and once more for what
the function does with them. Here the staging of rows belongs to the query's own plan, and a small class of Java (`StagedRows.java`)
hands what the tasks have staged to the driver, which commits it. What is written, and when it counts, is the same. It needs a session
whose JVM has our classes (`java_classes.are_known`).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from headwater.engine.micro_batch import MicroBatch
from headwater.engine.reader_protocol import map_in_arrow
from headwater.log import Staged
from headwater.spark.batch_offsets import source_offsets
from headwater.spark.source.columns import arrow_schema
from headwater.spark.topic_sink import ExtraParts, commit_batch, discard_batch, stage_in_task, staged_by_driver
from headwater.spark.topic_target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_FORMAT = "headwater.StagedRows"


@dataclass(frozen=True, kw_only=True)
class TopicQuery:
    """Writes the rows of a streaming query into a topic; `begins` and `ends` are called around each micro-batch, in the driver."""

    target: Target
    checkpoint: str
    #: Rows that were computed elsewhere for the same micro-batch.
    extra_parts: ExtraParts | None = None
    begins: Callable[[MicroBatch], None] = field(default=lambda _: None)
    ends: Callable[[MicroBatch], None] = field(default=lambda _: None)

    def start(self, rows: DataFrame, settings: Callable[[DataStreamWriter], DataStreamWriter]) -> StreamingQuery:
        """Start the query; `settings` adds what else its writer needs: output mode, name, trigger."""
        from pyspark.java_gateway import ensure_callback_server_started
        from pyspark.sql.types import StringType, StructType

        spark = rows.sparkSession
        staged = map_in_arrow(
            rows, partial(stage_in_task, self.target), StructType().add("staged", StringType()), name="topic"
        )
        context = spark.sparkContext
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]  # it has no types
        java: Any = context._jvm  # py4j objects have no types
        name = secrets.token_hex(8)
        java.headwater.StagedRows.register(name, _Driver(self, arrow_schema(rows.schema)))
        try:
            writer = settings(staged.writeStream.format(_FORMAT)).option("driver", name)
            return writer.option("checkpointLocation", self.checkpoint).start()
        finally:
            java.headwater.StagedRows.forget(name)


class _Driver:
    """What Java calls in each micro-batch, by the interface `java.util.function.BiFunction`."""

    def __init__(self, query: TopicQuery, columns: Any) -> None:  # Any: a schema of Arrow, which has no types
        self._query = query
        self._columns = columns
        self._target = query.target
        #: The micro-batch that an earlier run has committed, while it is repeated.
        self._committed: int | None = None

    def apply(self, step: str, lines: str) -> None:
        query, run, number, *staged = lines.split("\n")
        batch = MicroBatch(query=query, number=int(number), run=run)
        if step == "begin":
            self._begin(batch)
        elif step == "commit":
            self._commit(batch, [Staged(one) for one in staged])
        else:
            discard_batch(self._target, batch)

    def _begin(self, batch: MicroBatch) -> None:
        self._query.begins(batch)
        self._target.check(self._columns)
        is_committed = self._target.open().committed_sequence(batch.query) >= batch.number
        # It runs all the same: stateful operators and watermarks must come to the end of this batch.
        self._committed = batch.number if is_committed else None

    def _commit(self, batch: MicroBatch, staged: list[Staged]) -> None:
        if self._committed != batch.number:
            if self._query.extra_parts is not None:
                staged.append(staged_by_driver(self._target, batch, self._query.extra_parts(batch)))
            commit_batch(self._target, batch, staged, source_offsets(self._query.checkpoint, batch.number))
        self._query.ends(batch)

    class Java:
        implements = ["java.util.function.BiFunction"]
