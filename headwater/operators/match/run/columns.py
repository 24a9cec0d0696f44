"""Columns as the arrays that the kernel reads: whole numbers, real numbers, and texts by their place in the order.

Conditions on one row become bits of a mask. For a `Match` directly on a topic, the topic's reader computes the masks
and packs them with the columns that go on; columns that only conditions look at do not leave the reader.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.reader_protocol import DirectRead, Pack
from headwater.operators.match.kernel.codes import Bools, Float64s, Int64s
from headwater.operators.match.language.rule import Call, Expression, references_in
from headwater.operators.match.plan.evaluation import is_plain, over_rows
from headwater.operators.match.plan.formula import kind_of
from headwater.operators.match.plan.rule_plan import BITS, Plan

#: So many truth values are held at a time: with many conditions, rows are looked at by parts.
TRUTHS_MAX = 2**26


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


class Columns(NamedTuple):
    """The columns that formulas read, and the numbers of the texts in them."""

    whole: Int64s
    whole_null: Bools
    real: Float64s
    real_null: Bools
    texts: Mapping[str, int]


def columns_of(
    whole_columns: Sequence[str], real_columns: Sequence[str], texts: Sequence[str], rows: pa.Table
) -> Columns:
    """The columns of whole numbers and texts, those of real numbers, and the numbers of some texts beside them."""
    whole = np.zeros((len(whole_columns), rows.num_rows), np.int64)
    real = np.zeros((len(real_columns), rows.num_rows), np.float64)
    found = Columns(whole, np.zeros(whole.shape, bool), real, np.zeros(real.shape, bool), {})
    textual = [at for at, name in enumerate(whole_columns) if kind_of(rows.schema.field(name).type) == "text"]
    if textual or texts:
        numbers, constants = numbered([rows.column(whole_columns[at]) for at in textual], texts)
        found = found._replace(texts=constants)
        for at, values in zip(textual, numbers, strict=True):
            whole[at] = values
    for at, name in enumerate(whole_columns):
        if at not in textual:
            whole[at] = whole_numbers(rows.column(name))
        found.whole_null[at] = nulls(rows.column(name))
    for at, name in enumerate(real_columns):
        real[at], found.real_null[at] = real_numbers(rows.column(name)), nulls(rows.column(name))
    return found


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
    masks = masks_over(plan.masks, rows)
    for word, name in enumerate(plan.mask_columns):
        rows = rows.append_column(name, pa.array(masks[word]))
    return rows


def masks_over(trees: Sequence[Expression], rows: pa.Table) -> Int64s:
    """The words of a mask with a bit for each of these conditions."""
    masks = np.zeros((max(1, -(-len(trees) // BITS)), rows.num_rows), np.int64)
    rows_max = max(1_000, TRUTHS_MAX // max(1, len(trees)))
    for start in range(0, rows.num_rows, rows_max):
        truths = Truths(rows.slice(start, rows_max))
        for bit, tree in enumerate(trees):
            # Few rows fit most conditions, and only those are touched.
            masks[bit // BITS, start + np.flatnonzero(truths.of(tree))] |= 1 << (bit % BITS)
    return masks


class Truths:
    """Where conditions hold. What several of them have in common is computed once."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self.known: dict[Expression, Bools] = {}

    def of(self, tree: Expression) -> Bools:
        if tree not in self.known:
            self.known[tree] = self._of(tree)
        return self.known[tree]

    def _of(self, tree: Expression) -> Bools:
        # Null does not hold: so what holds of both is what each holds of, and likewise with either.
        if isinstance(tree, Call) and tree.name in ("and", "or"):
            join = np.logical_and if tree.name == "and" else np.logical_or
            found: Bools = functools.reduce(join, [self.of(one) for one in tree.of])
            return found
        return truth(over_rows(tree, self.rows))


def truth(values: pa.Array) -> Bools:
    """Where a condition holds; null does not."""
    if pa.types.is_null(values.type):
        return np.zeros(len(values), bool)
    return np.asarray(pc.fill_null(values.cast(pa.bool_()), False)).astype(bool)


@dataclass(frozen=True)
class MaskPack(Pack):
    """Columns of a topic, with the mask of each row."""

    masks: tuple[Expression, ...]
    names: tuple[str, ...]
    #: The columns that go on.
    kept: tuple[str, ...]

    @property
    def packs(self) -> pa.Schema:
        """The rows that are packed."""
        made = self.selection.made
        return pa.schema([*(made.field(name) for name in self.kept), *((name, pa.int64()) for name in self.names)])

    def chosen(self, table: pa.Table) -> pa.Table:
        rows = super().chosen(table)
        words = masks_over(self.masks, rows)
        rows = rows.select(list(self.kept))
        for word, name in enumerate(self.names):
            rows = rows.append_column(name, pa.array(words[word]))
        return rows


def mask_pack(
    direct: DirectRead,
    plan: Plan,
    *,
    name: str,
    rows: pa.Schema,
    kept: Sequence[str],
    keys: Sequence[str],
    partitions: int,
) -> MaskPack | None:
    """What the reader does for a plan; None where some of it is for Spark to compute."""
    if plan.derived or not all(is_plain(tree, rows) for tree in plan.masks):
        return None
    asked = [one.column for tree in plan.masks for one in references_in(tree)]
    read = pa.schema([rows.field(one) for one in dict.fromkeys([*kept, *asked])])
    pack = direct.pack(name, rows=read, keys=keys, partitions=partitions)
    if pack is None:
        return None
    return MaskPack(
        pack.name,
        pack.selection,
        pack.keys,
        pack.partitions,
        masks=plan.masks,
        names=plan.mask_columns,
        kept=tuple(kept),
    )
