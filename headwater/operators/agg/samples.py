"""Samples: a few values that stand for all, the same ones however often and in whichever parts the rows are read.

Each row draws a number that follows from its place in the topic, its time and its value; the rows with the smallest
numbers are the sample. So a sample of samples is the sample of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.agg.aggregate import Columns
from headwater.operators.agg.approximate import Approximate, at_least_one
from headwater.operators.agg.groups import Groups, Int64s, Order
from headwater.operators.sketches.hashing import hashes_of, is_hashable, mixed
from headwater.operators.sketches.packed import places


@dataclass(frozen=True)
class Sample(Approximate):
    """`n` values, each as likely as any other; with `strata`, `n` for each value of that field of a struct."""

    n: int = 10
    strata: str | None = None
    title: ClassVar[str] = "sample"

    def __post_init__(self) -> None:
        at_least_one("n", self.n)

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        if self.strata is not None:
            names = [one.name for one in kind] if pa.types.is_struct(kind) else []
            if self.strata not in names or not is_hashable(kind.field(self.strata).type):
                raise self.refuse(kind, f"a struct with a plain field {self.strata!r}, whose values are the strata")
        return {"values": pa.list_(kind), "drawn": pa.list_(pa.int64())}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return self.partial(kind)["values"]

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        numbers, drawn = groups.numbers(), _drawn(values, order)
        if values.null_count:
            valid = np.asarray(values.is_valid())
            values, numbers, drawn = values.drop_null(), numbers[valid], drawn[valid]
        return self._least(values, numbers, drawn, groups.count)

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        sizes = np.asarray(pc.list_value_length(partials["values"])).astype(np.int64)
        values, drawn = (pc.list_flatten(partials[name]) for name in ("values", "drawn"))
        return self._least(values, np.repeat(groups.numbers(), sizes), np.asarray(drawn), groups.count)

    def finish(self, partials: Columns) -> pa.Array:
        return partials["values"]

    def _least(self, values: pa.Array, numbers: Int64s, drawn: Int64s, count: int) -> Columns:
        """Of each group and stratum the rows that have drawn the least, in the order of what they have drawn."""
        strata = (
            np.zeros(len(numbers), np.int64) if self.strata is None else _codes(pc.struct_field(values, self.strata))
        )
        order = np.lexsort([drawn, strata, numbers])
        width = int(strata.max(initial=0)) + 1
        kept = order[places((numbers * width + strata)[order]) < self.n]
        rows = kept[np.lexsort([drawn[kept], numbers[kept]])]
        offsets = np.append(0, np.cumsum(np.bincount(numbers[rows], minlength=count))).astype(np.int32)
        columns = {"values": values.take(pa.array(rows)), "drawn": pa.array(drawn[rows])}
        return {name: pa.ListArray.from_arrays(pa.array(offsets), column) for name, column in columns.items()}


def _drawn(values: pa.Array, order: Order) -> Int64s:
    """A random number for each row, always the same for the same row."""
    place = mixed(order.position.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15))
    drawn = mixed(place ^ mixed(order.at_us.astype(np.uint64)))
    if is_hashable(values.type):
        # Rows that have lost their place differ in what they hold.
        valid = np.flatnonzero(np.asarray(values.is_valid()))
        drawn[valid] ^= hashes_of(values.drop_null())[0]
    return mixed(drawn).view(np.int64)


def _codes(strata: pa.Array) -> Int64s:
    encoded = strata.dictionary_encode()
    return np.asarray(encoded.indices.fill_null(len(encoded.dictionary))).astype(np.int64)
