"""Theta sketches: how many different values, and how many in the union, intersection and difference of sets.

A sketch keeps the k smallest hashes and the bound (theta) below which it has seen all of them. It is a function of the
set of values alone, as long as sketches of one size are merged. The format is the compact one of Apache DataSketches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.errors import SketchInvalid
from headwater.operators.sketches.format import (
    THETA,
    Estimates,
    Int64s,
    Numbers,
    Packed,
    check_at_least,
    check_family,
    check_sizes,
    places,
    theta_plain,
)
from headwater.operators.sketches.murmur3 import SEED_HASH, hashes_of

#: The bound of a sketch that has left nothing out.
ALL = np.int64(2**63 - 1)
EMPTY, FLAGS, SINGLE = 4, 2 | 8 | 16, 32
_DEVIATIONS = 2.0


@dataclass(frozen=True)
class ThetaArrays:
    """Sketches as arrays: `counts[i]` hashes of sketch i, in their order, all below `bounds[i]`."""

    hashes: Int64s
    counts: Int64s
    bounds: Int64s
    empty: npt.NDArray[np.bool_]

    @property
    def numbers(self) -> Int64s:
        return np.repeat(np.arange(len(self.counts)), self.counts)


@dataclass(frozen=True)
class Theta:
    """Sketches that keep up to 2^lg_k hashes each."""

    lg_k: int = 12

    def lift(self, values: pa.Array, numbers: Int64s, count: int) -> pa.Array:
        """A sketch for each of `count` groups; `numbers` says of which one each value is. No value is null."""
        hashes = (hashes_of(values)[0] >> np.uint64(1)).astype(np.int64)
        return self._smallest(hashes, numbers, np.full(count, ALL), np.bincount(numbers, minlength=count) == 0)

    def merge(self, sketches: pa.Array, numbers: Int64s, count: int) -> pa.Array:
        """The union of each group of sketches."""
        opened = open_theta(sketches)
        bounds = np.full(count, ALL)
        np.minimum.at(bounds, numbers, opened.bounds)
        empty = np.ones(count, bool)
        empty[numbers[~opened.empty]] = False
        return self._smallest(opened.hashes, np.repeat(numbers, opened.counts), bounds, empty)

    def estimates(self, sketches: pa.Array) -> Estimates:
        """How many different values each sketch stands for, with bounds of two standard deviations."""
        opened = open_theta(sketches)
        share = opened.bounds / float(ALL)
        kept = opened.counts.astype(np.float64)
        # The number kept is binomial: these are the two truths from which it lies just two deviations away.
        spread = _DEVIATIONS**2 * (1 - share)
        middle, away = kept + spread / 2, np.sqrt(np.maximum(spread * (kept + spread / 4), 0))
        return Estimates(kept / share, np.maximum((middle - away) / share, kept), (middle + away) / share)

    def _smallest(self, hashes: Int64s, numbers: Int64s, bounds: Int64s, empty: npt.NDArray[np.bool_]) -> pa.Array:
        inside = hashes < bounds[numbers]
        hashes, numbers = hashes[inside], numbers[inside]
        order = np.lexsort([hashes, numbers]) if len(bounds) > 1 else np.argsort(hashes)
        hashes, numbers = hashes[order], numbers[order]
        fresh = np.ones(len(hashes), bool)
        fresh[1:] = (hashes[1:] != hashes[:-1]) | (numbers[1:] != numbers[:-1])
        hashes, numbers = hashes[fresh], numbers[fresh]
        place = places(numbers)
        first_out = place == 2**self.lg_k
        bounds = bounds.copy()
        bounds[numbers[first_out]] = hashes[first_out]
        kept = place < 2**self.lg_k
        counts = np.bincount(numbers[kept], minlength=len(bounds))
        return packed_theta(ThetaArrays(hashes[kept], counts, bounds, empty))


def union(left: pa.Array, right: pa.Array, *, lg_k: int = 12) -> pa.Array:
    """Row by row, the sketch of the values that are in either."""
    both = pa.concat_arrays([left, right])
    return Theta(lg_k).merge(both, np.tile(np.arange(len(left)), 2), len(left))


def intersection(left: pa.Array, right: pa.Array) -> pa.Array:
    """Row by row, the sketch of the values that are in both."""
    one, other = open_theta(left), open_theta(right)
    return _combined(one, other, one.empty | other.empty, in_both=True)


def difference(left: pa.Array, right: pa.Array) -> pa.Array:
    """Row by row, the sketch of the values that are in the left and not in the right."""
    one, other = open_theta(left), open_theta(right)
    return _combined(one, other, one.empty, in_both=False)


def _combined(one: ThetaArrays, other: ThetaArrays, empty: npt.NDArray[np.bool_], *, in_both: bool) -> pa.Array:
    bounds = np.where(empty, ALL, np.minimum(one.bounds, other.bounds))
    hashes, numbers = np.concatenate([other.hashes, one.hashes]), np.concatenate([other.numbers, one.numbers])
    own = np.arange(len(hashes)) >= len(other.hashes)
    order = np.lexsort([own, hashes, numbers])
    hashes, numbers, own = hashes[order], numbers[order], own[order]
    met = np.zeros(len(hashes), bool)
    met[1:] = (hashes[1:] == hashes[:-1]) & (numbers[1:] == numbers[:-1])
    kept = own & (met == in_both) & (hashes < bounds[numbers]) & ~empty[numbers]
    counts = np.bincount(numbers[kept], minlength=len(bounds))
    return packed_theta(ThetaArrays(hashes[kept], counts, bounds, empty))


# -- bytes ------------------------------------------------------------------------------------------------------------


def open_theta(sketches: pa.Array) -> ThetaArrays:
    """The hashes and bounds of sketches."""
    packed = Packed.of(sketches)
    check_family(packed, THETA)
    foreign = packed.field(1, "u1") != 3
    if foreign.any():
        return open_theta(theta_plain(sketches, foreign))
    if (packed.field(6, "<u2")[packed.sizes > 8] != SEED_HASH).any():
        raise SketchInvalid(expected="theta", why="one was made with another seed")
    longs = packed.field(0, "u1") & 63
    empty = packed.field(5, "u1") & EMPTY != 0
    counts = np.where(empty, 0, 1).astype(np.int64)
    bounds = np.full(len(longs), ALL)
    counted, bounded = np.flatnonzero(longs > 1), np.flatnonzero(longs > 2)
    check_at_least(packed.at(counted), THETA, 16)
    check_at_least(packed.at(bounded), THETA, 24)
    counts[counted] = packed.at(counted).field(8, "<i4")
    check_sizes(packed, THETA, 8 * (longs.astype(np.int64) + counts))
    bounds[bounded] = packed.at(bounded).field(16, "<i8")
    if (bounds < 1).any():
        raise SketchInvalid(expected="theta", why="the bound of one is not above zero")
    hashes = packed.lists(longs.astype(np.int64) * 8, counts, "<i8")
    return ThetaArrays(_in_order(hashes, counts), counts, bounds, empty)


def _in_order(hashes: Numbers, counts: Int64s) -> Int64s:
    found = hashes.astype(np.int64)
    falls = np.flatnonzero(found[1:] < found[:-1]) + 1
    if np.isin(falls, np.cumsum(counts)).all():
        return found
    return found[np.lexsort([found, np.repeat(np.arange(len(counts)), counts)])]


def packed_theta(opened: ThetaArrays) -> pa.Array:
    """Sketches as bytes."""
    estimating = opened.bounds < ALL
    longs = np.where(estimating, 3, np.where(opened.counts > 1, 2, 1))
    packed = Packed.empty(8 * (longs + opened.counts))
    packed.put(0, "u1", longs)
    packed.put(1, "u1", 3)
    packed.put(2, "u1", THETA)
    empty = np.where(opened.empty & ~estimating, EMPTY, 0)
    packed.put(5, "u1", FLAGS | empty | np.where((longs == 1) & (opened.counts == 1), SINGLE, 0))
    packed.put(6, "<u2", SEED_HASH)
    counted, bounded = np.flatnonzero(longs > 1), np.flatnonzero(longs > 2)
    packed.at(counted).put(8, "<i4", opened.counts[counted])
    packed.at(counted).put(12, "<f4", 1.0)
    packed.at(bounded).put(16, "<i8", opened.bounds[bounded])
    packed.put_lists(longs * 8, opened.counts, opened.hashes.astype("<i8"))
    return packed.column()
