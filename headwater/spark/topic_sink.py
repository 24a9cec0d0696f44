"""The topic sink: a DataFrame's rows become rows of topics, exactly once.

Tasks stage their rows in files that no reader sees; the driver commits the files of successful attempts, in one
transaction of the log. It is named by the query's id and the batch's number, so:

- a batch that Spark repeats after a crash finds its name committed, and changes nothing;
- a batch that fails leaves nothing, whichever of its tasks had come to an end;
- a driver that was replaced by another on the same checkpoint is fenced, for each run of a query has an epoch.

It costs one more copy of the rows than an append: from the staged file into the partitions.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from headwater.engine.micro_batch import MicroBatch, current_batch
from headwater.errors import ArgumentInvalid
from headwater.log import Staged
from headwater.spark.batch_offsets import checkpoint_of, driver_batch, source_offsets
from headwater.spark.source.columns import arrow_schema
from headwater.spark.topic_target import Target
from headwater.workers import freeze_modules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Select = Callable[["DataFrame"], "DataFrame"]
ExtraParts = Callable[[MicroBatch], Iterable[tuple[str, pa.RecordBatch]]]


@dataclass(frozen=True)
class Message(WriterCommitMessage):
    """The message of a task to the driver: what it has staged, and for which batch."""

    staged: Staged
    batch: MicroBatch | None = None


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Append mode: `df.writeStream.format("headwater").option("log", …).option("topic", …)`."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self.target = Target.of_options(options)
        self.checkpoint = options.get("checkpointLocation") or options.get("checkpointlocation")
        self.target.check(arrow_schema(schema))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        batch = current_batch()
        if batch is None:
            raise ArgumentInvalid(name="trigger", value="continuous", expected="one that runs micro-batches")
        return Message(stage_batch(self.target, batch, iterator), batch)

    # Spark names it so, and calls it by keyword or by position as it likes.
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        told = _told(messages)
        if told and told[0].batch is not None:  # at least one task runs, also for a batch without rows
            batch = told[0].batch
            commit_batch(self.target, batch, [one.staged for one in told], source_offsets(self.checkpoint, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        # Also called when `commit` failed after the transaction was recorded. Staged files are no part of it.
        told = _told(messages)
        if told and told[0].batch is not None:
            discard_batch(self.target, told[0].batch)


class TopicBatchWriter(DataSourceArrowWriter):
    """A whole DataFrame at once: `df.write.format("headwater").mode("append")`; all of its rows, or none.

    With the options `producer` and `sequence`, a write that was committed before changes nothing; use them where the
    program that writes may be repeated.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool = False) -> None:
        if overwrite:
            raise ArgumentInvalid(name="mode", value="overwrite", expected="'append': a log has no rows to replace")
        self.target = Target.of_options(options)
        self.producer = options.get("producer")
        self.sequence = _sequence(options.get("sequence"), self.producer)
        self.run = uuid.uuid4().hex
        self.name = self.producer or self.run
        self.target.check(arrow_schema(schema))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        return Message(_stage(self.target, self.name, self.sequence or 0, _attempt(self.run), iterator))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = [one.staged for one in _told(messages)]
        self.target.open().commit_staged(staged, producer=self.producer, sequence=self.sequence)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:  # noqa: ARG002
        self.target.open().discard_attempts(self.name, sequence=self.sequence or 0, attempt=self.run)


@dataclass(frozen=True, kw_only=True)
class TopicSink:
    """Any output mode, and any number of topics: `df.writeStream.foreachBatch(TopicSink(log=…, topic=…))`.

    `topics` maps the name of each topic to a function that makes its rows from the batch, or to None for all of them.
    `extra_parts` may add rows that were computed elsewhere for the same batch. All of it becomes visible in one
    transaction. The price: the batch is computed once and kept until all topics are staged.
    """

    log: str | Path
    topic: str | None = None
    topics: Mapping[str, Select | None] = field(default_factory=dict)
    create: bool = False
    key: str | Sequence[str] | None = None
    partitions: int | None = None
    extra_parts: ExtraParts | None = None

    guarantee: ClassVar[Literal["exactly once"]] = "exactly once"

    def __post_init__(self) -> None:
        if self.topic is not None and self.topics:
            raise ArgumentInvalid(name="topics", value=list(self.topics), expected="either `topic` or `topics`")

    @property
    def name(self) -> str:
        return f"topic:{','.join(self.topics) or self.topic or '*'}"

    def check(self, columns: pa.Schema) -> None:
        """Raise if the columns do not fit the topic; create the topic if `create` is set."""
        if not self.topics:  # what others make of the rows is known only when they have
            self._target(self.topic).check(columns)

    def for_query(self, name: str, *, log: str | Path, state: str | Path) -> Self:  # noqa: ARG002
        """The same sink: it knows its log, and needs no more."""
        return self

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        batch = driver_batch(rows.sparkSession)
        if batch is None or batch.number != batch_id:
            raise ArgumentInvalid(name="batch_id", value=batch_id, expected="a call by `writeStream.foreachBatch`")
        outputs = [(self._target(topic), select) for topic, select in self.topics.items()]
        outputs = outputs or [(self._target(self.topic), None)]
        log = outputs[0][0].open()
        if log.committed_sequence(batch.query) >= batch.number:
            _check_not_in_this_run(log.transaction_metadata(batch.query) or {}, batch)
            # Run it all the same: stateful operators and watermarks below must come to the end of this batch.
            rows.write.format("noop").mode("overwrite").save()
            return
        try:
            staged = self._staged(rows, batch, outputs)
            offsets = source_offsets(checkpoint_of(rows.sparkSession, batch), batch.number)
            commit_batch(outputs[0][0], batch, staged, offsets)
        except BaseException:
            discard_batch(outputs[0][0], batch)
            raise

    def _target(self, topic: str | None) -> Target:
        return Target.of(log=self.log, topic=topic, create=self.create, key=self.key, partitions=self.partitions)

    def _staged(
        self, rows: DataFrame, batch: MicroBatch, outputs: Sequence[tuple[Target, Select | None]]
    ) -> list[Staged]:
        selected = [(target, rows if select is None else select(rows)) for target, select in outputs]
        for target, output in selected:
            target.check(arrow_schema(output.schema))
        if len(outputs) > 1:
            rows.persist()
        try:
            staged = [one for target, output in selected for one in _staged_by_tasks(target, output)]
        finally:
            if len(outputs) > 1:
                rows.unpersist()
        if self.extra_parts is not None:
            staged.append(staged_by_driver(outputs[0][0], batch, self.extra_parts(batch)))
        return staged


def stage_batch(target: Target, batch: MicroBatch, rows: Iterable[pa.RecordBatch]) -> Staged:
    """Stage the rows of one task; none if an earlier run has committed this batch."""
    log = target.open()
    if batch.run:
        log.open_producer(batch.query, holder=batch.run)  # refused where a newer run of the query is at work
    if log.committed_sequence(batch.query) >= batch.number:
        for _ in rows:  # to the end: stateful operators below commit their state there
            pass
        rows = ()
    return _stage(target, batch.query, batch.number, _attempt(batch.run, batch.partition, batch.attempt), rows)


def commit_batch(target: Target, batch: MicroBatch, staged: Sequence[Staged], offsets: list[Any]) -> None:
    """Commit what the tasks have staged, as the transaction of this batch."""
    log = target.open()
    epoch = log.open_producer(batch.query, holder=batch.run) if batch.run else None
    metadata = {"query": batch.query, "run": batch.run, "batch": batch.number, "sources": offsets}
    log.commit_staged(staged, producer=batch.query, sequence=batch.number, epoch=epoch, metadata=metadata)


def discard_batch(target: Target, batch: MicroBatch) -> None:
    """Delete what this run has staged for a batch. A committed transaction stays."""
    target.open().discard_attempts(batch.query, sequence=batch.number, attempt=_run(batch.run))


def _run(run: str) -> str:
    return run or "run"


def _attempt(run: str, *parts: object) -> str:
    """A name for one attempt to stage: whose run it belongs to, then whatever tells it from the others."""
    return ".".join(map(str, [_run(run), *parts, secrets.token_hex(4)]))


def _stage(target: Target, name: str, sequence: int, attempt: str, rows: Iterable[pa.RecordBatch]) -> Staged:
    log = target.open()
    with log.stage(name, sequence=sequence, attempt=attempt) as stage:
        for batch in rows:
            for topic, part in target.sorted(log, batch):
                stage.append(topic, part)
        return stage.finish()


def _staged_by_tasks(target: Target, rows: DataFrame) -> list[Staged]:
    from pyspark.sql.types import StringType, StructType

    # As a value: a text would be parsed by the JVM in each batch.
    answers = rows.mapInArrow(partial(stage_in_task, target), StructType().add("staged", StringType())).collect()
    return [Staged(answer.staged) for answer in answers]


def stage_in_task(target: Target, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Stage the rows of a task of a micro-batch; the one row that comes out says what was staged."""
    freeze_modules()
    batch = current_batch()
    if batch is None:
        raise ArgumentInvalid(name="batch", value=None, expected="a call inside of `foreachBatch`")
    staged = stage_batch(target, batch, rows)
    yield pa.record_batch([pa.array([staged], pa.string())], names=["staged"])


def staged_by_driver(target: Target, batch: MicroBatch, parts: Iterable[tuple[str, pa.RecordBatch]]) -> Staged:
    """Stage rows that the driver adds to a micro-batch."""
    with target.open().stage(batch.query, sequence=batch.number, attempt=_attempt(batch.run, "driver")) as stage:
        for topic, rows in parts:
            stage.append(topic, rows)
        return stage.finish()


# Any: the values of a small JSON object.
def _check_not_in_this_run(metadata: Mapping[str, Any], batch: MicroBatch) -> None:
    """Raise if this is a second sink in the same batch, whose rows would be lost, and not a repeated batch."""
    if batch.run and (metadata.get("run"), metadata.get("batch")) == (batch.run, batch.number):
        expected = "one `TopicSink` for each query, with all of its outputs in `topics`"
        raise ArgumentInvalid(name="foreachBatch", value="two sinks in one batch", expected=expected)


def _told(messages: Iterable[WriterCommitMessage | None]) -> list[Message]:
    return [message for message in messages if isinstance(message, Message)]


def _sequence(text: str | None, producer: str | None) -> int | None:
    if text is None and producer is None:
        return None
    if text is None or producer is None or not text.isdigit():
        raise ArgumentInvalid(name="sequence", value=text, expected="a whole number, together with a `producer`")
    return int(text)
