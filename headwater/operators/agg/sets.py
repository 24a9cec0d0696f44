"""How many different ones, which are the commonest, and where the middle lies: exact, from all values that were seen.

Their partial results grow with the values: for unbounded numbers of them use the sketches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Columns, Invertible, is_number
from headwater.operators.agg.groups import Groups, Int64s, Order


@dataclass(frozen=True)
class _Counted(Invertible):
    """The different values, each with how often it came."""

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        if pa.types.is_nested(kind):
            raise self.refuse(kind, "a plain type, not a list or a struct")
        return {"values": pa.list_(kind), "counts": pa.list_(pa.int64())}

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        numbers = groups.numbers()
        if values.null_count:
            valid = np.asarray(values.is_valid())
            values, numbers = values.drop_null(), numbers[valid]
        return _counted(values, numbers, np.ones(len(numbers), np.int64), groups.count)

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        sizes = np.asarray(pc.list_value_length(partials["values"]))
        values = pc.list_flatten(partials["values"])
        counts = np.asarray(pc.list_flatten(partials["counts"]))
        return _counted(values, np.repeat(groups.numbers(), sizes), counts, groups.count)

    def remove(self, partials: Columns) -> Columns:
        counts = partials["counts"]
        negative = pa.ListArray.from_arrays(counts.offsets, pc.negate(counts.values))
        return {"values": partials["values"], "counts": negative}


def _counted(values: pa.Array, numbers: Int64s, counts: Int64s, count: int) -> Columns:
    """Equal values of one group together, in the order of the values; those that came and went are left out."""
    table = pa.table({"group": numbers, "value": values, "count": counts})
    found = table.group_by(["group", "value"], use_threads=False).aggregate([("count", "sum")])
    found = found.filter(pc.not_equal(found.column("count_sum"), 0)).combine_chunks()
    found = found.sort_by([("group", "ascending"), ("value", "ascending")])
    sizes = np.bincount(np.asarray(found.column("group")), minlength=count)
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    return {
        "values": pa.ListArray.from_arrays(offsets, found.column("value").combine_chunks()),
        "counts": pa.ListArray.from_arrays(offsets, found.column("count_sum").combine_chunks()),
    }


@dataclass(frozen=True)
class Distinct(_Counted):
    """How many different values."""

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.int64()

    def finish(self, partials: Columns) -> pa.Array:
        return pc.list_value_length(partials["values"]).cast(pa.int64())


@dataclass(frozen=True)
class Top(_Counted):
    """The commonest values with their counts, the commonest first; of equally common ones the least value first."""

    count: int = 10

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ArgumentInvalid(name="count", value=self.count, expected="at least 1")

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.list_(pa.struct([("value", kind), ("count", pa.int64())]))

    def finish(self, partials: Columns) -> pa.Array:
        sizes = np.asarray(pc.list_value_length(partials["values"]))
        numbers = np.repeat(np.arange(len(sizes)), sizes)
        values, counts = (pc.list_flatten(partials[name]) for name in ("values", "counts"))
        # Values lie in their own order already, which settles ties.
        order = np.lexsort([-np.asarray(counts), numbers])
        begins = np.cumsum(sizes) - sizes
        place = np.arange(len(order)) - np.repeat(begins, sizes)
        rows = pa.array(order[place < self.count])
        kept = np.minimum(sizes, self.count)
        offsets = pa.array(np.concatenate([[0], np.cumsum(kept)]).astype(np.int32))
        pairs = pa.StructArray.from_arrays([values.take(rows), counts.take(rows)], ["value", "count"])
        return pa.ListArray.from_arrays(offsets, pairs)


@dataclass(frozen=True)
class Quantile(_Counted):
    """The value below which this share of all values lies; between two values the straight line between them."""

    share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ArgumentInvalid(name="share", value=self.share, expected="between 0 and 1")

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        if not is_number(kind):
            raise self.refuse(kind, "a number")
        return super().partial(kind)

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.float64()

    def finish(self, partials: Columns) -> pa.Array:
        sizes = np.asarray(pc.list_value_length(partials["values"]))
        values = np.asarray(pc.list_flatten(partials["values"]).cast(pa.float64()))
        counts = np.asarray(pc.list_flatten(partials["counts"]))
        ends = np.cumsum(counts)  # over all groups: within a group it counts on from where the last one ended
        last = np.cumsum(sizes) - 1
        some = sizes > 0
        totals = np.zeros(len(sizes), np.int64)
        begins = np.zeros(len(sizes), np.int64)
        begins[some] = ends[last[some] - sizes[some] + 1] - counts[last[some] - sizes[some] + 1]
        totals[some] = ends[last[some]] - begins[some]
        wanted = (totals - 1) * self.share
        low = np.floor(wanted).astype(np.int64)
        result = np.zeros(len(sizes))
        lower = values[np.searchsorted(ends, (begins + low)[some], side="right")]
        upper = values[np.searchsorted(ends, np.minimum(begins + low + 1, begins + totals - 1)[some], side="right")]
        result[some] = lower + (upper - lower) * (wanted - low)[some]
        return pa.array(result, mask=~some)
