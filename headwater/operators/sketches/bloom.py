"""Bloom filters: whether a value has come before, in a few bits for each. A "no" is certain, a "yes" nearly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headwater.operators.sketches.format import Bytes, Int64s
from headwater.operators.sketches.murmur3 import Hashes, mixed

#: Values are spread over many small filters, so that a batch writes only those that it has touched.
VALUES_PER_SHARD = 1024


@dataclass(frozen=True)
class Bloom:
    """The size of a filter."""

    bits: int
    probes: int

    @staticmethod
    def sized(values: int, false_positives: float) -> Bloom:
        """A filter for so many values: at most this share of those that never came is said to have.

        >>> Bloom.sized(1_000, 0.01)
        Bloom(bits=9600, probes=7)
        """
        each = np.log2(1 / false_positives)
        bits = int(np.ceil(values * each / np.log(2) / 64)) * 64
        return Bloom(bits, max(1, round(float(each))))

    @property
    def size(self) -> int:
        return self.bits // 8

    def places(self, hashes: Hashes) -> Int64s:
        """The bits of each value, a row of them each."""
        first, step = mixed(hashes), mixed(hashes + np.uint64(1)) | np.uint64(1)
        turns = np.arange(self.probes, dtype=np.uint64)
        return ((first[:, None] + turns * step[:, None]) % np.uint64(self.bits)).astype(np.int64)

    def holds(self, filters: Bytes, rows: Int64s, places: Int64s) -> npt.NDArray[np.bool_]:
        """Whether the filter in `rows[i]` of `filters` has all bits of `places[i]`."""
        found = filters[rows[:, None], places >> 3] >> (places & 7).astype(np.uint8) & 1
        held: npt.NDArray[np.bool_] = found.all(axis=1)
        return held

    def add(self, filters: Bytes, rows: Int64s, places: Int64s) -> None:
        """Set the bits of `places[i]` in the filter in `rows[i]`."""
        bits = np.left_shift(np.uint8(1), (places & 7).astype(np.uint8))
        np.bitwise_or.at(filters, (rows[:, None], places >> 3), bits)

    def mistaken(self, filters: Bytes) -> npt.NDArray[np.float64]:
        """How likely each filter is to know a value that it was never given."""
        filled: npt.NDArray[np.float64] = np.bitwise_count(filters).sum(axis=1) / self.bits
        chance: npt.NDArray[np.float64] = filled**self.probes
        return chance
