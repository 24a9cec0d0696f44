"""KLL sketches: quantiles with an error in rank that is the same everywhere, of any number of values.

Values lie on levels; one on level h stands for 2^h of them. Where there are too many, a level is sorted and every second
value goes one level up. Which of the two follows from the values themselves, so the same rows always give the same
sketch. The format is that of Apache DataSketches' `kll_doubles_sketch`, which Spark uses too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.errors import SketchInvalid
from headwater.operators.sketches.format import KLL, Floats, Int64s, Packed, check_at_least, check_family, places
from headwater.operators.sketches.murmur3 import mixed

EMPTY, SORTED, SINGLE = 1, 2, 4
LEVEL_MIN = 8
_LEVELS_MAX = 60


def k_for(error: float) -> int:
    """The size that keeps the error in rank below this share, with 99 % confidence.

    >>> k_for(0.0133), k_for(0.001)
    (200, 2862)
    """
    return int(np.clip(np.ceil((2.296 / error) ** (1 / 0.9723) - 0.5), 8, 65_535))


def error_of(k: npt.ArrayLike) -> Floats:
    """The error in rank of sketches of this size."""
    found: Floats = 2.296 / np.asarray(k, np.float64) ** 0.9723
    return found


@dataclass(frozen=True)
class Levels:
    """Sketches as arrays: values by sketch, level and size, and of each sketch its number of values, least and greatest."""

    numbers: Int64s
    levels: Int64s
    values: Floats
    seen: Int64s
    least: Floats
    greatest: Floats
    k_min: Int64s


@dataclass(frozen=True)
class Kll:
    """Sketches that keep about 3 k values each."""

    k: int = 200

    def lift(self, values: pa.Array, numbers: Int64s, count: int) -> pa.Array:
        """A sketch for each of `count` groups; `numbers` says of which one each value is. NaN is left out, as null is."""
        plain = np.asarray(values.cast(pa.float64()))
        there = ~np.isnan(plain)
        plain, numbers = plain[there], numbers[there]
        seen = np.bincount(numbers, minlength=count)
        least, greatest = _ends(plain, plain, numbers, count)
        none = np.zeros(len(plain), np.int64)
        return self._packed(Levels(numbers, none, plain, seen, least, greatest, np.full(count, self.k)))

    def merge(self, sketches: pa.Array, numbers: Int64s, count: int) -> pa.Array:
        """One sketch for each group of sketches."""
        opened = open_kll(sketches)
        seen = np.zeros(count, np.int64)
        np.add.at(seen, numbers, opened.seen)
        some = opened.seen > 0
        least, greatest = _ends(opened.least[some], opened.greatest[some], numbers[some], count)
        k_min = np.full(count, self.k)
        np.minimum.at(k_min, numbers, opened.k_min)
        return self._packed(Levels(numbers[opened.numbers], opened.levels, opened.values, seen, least, greatest, k_min))

    def _packed(self, found: Levels) -> pa.Array:
        return packed_kll(_compacted(found, self.k), self.k)


def quantiles(sketches: pa.Array, shares: Floats) -> tuple[Floats, Floats, Floats]:
    """For each sketch and share the value at that rank, and those at the ranks below and above that the error allows."""
    opened = open_kll(sketches)
    order = np.lexsort([opened.values, opened.numbers])
    values, numbers = opened.values[order], opened.numbers[order]
    weights = np.int64(1) << opened.levels[order]
    ends = np.cumsum(weights)
    before = np.zeros(len(opened.seen), np.int64)
    before[1:] = np.cumsum(opened.seen)[:-1]
    exact = np.ones(len(opened.seen), bool)
    exact[numbers[weights > 1]] = False
    error = np.where(exact, 0.0, error_of(opened.k_min))

    def at(ranks: Floats) -> Floats:
        wanted = np.clip(np.ceil(ranks * opened.seen[:, None] - 1e-9), 1, np.maximum(opened.seen, 1)[:, None])
        rows = np.searchsorted(ends, wanted.astype(np.int64) + before[:, None])
        found = values[np.minimum(rows, max(len(values) - 1, 0))] if len(values) else np.zeros(rows.shape)
        found = np.where(ranks <= 0, opened.least[:, None], np.where(ranks >= 1, opened.greatest[:, None], found))
        return np.where(opened.seen[:, None] > 0, found, np.nan)

    ranks = np.broadcast_to(shares, (len(opened.seen), len(shares)))
    return at(ranks), at(ranks - error[:, None]), at(ranks + error[:, None])


# -- compaction -------------------------------------------------------------------------------------------------------


@cache
def _capacities(k: int) -> tuple[Int64s, Int64s]:
    """How many values a level may have, by how far it is below the highest; and all levels together, by their number."""
    below = range(_LEVELS_MAX)
    own = np.array([max(LEVEL_MIN, (((2 * k) << down) // 3**down + 1) >> 1) for down in below], np.int64)
    return own, np.concatenate([[0], np.cumsum(own)])


def _compacted(found: Levels, k: int) -> Levels:
    """The same sketches with no more values than their size allows."""
    count = len(found.seen)
    own, together = _capacities(k)
    held = _by_level(found)
    depth = np.ones(count, np.int64)
    for level, (numbers, _) in enumerate(held):
        depth[numbers] = level + 1
    while True:
        sizes = [np.bincount(numbers, minlength=count) for numbers, _ in held]
        total = np.sum(sizes, axis=0)
        if not (total > together[depth]).any():
            break
        level = 0
        while level < len(held):
            size = np.bincount(held[level][0], minlength=count)
            due = (total > together[depth]) & (size > own[np.maximum(depth - 1 - level, 0)]) & (level < depth)
            if due.any():
                if level + 1 == len(held):
                    held.append((np.empty(0, np.int64), np.empty(0)))
                up = _compact(held, level, due, found.seen)
                total = total - np.bincount(up, minlength=count)
                depth[due & (depth == level + 1)] += 1
            level += 1
    return _joined(held, found)


def _by_level(found: Levels) -> list[tuple[Int64s, Floats]]:
    highest = int(found.levels.max(initial=0))
    held = []
    for level in range(highest + 1):
        rows = np.flatnonzero(found.levels == level) if highest else np.arange(len(found.values))
        held.append(_sorted(found.numbers[rows], found.values[rows]))
    return held


def _sorted(numbers: Int64s, values: Floats) -> tuple[Int64s, Floats]:
    order = np.lexsort([values, numbers]) if len(numbers) and numbers[0] != numbers[-1] else np.argsort(values)
    return numbers[order], values[order]


def _compact(held: list[tuple[Int64s, Floats]], level: int, due: npt.NDArray[np.bool_], seen: Int64s) -> Int64s:
    """Every second value of the sketches that are due goes up, its neighbour goes; the groups of those that went up."""
    numbers, values = held[level]
    chosen = due[numbers]
    moving, staying = (numbers[chosen], values[chosen]), (numbers[~chosen], values[~chosen])
    place = places(moving[0])
    starts = np.flatnonzero(place == 0)
    sizes = np.diff(starts, append=len(place))
    coin = _coins(moving[1], starts, seen[moving[0][starts]], level)
    odd = sizes % 2
    # Of an odd number one stays behind: the first or the last of them.
    alone = np.repeat((odd == 1) & (coin & 2 == 0), sizes) & (place == 0)
    last = np.repeat(sizes - 1, sizes)
    alone |= np.repeat((odd == 1) & (coin & 2 == 2), sizes) & (place == last)
    shift = np.repeat((odd == 1) & (coin & 2 == 0), sizes)
    up = ~alone & ((place - shift) % 2 == np.repeat(coin & 1, sizes))
    held[level] = _sorted(
        np.concatenate([staying[0], moving[0][alone]]), np.concatenate([staying[1], moving[1][alone]])
    )
    above = held[level + 1]
    held[level + 1] = _sorted(np.concatenate([above[0], moving[0][up]]), np.concatenate([above[1], moving[1][up]]))
    gone_up: Int64s = moving[0][up]
    return gone_up


def _coins(values: Floats, starts: Int64s, seen: Int64s, level: int) -> Int64s:
    """Two bits for each group of values: random for people, and always the same for the same values."""
    together = np.bitwise_xor.reduceat(mixed(values.view(np.uint64)), starts)
    found = mixed(together ^ mixed(seen.astype(np.uint64) + np.uint64(level << 56)))
    coins: Int64s = (found & np.uint64(3)).astype(np.int64)
    return coins


def _joined(held: list[tuple[Int64s, Floats]], found: Levels) -> Levels:
    numbers = np.concatenate([one for one, _ in held])
    levels = np.repeat(np.arange(len(held)), [len(one) for one, _ in held])
    values = np.concatenate([one for _, one in held])
    order = np.argsort(numbers, kind="stable")
    return Levels(numbers[order], levels[order], values[order], found.seen, found.least, found.greatest, found.k_min)


def _ends(low: Floats, high: Floats, numbers: Int64s, count: int) -> tuple[Floats, Floats]:
    least, greatest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(least, numbers, low)
    np.maximum.at(greatest, numbers, high)
    return least, greatest


# -- bytes ------------------------------------------------------------------------------------------------------------


def open_kll(sketches: pa.Array) -> Levels:
    """The values and levels of sketches of doubles."""
    packed = Packed.of(sketches)
    check_family(packed, KLL)
    count = len(packed.starts)
    flags, k_min = packed.field(3, "u1"), packed.field(4, "<u2").astype(np.int64)
    seen, depth = np.zeros(count, np.int64), np.zeros(count, np.int64)
    least, greatest = np.full(count, np.inf), np.full(count, -np.inf)
    single, full = np.flatnonzero(flags & SINGLE != 0), np.flatnonzero(flags & (SINGLE | EMPTY) == 0)
    check_at_least(packed.at(single), KLL, 16)
    check_at_least(packed.at(full), KLL, 20)
    seen[single] = 1
    least[single] = greatest[single] = packed.at(single).field(8, "<f8")
    some = packed.at(full)
    seen[full], depth[full] = some.field(8, "<i8"), some.field(18, "u1")
    k_min[full] = some.field(16, "<u2")
    values_at = 20 + 4 * depth[full]
    if (depth[full] < 1).any() or (packed.sizes[full] < values_at + 24).any():
        raise SketchInvalid(expected="kll", why="one is not of doubles, or is cut off")
    ends = Packed(some.data, some.starts + values_at, some.sizes)
    least[full], greatest[full] = ends.field(0, "<f8"), ends.field(8, "<f8")
    retained = (packed.sizes[full] - values_at - 16) // 8
    if ((packed.sizes[full] - values_at - 16) % 8).any():
        raise SketchInvalid(expected="kll", why="one is not of doubles, or is cut off")
    values = some.lists(values_at + 16, retained, "<f8")
    levels = _levels(some, depth[full], retained)
    weights = np.bincount(np.repeat(np.arange(len(full)), retained), np.ldexp(1.0, levels), len(full))
    if (weights != seen[full]).any():
        raise SketchInvalid(expected="kll", why="the weights of one are not those of the values that it has seen")
    numbers = np.concatenate([single, np.repeat(full, retained)])
    order = np.argsort(numbers, kind="stable")
    all_levels = np.concatenate([np.zeros(len(single), np.int64), levels])
    all_values = np.concatenate([least[single], values]).astype(np.float64)
    return Levels(numbers[order], all_levels[order], all_values[order], seen, least, greatest, k_min)


def _levels(some: Packed, depth: Int64s, retained: Int64s) -> Int64s:
    """The level of each value, from where the levels of each sketch begin."""
    begins = some.lists(20, depth, "<u4").astype(np.int64)
    place = places(np.repeat(np.arange(len(depth)), depth))
    first = np.cumsum(depth) - depth
    following = np.append(begins[1:], 0)
    ends = begins[first] + retained
    last = first + depth - 1
    following[last] = ends
    if (following < begins).any() or (place >= _LEVELS_MAX).any():
        raise SketchInvalid(expected="kll", why="the levels of one do not follow one another")
    return np.repeat(place, following - begins)


def packed_kll(found: Levels, k: int) -> pa.Array:
    """Sketches as bytes."""
    count = len(found.seen)
    retained = np.bincount(found.numbers, minlength=count)
    depth = np.ones(count, np.int64)
    np.maximum.at(depth, found.numbers, found.levels + 1)
    full, single = found.seen > 1, found.seen == 1
    packed = Packed.empty(np.where(full, 36 + 4 * depth + 8 * retained, np.where(single, 16, 8)))
    packed.put(0, "u1", np.where(full, 5, 2))
    packed.put(1, "u1", np.where(single, 2, 1))
    packed.put(2, "u1", KLL)
    packed.put(3, "u1", np.where(full, SORTED, np.where(single, SINGLE, EMPTY)))
    packed.put(4, "<u2", k)
    packed.put(6, "u1", LEVEL_MIN)
    packed.at(np.flatnonzero(single)).put(8, "<f8", found.least[single])
    rows = np.flatnonzero(full)
    some = packed.at(rows)
    some.put(8, "<i8", found.seen[rows])
    some.put(16, "<u2", found.k_min[rows])
    some.put(18, "u1", depth[rows])
    some.put_lists(20, depth[rows], _begins(found, rows, depth, retained, k).astype("<u4"))
    ends = Packed(some.data, some.starts + 20 + 4 * depth[rows], some.sizes)
    ends.put(0, "<f8", found.least[rows])
    ends.put(8, "<f8", found.greatest[rows])
    ends.put_lists(16, retained[rows], found.values[full[found.numbers]].astype("<f8"))
    return packed.column()


def _begins(found: Levels, rows: Int64s, depth: Int64s, retained: Int64s, k: int) -> Int64s:
    """Where each level of each sketch begins, in an array whose end is its whole capacity."""
    width = int(depth.max(initial=1))
    cells = np.bincount(found.numbers * width + found.levels, minlength=len(depth) * width).reshape(-1, width)
    before = np.cumsum(cells, axis=1) - cells
    first = _capacities(k)[1][depth] - retained
    begins = (first[:, None] + before)[rows]
    inside = np.arange(width) < depth[rows][:, None]
    return begins[inside]
