"""The first half of a windowed aggregation, done where the rows are read: only partial results enter the JVM.

An operator that sits directly on a topic hands the source a `Combine`. It maps the rows of one partition to one row per
key and slice: the partial results, the latest event time, and how many rows there were.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.agg.aggregate import Aggregate
from headwater.operators.agg.computation import ARGUMENT, Computation, order_of
from headwater.operators.agg.groups import Groups, Int64s, Order
from headwater.operators.keyed.engine import ROWS, micros
from headwater.operators.windowed.prepared import ALL
from headwater.operators.windowed.spans import Spans
from headwater.operators.windowed.step import SLICE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

POSITION = ("_partition", "_offset")
#: So many rows are combined at a time: partial results of a larger batch are merged behind the shuffle.
ROWS_MAX = 1_000_000


@dataclass(frozen=True)
class Combine:
    """Rows of a topic to partial results. The source knows nothing of it but `name`, `rows`, `output` and the call.

    `rows` are the columns that it needs of the topic, `arguments` which of them the aggregates are given.
    """

    name: str
    on: str
    keys: tuple[str, ...]
    spans: Spans
    computation: Computation
    rows: pa.Schema
    arguments: Mapping[str, str]

    @property
    def output(self) -> pa.Schema:
        """The columns of what comes out."""
        keys = [pa.field(ALL, pa.int32()) if name == ALL else self.rows.field(name) for name in self.keys]
        fields = [pa.field("_partition", pa.int32()), pa.field("_offset", pa.int64())]
        own = [pa.field(SLICE, pa.int64()), pa.field(ROWS, pa.int64()), *self.computation.partials]
        return pa.schema([*keys, self.rows.field(self.on), *fields, *own])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        for batch in batches:
            waiting.append(batch)
            if sum(one.num_rows for one in waiting) >= ROWS_MAX:
                yield from self._combined(waiting)
                waiting = []
        if waiting:
            yield from self._combined(waiting)

    def _combined(self, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        table = pa.Table.from_batches(batches, self.rows)
        for name, column in self.arguments.items():
            table = table.append_column(f"{ARGUMENT}{name}", table.column(column))
        if ALL in self.keys:
            table = table.append_column(ALL, pa.array(np.zeros(table.num_rows, np.int32)))
        usable = np.ones(table.num_rows, bool)
        for name in (*self.keys, self.on):
            if table.column(name).null_count:
                usable &= np.asarray(table.column(name).is_valid())
        if not usable.all():
            # What has no key or no time goes on row by row: each is put aside, and told, as it came.
            yield from self._alone(table.filter(pa.array(~usable)))
            table = table.filter(pa.array(usable))
        if table.num_rows:
            yield from self._partials(table).to_batches()

    def _partials(self, table: pa.Table) -> pa.Table:
        times = np.asarray(micros(table.column(self.on)).combine_chunks())
        slices = self.spans.slices(times)
        codes = group_codes([table.column(name) for name in self.keys], slices)
        if self.computation.ordered:
            order = np.lexsort([np.asarray(table.column("_offset").combine_chunks()), times, codes])
        else:
            order = np.argsort(codes, kind="stable")
        groups = Groups.of(codes[order])
        times = times[order]
        arguments = [f"{ARGUMENT}{name}" for name in self.arguments]
        sorted_rows = table.select([*arguments, *POSITION]).take(pa.array(order))
        partials = self.computation.lift(sorted_rows, order_of(sorted_rows, times), groups)
        firsts = order[groups.starts]
        keyed = table.select([*self.keys, "_partition"]).take(pa.array(firsts))
        latest = np.maximum.reduceat(times, groups.starts)
        offsets = np.maximum.reduceat(np.asarray(sorted_rows.column("_offset").combine_chunks()), groups.starts)
        columns = {
            **{name: keyed.column(name) for name in (*self.keys, "_partition")},
            self.on: pa.array(latest, pa.timestamp("us", "UTC")).cast(self.rows.field(self.on).type),
            "_offset": pa.array(offsets),
            SLICE: pa.array(slices[firsts]),
            ROWS: pa.array(groups.sizes()),
            **{name: partials.column(name) for name in partials.column_names},
        }
        return pa.table([columns[name] for name in self.output.names], schema=self.output)

    def _alone(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        count = rows.num_rows
        partials = self.computation.lift(
            rows, Order(np.zeros(count, np.int64), np.zeros(count, np.int64)), Groups(np.arange(count), count)
        )
        columns = {
            **{name: rows.column(name) for name in (*self.keys, self.on, *POSITION)},
            SLICE: pa.array(np.zeros(count, np.int64)),
            ROWS: pa.array(np.ones(count, np.int64)),
            **{name: partials.column(name) for name in partials.column_names},
        }
        yield from pa.table([columns[name] for name in self.output.names], schema=self.output).to_batches()


def group_codes(keys: list[pa.ChunkedArray], slices: Int64s) -> Int64s:
    """A number for each row, equal where keys and slice are equal.

    >>> group_codes([pa.chunked_array([["a", "b", "a"]])], np.array([0, 0, 10])).tolist()
    [0, 2, 1]
    """
    known, codes = np.unique(slices, return_inverse=True)
    codes = codes.astype(np.int64)
    width = len(known)
    for key in keys:
        encoded = pc.dictionary_encode(key).combine_chunks()
        encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
        codes = codes + np.asarray(encoded.indices).astype(np.int64) * width
        width *= max(1, len(encoded.dictionary))
        if width > 2**62 // max(1, len(codes)):  # too many to count on: number anew what there is
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
            width = len(codes)
    return codes


def read_options(rows: DataFrame) -> dict[str, str] | None:
    """The options of the read that a DataFrame is, where it is nothing but a stream of one of our topics."""
    # Any: a plan of Spark's, which has no Python face.
    plan: Any = rows._jdf.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "StreamingRelationV2" or plan.sourceName() != "headwater":
        return None
    found = plan.extraOptions().asCaseSensitiveMap()
    return {str(name): str(found[name]) for name in found}


def can_push(rows: DataFrame, compute: Mapping[str, Aggregate]) -> bool:
    """Whether the arguments are columns of the topic, and rows say where they stand in it."""
    plain = all(one.of is None or (isinstance(one.of, str) and one.of in rows.columns) for one in compute.values())
    return plain and set(POSITION) <= set(rows.columns) and not {"_topic", "_punctuation"} & set(rows.columns)


def pushed(rows: DataFrame, combine: Combine, options: Mapping[str, str]) -> DataFrame:
    """The same read, of which only partial results arrive."""
    from pyspark.cloudpickle import dumps

    packed = base64.b64encode(dumps(combine)).decode()
    reader = rows.sparkSession.readStream.format("headwater")
    for name, value in {**options, "combine": f"{combine.name}:{packed}"}.items():
        if name.lower() != "path":
            reader = reader.option(name, value)
    return reader.load(next(value for name, value in options.items() if name.lower() == "path"))
