"""What a source's reader may do for an operator, before rows enter the JVM: the protocol between both.

An operator that sits directly on a topic hands the reader a `ReaderStage`: a function over the rows of one partition. It
travels in the option `reader_stage` of the read. A DataFrame is a direct read where its plan is a stream of our topics
with columns chosen and renamed, and nothing computed.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from headwater.engine import packed_rows
from headwater.engine.analyzed_plan import analyzed_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The option of a read that holds the stage.
OPTION = "reader_stage"
#: Rows are packed when so many bytes of them have come: little enough for many tasks to hold, much for one row of Spark's.
PACKED_BYTES = 16 * 2**20


class ReaderStage(Protocol):
    """Maps the rows of a topic's partition to other rows, in the reader."""

    @property
    def name(self) -> str:
        """The operator that it is for."""

    @property
    def rows(self) -> pa.Schema:
        """The columns that it needs of the topic."""

    @property
    def output(self) -> pa.Schema:
        """The columns that it makes of them."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The other rows."""


def stage_to_option(stage: ReaderStage) -> str:
    """Encode a stage as `<operator>:<kind>:<body>`.

    Columns and keys are plain JSON. A stage that carries code (aggregates, also the user's own, and conditions) is pickled.
    """
    if type(stage) is Pack:
        return f"{stage.name}:json:{json.dumps(stage.to_json())}"
    from pyspark.cloudpickle import dumps

    pickled = dumps(stage)  # type: ignore[no-untyped-call] # Spark's copy has no types
    return f"{stage.name}:pickle:{base64.b64encode(pickled).decode()}"


@lru_cache(maxsize=16)
def stage_of_option(text: str) -> ReaderStage:
    """Decode a stage.

    >>> pack = Pack("totals", pa.schema([("user", pa.string())]), (("user", "user"),), ("user",), 2)
    >>> stage_of_option(stage_to_option(pack)) == pack
    True
    """
    _, kind, body = text.split(":", 2)
    if kind == "json":
        return Pack.of_json(json.loads(body))
    # As trusted as the code that runs: it comes from an operator in the same program, and never from a log.
    stage: ReaderStage = pickle.loads(base64.b64decode(body))
    return stage


@dataclass(frozen=True)
class Pack:
    """Columns of a topic, chosen and renamed, and packed for the partitions of an operator."""

    name: str
    rows: pa.Schema
    #: For each column that comes out the one that goes in.
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    partitions: int

    # Any, here and below: JSON.
    def to_json(self) -> dict[str, Any]:
        schema = base64.b64encode(self.rows.serialize()).decode()
        return {
            "name": self.name,
            "rows": schema,
            "columns": self.columns,
            "keys": self.keys,
            "partitions": self.partitions,
        }

    @classmethod
    def of_json(cls, body: Mapping[str, Any]) -> Pack:
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(body["rows"])))
        columns = tuple((name, source) for name, source in body["columns"])
        return cls(body["name"], schema, columns, tuple(body["keys"]), body["partitions"])

    @property
    def output(self) -> pa.Schema:
        return packed_rows.SCHEMA

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            if sum(one.nbytes for one in waiting) >= PACKED_BYTES:
                yield from self._packed(waiting)
                waiting = []
        if waiting:
            yield from self._packed(waiting)

    def _packed(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches, self.rows).combine_chunks()
        return packed_rows.packed(self.chosen(table), self.keys, self.partitions)

    def chosen(self, table: pa.Table) -> pa.Table:
        """The columns that are packed, under the names that they go by."""
        return pa.table([table.column(name) for _, name in self.columns], names=[name for name, _ in self.columns])


@dataclass(frozen=True)
class DirectRead:
    """A stream of our topics: the options of its read, and for each column of the DataFrame that of the topic."""

    options: Mapping[str, str]
    columns: Mapping[str, str]

    def pack(self, name: str, *, rows: pa.Schema, keys: Sequence[str], partitions: int) -> Pack | None:
        """What makes the reader pack the rows; None where their keys are hashed in a way that only Spark knows."""
        if not all(packed_rows.can_hash(rows.field(key).type) for key in keys):
            return None
        read = {self.columns[field.name]: field.type for field in rows}
        columns = tuple((field.name, self.columns[field.name]) for field in rows)
        return Pack(name, pa.schema(list(read.items())), columns, tuple(keys), partitions)


def direct_read(rows: DataFrame) -> DirectRead | None:
    """The read that a DataFrame is, where it is one and nothing is computed behind it."""
    if not rows.isStreaming or len(set(rows.columns)) < len(rows.columns):
        return None
    plan = analyzed_plan(rows)
    found = _read_of(plan)
    if found is None:
        return None
    options, names = found
    columns = {one.name(): names[one.exprId().id()] for one in listed(plan.output())}
    return None if OPTION in options else DirectRead(options, columns)


# Any: a plan of Spark's, which has no Python face.
def _read_of(plan: Any) -> tuple[dict[str, str], dict[int, str]] | None:
    """The options of the read below, and the columns of the topic by Spark's numbers for what comes out of the plan."""
    kind = plan.getClass().getSimpleName()
    if kind == "StreamingRelationV2" and plan.sourceName() == "headwater":
        given = plan.extraOptions().asCaseSensitiveMap()
        options = {str(name): str(given[name]) for name in given}
        return options, {one.exprId().id(): str(one.name()) for one in listed(plan.output())}
    below = _read_of(plan.child()) if kind == "Project" else None
    if below is None:
        return None
    options, names = below
    chosen = {}
    for one in listed(plan.projectList()):
        of = one.child() if one.getClass().getSimpleName() == "Alias" else one
        if of.getClass().getSimpleName() != "AttributeReference":
            return None
        chosen[one.exprId().id()] = names[of.exprId().id()]
    return options, chosen


def listed(found: Any) -> list[Any]:
    """A sequence of Scala's as a list."""
    return [found.apply(number) for number in range(found.length())]


def read_with(rows: DataFrame, stage: ReaderStage, options: Mapping[str, str]) -> DataFrame:
    """Repeat a read with a stage in its reader."""
    reader = rows.sparkSession.readStream.format("headwater")
    for name, value in {**options, OPTION: stage_to_option(stage)}.items():
        if name.lower() != "path":
            reader = reader.option(name, value)
    return reader.load(next(value for name, value in options.items() if name.lower() == "path"))
