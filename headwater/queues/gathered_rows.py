"""Rows of one partition that stand in many frames, copied side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.log.port import Batch

#: Offsets in order, each once.
Offsets = npt.NDArray[np.int64]


class GatheredRows:
    """The rows of some offsets, those of one schema in one batch. Some of the offsets may have no row."""

    def __init__(self, asked: Offsets, found: Sequence[Offsets], taken: Sequence[pa.RecordBatch]) -> None:
        self._asked = asked
        self._parts: list[tuple[Offsets, pa.RecordBatch]] = []
        #: How many of the rows were of use.
        self.used = 0
        first = 0
        for number in range(1, len(taken) + 1):
            if number == len(taken) or not taken[number].schema.equals(taken[first].schema):
                data = pa.Table.from_batches(taken[first:number]).combine_chunks().to_batches()
                self._parts += [(np.concatenate(found[first:number]), each) for each in data[:1]]
                first = number

    def knows(self, offsets: Offsets) -> bool:
        """Whether all these were asked for."""
        return bool(np.isin(offsets, self._asked, assume_unique=True).all())

    def take(self, offsets: Offsets) -> list[pa.RecordBatch]:
        """The rows of these offsets."""
        found = []
        for known, data in self._parts:
            at, exist = _positions(known, offsets)
            if exist.any():
                found.append(data.take(pa.array(at[exist])))
        return found


def rows_at(part: Batch, offsets: Offsets) -> tuple[Offsets, pa.RecordBatch]:
    """The rows of a part of a frame with these offsets, and which offsets have one: compaction leaves gaps."""
    if part.offset_next - part.offset == part.data.num_rows:
        return offsets, part.data.take(pa.array(offsets - part.offset))
    at, exist = _positions(part.data.column("_offset").to_numpy(), offsets)
    return offsets[exist], part.data.take(pa.array(at[exist]))


def _positions(known: Offsets, offsets: Offsets) -> tuple[Offsets, npt.NDArray[np.bool_]]:
    """Where offsets stand among those that are known, and whether they do."""
    at = np.searchsorted(known, offsets)
    exist = at < len(known)
    exist[exist] = known[at[exist]] == offsets[exist]
    return at, exist
