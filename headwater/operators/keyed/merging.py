"""Merging runs: which ones, and how. The newest rows of a key win as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.keyed.runs import HASH, LIVE

#: So many runs of similar size are merged into one that is about so many times larger.
FAN_IN = 8
SMALLEST_ROWS = 1024


def runs_to_merge(rows: Sequence[int]) -> tuple[int, int] | None:
    """Neighbouring runs, as [first, last), that have piled up on one level; None while there are few.

    >>> runs_to_merge([100_000, 900, 900, 900])
    >>> runs_to_merge([100_000] + [900] * 8)
    (1, 9)
    """
    levels = [_level(count) for count in rows]
    last = len(levels)
    while last > 0:
        first = last - 1
        while first > 0 and levels[first - 1] <= levels[last - 1]:
            first -= 1
        if last - first >= FAN_IN:
            return first, last
        last = first
    return None


def _level(rows: int) -> int:
    level, size = 0, SMALLEST_ROWS
    while rows > size:
        level, size = level + 1, size * FAN_IN
    return level


def merge_runs(tables: Sequence[pa.Table], *, key: Sequence[str], drop_dead: bool) -> pa.Table:
    """One run with the newest rows of each key, sorted by hash; dead keys go where no older run can have them."""
    table = pa.concat_tables(tables).combine_chunks()
    hashes = np.asarray(table.column(HASH).combine_chunks())
    # The runs stand from the oldest to the newest, and rows of one hash stay in that order. Each is sorted already, which
    # a stable sort makes use of.
    order = np.argsort(hashes, kind="stable")
    hashes, ages = hashes[order], np.repeat(np.arange(len(tables)), [one.num_rows for one in tables])[order]
    groups = key_groups(table.select([HASH, *key]).take(pa.array(order)), hashes, key)
    newest = np.zeros(int(groups.max()) + 1 if len(groups) else 0, ages.dtype)
    newest[groups] = ages  # of several the last is kept, which is the newest
    keep = ages == newest[groups]
    if drop_dead:
        keep &= np.asarray(table.column(LIVE).combine_chunks(), dtype=bool)[order]
    return table.take(pa.array(order[keep])).combine_chunks()


def key_groups(table: pa.Table, hashes: npt.NDArray[np.uint64], key: Sequence[str]) -> npt.NDArray[np.int64]:
    """A number for each distinct key of rows sorted by hash; rows of one key have the same."""
    if not len(hashes):
        return np.empty(0, np.int64)
    starts = np.concatenate([[True], hashes[1:] != hashes[:-1]])
    groups = np.cumsum(starts) - 1
    keys = table.select(list(key)).combine_chunks()
    # Rows of one hash stand together: if each has the key of the one before it, all have the same.
    if (starts[1:] | same_keys(keys.slice(1), keys.slice(0, len(hashes) - 1))).all():
        return groups.astype(np.int64)
    # Two keys with one 64-bit hash: rare enough to be slow, not rare enough to be wrong.
    numbers: dict[tuple[object, ...], int] = {}
    tuples = zip(*(column.to_pylist() for column in keys.columns), strict=True)
    return np.array([numbers.setdefault(one, len(numbers)) for one in tuples], dtype=np.int64)


def same_keys(left: pa.Table, right: pa.Table) -> npt.NDArray[np.bool_]:
    """Row by row, whether two tables hold the same keys."""
    same = np.ones(left.num_rows, dtype=bool)
    for name in left.column_names:
        equal = pc.equal(left.column(name), right.column(name))
        both_null = pc.and_(pc.is_null(left.column(name)), pc.is_null(right.column(name)))
        same &= np.asarray(pc.or_(pc.fill_null(equal, False), both_null).combine_chunks(), dtype=bool)
    return same
