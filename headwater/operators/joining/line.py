"""Rows of keys in the order of time, and where a time falls among those of its key: two binary searches for all at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headwater.operators.agg.groups import Int64s
from headwater.operators.keyed.runs import ranges


class Pairs(NamedTuple):
    """Rows that meet: `left[i]` with `right[i]`."""

    left: Int64s
    right: Int64s


class Line:
    """Rows sorted by key and time.

    >>> line = Line(np.array([0, 0, 0, 1]), np.array([10, 20, 30, 5]))
    >>> line.latest(np.array([0, 0, 1, 1]), np.array([25, 9, 5, 4])).tolist()
    [1, -1, 3, -1]
    """

    def __init__(self, keys: Int64s, times: Int64s) -> None:
        self._keys = keys
        self._times, ranks = np.unique(times, return_inverse=True)
        # Key and time as one number that no time can overflow: the time's rank takes its place.
        self._width = len(self._times) + 1
        self._places = keys * self._width + ranks

    def latest(self, keys: Int64s, times: Int64s) -> Int64s:
        """For each key and time the last row at or before it, or -1."""
        if not len(self._keys):
            return np.full(len(keys), -1, np.int64)
        found = self._stop(keys, times) - 1
        return np.where((found >= 0) & (self._keys[np.maximum(found, 0)] == keys), found, -1)

    def between(self, keys: Int64s, low: Int64s, high: Int64s) -> Pairs:
        """For each key all its rows with a time in [low, high]."""
        first = np.searchsorted(self._places, keys * self._width + np.searchsorted(self._times, low, side="left"))
        counts = self._stop(keys, high) - first
        return Pairs(np.repeat(np.arange(len(keys)), counts), ranges(first, counts))

    def _stop(self, keys: Int64s, times: Int64s) -> npt.NDArray[np.int64]:
        """Where the first row stands that is after the time, or belongs to a later key."""
        return np.searchsorted(self._places, keys * self._width + np.searchsorted(self._times, times, side="right"))
