"""How tables travel: rows with `_op`, which say what happens to the table.

`+I` a row appears, `-U` a row is retracted because another follows, `+U` that other, `-D` a row is gone. A reader
that applies the rows in their order has the table; one that takes only `+I` and `+U` and a key has it as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Groups, Int64s

OP = "_op"
INSERT = "+I"
UPDATE_BEFORE = "-U"
UPDATE_AFTER = "+U"
DELETE = "-D"
#: How often a row stands in the table after its change: once more, or once less.
SIGNS = {INSERT: 1, UPDATE_AFTER: 1, UPDATE_BEFORE: -1, DELETE: -1}


def paired(old: pa.Table, new: pa.Table, *, by: list[str]) -> pa.Table:
    """What turns the old rows into the new ones, of which each key has at most one: equal rows are left alone.

    A retraction stands directly before what takes its place.

    >>> old, new = pa.table({"k": [1, 2], "v": [5, 6]}), pa.table({"k": [2, 3], "v": [7, 8]})
    >>> [tuple(row.values()) for row in paired(old, new, by=["k"]).to_pylist()]
    [('-D', 1, 5), ('-U', 2, 6), ('+U', 2, 7), ('+I', 3, 8)]
    """
    both = pa.concat_tables([nullable(old), nullable(new.select(old.column_names))]).combine_chunks()
    is_new = np.arange(both.num_rows) >= old.num_rows
    keys = [_sortable(both.column(name)) for name in by]
    order = np.lexsort([is_new, *reversed(keys)])
    groups = Groups.of(*(one[order] for one in keys))
    is_pair = groups.sizes() == 2
    first = order[groups.starts]
    second = order[np.minimum(groups.starts + 1, groups.rows - 1)] if groups.rows else order
    same = np.zeros(groups.count, bool)
    same[is_pair] = equal_rows(both, first[is_pair], second[is_pair], skip=by)
    kept = np.repeat(~same, groups.sizes())
    ops = np.where(is_new[order], np.where(np.repeat(is_pair, groups.sizes()), UPDATE_AFTER, INSERT), DELETE)
    ops = np.where(~is_new[order] & np.repeat(is_pair, groups.sizes()), UPDATE_BEFORE, ops)
    chosen = both.take(pa.array(order[kept]))
    return chosen.add_column(0, OP, pa.array(ops[kept].tolist(), pa.string()))


def nullable(table: pa.Table) -> pa.Table:
    """The same rows, in which every column may be null: rows may promise that one is not, and state does not."""
    return table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))


def equal_rows(table: pa.Table, left: Int64s, right: Int64s, *, skip: list[str]) -> npt.NDArray[np.bool_]:
    """Whether row `left[i]` and row `right[i]` hold the same; two nulls are the same, and so are two NaN."""
    same = np.ones(len(left), bool)
    for name in table.column_names:
        if name in skip:
            continue
        one, other = (table.column(name).combine_chunks().take(pa.array(rows)) for rows in (left, right))
        same &= equal_values(one, other)
    return same


def equal_values(one: pa.Array, other: pa.Array) -> npt.NDArray[np.bool_]:
    """Element by element whether two arrays hold the same."""
    if pa.types.is_nested(one.type):
        pairs = zip(one.to_pylist(), other.to_pylist(), strict=True)
        return np.array([left == right for left, right in pairs], bool)
    equal = pc.fill_null(pc.equal(one, other), fill_value=False)
    both_null = pc.and_(pc.is_null(one), pc.is_null(other))
    if pa.types.is_floating(one.type):
        both_null = pc.or_(both_null, pc.fill_null(pc.and_(pc.is_nan(one), pc.is_nan(other)), fill_value=False))
    return np.asarray(pc.or_(equal, both_null)).astype(bool)


def signs_of(ops: pa.ChunkedArray) -> Int64s:
    """Plus or minus one for each change; a null counts as an insertion, as rows of a plain topic have none."""
    minus = pc.is_in(ops, value_set=pa.array([UPDATE_BEFORE, DELETE]))
    return np.where(np.asarray(minus), -1, 1).astype(np.int64)


def rounds(sorted_keys: Int64s) -> Iterator[Int64s]:
    """The rows of each round, when in every round each key has one row at most.

    >>> [rows.tolist() for rows in rounds(np.array([0, 0, 0, 1, 2, 2]))]
    [[0, 3, 4], [1, 5], [2]]
    """
    groups = Groups.of(sorted_keys)
    place = np.arange(groups.rows) - np.repeat(groups.starts, groups.sizes())
    order = np.argsort(place, kind="stable")
    for number in range(int(place.max(initial=-1)) + 1):
        first, last = np.searchsorted(place[order], [number, number + 1])
        yield order[first:last]


def _sortable(column: pa.ChunkedArray) -> Int64s:
    kind = column.type
    if pa.types.is_integer(kind):
        return np.asarray(column.combine_chunks())
    if pa.types.is_timestamp(kind):
        return np.asarray(column.cast(pa.int64()).combine_chunks())
    return np.asarray(pc.rank(column, sort_keys="ascending", tiebreaker="min")).astype(np.int64)
