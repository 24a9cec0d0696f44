"""What a source's reader may do for an operator, before rows enter the JVM: the protocol between both.

An operator that sits directly on a topic hands the reader a `ReaderStage`: a function over the rows of one partition. It
travels in the option `reader_stage` of the read. A DataFrame is a direct read where its plan is a stream of our topics
with columns chosen, renamed and computed, and rows left out, by expressions that the reader computes as Spark does.

The output of an operator is such a read for the next one: the task that computes it runs the stage, too.
"""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from headwater.engine import packed_rows
from headwater.engine.analyzed_plan import analyzed_plan
from headwater.engine.column_expressions import Expression, Selection, column
from headwater.engine.spark_expressions import conditions, listed, translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
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

    >>> pack = Pack("totals", Selection.whole(pa.schema([("user", pa.string())])), ("user",), 2)
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
    """Columns made of those of a topic, and packed for the partitions of an operator."""

    name: str
    selection: Selection
    keys: tuple[str, ...]
    partitions: int

    @property
    def rows(self) -> pa.Schema:
        return self.selection.read

    # Any, here and below: JSON.
    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "selection": self.selection.to_json(),
            "keys": self.keys,
            "partitions": self.partitions,
        }

    @classmethod
    def of_json(cls, body: Mapping[str, Any]) -> Pack:
        return cls(body["name"], Selection.of_json(body["selection"]), tuple(body["keys"]), body["partitions"])

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
        """The rows that are packed."""
        return self.selection(table)


@dataclass(frozen=True)
class Choose:
    """Columns made of those of a topic, for Spark itself."""

    name: str
    selection: Selection

    @property
    def rows(self) -> pa.Schema:
        return self.selection.read

    @property
    def output(self) -> pa.Schema:
        return self.selection.made

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self.selection(pa.Table.from_batches([batch], self.rows)).combine_chunks().to_batches()


@dataclass(frozen=True)
class Call:
    """What a function makes of the rows of a task, called with columns made of those of a topic or of an operator."""

    name: str
    selection: Selection
    run: Task
    output: pa.Schema

    @property
    def rows(self) -> pa.Schema:
        return self.selection.read

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.run(Choose(self.name, self.selection)(batches))


@dataclass(frozen=True)
class OperatorOutput:
    """What an operator gives: the rows that its tasks are given, and what they do with them."""

    placed: DataFrame
    task: Task


@dataclass(frozen=True)
class _StagedTask:
    """The tasks of an operator that run a stage of the next one over what they give."""

    task: Task
    stage: ReaderStage

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return self.stage(map(self._rows, self.task(batches)))

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        wanted = self.stage.rows
        arrays = [batch.column(field.name).cast(field.type) for field in wanted]
        return pa.RecordBatch.from_arrays(arrays, schema=wanted)


@dataclass(frozen=True)
class DirectRead:
    """A stream of our topics: the options of its read, and how each column of the DataFrame is made of those of the topic."""

    options: Mapping[str, str]
    columns: Mapping[str, Expression]
    topic: pa.Schema
    where: tuple[Expression, ...] = ()
    #: Where it is no topic that is read, but what an operator gives.
    output: OperatorOutput | None = None

    def selection(self, rows: pa.Schema) -> Selection:
        """What makes these columns of the DataFrame in the reader."""
        return Selection.of(self.topic, self.where, self.columns, rows)

    def pack(self, name: str, *, rows: pa.Schema, keys: Sequence[str], partitions: int) -> Pack | None:
        """What makes the reader pack the rows; None where their keys are hashed in a way that only Spark knows."""
        if not all(packed_rows.can_hash(rows.field(key).type) for key in keys):
            return None
        return Pack(name, self.selection(rows), tuple(keys), partitions)

    def with_stage(self, rows: DataFrame, stage: ReaderStage) -> DataFrame:
        """What the stage makes of these rows; it runs where they are read or computed."""
        from pyspark.sql.pandas.types import from_arrow_schema

        if self.output is None:
            return read_with(rows, stage, self.options)
        return self.output.placed.mapInArrow(_StagedTask(self.output.task, stage).run, from_arrow_schema(stage.output))


def direct_read(rows: DataFrame) -> DirectRead | None:
    """The read that a DataFrame is, where it is one and all that is computed behind it can be computed in the reader."""
    found = direct_reads(rows)
    return found[0] if len(found) == 1 else None


def direct_reads(rows: DataFrame, *, outputs: bool = False) -> list[DirectRead]:
    """The reads whose union a DataFrame is, with `outputs` also those of operators; none where it is something else."""
    if not rows.isStreaming or len(set(rows.columns)) < len(rows.columns):
        return []
    plan = analyzed_plan(rows)
    found = _reads_of(plan)
    numbers = {str(one.name()): one.exprId().id() for one in listed(plan.output())} if found else {}
    reads = []
    for one in found:
        columns = {name: one.columns[number] for name, number in numbers.items() if number in one.columns}
        if OPTION in one.options or len(columns) < len(numbers) or (one.output is not None and not outputs):
            return []
        reads.append(DirectRead(one.options, columns, one.topic, one.where, one.output))
    return reads


#: The latest outputs of operators, by what tells the first of their columns from all others in this process.
_outputs: dict[tuple[str, int], OperatorOutput] = {}
_OUTPUTS_MAX = 256


def note_output(rows: DataFrame, output: OperatorOutput) -> None:
    """Register what an operator gives, so that the task that computes it may run a stage of the next operator."""
    _outputs[_mark_of(analyzed_plan(rows))] = output
    while len(_outputs) > _OUTPUTS_MAX:
        del _outputs[next(iter(_outputs))]


# Any: a plan of Spark's, which has no Python face.
def _mark_of(plan: Any) -> tuple[str, int]:
    number = listed(plan.output())[0].exprId()
    return str(number.jvmId().toString()), int(number.id())


@dataclass(frozen=True)
class _Read:
    """A read within a plan, with its columns by Spark's numbers for them."""

    options: Mapping[str, str]
    topic: pa.Schema
    columns: Mapping[int | str, Expression]
    where: tuple[Expression, ...] = ()
    output: OperatorOutput | None = None


# Any: a plan of Spark's, which has no Python face.
def _reads_of(plan: Any) -> list[_Read]:
    """The reads below a plan, and how what comes out of the plan is made of their columns; none for other plans."""
    kind = plan.getClass().getSimpleName()
    if kind == "StreamingRelationV2" and plan.sourceName() == "headwater":
        return [_relation(plan)]
    if kind == "MapInArrow":
        output = _outputs.get(_mark_of(plan))
        return [] if output is None else [_columns_of(plan, {}, output)]
    if kind in ("SubqueryAlias", "View"):
        return _reads_of(plan.child())
    if kind == "Filter":
        filtered = [_filtered(one, plan.condition()) for one in _reads_of(plan.child())]
        return [one for one in filtered if one is not None] if all(filtered) else []
    if kind == "Project":
        return [_projected(one, listed(plan.projectList())) for one in _reads_of(plan.child())]
    if kind == "Union":
        return _united(plan)
    return []


def _relation(plan: Any) -> _Read:
    given = plan.extraOptions().asCaseSensitiveMap()
    return _columns_of(plan, {str(name): str(given[name]) for name in given})


def _columns_of(plan: Any, options: Mapping[str, str], output: OperatorOutput | None = None) -> _Read:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructType

    columns = {one.exprId().id(): column(str(one.name())) for one in listed(plan.output())}
    schema = StructType.fromJson(json.loads(plan.schema().json()))
    return _Read(options, to_arrow_schema(schema, timezone="UTC"), columns, output=output)


def _filtered(read: _Read, condition: Any) -> _Read | None:
    found = conditions(condition, read.columns)
    return None if found is None else replace(read, where=(*read.where, *found))


def _projected(read: _Read, projection: Sequence[Any]) -> _Read:
    made = {one.exprId().id(): translated(one, read.columns) for one in projection}
    return replace(read, columns={number: one for number, one in made.items() if one is not None})


def _united(plan: Any) -> list[_Read]:
    """The reads of all parts of a union, whose columns go by the numbers of the union."""
    numbers = [one.exprId().id() for one in listed(plan.output())]
    found = []
    for part in listed(plan.children()):
        own = [one.exprId().id() for one in listed(part.output())]
        reads = _reads_of(part)
        if not reads:
            return []
        for read in reads:
            columns = {number: read.columns[of] for number, of in zip(numbers, own, strict=True) if of in read.columns}
            found.append(replace(read, columns=columns))
    return found


def map_in_arrow(rows: DataFrame, run: Task, schema: StructType, *, name: str) -> DataFrame:
    """Call a function with the rows of each task, in the Python process that makes them where there is one.

    That is the process of the operator that gives them or of the reader of their topic, where it can also compute what stands
    between. Rows then do not pass from Python to Java and back, and a task uses one Python process less. `name` says what the
    function is.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    reads = direct_reads(rows, outputs=True)
    if len(reads) != 1:
        return rows.mapInArrow(run, schema)
    selection = reads[0].selection(to_arrow_schema(rows.schema, timezone="UTC"))
    return reads[0].with_stage(rows, Call(name, selection, run, to_arrow_schema(schema)))


def read_computed(rows: DataFrame) -> DataFrame:
    """The same DataFrame, computed in the reader of its topic where that can be; other DataFrames as they are."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know
    from pyspark.sql.pandas.types import to_arrow_schema

    direct = direct_read(rows)
    if direct is None:
        return rows
    selection = direct.selection(to_arrow_schema(rows.schema, timezone="UTC"))
    if selection == Selection.whole(direct.topic):
        return rows
    read = read_with(rows, Choose("choose", selection), direct.options)
    # A read carries no metadata of columns.
    return read.select(*(F.col(f"`{one.name}`").alias(one.name, metadata=one.metadata) for one in rows.schema.fields))


def read_with(rows: DataFrame, stage: ReaderStage, options: Mapping[str, str]) -> DataFrame:
    """Repeat a read with a stage in its reader."""
    reader = rows.sparkSession.readStream.format("headwater")
    for name, value in {**options, OPTION: stage_to_option(stage)}.items():
        if name.lower() != "path":
            reader = reader.option(name, value)
    return reader.load(next(value for name, value in options.items() if name.lower() == "path"))
