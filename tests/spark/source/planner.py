"""Topics read by calls of the reader's classes, in the order in which Spark's planner and workers make them.

`tests/spark/source/test_spark.py` proves that Spark makes these calls: the offsets that it writes into its checkpoint are
those that a `Checkpoint` here holds.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.datasource_internal import ReadLimitRegistry
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from headwater.engine.micro_batch import MicroBatch
from headwater.log import Log
from headwater.spark.datasource import HeadwaterSource
from headwater.spark.source.columns import arrow_schema
from headwater.spark.source.reader import TopicStreamReader
from tests.spark.source.tasks import crossed, in_task

# Any: a row's values, of whatever type.
Row = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """A read with its schema, as a DataFrame holds both."""

    source: HeadwaterSource
    schema: StructType

    @property
    def columns(self) -> list[str]:
        return self.schema.fieldNames()


def texts(log: Log, options: dict[str, Any]) -> dict[str, str]:
    """Options as Spark hands them on. Rows come without the system's columns, unless a test asks for them."""
    given = {"log": log.home, "metadata": "none", **options}
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def plan(log: Log, topics: str = "orders", **options: Any) -> Plan:
    source = HeadwaterSource.bound(state=log.home.parent / "state")(texts(log, {"path": topics, **options}))
    return Plan(source, source.schema())


def rows_in(batch: pa.RecordBatch, schema: StructType) -> list[Row]:
    assert batch.schema.equals(arrow_schema(schema)), "Spark refuses batches of another schema"
    rows: list[Row] = batch.to_pylist(maps_as_pydicts="strict")
    return rows


def table(log: Log, topics: str = "orders", **options: Any) -> list[Row]:
    """The rows of a bounded read."""
    planned = plan(log, topics, **options)
    reader = planned.source.reader(planned.schema)
    found: list[Row] = []
    for part in reader.partitions():
        for batch in crossed(reader).read(crossed(part)):
            assert isinstance(batch, pa.RecordBatch)
            found += rows_in(batch, planned.schema)
    return found


@dataclass
class Checkpoint:
    """What is left of a streaming query between its runs: the offsets of its batches, and what they put out."""

    query: str = "q"
    offsets: list[str] = field(default_factory=list)
    committed: int = 0
    output: dict[int, list[Row]] = field(default_factory=dict)
    runs: int = 0

    @property
    def rows(self) -> list[Row]:
        return [row for number in sorted(self.output) for row in self.output[number]]

    def forget_commit(self) -> None:
        """As if the driver had died just before Spark wrote down that the last batch is done."""
        self.committed -= 1

    def start(self, planned: Plan, *, available_now: bool = False) -> Run:
        self.runs += 1
        return Run(self, planned, available_now=available_now)

    def __call__(self, planned: Plan) -> list[list[Row]]:
        """Run until everything that is there now has been read; the rows of each batch of this run."""
        run = self.start(planned, available_now=True)
        batches: list[list[Row]] = []
        while (rows := run.trigger()) is not None:
            batches.append(rows)
        return batches


class Run:
    """One run of a query, from its start to its end or to a failure."""

    def __init__(self, checkpoint: Checkpoint, planned: Plan, *, available_now: bool) -> None:
        self._checkpoint = checkpoint
        self._schema = planned.schema
        self._name = f"run-{checkpoint.runs}"
        reader: DataSourceStreamReader = planned.source.streamReader(planned.schema)
        assert isinstance(reader, TopicStreamReader)
        self.reader = reader
        if available_now:
            reader.prepareForTriggerAvailableNow()

    def trigger(self) -> list[Row] | None:
        """The rows of the next batch, the one to repeat if there is one; None where there is nothing to do."""
        checkpoint, reader = self._checkpoint, self.reader
        number = checkpoint.committed
        start = json.loads(checkpoint.offsets[number - 1]) if number else as_json(reader.initialOffset())
        if number == len(checkpoint.offsets):
            latest = as_json(reader.latestOffset(start, limit_of(reader)))
            if latest == start:
                return None
            checkpoint.offsets.append(json.dumps(latest))
        end = json.loads(checkpoint.offsets[number])
        rows: list[Row] = []
        for partition, part in enumerate(reader.partitions(start, end)):
            batch = MicroBatch(query=checkpoint.query, number=number, partition=partition, run=self._name)
            with in_task(batch):
                for data in crossed(reader).read(crossed(part)):
                    rows += rows_in(data, self._schema)
        reader.commit(end)
        checkpoint.output[number] = rows
        checkpoint.committed += 1
        return rows


# Any: offsets are JSON.
def as_json(offset: dict[str, Any]) -> dict[str, Any]:
    """An offset after its way to the JVM and back."""
    body: dict[str, Any] = json.loads(json.dumps(offset))
    return body


def limit_of(reader: TopicStreamReader) -> ReadLimit:
    """The limit that the reader asks for, after its way to the JVM and back."""
    limit = reader.getDefaultReadLimit()
    fields = dataclasses.asdict(limit)  # type: ignore[call-overload]
    return ReadLimitRegistry().get(json.loads(json.dumps({**fields, "_type": type(limit).__name__})))
