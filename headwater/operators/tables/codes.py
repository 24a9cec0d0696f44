"""Rows as numbers: rows that hold the same get the same number, whatever they hold."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headwater.operators.agg.groups import Int64s

#: Two columns' numbers are put into one as long as they fit.
LARGEST = 2**62


def codes(table: pa.Table, names: Sequence[str]) -> Int64s:
    """A number for each row, counted from 0; rows that are equal in these columns share it. Two nulls are equal.

    >>> codes(pa.table({"a": [7, 7, None, None], "b": ["x", "y", "x", "x"]}), ["a", "b"]).tolist()
    [0, 1, 2, 2]
    """
    found: Int64s = np.zeros(table.num_rows, np.int64)
    count = 1
    for name in names:
        more = _numbers(table.column(name))
        values = int(more.max(initial=0)) + 1
        if count > LARGEST // values:
            found, count = _dense(found)
        found = found * values + more
        count *= values
    return _dense(found)[0] if len(names) > 1 else found


def _numbers(column: pa.ChunkedArray) -> Int64s:
    array = column.combine_chunks()
    if pa.types.is_nested(array.type):
        array = pa.array([repr(value) for value in array.to_pylist()], pa.string())
    return np.asarray(array.dictionary_encode(null_encoding="encode").indices).astype(np.int64)


def _dense(found: Int64s) -> tuple[Int64s, int]:
    values, numbers = np.unique(found, return_inverse=True)
    return numbers.astype(np.int64), max(len(values), 1)
