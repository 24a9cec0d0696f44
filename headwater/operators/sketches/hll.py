"""HyperLogLog: how many different values, from the rarest bits of their hashes.

A sketch is a function of the set of values alone: in whichever order and groups they came, the bytes are the same. A
few values are kept as coupons (a register's number and value in 32 bits), many as one byte for each of 2^lg_k registers.
Both are the formats of Apache DataSketches (LIST, SET and HLL_8), which Spark uses too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.errors import SketchInvalid
from headwater.operators.sketches.format import (
    HLL,
    Bytes,
    Estimates,
    Int64s,
    Numbers,
    Packed,
    check_at_least,
    check_family,
    check_sizes,
    hll_in_bytes,
)
from headwater.operators.sketches.murmur3 import hashes_of, leading_zeros

LIST, SET, REGISTERS = 0, 1, 2
ADDRESS_BITS = 26
#: The flags of a sketch: without gaps, without values, and not in the order in which values came.
COMPACT, EMPTY, MERGED = 8, 4, 16
#: How far the estimate lies from the truth, as a share of it and for one register: one standard deviation.
SPREAD = 1.04
_HIGHEST = 63
#: So many values are hashed at a time: what is between two steps then stays in the processor's cache.
AT_ONCE = 16_384


def lg_k_for(error: float) -> int:
    """The logarithm of the number of registers that keeps the standard error below this share.

    >>> lg_k_for(0.01), lg_k_for(0.05)
    (14, 9)
    """
    return int(np.clip(np.ceil(2 * np.log2(SPREAD / error)), 4, 21))


@dataclass(frozen=True)
class Hll:
    """Sketches with up to 2^lg_k registers each."""

    lg_k: int = 12

    def lift(self, values: pa.Array, numbers: Int64s, count: int) -> pa.Array:
        """A sketch for each of `count` groups; `numbers` says of which one each value is. No value is null."""
        parts = [_coupons_of(values.slice(start, AT_ONCE)) for start in range(0, len(values), AT_ONCE)]
        coupons = np.concatenate(parts) if parts else np.empty(0, np.int64)
        dense = self._crowded(coupons, numbers, count)
        if len(dense.groups):
            sparse = np.ones(count, bool)
            sparse[dense.groups] = False
            rest = sparse[numbers]
            numbers, coupons = numbers[rest], coupons[rest]
        return _made(_unique(numbers << 32 | coupons), np.full(count, self.lg_k), dense, count)

    def _crowded(self, coupons: Int64s, numbers: Int64s, count: int) -> _Registers:
        """The registers of groups with so many values that they have registers in any case: nothing of them is sorted."""
        most = int(_coupons_max(np.array([self.lg_k]))[0])
        groups = np.flatnonzero(np.bincount(numbers, minlength=count) > 4 * most)
        if not len(groups):
            return _Registers(groups, {})
        if len(groups) < count:
            place = np.full(count, -1)
            place[groups] = np.arange(len(groups))
            numbers = place[numbers]
            coupons, numbers = coupons[numbers >= 0], numbers[numbers >= 0]
        registers = _greatest(numbers, coupons, len(groups), self.lg_k)
        certain = np.count_nonzero(registers, axis=1) > most
        return _Registers(groups[certain], {self.lg_k: (groups[certain], registers[certain])})

    def merge(self, sketches: pa.Array, numbers: Int64s, count: int) -> pa.Array:
        """One sketch for each group of sketches; `numbers` rises. Of several sizes the smallest wins."""
        packed = Packed.of(_readable(sketches))
        sizes = np.full(count, 21)
        np.minimum.at(sizes, numbers, packed.field(3, "u1").astype(np.int64))
        modes = packed.field(7, "u1") & 3
        return _made(_unique(_coupons(packed, modes, numbers)), sizes, _registers(packed, modes, numbers, sizes), count)

    def estimates(self, sketches: pa.Array) -> Estimates:
        """How many different values each sketch has seen, with bounds of two standard deviations."""
        packed = Packed.of(_readable(sketches))
        modes = packed.field(7, "u1") & 3
        estimate, error = np.zeros(len(modes)), np.zeros(len(modes))
        few = modes != REGISTERS
        # So few coupons hardly ever meet; how often, their number says.
        known = _coupon_counts(packed, modes)[few].astype(np.float64)
        meetings = known**2 / (6 * 2**ADDRESS_BITS)
        estimate[few] = known + meetings
        error[few] = 2 * np.sqrt(meetings)
        lower, upper = estimate - error, estimate + error
        for lg_k in np.unique(packed.field(3, "u1")[~few]).tolist():
            rows = np.flatnonzero(~few & (packed.field(3, "u1") == lg_k))
            found = _of_histogram(_histogram(packed.at(rows).block(40, 2**lg_k)))
            away = 2 * SPREAD / np.sqrt(2**lg_k)
            estimate[rows], lower[rows], upper[rows] = found, found / (1 + away), found / (1 - away)
        lower[few] = np.maximum(lower[few], known)
        return Estimates(estimate, lower, upper)


# -- reading ----------------------------------------------------------------------------------------------------------


def _readable(sketches: pa.Array) -> pa.Array:
    """The same sketches, all in one of the formats that are read here."""
    packed = Packed.of(sketches)
    check_family(packed, HLL)
    if not len(sketches):
        return sketches
    mode, flags, lg_k = packed.field(7, "u1"), packed.field(5, "u1"), packed.field(3, "u1").astype(np.int64)
    plain = np.where(mode & 3 == REGISTERS, mode >> 2 & 3 == 2, flags & COMPACT != 0)
    if not plain.all():
        return _readable(hll_in_bytes(sketches, ~plain))
    if (mode & 3 > REGISTERS).any() or (lg_k < 4).any() or (lg_k > 21).any():
        raise SketchInvalid(expected="hll", why="one is of a size or a kind that there is not")
    check_at_least(packed.at(np.flatnonzero(mode & 3 == SET)), HLL, 12)
    counts = _coupon_counts(packed, mode & 3)
    check_sizes(
        packed, HLL, np.where(mode & 3 == REGISTERS, 40 + 2**lg_k, np.where(mode & 3 == SET, 12, 8) + 4 * counts)
    )
    return sketches


def _coupon_counts(packed: Packed, modes: Numbers) -> Int64s:
    counts = np.zeros(len(modes), np.int64)
    listed, in_set = modes == LIST, modes == SET
    counts[listed] = packed.field(6, "u1")[listed]
    if in_set.any():
        counts[in_set] = packed.at(np.flatnonzero(in_set)).field(8, "<i4")
    return counts


def _coupons(packed: Packed, modes: Numbers, numbers: Int64s) -> Int64s:
    """All coupons of sparse sketches, each with the number of its group above it."""
    rows = np.flatnonzero(modes != REGISTERS)
    counts = _coupon_counts(packed, modes)[rows]
    found = packed.at(rows).lists(np.where(modes[rows] == LIST, 8, 12), counts, "<u4")
    return np.repeat(numbers[rows], counts) << 32 | found.astype(np.int64)


@dataclass(frozen=True)
class _Registers:
    """The registers of some groups: one row for each group in `groups`, which rises."""

    groups: Int64s
    values: dict[int, tuple[Int64s, Bytes]]


def _registers(packed: Packed, modes: Numbers, numbers: Int64s, sizes: Int64s) -> _Registers:
    """The greatest registers of each group, folded to the size that its smallest sketch has."""
    found: dict[int, tuple[Int64s, Bytes]] = {}
    given = packed.field(3, "u1").astype(np.int64)
    dense = np.flatnonzero(modes == REGISTERS)
    for lg_k in np.unique(sizes[numbers[dense]]).tolist():
        rows = dense[sizes[numbers[dense]] == lg_k]
        folded = np.zeros((len(rows), 2**lg_k), np.uint8)
        for own in np.unique(given[rows]).tolist():
            these = np.flatnonzero(given[rows] == own)
            block = packed.at(rows[these]).block(40, 2**own)
            folded[these] = block.reshape(len(these), -1, 2**lg_k).max(axis=1)
        groups, starts = np.unique(numbers[rows], return_index=True)
        found[lg_k] = (groups, np.maximum.reduceat(folded, starts, axis=0))
    everywhere = np.sort(np.concatenate([groups for groups, _ in found.values()])) if found else np.empty(0, np.int64)
    return _Registers(everywhere, found)


# -- writing ----------------------------------------------------------------------------------------------------------


def _unique(coupons: Int64s) -> Int64s:
    """Different coupons in their order; of one register all values are kept, for they say how many there were."""
    ordered = np.sort(coupons)  # NumPy's own `unique` counts them in a hash table, which takes ten times as long
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def _coupons_of(values: pa.Array) -> Int64s:
    """The coupon of each value: where its register is, and what it sets it to."""
    low, high = hashes_of(values)
    address = (low & np.uint64(2**ADDRESS_BITS - 1)).astype(np.int64)
    found: Int64s = (np.minimum(leading_zeros(high), 62) + 1 << ADDRESS_BITS) | address
    return found


def _coupons_max(sizes: Int64s) -> Int64s:
    """How many coupons a sketch of each size keeps before it has registers."""
    found: Int64s = np.where(sizes < 8, 7, 3 * 2 ** np.maximum(sizes - 5, 0))
    return found


def _greatest(rows: Int64s, coupons: Int64s, count: int, lg_k: int) -> Bytes:
    """The registers of `count` rows, from coupons of which `rows` says to which row each belongs."""
    cells = rows * 2**lg_k + (coupons & 2**lg_k - 1)
    found = np.zeros(count * 2**lg_k, np.uint8)
    np.maximum.at(found, cells, (coupons >> ADDRESS_BITS & 63).astype(np.uint8))
    return found.reshape(count, 2**lg_k)


def _made(coupons: Int64s, sizes: Int64s, dense: _Registers, count: int) -> pa.Array:
    """The sketch of each group, from its coupons and the registers that some have already."""
    groups = coupons >> 32
    counts = np.bincount(groups, minlength=count)
    many = counts > _coupons_max(sizes)
    many[dense.groups] = True
    lengths = np.where(many, 40 + 2**sizes, np.where(counts < 8, 8, 12) + 4 * counts)
    packed = Packed.empty(lengths)
    _put_preamble(packed, sizes, counts, many)
    kept = ~many[groups]
    few = np.flatnonzero(~many)
    packed.at(few).put_lists(np.where(counts[few] < 8, 8, 12), counts[few], coupons[kept].astype("<u4"))
    for lg_k in np.unique(sizes[many]).tolist():
        rows = np.flatnonzero(many & (sizes == lg_k))
        _put_registers(packed.at(rows), _filled(rows, coupons[~kept], lg_k, dense))
    return packed.column()


def _put_preamble(packed: Packed, sizes: Int64s, counts: Int64s, many: npt.NDArray[np.bool_]) -> None:
    mode = np.where(many, REGISTERS, np.where(counts < 8, LIST, SET))
    room = np.maximum(5, np.ceil(np.log2(np.maximum(counts, 1) * 4 / 3)))
    packed.put(0, "u1", np.choose(mode, [2, 3, 10]))
    packed.put(1, "u1", 1)
    packed.put(2, "u1", HLL)
    packed.put(3, "u1", sizes)
    packed.put(4, "u1", np.choose(mode, [np.full(len(mode), 3), room.astype(np.int64), np.zeros(len(mode), np.int64)]))
    packed.put(5, "u1", COMPACT | np.where(counts + many == 0, EMPTY, 0) | np.where(many, MERGED, 0))
    packed.put(6, "u1", np.where(mode == LIST, counts, 0))
    packed.put(7, "u1", mode | 2 << 2)
    in_set = np.flatnonzero(mode == SET)
    packed.at(in_set).put(8, "<i4", counts[in_set])


def _filled(rows: Int64s, coupons: Int64s, lg_k: int, dense: _Registers) -> Bytes:
    """The registers of these groups."""
    registers = np.zeros((len(rows), 2**lg_k), np.uint8)
    if lg_k in dense.values:
        groups, values = dense.values[lg_k]
        registers[np.searchsorted(rows, groups)] = values
    groups = coupons >> 32
    at = np.minimum(np.searchsorted(rows, groups), len(rows) - 1)
    own = rows[at] == groups
    return np.maximum(registers, _greatest(at[own], coupons[own], len(rows), lg_k))


def _put_registers(packed: Packed, registers: Bytes) -> None:
    shares = np.ldexp(1.0, -np.arange(_HIGHEST + 1))
    histogram = _histogram(registers)
    packed.put(16, "<f8", histogram[:, :32] @ shares[:32])
    packed.put(24, "<f8", histogram[:, 32:] @ shares[32:])
    packed.put(32, "<i4", histogram[:, 0])
    packed.put(8, "<f8", _of_histogram(histogram))
    packed.put_lists(40, np.full(len(registers), registers.shape[1]), registers.reshape(-1))


# -- the estimate -----------------------------------------------------------------------------------------------------


def _histogram(registers: Bytes) -> Int64s:
    width = _HIGHEST + 1
    if registers.size and registers.max() > _HIGHEST:  # it would count for the sketch after it
        raise SketchInvalid(expected="hll", why=f"a register of one is above {_HIGHEST}, which no value sets")
    cells = registers.astype(np.int64) + np.arange(len(registers))[:, None] * width
    return np.bincount(cells.reshape(-1), minlength=len(registers) * width).reshape(-1, width)


def _of_histogram(histogram: Int64s) -> npt.NDArray[np.float64]:
    """Ertl's estimator (arXiv 1702.01284): for few values and for very many, without tables and without jumps."""
    registers = histogram.sum(axis=1).astype(np.float64)
    z = registers * _tau(1 - histogram[:, _HIGHEST] / registers)
    for value in range(_HIGHEST - 1, 0, -1):
        z = 0.5 * (z + histogram[:, value])
    z = z + registers * _sigma(histogram[:, 0] / registers)
    found: npt.NDArray[np.float64] = registers**2 / (2 * np.log(2) * z)
    return found


def _sigma(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    power, weight, total = x.copy(), 1.0, x.copy()
    for _ in range(64):
        power = power * power
        total = total + power * weight
        weight += weight
    return np.where(x >= 1, np.inf, total)


def _tau(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    root, weight, total = x.copy(), 1.0, 1 - x
    for _ in range(64):
        root = np.sqrt(root)
        weight *= 0.5
        total = total - (1 - root) ** 2 * weight
    return np.where((x <= 0) | (x >= 1), 0.0, total / 3)
