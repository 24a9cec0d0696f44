"""The first half of a windowed aggregation, done where the rows are read: only partial results enter the JVM.

An operator that sits directly on a topic hands the source a `Combine`. It maps the rows of one partition to one row per
key and slice: the partial results, the latest event time, and how many rows there were.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine import packed_rows
from headwater.engine.aggregation import (
    ARGUMENT,
    LARGEST,
    SEPARATOR,
    Computation,
    Groups,
    Int64s,
    Order,
    order_of,
)
from headwater.engine.column_expressions import Selection
from headwater.engine.columns import ROWS
from headwater.engine.rows import micros
from headwater.engine.window_spans import Spans
from headwater.engine.window_step import SLICE

POSITION = ("_partition", "_offset")
#: Of a partial result, which part of a reader's rows it is of: they are combined a million at a time. A row that goes
#: on alone has its own offset there.
CHUNK = "_offset"
_AT = "_at_us"
#: So many rows are combined at a time: partial results of a larger batch are merged behind the shuffle.
ROWS_MAX = 1_000_000


@dataclass(frozen=True)
class Combine:
    """Rows of a topic to partial results. The source knows nothing of it but `name`, `rows`, `output` and the call.

    `selection` makes the columns that it combines of those of the topic, `arguments` which of them the aggregates are given.
    The partial results come out packed for so many `partitions` of the operator, where their keys can be hashed here.
    """

    name: str
    time_column: str
    keys: tuple[str, ...]
    spans: Spans
    computation: Computation
    selection: Selection
    arguments: Mapping[str, str]
    partitions: int

    @property
    def rows(self) -> pa.Schema:
        """The columns that it needs of the topic."""
        return self.selection.read

    @property
    def output(self) -> pa.Schema:
        """The columns of what comes out."""
        return packed_rows.SCHEMA if self.packs else self.partials

    @property
    def packs(self) -> bool:
        return all(packed_rows.can_hash(self.partials.field(name).type) for name in self.keys)

    @property
    def partials(self) -> pa.Schema:
        """The columns of the partial results."""
        made = self.selection.made
        keys = [made.field(name) for name in self.keys]
        own = [
            pa.field("_partition", pa.int32()),
            pa.field(CHUNK, pa.int64()),
            pa.field(SLICE, pa.int64()),
            pa.field(ROWS, pa.int64()),
        ]
        return pa.schema([*keys, made.field(self.time_column), *own, *self.computation.partials])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        waiting: list[pa.RecordBatch] = []
        chunk = 0
        for batch in batches:
            waiting.append(batch)
            if sum(one.num_rows for one in waiting) >= ROWS_MAX:
                yield from self._combined(waiting, chunk)
                waiting, chunk = [], chunk + 1
        if waiting:
            yield from self._combined(waiting, chunk)

    def _combined(self, batches: list[pa.RecordBatch], chunk: int) -> Iterator[pa.RecordBatch]:
        table = self.selection(pa.Table.from_batches(batches, self.rows).combine_chunks()).combine_chunks()
        usable = np.ones(table.num_rows, bool)
        for name in (*self.keys, self.time_column):
            if table.column(name).null_count:
                usable &= np.asarray(table.column(name).is_valid())
        if not usable.all():
            # What has no key or no time goes on row by row: each leaves by the side output `rejected` as it came.
            yield from self._named(self._alone(table.filter(pa.array(~usable))), chunk)
            table = table.filter(pa.array(usable))
        if table.num_rows:
            yield from self._named(self._partials(table), chunk)

    def _partials(self, table: pa.Table) -> dict[str, Any]:
        times = np.asarray(micros(table.column(self.time_column)).combine_chunks())
        slices = self.spans.slices(times)
        found = self._hashed(table, times, slices)
        return self._sorted(table, times, slices) if found is None else found

    def _hashed(self, table: pa.Table, times: Int64s, slices: Int64s) -> dict[str, Any] | None:
        """By Arrow's own grouping, where each aggregate is one that Arrow has: twice as fast, for nothing is sorted."""
        wanted = {name: one.hashed(self._kind(name)) for name, one in self.computation.compute.items()}
        if any(one is None for one in wanted.values()) or self._may_wrap(table):
            return None
        columns = {name: table.column(name) for name in self.keys}
        columns |= {column: table.column(column) for column in set(self.arguments.values())}
        grouped = pa.table({**columns, SLICE: slices, _AT: times})
        functions = {
            (self.arguments.get(name, ""), one) for name, parts in wanted.items() for one in (parts or {}).values()
        }
        asked = [(_AT, "max"), ([], "count_all"), *sorted(one for one in functions if one[1] != "count_all")]
        done = grouped.group_by([*self.keys, SLICE], use_threads=False).aggregate(asked).combine_chunks()
        result: dict[str, Any] = {name: done.column(name) for name in (*self.keys, SLICE)}
        result |= {
            self.time_column: done.column(f"{_AT}_max"),
            ROWS: done.column("count_all"),
            "_partition": table.column("_partition")[0],
        }
        for name, parts in wanted.items():
            for part, function in (parts or {}).items():
                title = "count_all" if function == "count_all" else f"{self.arguments[name]}_{function}"
                kind = self.computation.partials.field(f"{name}{SEPARATOR}{part}").type
                result[f"{name}{SEPARATOR}{part}"] = _filled(done.column(title), kind)
        return result

    def _sorted(self, table: pa.Table, times: Int64s, slices: Int64s) -> dict[str, Any]:
        """For any aggregate: rows of a group are brought together first."""
        codes = group_codes([table.column(name) for name in self.keys], slices)
        if self.computation.ordered:
            order = np.lexsort([np.asarray(table.column("_offset").combine_chunks()), times, codes])
        else:
            # Few groups are sorted by counting.
            few = int(codes.max()) < 2**16
            order = np.argsort(codes.astype(np.uint16) if few else codes, kind="stable")
        groups = Groups.of(codes[order])
        at = times[order]
        # Only what the aggregates look at is brought into that order.
        seen = self._with_arguments(table.select([*dict.fromkeys((*self.arguments.values(), *POSITION))]))
        seen = seen.take(pa.array(order))
        partials = self.computation.lift(seen, order_of(seen, at), groups)
        firsts = order[groups.starts]
        return {
            **{name: table.column(name).take(pa.array(firsts)) for name in (*self.keys, "_partition")},
            self.time_column: pa.array(np.maximum.reduceat(at, groups.starts)),
            SLICE: pa.array(slices[firsts]),
            ROWS: pa.array(groups.sizes()),
            **{name: partials.column(name) for name in partials.column_names},
        }

    def _alone(self, table: pa.Table) -> dict[str, Any]:
        """Each row as a group of its own."""
        count = table.num_rows
        none = np.zeros(count, np.int64)
        rows = self._with_arguments(table)
        partials = self.computation.lift(rows, Order(none, none), Groups(np.arange(count), count))
        return {
            **{name: rows.column(name) for name in (*self.keys, self.time_column, *POSITION)},
            SLICE: pa.array(none),
            ROWS: pa.array(np.ones(count, np.int64)),
            **{name: partials.column(name) for name in partials.column_names},
        }

    def _named(self, columns: dict[str, Any], chunk: int) -> Iterator[pa.RecordBatch]:
        """The columns in their order and types; what is one value is one for all rows."""
        count = len(columns[SLICE])
        arrays = []
        for field in self.partials:
            found = columns.get(field.name, pa.scalar(chunk, pa.int64()))
            array = pa.repeat(found, count) if isinstance(found, pa.Scalar) else found
            if field.name == self.time_column and pa.types.is_integer(array.type):
                array = array.cast(pa.timestamp("us", "UTC"))
            arrays.append(array.cast(field.type))
        table = pa.table(arrays, schema=self.partials)
        yield from packed_rows.packed(table, self.keys, self.partitions) if self.packs else table.to_batches()

    def _with_arguments(self, table: pa.Table) -> pa.Table:
        columns = {f"{ARGUMENT}{name}": table.column(column) for name, column in self.arguments.items()}
        for name, column in columns.items():
            table = table if name in table.column_names else table.append_column(name, column)
        return table

    def _kind(self, name: str) -> pa.DataType:
        return self.computation.kinds[name]

    def _may_wrap(self, table: pa.Table) -> bool:
        """Whether a sum of whole numbers might exceed 64 bits, which Arrow would not notice."""
        for name in set(self.arguments.values()):
            column = table.column(name)
            if pa.types.is_integer(column.type):
                bounds = pc.min_max(column).as_py()
                most = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
                if most * table.num_rows > LARGEST:
                    return True
        return False


def _filled(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A sum of nothing is zero among partial results; least and greatest stay null."""
    if column.null_count and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        column = pc.fill_null(column, pa.scalar(0, column.type))
    return column.cast(kind)


def group_codes(keys: list[pa.ChunkedArray], slices: Int64s) -> Int64s:
    """A number for each row, equal where keys and slice are equal.

    >>> group_codes([pa.chunked_array([["a", "b", "a"]])], np.array([0, 0, 10])).tolist()
    [0, 2, 1]
    """
    in_turn = pc.dictionary_encode(pa.array(slices))
    codes = np.asarray(in_turn.indices).astype(np.int64)
    width = len(in_turn.dictionary)
    for key in keys:
        encoded = pc.dictionary_encode(key).combine_chunks()
        encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
        codes = codes + np.asarray(encoded.indices).astype(np.int64) * width
        width *= max(1, len(encoded.dictionary))
        if width > 2**62 // max(1, len(codes)):  # too many to count on: number the codes that there are
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
            width = len(codes)
    return codes
