"""Rows that belong together stand together: the one shape in which aggregates are given their rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
#: A partition and an offset as one number, in the order of both.
OFFSET_BITS = 47


@dataclass(frozen=True)
class Groups:
    """`rows` rows in groups that stand one after the other; group i begins at row `starts[i]`. None is empty."""

    starts: Int64s
    rows: int

    @staticmethod
    def of(*sorted_keys: npt.NDArray[np.generic]) -> Groups:
        """The groups of rows that are sorted by these keys.

        >>> Groups.of(np.array([1, 1, 2]), np.array([0, 5, 5])).starts.tolist()
        [0, 1, 2]
        """
        rows = len(sorted_keys[0])
        if not rows:
            return Groups(np.empty(0, np.int64), 0)
        begins = np.zeros(rows, bool)
        begins[0] = True
        for keys in sorted_keys:
            begins[1:] |= keys[1:] != keys[:-1]
        return Groups(np.flatnonzero(begins), rows)

    @property
    def count(self) -> int:
        return len(self.starts)

    def sizes(self) -> Int64s:
        """How many rows each group has."""
        return np.diff(self.starts, append=self.rows)

    def numbers(self) -> Int64s:
        """For each row the number of its group."""
        return np.repeat(np.arange(self.count), self.sizes())

    def offsets(self) -> npt.NDArray[np.int32]:
        """The starts and the end, as Arrow's lists want them."""
        return np.append(self.starts, self.rows).astype(np.int32)


@dataclass(frozen=True)
class Order:
    """Where each row stands in the order of processing: event time, then partition and offset."""

    at_us: Int64s
    position: Int64s

    def take(self, rows: Int64s) -> Order:
        return Order(self.at_us[rows], self.position[rows])


def positions(partitions: Int64s, offsets: Int64s) -> Int64s:
    """Partition and offset as one number.

    >>> positions(np.array([0, 1]), np.array([7, 0])).tolist()
    [7, 140737488355328]
    """
    packed: Int64s = (partitions.astype(np.int64) << OFFSET_BITS) | offsets
    return packed
