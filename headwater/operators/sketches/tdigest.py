"""t-digests: quantiles that are sharpest at both ends, where the 99.9th percentile is asked for.

Values are gathered in centroids, each with its mean and weight: small ones at the ends, large ones in the middle. The
format is that of Apache DataSketches' `tdigest_double`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.errors import SketchInvalid
from headwater.operators.sketches.format import (
    DIGEST,
    Floats,
    Int64s,
    Packed,
    check_at_least,
    check_family,
    check_sizes,
    stretches,
)

EMPTY, SINGLE = 1, 2


@dataclass(frozen=True)
class Centroids:
    """Digests as arrays: centroids by digest and mean, and of each digest its least and greatest value."""

    numbers: Int64s
    means: Floats
    weights: Int64s
    least: Floats
    greatest: Floats

    @property
    def count(self) -> int:
        return len(self.least)

    def totals(self) -> Int64s:
        found = np.zeros(self.count, np.int64)
        np.add.at(found, self.numbers, self.weights)
        return found


@dataclass(frozen=True)
class Digest:
    """Digests of up to k centroids each."""

    k: int = 200

    def lift(self, values: pa.Array, numbers: Int64s, count: int) -> pa.Array:
        """A digest for each group; NaN and infinite values have no mean, and are left out."""
        plain = np.asarray(values.cast(pa.float64()))
        there = np.isfinite(plain)
        plain, numbers = plain[there], numbers[there]
        return self._packed(numbers, plain, np.ones(len(plain), np.int64), *_ends(plain, plain, numbers, count))

    def merge(self, digests: pa.Array, numbers: Int64s, count: int) -> pa.Array:
        """One digest for each group of digests."""
        opened = open_digests(digests)
        some = opened.totals() > 0
        ends = _ends(opened.least[some], opened.greatest[some], numbers[some], count)
        return self._packed(numbers[opened.numbers], opened.means, opened.weights, *ends)

    def _packed(self, numbers: Int64s, means: Floats, weights: Int64s, least: Floats, greatest: Floats) -> pa.Array:
        order = np.lexsort([weights, means, numbers])
        found = Centroids(numbers[order], means[order], weights[order], least, greatest)
        crowded = np.bincount(found.numbers, minlength=found.count) > self.k
        return packed_digests(_gathered(found, crowded, self.k) if crowded.any() else found, self.k)


def quantiles(digests: pa.Array, shares: Floats) -> tuple[Floats, Floats, Floats]:
    """For each digest and share the value at that rank, and those one centroid and one value further down and up."""
    opened = open_digests(digests)
    totals = opened.totals()
    sizes = np.bincount(opened.numbers, minlength=opened.count)
    k = Packed.of(digests).field(3, "<u2").astype(np.float64)[:, None]
    # Where all weigh 1 nothing was gathered yet.
    width = np.pi * np.sqrt(shares * (1 - shares)) / k + 1 / np.maximum(totals, 1)[:, None]
    width = np.where((sizes == totals)[:, None], 0.0, width)
    ranks = np.broadcast_to(shares, (opened.count, len(shares)))
    lines = _Lines.of(opened, totals, sizes)
    return lines.at(ranks), lines.at(ranks - width, end=0), lines.at(ranks + width, end=1)


@dataclass(frozen=True)
class _Lines:
    """For each digest a line from its least value through the middles of its centroids to its greatest."""

    at_rank: Floats
    value: Floats
    totals: Int64s
    least: Floats
    greatest: Floats

    @staticmethod
    def of(opened: Centroids, totals: Int64s, sizes: Int64s) -> _Lines:
        before = (np.cumsum(totals) - totals).astype(np.float64)
        middles = np.cumsum(opened.weights) - opened.weights / 2
        points = sizes + 2
        first = np.cumsum(points) - points
        at_rank, value = np.empty(int(points.sum())), np.empty(int(points.sum()))
        inner = stretches(first + 1, sizes)
        at_rank[inner], value[inner] = middles, opened.means
        at_rank[first], value[first] = before, opened.least
        at_rank[first + points - 1], value[first + points - 1] = before + totals, opened.greatest
        return _Lines(at_rank, value, totals, opened.least, opened.greatest)

    def at(self, ranks: Floats, *, end: int | None = None) -> Floats:
        """The values at ranks; with `end` not between two points but at the lower (0) or the upper (1) of them."""
        before = np.cumsum(self.totals) - self.totals
        inside = np.clip(ranks, 0.0, 1.0) * self.totals[:, None]
        # A hair inside, so that the end of one digest is never taken for the beginning of the next.
        inside = np.clip(inside, 0, np.nextafter(np.maximum(self.totals, 1), 0)[:, None])
        rows = np.searchsorted(self.at_rank, (before[:, None] + inside).reshape(-1), side="right").reshape(ranks.shape)
        rows = np.clip(rows, 1, max(len(self.at_rank) - 1, 1))
        low, high = self.at_rank[rows - 1], self.at_rank[rows]
        share = np.clip((before[:, None] + inside - low) / np.maximum(high - low, 1e-300), 0, 1)
        share = share if end is None else np.full(share.shape, float(end))
        with np.errstate(invalid="ignore"):  # of nothing the least value is infinite, and so is the greatest
            found = self.value[rows - 1] * (1 - share) + self.value[rows] * share
            found = np.clip(found, self.value[rows - 1], self.value[rows])
        found = np.where(ranks <= 0, self.least[:, None], np.where(ranks >= 1, self.greatest[:, None], found))
        return np.where(self.totals[:, None] > 0, found, np.nan)


def _gathered(found: Centroids, crowded: npt.NDArray[np.bool_], k: int) -> Centroids:
    """Centroids that fall into the same bucket of the scale become one; the buckets are narrow at both ends."""
    totals = found.totals()
    before = (np.cumsum(totals) - totals)[found.numbers]
    middle = (np.cumsum(found.weights) - before - found.weights / 2) / totals[found.numbers]
    scale = np.floor(k * (np.arcsin(np.clip(2 * middle - 1, -1, 1)) / np.pi + 0.5))
    fresh = np.ones(len(scale), bool)
    fresh[1:] = (scale[1:] != scale[:-1]) | (found.numbers[1:] != found.numbers[:-1]) | ~crowded[found.numbers[1:]]
    starts = np.flatnonzero(fresh)
    weights = np.add.reduceat(found.weights, starts)
    # Around the first mean of the bucket: sums of large values would lose the small differences.
    base = np.repeat(found.means[starts], np.diff(starts, append=len(scale)))
    means = found.means[starts] + np.add.reduceat((found.means - base) * found.weights, starts) / weights
    return Centroids(found.numbers[starts], means, weights, found.least, found.greatest)


def _ends(low: Floats, high: Floats, numbers: Int64s, count: int) -> tuple[Floats, Floats]:
    least, greatest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(least, numbers, low)
    np.maximum.at(greatest, numbers, high)
    return least, greatest


# -- bytes ------------------------------------------------------------------------------------------------------------

_PAIR = np.dtype([("mean", "<f8"), ("weight", "<i8")])


def open_digests(digests: pa.Array) -> Centroids:
    """The centroids of digests; values that another program has not gathered yet weigh 1 each."""
    packed = Packed.of(digests)
    check_family(packed, DIGEST)
    count = len(packed.starts)
    flags = packed.field(5, "u1")
    least, greatest = np.full(count, np.inf), np.full(count, -np.inf)
    single, full = np.flatnonzero(flags & SINGLE != 0), np.flatnonzero(flags & (SINGLE | EMPTY) == 0)
    check_at_least(packed.at(single), DIGEST, 16)
    check_at_least(packed.at(full), DIGEST, 32)
    least[single] = greatest[single] = packed.at(single).field(8, "<f8")
    some = packed.at(full)
    sizes, loose = some.field(8, "<u4").astype(np.int64), some.field(12, "<u4").astype(np.int64)
    check_sizes(some, DIGEST, 32 + 16 * sizes + 8 * loose)
    least[full], greatest[full] = some.field(16, "<f8"), some.field(24, "<f8")
    pairs = some.lists(32, sizes * 2, "<f8").view(_PAIR)
    values = some.lists(32 + 16 * sizes, loose, "<f8").astype(np.float64)
    numbers = np.concatenate([single, np.repeat(full, sizes), np.repeat(full, loose)])
    means = np.concatenate([least[single], pairs["mean"], values])
    ones = np.ones(len(single), np.int64), np.ones(len(values), np.int64)
    weights = np.concatenate([ones[0], pairs["weight"], ones[1]])
    if (weights < 1).any():
        raise SketchInvalid(expected="tdigest", why="a centroid of one weighs nothing")
    order = np.lexsort([weights, means, numbers])
    return Centroids(numbers[order], means[order], weights[order], least, greatest)


def packed_digests(found: Centroids, k: int) -> pa.Array:
    """Digests as bytes."""
    sizes = np.bincount(found.numbers, minlength=found.count)
    totals = found.totals()
    single, full = totals == 1, totals > 1
    packed = Packed.empty(np.where(full, 32 + 16 * sizes, np.where(single, 16, 8)))
    packed.put(0, "u1", np.where(full, 2, 1))
    packed.put(1, "u1", 1)
    packed.put(2, "u1", DIGEST)
    packed.put(3, "<u2", k)
    packed.put(5, "u1", np.where(full, 0, np.where(single, SINGLE, EMPTY)))
    packed.at(np.flatnonzero(single)).put(8, "<f8", found.least[single])
    rows = np.flatnonzero(full)
    some = packed.at(rows)
    some.put(8, "<u4", sizes[rows])
    some.put(16, "<f8", found.least[rows])
    some.put(24, "<f8", found.greatest[rows])
    inside = full[found.numbers]
    pairs = np.empty(int(inside.sum()), _PAIR)
    pairs["mean"], pairs["weight"] = found.means[inside], found.weights[inside]
    some.put_lists(32, sizes[rows] * 2, pairs.view("<f8"))
    return packed.column()
