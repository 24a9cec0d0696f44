"""The n least or greatest values of a group: a bounded partial result, whichever way the rows are split."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Aggregate, Columns, Groups, Int64s, Order
from headwater.errors import ArgumentInvalid
from headwater.operators.aggregates.values import has_order, struct_ranks

#: Groups with so many values for each one that is kept are cut down before they are sorted.
CROWDED = 8


@dataclass(frozen=True)
class _Extremes(Aggregate):
    n: int = 10

    #: Whether the greatest values are kept.
    greatest: ClassVar[bool]

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise ArgumentInvalid(name="n", value=self.n, expected="a whole number, at least 1")

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        if not has_order(kind):
            raise self.refuse(kind, "a type that has an order")
        return {"values": pa.list_(kind)}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.list_(kind)

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        numbers = groups.numbers()
        if values.null_count:
            numbers = numbers[np.asarray(values.is_valid())]
            values = values.drop_null()
        return self._lists(values, numbers, groups.count)

    def lift_unsorted(self, values: pa.Array, numbers: Int64s, count: int) -> Columns | None:
        if values.null_count:
            numbers, values = numbers[np.asarray(values.is_valid())], values.drop_null()
        if not pa.types.is_signed_integer(values.type):
            return None
        places = self._places(values).astype(np.int64)
        found = _least(places, numbers, count, self.n)
        if found is None:
            return None
        kept, offsets = found
        numbers_kept = ~kept if self.greatest else kept
        return {"values": pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers_kept).cast(values.type))}

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        lists = partials["values"]
        sizes = np.asarray(pc.list_value_length(lists))
        return self._lists(pc.list_flatten(lists), np.repeat(groups.numbers(), sizes), groups.count)

    def finish(self, partials: Columns) -> pa.Array:
        return partials["values"]

    def _lists(self, values: pa.Array, numbers: Int64s, count: int) -> Columns:
        """The first n values of each group in their order; `numbers`, which rise, say which group each value is of."""
        places = self._places(values)
        rows = _candidates(places, numbers, self.n)
        rows = rows[np.lexsort([places[rows], numbers[rows]])]
        sizes = np.bincount(numbers[rows], minlength=count)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        kept = np.minimum(sizes, self.n)
        offsets = pa.array(np.concatenate([[0], np.cumsum(kept)]).astype(np.int32))
        return {"values": pa.ListArray.from_arrays(offsets, values.take(pa.array(rows[within < self.n])))}

    def _places(self, values: pa.Array) -> npt.NDArray[np.signedinteger]:
        """A whole number for each value, of which the least come first in the result."""
        if pa.types.is_signed_integer(values.type):
            places = np.asarray(values)
        elif pa.types.is_struct(values.type):
            places = struct_ranks(values)
        else:  # by rank, also of fractions: NaN is the greatest, as in Spark
            places = np.asarray(pc.rank(values, sort_keys="ascending", tiebreaker="min")).astype(np.int64)
        # Not the negative, which the least whole number has none of.
        return ~places if self.greatest else places


def _least(places: Int64s, numbers: Int64s, count: int, n: int) -> tuple[Int64s, npt.NDArray[np.int32]] | None:
    """The n least places of each of `count` groups in their order, and where those of each group begin; None where a
    group and a place do not fit into one whole number.

    NumPy sorts plain numbers several times as fast as it finds the order of rows.
    """
    lowest, highest = (int(places.min()), int(places.max())) if len(places) else (0, 0)
    bits = (highest - lowest).bit_length()
    if bits + count.bit_length() > 63:
        return None
    both = np.sort(numbers << bits | places - lowest)
    starts = np.searchsorted(both, np.arange(count + 1) << bits)
    sizes = np.minimum(np.diff(starts), n)
    offsets = np.append(0, np.cumsum(sizes))
    rows = np.arange(offsets[-1]) + np.repeat(starts[:-1] - offsets[:-1], sizes)
    return (both[rows] & (1 << bits) - 1) + lowest, offsets.astype(np.int32)


def _candidates(places: npt.NDArray[np.signedinteger], numbers: Int64s, n: int) -> Int64s:
    """The rows that can be among the first n of their groups: of a crowded group only these, of others all."""
    if len(numbers) < CROWDED * n:
        return np.arange(len(numbers))
    starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1]))
    sizes = np.diff(starts, append=len(numbers))
    crowded = sizes >= CROWDED * n
    kept = [np.flatnonzero(np.repeat(~crowded, sizes))]
    for start, size in zip(starts[crowded].tolist(), sizes[crowded].tolist(), strict=True):
        kept.append(start + np.argpartition(places[start : start + size], n - 1)[:n])
    return np.concatenate(kept)


@dataclass(frozen=True)
class MinN(_Extremes):
    """The n least values, the least first."""

    greatest: ClassVar[bool] = False


@dataclass(frozen=True)
class MaxN(_Extremes):
    """The n greatest values, the greatest first."""

    greatest: ClassVar[bool] = True
