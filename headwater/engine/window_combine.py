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
_NUMBER = "_number"
#: Arrow's function that counts rows.
_ALL = "count_all"
#: So many rows are combined at a time: partial results of a larger batch are merged behind the shuffle.
ROWS_MAX = 1_000_000
#: Of aggregates by their names: which of Arrow's grouped functions gives each column of the partial result.
Functions = Mapping[str, Mapping[str, str]]


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
        hashed = {name: one.hashed(self.computation.kinds[name]) for name, one in self.computation.compute.items()}
        functions = {name: one for name, one in hashed.items() if one is not None}
        if not self._may_wrap(table, functions):
            if len(functions) == len(hashed):
                return self._hashed(table, times, slices, functions)
            found = self._numbered(table, times, slices, functions)
            if found is not None:
                return found
        return self._sorted(table, times, slices)

    def _hashed(self, table: pa.Table, times: Int64s, slices: Int64s, functions: Functions) -> dict[str, Any]:
        """By Arrow's own grouping, where each aggregate is one that Arrow has: twice as fast, for nothing is sorted."""
        columns = {name: table.column(name) for name in self.keys}
        done = self._grouped(table, {**columns, SLICE: slices}, functions, times)
        result: dict[str, Any] = {name: done.column(name) for name in (*self.keys, SLICE)}
        result |= {self.time_column: done.column(f"{_AT}_max"), ROWS: done.column(_ALL)}
        return result | self._parts(done, functions) | {"_partition": table.column("_partition")[0]}

    def _numbered(self, table: pa.Table, times: Int64s, slices: Int64s, functions: Functions) -> dict[str, Any] | None:
        """By the number of the group of each row: aggregates that Arrow has not, and that take rows in any order."""
        codes = pc.dictionary_encode(pa.array(group_codes([table.column(name) for name in self.keys], slices)))
        numbers, count = np.asarray(codes.indices).astype(np.int64), len(codes.dictionary)
        result: dict[str, Any] = {}
        for name, one in self.computation.compute.items():
            if name not in functions:
                values = table.column(self.arguments[name]) if name in self.arguments else pa.nulls(table.num_rows)
                lifted = one.lift_unsorted(_whole(values), numbers, count)
                if lifted is None:
                    return None
                result |= {f"{name}{SEPARATOR}{part}": column for part, column in lifted.items()}
        if functions:
            done = self._grouped(table, {_NUMBER: numbers}, functions, times)
            result |= self._parts(done.sort_by(_NUMBER), functions)
        latest = np.full(count, times.min())
        np.maximum.at(latest, numbers, times)
        firsts = np.empty(count, np.int64)
        firsts[numbers[::-1]] = np.arange(len(numbers))[::-1]
        result |= {name: table.column(name).take(pa.array(firsts)) for name in self.keys}
        result |= {self.time_column: pa.array(latest), SLICE: pa.array(slices[firsts])}
        return result | {ROWS: pa.array(np.bincount(numbers)), "_partition": table.column("_partition")[0]}

    def _grouped(self, table: pa.Table, by: dict[str, Any], functions: Functions, times: Int64s) -> pa.Table:
        """What Arrow's functions give for each group, with its latest time and how many rows it has."""
        wanted = {(self.arguments.get(name, ""), one) for name, parts in functions.items() for one in parts.values()}
        columns = {column: table.column(column) for column, function in wanted if function != _ALL}
        asked = [(_AT, "max"), ([], _ALL), *sorted(one for one in wanted if one[1] != _ALL)]
        grouped = pa.table({**columns, **by, _AT: times}).group_by([*by], use_threads=False)
        return grouped.aggregate(asked).combine_chunks()

    def _parts(self, done: pa.Table, functions: Functions) -> dict[str, Any]:
        """The columns of partial results, of those that Arrow's functions have given."""
        result = {}
        for name, parts in functions.items():
            for part, function in parts.items():
                column = done.column(_ALL if function == _ALL else f"{self.arguments[name]}_{function}")
                if function == "sum" and column.null_count:  # a sum of nothing is zero among partial results
                    column = pc.fill_null(column, pa.scalar(0, column.type))
                title = f"{name}{SEPARATOR}{part}"
                result[title] = column.cast(self.computation.partials.field(title).type)
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

    def _may_wrap(self, table: pa.Table, functions: Functions) -> bool:
        """Whether a sum of whole numbers might exceed 64 bits, which Arrow would not notice."""
        for name in {self.arguments[name] for name, parts in functions.items() if "sum" in parts.values()}:
            column = table.column(name)
            if pa.types.is_integer(column.type):
                bounds = pc.min_max(column).as_py()
                most = max(abs(bounds["min"] or 0), abs(bounds["max"] or 0))
                if most * table.num_rows > LARGEST:
                    return True
        return False


def _whole(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def group_codes(keys: list[pa.ChunkedArray], slices: Int64s) -> Int64s:
    """A number for each row, equal where keys and slice are equal.

    >>> group_codes([pa.chunked_array([["a", "b", "a"]])], np.array([0, 0, 10])).tolist()
    [0, 2, 1]
    """
    in_turn = pc.dictionary_encode(pa.array(slices))
    codes = np.asarray(in_turn.indices).astype(np.int64)
    width = len(in_turn.dictionary)
    for key in keys:
        encoded = _whole(pc.dictionary_encode(key))
        encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
        codes = codes + np.asarray(encoded.indices).astype(np.int64) * width
        width *= max(1, len(encoded.dictionary))
        if width > 2**62 // max(1, len(codes)):  # too many to count on: number the codes that there are
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
            width = len(codes)
    return codes
