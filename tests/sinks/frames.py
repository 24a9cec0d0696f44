"""Batches of a streaming query without Spark: the calls that Spark makes to the sinks, in its order.

`tests/sinks/test_spark.py` proves that Spark makes these calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headwater.engine import open_logs
from headwater.engine.micro_batch import MicroBatch
from headwater.log import Log
from headwater.sinks import TopicSink, TopicStreamWriter
from headwater.spark.topic_sink import TopicBatchWriter
from tests.spark.source.tasks import Task, crossed, in_task

#: The rows of a task, each time that it runs.
Part = Callable[[], Iterable[pa.RecordBatch]]
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def parts_of(*parts: Iterable[int]) -> list[Part]:
    """Tasks with rows of these ids."""
    return [_part(rows_of(list(ids))) for ids in parts]


def rows_of(ids: Sequence[int]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array([f"n{n}" for n in ids], pa.string())], schema=SCHEMA)


def _part(*batches: pa.RecordBatch) -> Part:
    return lambda: iter(batches)


def one_part(**columns: Any) -> list[Part]:
    """One task with one batch of these columns."""
    return [_part(pa.record_batch(columns))]


def failing(*ids: int) -> Part:
    """A task that hands on some rows, and fails."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows_of(ids)
        raise ValueError("bad row")

    return batches


@dataclass
class Frame:
    """What sinks use of the DataFrame that `foreachBatch` gives them."""

    parts: Sequence[Part]
    batch: MicroBatch
    arrow: pa.Schema = SCHEMA
    #: How often each of its tasks came to its end.
    finished: list[int] = field(default_factory=list)
    kept: bool = False

    @property
    def schema(self) -> StructType:
        return from_arrow_schema(self.arrow, prefer_timestamp_ntz=True)

    @property
    def sparkSession(self) -> Any:  # noqa: N802
        properties = Task(self.batch).getLocalProperty
        return SimpleNamespace(
            sparkContext=SimpleNamespace(getLocalProperty=properties),
            conf=SimpleNamespace(get=lambda _name, default=None: default),
        )

    @property
    def write(self) -> Any:
        """A writer to nowhere, which runs all tasks."""
        writer = SimpleNamespace(save=lambda: [None for number in range(len(self.parts)) for _ in self._run(number)])
        writer.mode = writer.format = lambda _name: writer
        return writer

    def select(self, change: Callable[[pa.RecordBatch], pa.RecordBatch], arrow: pa.Schema) -> Frame:
        """Other rows made from these."""
        changed = [_changed(part, change) for part in self.parts]
        return Frame(changed, self.batch, arrow)

    def persist(self) -> Frame:
        self.kept = True
        return self

    def unpersist(self) -> None:
        self.kept = False

    def toArrow(self) -> pa.Table:  # noqa: N802
        return pa.Table.from_batches([row for n in range(len(self.parts)) for row in self._run(n)], self.arrow)

    # Any: what a task does, and the rows it answers with.
    def mapInArrow(self, function: Any, _schema: str) -> Any:  # noqa: N802
        def collect() -> list[Any]:
            found: list[Any] = []
            for number in range(len(self.parts)):
                with in_task(replace(self.batch, partition=number, attempt=number)):
                    for answer in crossed(function)(self._run(number)):
                        found += [SimpleNamespace(**row) for row in answer.to_pylist()]
            return found

        return SimpleNamespace(collect=collect)

    def _run(self, number: int) -> Iterator[pa.RecordBatch]:
        yield from self.parts[number]()
        self.finished.append(number)


def _changed(part: Part, change: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Part:
    return lambda: map(change, part())


def close_shared(log: Log) -> None:
    """Close the log as the sinks of this process have opened it."""
    known = open_logs._logs.pop((os.getpid(), log.address), None)
    if known is not None:
        known[1].close()


def options_of(log: Log, options: dict[str, Any]) -> dict[str, str]:
    return {"log": log.address, "topic": "out"} | {name: str(value) for name, value in options.items()}


def stream_writer(log: Log, arrow: pa.Schema = SCHEMA, **options: Any) -> TopicStreamWriter:
    return TopicStreamWriter(options_of(log, options), from_arrow_schema(arrow))


def told_by_tasks(writer: TopicStreamWriter, frame: Frame) -> Iterator[WriterCommitMessage | None]:
    """What each task of a batch tells the driver."""
    for number in range(len(frame.parts)):
        with in_task(replace(frame.batch, partition=number, attempt=number)):
            yield crossed(crossed(writer).write(frame._run(number)))


def deliver(
    way: str, log: Log, parts: Sequence[Part], batch: MicroBatch, *, arrow: pa.Schema = SCHEMA, **options: Any
) -> Frame:
    """A batch on its way into the topic `out`: by the format of a stream, or by `foreachBatch`."""
    frame = Frame(parts, batch, arrow)
    if way == "foreachBatch":
        given: dict[str, Any] = {"log": log.address, "topic": "out", **options}
        # Any: a stand-in for a DataFrame.
        rows: Any = frame
        TopicSink(**given)(rows, batch.number)
        return frame
    writer = stream_writer(log, arrow, **options)
    messages: list[WriterCommitMessage | None] = []
    try:
        messages.extend(told_by_tasks(writer, frame))
        crossed(writer).commit(messages, batch.number)
    except BaseException:
        crossed(writer).abort([*messages, None], batch.number)  # None for a task that told nothing
        raise
    return frame


def write_frame(log: Log, parts: Sequence[Part], arrow: pa.Schema = SCHEMA, **options: Any) -> None:
    """A whole DataFrame on its way into the topic `out`."""
    writer = TopicBatchWriter(options_of(log, options), from_arrow_schema(arrow))
    try:
        crossed(writer).commit([crossed(crossed(writer).write(iter(part()))) for part in parts])
    except BaseException:
        crossed(writer).abort([])
        raise
