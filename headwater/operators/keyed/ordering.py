"""Sorting rows by the hash of their key, in little more than one pass: what the engine does with every batch.

Rows of one key must stay in the order in which they came before. A stable sort of hashes takes twice as long as a plain
one; so the place of each row is put into the low bits of its hash, and one plain sort does both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
#: Sorting by counting is for numbers that differ by less than this.
FEW = 2**15


# Any: numbers of whichever kind.
def in_order(keys: Sequence[npt.NDArray[Any]]) -> Numbers | None:
    """The order of rows by several keys, the least important first; `None` where they are in order already.

    >>> in_order([np.array([3, 1, 2]), np.array([0, 1, 0])]).tolist()
    [2, 0, 1]
    >>> in_order([np.array([1, 2, 2])]) is None
    True
    """
    order: Numbers | None = None
    for key in keys:
        values = key if order is None else key[order]
        if len(values) < 2 or bool((values[1:] >= values[:-1]).all()):
            continue
        if np.issubdtype(values.dtype, np.integer):
            least = values.min()
            if int(values.max()) - int(least) < FEW:
                values = (values - least).astype(np.uint16)
        step = np.argsort(values, kind="stable")
        order = step if order is None else order[step]
    return order


def by_hash(hashes: Hashes, before: Numbers | None) -> Numbers:
    """Rows by their hash; those with the same hash in the order `before`, or as they stand.

    >>> by_hash(np.array([7, 3, 7, 3], np.uint64) << np.uint64(50), np.array([3, 2, 1, 0])).tolist()
    [3, 1, 2, 0]
    """
    ordered = hashes if before is None else hashes[before]
    bits = np.uint64(max(1, len(hashes).bit_length()))
    places = np.arange(len(hashes), dtype=np.uint64)
    packed = (ordered >> bits << bits) | places
    packed.sort()
    order: Numbers = (packed & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    found = ordered[order]
    if bool((found[1:] < found[:-1]).any()):  # two hashes differ in the low bits alone
        order = np.argsort(ordered, kind="stable")
    return order if before is None else before[order]
