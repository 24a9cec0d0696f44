"""Rows of keys in the order of time, and where a time falls among those of its key: binary searches for all at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headwater.engine.aggregation import Int64s
from headwater.engine.state_store import ranges

#: Numbers that stand for a key and a time stay below this.
PLACE_MAX = 2**62


class Pairs(NamedTuple):
    """Rows that meet: `left[i]` with `right[i]`."""

    left: Int64s
    right: Int64s


class Scale:
    """A key and a time as one number, in the order of both.

    Where the times of all rows and the number of keys allow it, the time itself is part of the number; else its rank among
    the times of the rows is, which costs another search and cannot overflow.
    """

    def __init__(self, keys: Int64s, times: Int64s) -> None:
        self._low, high = (int(times.min()), int(times.max())) if len(times) else (0, 0)
        self._top = high - self._low + 2
        self._known: Int64s | None = None
        self._beyond = int(keys.max(initial=-1)) + 1
        if (self._beyond + 1) * (self._top + 1) >= PLACE_MAX:
            self._known = np.unique(times)
            self._top = len(self._known)

    def at_or_after(self, keys: Int64s, times: Int64s) -> Int64s:
        """The number that no row of the key before this time reaches."""
        if self._known is not None:
            return self._starts(keys) + np.searchsorted(self._known, times, side="left")
        return self._starts(keys) + np.clip(times - self._low + 1, 0, self._top)

    def after(self, keys: Int64s, times: Int64s) -> Int64s:
        """The number that no row of the key at this time or before reaches."""
        if self._known is not None:
            return self._starts(keys) + np.searchsorted(self._known, times, side="right")
        return self._starts(keys) + np.clip(times - self._low + 2, 0, self._top)

    def _starts(self, keys: Int64s) -> Int64s:
        # Keys that are asked for may be larger than all that are known: one place behind them is enough for those.
        return np.minimum(keys, self._beyond) * (self._top + 1)


def in_order(keys: Int64s, times: Int64s) -> Int64s:
    """The rows by key and time; of equal ones the first stays first. Rows that are sorted in parts cost little."""
    found: Int64s = np.argsort(Scale(keys, times).at_or_after(keys, times), kind="stable")
    return found


class Line:
    """Rows sorted by key and time.

    >>> line = Line(np.array([0, 0, 0, 1]), np.array([10, 20, 30, 5]))
    >>> line.latest(np.array([0, 0, 1, 1, 7]), np.array([25, 9, 5, 4, 50])).tolist()
    [1, -1, 3, -1, -1]
    """

    def __init__(self, keys: Int64s, times: Int64s) -> None:
        self._keys = keys
        self._scale = Scale(keys, times)
        self._places = self._scale.at_or_after(keys, times)

    def latest(self, keys: Int64s, times: Int64s) -> Int64s:
        """For each key and time the last row at or before it, or -1."""
        if not len(self._keys):
            return np.full(len(keys), -1, np.int64)
        found = np.searchsorted(self._places, self._scale.after(keys, times)) - 1
        return np.where((found >= 0) & (self._keys[np.maximum(found, 0)] == keys), found, -1)

    def between(self, keys: Int64s, low: Int64s, high: Int64s) -> Pairs:
        """For each key all its rows with a time in [low, high]."""
        first = np.searchsorted(self._places, self._scale.at_or_after(keys, low))
        counts = np.searchsorted(self._places, self._scale.after(keys, high)) - first
        return Pairs(np.repeat(np.arange(len(keys)), counts), ranges(first, counts))


def rows_before(keys: Int64s, at: Int64s, of_keys: Int64s, of_at: Int64s) -> Int64s:
    """How many rows, sorted by key and time, stand before each of these keys and times.

    >>> keys, at = np.array([0, 0, 1]), np.array([5, 9, 5])
    >>> rows_before(keys, at, np.array([0, 0, 1, 1]), np.array([9, 10, 5, 6])).tolist()
    [1, 2, 2, 3]
    """
    if not len(keys) or not len(of_keys):
        return np.zeros(len(of_keys), np.int64)
    low = min(int(at.min()), int(of_at.min()))
    width = max(int(at.max()), int(of_at.max())) - low + 1
    if (int(max(keys[-1], of_keys.max())) + 1) * width < 2**62:
        # Key and time as one number, as long as that is small enough for one.
        return np.searchsorted(keys * width + (at - low), of_keys * width + (of_at - low))
    asked = np.concatenate([np.ones(len(of_keys), bool), np.zeros(len(keys), bool)])
    order = np.lexsort([~asked, np.concatenate([of_at, at]), np.concatenate([of_keys, keys])])
    found = np.empty(len(order), np.int64)
    found[order] = np.cumsum(~asked[order])
    return found[: len(of_keys)]


def interleaved(keys: Int64s, at: Int64s, first: int) -> Int64s:
    """The order of key and time of rows that are two sorted parts, of which the first has `first` rows.

    >>> interleaved(np.array([0, 1, 0, 1]), np.array([5, 5, 5, 4]), 2).tolist()
    [0, 2, 3, 1]
    """
    order = np.empty(len(keys), np.int64)
    places = rows_before(keys[:first], at[:first], keys[first:], at[first:] + 1) + np.arange(len(keys) - first)
    order[places] = np.arange(first, len(keys))
    rest = np.ones(len(keys), bool)
    rest[places] = False
    order[rest] = np.arange(first)
    return order
