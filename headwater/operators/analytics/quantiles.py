"""Quantiles of many ranges of rows at once: ranges of about the same length are laid side by side and sorted together."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headwater.operators.agg.groups import Int64s
from headwater.operators.agg.numbers import Floats

#: So many values are sorted together.
CHUNK_VALUES = 2_000_000


def range_quantiles(values: pa.Array, starts: Int64s, stops: Int64s, share: float) -> pa.Array:
    """The quantile of the values from `starts[i]` up to, and without, `stops[i]`, for each i; null of none.

    >>> range_quantiles(pa.array([1.0, None, 3.0, 9.0]), np.array([0, 0, 1]), np.array([3, 4, 2]), 0.5).to_pylist()
    [2.0, 3.0, None]
    """
    valid = np.asarray(values.is_valid())
    until = np.concatenate([[0], np.cumsum(valid)])
    pool = np.asarray(values.drop_null())
    starts, counts = until[starts], until[stops] - until[starts]
    found = np.zeros(len(starts))
    for rows, width in _alike(counts):
        # NaN stands behind all numbers, whether it is a value or only fills a place.
        places = np.minimum(starts[rows, None] + np.arange(width), len(pool) - 1)
        held = np.where(np.arange(width) < counts[rows, None], pool[places], np.nan)
        held.sort(axis=1)
        found[rows] = _between(held, counts[rows], share)
    return pa.array(found, mask=counts == 0)


def _alike(counts: Int64s) -> Iterator[tuple[Int64s, int]]:
    """Ranges whose lengths differ by less than the half, some at a time, and the longest length among them."""
    longest = int(counts.max(initial=0))
    low = 0
    while low < longest:
        high = max(1, 2 * low)
        chosen = np.flatnonzero((counts > low) & (counts <= high))
        step = max(1, CHUNK_VALUES // high)
        for first in range(0, len(chosen), step):
            yield chosen[first : first + step], high
        low = high


def _between(held: Floats, counts: Int64s, share: float) -> Floats:
    """The value at a share of each row; between two values the straight line between them."""
    rows = np.arange(len(counts))
    wanted = (counts - 1) * share
    low = np.floor(wanted).astype(np.int64)
    lower, upper = held[rows, low], held[rows, np.minimum(low + 1, counts - 1)]
    found: Floats = lower + (upper - lower) * (wanted - low)
    return found
