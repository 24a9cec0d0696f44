"""Columns as the arrays that the kernel reads: whole numbers, real numbers, and texts by their place in the order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.match.codes import Bools, Float64s, Int64s
from headwater.operators.match.formulas import kind_of
from headwater.operators.match.plan import BITS, Plan
from headwater.operators.match.program import Program
from headwater.operators.match.values import over_rows


def whole_numbers(column: pa.ChunkedArray) -> Int64s:
    """Whole numbers, truth values and times (in microseconds); nulls are 0."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    elif pa.types.is_duration(kind):
        column = column.cast(pa.duration("us"), safe=False)
    elif pa.types.is_date(kind):
        column = column.cast(pa.timestamp("us"))
    elif pa.types.is_time(kind):
        column = column.cast(pa.time64("us"))
    return _filled(column.cast(pa.int64(), safe=False), 0).astype(np.int64, copy=False)


def real_numbers(column: pa.ChunkedArray) -> Float64s:
    return _filled(column.cast(pa.float64(), safe=False), 0.0).astype(np.float64, copy=False)


def nulls(column: pa.ChunkedArray) -> Bools:
    if column.null_count == 0:
        return np.zeros(len(column), bool)
    return np.asarray(pc.is_null(column).combine_chunks()).astype(bool)


def _filled(column: pa.ChunkedArray, value: float) -> Int64s | Float64s:
    return np.asarray((pc.fill_null(column, value) if column.null_count else column).combine_chunks())


def numbered(columns: list[pa.ChunkedArray], constants: Iterable[str]) -> tuple[list[Int64s], Mapping[str, int]]:
    """Texts as whole numbers that have the order of the texts; and the numbers of the constants."""
    wanted = sorted(set(constants))
    chunks = [chunk.cast(pa.string()) for column in columns for chunk in column.chunks]
    values = pc.unique(pa.chunked_array([*chunks, pa.array(wanted, pa.string())])).drop_null()
    values = values.take(pc.sort_indices(values))
    found = [_filled(pc.index_in(column.cast(pa.string()), values), 0).astype(np.int64) for column in columns]
    return found, dict(zip(wanted, pc.index_in(pa.array(wanted, pa.string()), values).to_pylist(), strict=True))


def columns_of(program: Program, rows: pa.Table) -> tuple[Int64s, Bools, Float64s, Bools, Mapping[str, int]]:
    """The columns that a program's formulas read: whole numbers, their nulls, real ones, theirs, and constants."""
    count = rows.num_rows
    whole = np.zeros((len(program.whole_columns), count), np.int64)
    real = np.zeros((len(program.real_columns), count), np.float64)
    whole_null, real_null = np.zeros(whole.shape, bool), np.zeros(real.shape, bool)
    kinds = [kind_of(rows.schema.field(name).type) for name in program.whole_columns]
    texts = [at for at, kind in enumerate(kinds) if kind == "text"]
    constants: Mapping[str, int] = {}
    if texts or program.needs_texts:
        columns = [rows.column(program.whole_columns[at]) for at in texts]
        found, constants = numbered(columns, [*program.texts.values(), *program.variables])
        for at, numbers in zip(texts, found, strict=True):
            whole[at] = numbers
    for at, name in enumerate(program.whole_columns):
        if kinds[at] != "text":
            whole[at] = whole_numbers(rows.column(name))
        whole_null[at] = nulls(rows.column(name))
    for at, name in enumerate(program.real_columns):
        real[at], real_null[at] = real_numbers(rows.column(name)), nulls(rows.column(name))
    return whole, whole_null, real, real_null, constants


def masks_of(plan: Plan, rows: pa.Table) -> Int64s:
    """The words of the masks, one row of the array for each."""
    masks = np.zeros((max(1, len(plan.mask_columns)), rows.num_rows), np.int64)
    for word, name in enumerate(plan.mask_columns):
        masks[word] = whole_numbers(rows.column(name))
    return masks


def with_columns(plan: Plan, rows: pa.Table) -> pa.Table:
    """The rows with the columns that a plan makes of them, computed by Arrow."""
    for name, tree in plan.derived.items():
        rows = rows.append_column(name, over_rows(tree, rows))
    for word, name in enumerate(plan.mask_columns):
        mask = np.zeros(rows.num_rows, np.int64)
        for bit, tree in enumerate(plan.masks[word * BITS : (word + 1) * BITS]):
            mask |= truth(over_rows(tree, rows)).astype(np.int64) << bit
        rows = rows.append_column(name, pa.array(mask))
    return rows


def truth(values: pa.Array) -> Bools:
    """Where a condition holds; null does not."""
    if pa.types.is_null(values.type):
        return np.zeros(len(values), bool)
    return np.asarray(pc.fill_null(values.cast(pa.bool_()), False)).astype(bool)
