"""How often values came: count-min sketches and frequent items.

Count-min says how often any value came, never too low, and too high by no more than a share of all rows. A sketch is a
table of counters: each value has one in every row of it, and its count is the least of them. Only the counters that are
not zero are kept, so the sketch of few values is small. The format is our own:

    0 one  1 version  2 family (200)  3 rows  4 columns (u32)  8 total (i64)  16 counters (u32)  24 counts (i64 each),
    then the numbers of the counters (u32 each), in their order

Frequent items are the commonest values, with counts that are certain to lie between two bounds. Counters for so many
values are kept (Misra and Gries). Where there are more, the count of the first that has no place is subtracted from all
of them, and added to what any count may be too low by. Merged in any order, that error stays below the number of rows
divided by the number of counters. The format is that of Apache DataSketches' strings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.errors import SketchInvalid
from headwater.operators.sketches.format import (
    COUNT_MIN,
    FREQUENT,
    Estimates,
    Floats,
    Int64s,
    Packed,
    check_at_least,
    check_family,
    check_sizes,
    places,
    stretches,
)
from headwater.operators.sketches.murmur3 import hashes_of

# Any: counts are whole numbers, and decayed ones are not.
Counts = npt.NDArray[Any]


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


class ItemCounts(NamedTuple):
    """Counters of groups, in the order of group and value; and by how much the counts of a group may be too low."""

    numbers: Int64s
    values: pa.Array
    counts: Counts
    missed: Counts


def counted(values: pa.Array, numbers: Int64s, counts: Counts, missed: Counts, tracked: int) -> ItemCounts:
    """Equal values of a group together, and of each group no more than `tracked` of them."""
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0.0, values.type))  # there is no negative nothing
    table = pa.table({"group": numbers, "value": values, "count": counts})
    found = table.group_by(["group", "value"], use_threads=False).aggregate([("count", "sum")])
    found = found.sort_by([("group", "ascending"), ("value", "ascending")]).combine_chunks()
    groups = np.asarray(found.column("group"))
    kept, sums = found.column("value").combine_chunks(), np.asarray(found.column("count_sum")).astype(counts.dtype)
    if not len(groups) or int(np.bincount(groups).max()) <= tracked:
        return ItemCounts(groups, kept, sums, missed)
    order = np.lexsort([-sums, groups])
    first_out = order[places(groups[order]) == tracked]
    less = np.zeros(len(missed), sums.dtype)
    less[groups[first_out]] = sums[first_out]
    sums = sums - less[groups]
    alive = np.flatnonzero(sums > 0)
    return ItemCounts(groups[alive], kept.take(pa.array(alive)), sums[alive], missed + less)


@dataclass(frozen=True)
class Frequent:
    """Sketches of text with counters for up to `tracked` values each."""

    tracked: int = 1024

    def lift(self, values: pa.Array, numbers: Int64s, count: int) -> pa.Array:
        """A sketch for each group."""
        found = counted(values, numbers, np.ones(len(numbers), np.int64), np.zeros(count, np.int64), self.tracked)
        return packed_frequent(found, np.bincount(numbers, minlength=count), self.tracked)

    def merge(self, sketches: pa.Array, numbers: Int64s, count: int) -> pa.Array:
        """One sketch for each group of sketches."""
        opened, seen = open_frequent(sketches)
        missed, totals = np.zeros(count, np.int64), np.zeros(count, np.int64)
        np.add.at(missed, numbers, np.asarray(opened.missed).astype(np.int64))
        np.add.at(totals, numbers, seen)
        found = counted(opened.values, numbers[opened.numbers], opened.counts, missed, self.tracked)
        return packed_frequent(found, totals, self.tracked)


def open_frequent(sketches: pa.Array) -> tuple[ItemCounts, Int64s]:
    """The counters of sketches of text, and how many rows each has seen."""
    packed = Packed.of(sketches)
    check_family(packed, FREQUENT)
    full = np.flatnonzero(packed.field(0, "u1") > 1)
    some = packed.at(full)
    check_at_least(some, FREQUENT, 32)
    sizes = some.field(8, "<u4").astype(np.int64)
    if (some.sizes < 32 + 12 * sizes).any():
        raise SketchInvalid(expected="frequent", why="one is cut off")
    totals, missed = np.zeros(len(packed.starts), np.int64), np.zeros(len(packed.starts), np.int64)
    totals[full], missed[full] = some.field(16, "<i8"), some.field(24, "<i8")
    counts = some.lists(32, sizes, "<i8").astype(np.int64)
    values = _texts(some, 32 + 8 * sizes, sizes)
    numbers = np.repeat(full, sizes)
    # Another program keeps them in an order of its own.
    table = pa.table({"group": numbers, "value": values})
    order = pc.sort_indices(table, sort_keys=[("group", "ascending"), ("value", "ascending")])
    rows = np.asarray(order).astype(np.int64)
    return ItemCounts(numbers[rows], values.take(order), counts[rows], missed), totals


def _texts(some: Packed, place: Int64s, sizes: Int64s) -> pa.Array:
    """Texts with their lengths before them: the n-th of all sketches at a time, for each says where the next begins."""
    at = some.starts + place
    ends = some.starts + some.sizes
    first = np.cumsum(sizes) - sizes
    starts, lengths = np.zeros(int(sizes.sum()), np.int64), np.zeros(int(sizes.sum()), np.int64)
    for turn in range(int(sizes.max(initial=0))):
        left = np.flatnonzero(sizes > turn)
        piece = Packed(some.data, at[left], some.sizes[left])
        _check_inside(at[left] + 4, ends[left])
        length = piece.field(0, "<u4").astype(np.int64)
        _check_inside(at[left] + 4 + length, ends[left])
        starts[first[left] + turn], lengths[first[left] + turn] = at[left] + 4, length
        at[left] += 4 + length
    data = some.data[stretches(starts, lengths)]
    column = Packed(data, np.cumsum(lengths) - lengths, lengths).column()
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise SketchInvalid(expected="frequent", why="the values of one are no text") from error


def _check_inside(at: Int64s, ends: Int64s) -> None:
    if (at > ends).any():
        raise SketchInvalid(expected="frequent", why="one is cut off")


def packed_frequent(found: ItemCounts, totals: Int64s, tracked: int) -> pa.Array:
    """Sketches of text as bytes."""
    sizes = np.bincount(found.numbers, minlength=len(totals))
    texts = Packed.of(found.values.cast(pa.binary()))
    before = np.append(0, np.cumsum(texts.sizes + 4))
    ends = np.cumsum(sizes)
    text_bytes = before[ends] - before[ends - sizes]
    some = sizes > 0
    packed = Packed.empty(np.where(some, 32 + 8 * sizes + text_bytes, 8))
    room = np.maximum(3, np.ceil(np.log2(np.maximum(sizes, 1) * 4 / 3)))
    packed.put(0, "u1", np.where(some, 4, 1))
    packed.put(1, "u1", 1)
    packed.put(2, "u1", FREQUENT)
    packed.put(3, "u1", max(3, int(np.ceil(np.log2(tracked * 4 / 3)))))
    packed.put(4, "u1", room)
    packed.put(5, "u1", np.where(some, 0, 5))
    rows = np.flatnonzero(some)
    inner = packed.at(rows)
    inner.put(8, "<u4", sizes[rows])
    inner.put(16, "<i8", totals[rows])
    inner.put(24, "<i8", np.asarray(found.missed)[rows])
    inner.put_lists(32, sizes[rows], found.counts.astype("<i8"))
    _put_texts(packed, (packed.starts + 32 + 8 * sizes)[found.numbers], texts, before, ends - sizes, found.numbers)
    return packed.column()


def _put_texts(packed: Packed, at: Int64s, texts: Packed, before: Int64s, first: Int64s, numbers: Int64s) -> None:
    starts = at + before[:-1] - before[first[numbers]]
    pieces = Packed(packed.data, starts, texts.sizes + 4)
    pieces.put(0, "<u4", texts.sizes)
    pieces.put_lists(4, texts.sizes, texts.data[stretches(texts.starts, texts.sizes)])
