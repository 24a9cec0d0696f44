"""Operators that sit directly on a topic: the source's reader does for them what Spark would do with more effort.

A DataFrame is direct where its plan is a stream of our topics with columns chosen and renamed, and nothing computed.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from headwater.operators.keyed import packing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Rows are packed when so many bytes of them have come: little enough for many tasks to hold, much for one row of Spark's.
PACKED_BYTES = 16 * 2**20


class Reading(Protocol):
    """What a reader does to its rows; see `headwater.sources.combining`."""

    @property
    def name(self) -> str:
        """Which operator it is for."""


@dataclass(frozen=True)
class Pack:
    """Columns of a topic, chosen and renamed, and packed for the partitions of an operator."""

    name: str
    rows: pa.Schema
    #: For each column that comes out the one that goes in.
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    partitions: int

    @property
    def output(self) -> pa.Schema:
        return packing.SCHEMA

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
        return packing.packed(self.chosen(table), self.keys, self.partitions)

    def chosen(self, table: pa.Table) -> pa.Table:
        """The columns that are packed, under the names that they go by."""
        return pa.table([table.column(name) for _, name in self.columns], names=[name for name, _ in self.columns])


@dataclass(frozen=True)
class Direct:
    """A stream of our topics: the options of its read, and for each column of the DataFrame that of the topic."""

    options: Mapping[str, str]
    columns: Mapping[str, str]

    def pack(self, name: str, *, rows: pa.Schema, keys: Sequence[str], partitions: int) -> Pack | None:
        """What makes the reader pack the rows; None where their keys are hashed in a way that only Spark knows."""
        if not all(packing.can_hash(rows.field(key).type) for key in keys):
            return None
        read = {self.columns[field.name]: field.type for field in rows}
        columns = tuple((field.name, self.columns[field.name]) for field in rows)
        return Pack(name, pa.schema(list(read.items())), columns, tuple(keys), partitions)


def direct_read(rows: DataFrame) -> Direct | None:
    """The read that a DataFrame is, where it is one and nothing is computed behind it."""
    if not rows.isStreaming or len(set(rows.columns)) < len(rows.columns):
        return None
    # Any: a plan of Spark's, which has no Python face.
    plan: Any = rows._jdf.queryExecution().analyzed()
    found = _read_of(plan)
    if found is None:
        return None
    options, names = found
    columns = {one.name(): names[one.exprId().id()] for one in _listed(plan.output())}
    return None if "combine" in options else Direct(options, columns)


def _read_of(plan: Any) -> tuple[dict[str, str], dict[int, str]] | None:
    """The options of the read below, and the columns of the topic by Spark's numbers for what comes out of the plan."""
    kind = plan.getClass().getSimpleName()
    if kind == "StreamingRelationV2" and plan.sourceName() == "headwater":
        given = plan.extraOptions().asCaseSensitiveMap()
        options = {str(name): str(given[name]) for name in given}
        return options, {one.exprId().id(): str(one.name()) for one in _listed(plan.output())}
    below = _read_of(plan.child()) if kind == "Project" else None
    if below is None:
        return None
    options, names = below
    chosen = {}
    for one in _listed(plan.projectList()):
        of = one.child() if one.getClass().getSimpleName() == "Alias" else one
        if of.getClass().getSimpleName() != "AttributeReference":
            return None
        chosen[one.exprId().id()] = names[of.exprId().id()]
    return options, chosen


def _listed(found: Any) -> list[Any]:
    return [found.apply(number) for number in range(found.length())]


def read_with(rows: DataFrame, what: Reading, options: Mapping[str, str]) -> DataFrame:
    """The same read, with something done to its rows before they leave the reader."""
    from pyspark.cloudpickle import dumps

    packed = base64.b64encode(dumps(what)).decode()  # type: ignore[no-untyped-call] # Spark's copy has no types
    reader = rows.sparkSession.readStream.format("headwater")
    for name, value in {**options, "combine": f"{what.name}:{packed}"}.items():
        if name.lower() != "path":
            reader = reader.option(name, value)
    return reader.load(next(value for name, value in options.items() if name.lower() == "path"))
