"""Count-min: how often any value came, never too low, and too high by no more than a share of all rows.

A sketch is a table of counters: each value has one in every row of it, and its count is the least of them. Only the
counters that are not zero are kept, so the sketch of few values is small. The format is our own:

    0 one  1 version  2 family (200)  3 rows  4 columns (u32)  8 total (i64)  16 counters (u32)  24 counts (i64 each),
    then the numbers of the counters (u32 each), in their order
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.errors import SketchInvalid
from headwater.operators.sketches.estimates import Estimates, Floats
from headwater.operators.sketches.hashing import hashes_of
from headwater.operators.sketches.packed import COUNT_MIN, Int64s, Packed, check_at_least, check_family, check_sizes


@dataclass(frozen=True)
class Counters:
    """Sketches as arrays: the counters of each that are not zero, and how many rows it has seen."""

    numbers: Int64s
    cells: Int64s
    counts: Int64s
    totals: Int64s


@dataclass(frozen=True)
class CountMin:
    """Tables of `depth` rows and `width` columns."""

    depth: int
    width: int

    @staticmethod
    def within(error: float, confidence: float) -> CountMin:
        """Counts at most a share `error` of all rows too high, with this confidence.

        >>> CountMin.within(error=0.001, confidence=0.99)
        CountMin(depth=5, width=2719)
        """
        return CountMin(int(np.ceil(np.log(1 / (1 - confidence)))), int(np.ceil(np.e / error)))

    def cells(self, values: pa.Array) -> Int64s:
        """The counters of each value, a row of them each."""
        low, high = hashes_of(values)
        rows = np.arange(self.depth, dtype=np.uint64)
        places = (low[:, None] + rows * (high[:, None] | np.uint64(1))) % np.uint64(self.width)
        return places.astype(np.int64) + np.arange(self.depth) * self.width

    def lift(self, values: pa.Array, numbers: Int64s, count: int) -> pa.Array:
        """A sketch for each group."""
        cells = self.cells(values).reshape(-1)
        totals = np.bincount(numbers, minlength=count)
        return self._packed(np.repeat(numbers, self.depth), cells, np.ones(len(cells), np.int64), totals)

    def merge(self, sketches: pa.Array, numbers: Int64s, count: int) -> pa.Array:
        """One sketch for each group of sketches, which are all of one size."""
        opened, size = open_count_min(sketches)
        totals = np.zeros(count, np.int64)
        np.add.at(totals, numbers, opened.totals)
        return size._packed(numbers[opened.numbers], opened.cells, opened.counts, totals)

    def _packed(self, numbers: Int64s, cells: Int64s, counts: Int64s, totals: Int64s) -> pa.Array:
        known, inverse = np.unique(numbers * (self.depth * self.width) + cells, return_inverse=True)
        summed = np.zeros(len(known), np.int64)
        np.add.at(summed, inverse, counts)
        groups, places = np.divmod(known, self.depth * self.width)
        sizes = np.bincount(groups, minlength=len(totals))
        packed = Packed.empty(24 + 8 * sizes + -(-sizes // 2) * 8)
        packed.put(0, "u1", 1)
        packed.put(1, "u1", 1)
        packed.put(2, "u1", COUNT_MIN)
        packed.put(3, "u1", self.depth)
        packed.put(4, "<u4", self.width)
        packed.put(8, "<i8", totals)
        packed.put(16, "<u4", sizes)
        packed.put_lists(24, sizes, summed.astype("<i8"))
        packed.put_lists(24 + 8 * sizes, sizes, places.astype("<u4"))
        return packed.column()


def open_count_min(sketches: pa.Array) -> tuple[Counters, CountMin]:
    """The counters of sketches, and the size that all of them have."""
    packed = Packed.of(sketches)
    check_family(packed, COUNT_MIN)
    depths, widths = packed.field(3, "u1"), packed.field(4, "<u4")
    if len(depths) and ((depths != depths[0]).any() or (widths != widths[0]).any()):
        raise SketchInvalid(expected="count_min", why="they are of different sizes, and cannot be added")
    check_at_least(packed, COUNT_MIN, 24)
    sizes = packed.field(16, "<u4").astype(np.int64)
    check_sizes(packed, COUNT_MIN, 24 + 8 * sizes + -(-sizes // 2) * 8)
    if len(depths) and not (depths[0] and widths[0]):
        raise SketchInvalid(expected="count_min", why="one has no counters")
    counts = packed.lists(24, sizes, "<i8").astype(np.int64)
    cells = packed.lists(24 + 8 * sizes, sizes, "<u4").astype(np.int64)
    size = CountMin(int(depths[0]), int(widths[0])) if len(depths) else CountMin(1, 1)
    totals = packed.field(8, "<i8").astype(np.int64)
    return Counters(np.repeat(np.arange(len(sizes)), sizes), cells, counts, totals), size


def counts_of(sketches: pa.Array, asked: pa.Array) -> Estimates:
    """How often each value asked for came, by sketch and then by value."""
    opened, size = open_count_min(sketches)
    cells = size.cells(asked)
    all_cells = size.depth * size.width
    known = opened.numbers * all_cells + opened.cells
    wanted = np.arange(len(opened.totals))[:, None, None] * all_cells + cells[None, :, :]
    found: npt.NDArray[np.int64] = np.zeros(wanted.shape, np.int64)
    if len(known):
        rows = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        found = np.where(known[rows] == wanted, opened.counts[rows], 0)
    estimate: Floats = found.min(axis=2).astype(np.float64)
    slack = np.e / size.width * opened.totals[:, None]
    return Estimates(estimate, np.maximum(np.ceil(estimate - slack), 0), estimate)
