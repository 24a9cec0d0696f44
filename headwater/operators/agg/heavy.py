"""The commonest values, and how often given ones came, nearly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Columns
from headwater.operators.agg.approximate import Approximate, Sketched, at_least_one, present, share
from headwater.operators.agg.decayed import faded, half_life_us
from headwater.operators.agg.groups import Groups, Order
from headwater.operators.sketches.count_min import CountMin, counts_of
from headwater.operators.sketches.estimates import ESTIMATE
from headwater.operators.sketches.frequent import Counted, counted
from headwater.operators.sketches.hashing import is_hashable
from headwater.operators.sketches.packed import Int64s, places


@dataclass(frozen=True)
class TopApprox(Approximate):
    """The commonest values, with bounds that are certain; with a half-life, what came long ago counts for less."""

    k: int = 10
    tracked: int = 1024
    half_life: str | float | None = None
    title: ClassVar[str] = "top_approx"

    def __post_init__(self) -> None:
        at_least_one("k", self.k)
        if at_least_one("tracked", self.tracked) < self.k:
            raise ArgumentInvalid(name="tracked", value=self.tracked, expected=f"at least k, which is {self.k}")
        half_life_us(self.half_life)

    @property
    def weight(self) -> pa.DataType:
        return pa.int64() if self.half_life is None else pa.float64()

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        if not is_hashable(kind):
            raise self.refuse(kind, "a plain type, not a list or a struct")
        lists = {"values": pa.list_(kind), "counts": pa.list_(self.weight)}
        return {**lists, "missed": self.weight, "at": pa.int64()}

    def result(self, kind: pa.DataType) -> pa.DataType:
        self.partial(kind)
        bounds = [(name, self.weight) for name in ("estimate", "lower", "upper")]
        return pa.list_(pa.struct([("value", kind), *bounds]))

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        at = np.maximum.reduceat(order.at_us, groups.starts) if groups.count else order.at_us[:0]
        weights = faded(np.ones(groups.rows, np.int64), order.at_us, at[groups.numbers()], self.half_life)
        valid = np.asarray(values.is_valid())
        values, numbers = present(values, groups)
        none = np.zeros(groups.count, weights.dtype)
        return self._columns(counted(values, numbers, weights[valid], none, self.tracked), at)

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        own = np.asarray(partials["at"])
        at = np.maximum.reduceat(own, groups.starts) if groups.count else own
        sizes = np.asarray(pc.list_value_length(partials["values"])).astype(np.int64)
        then = at[groups.numbers()]
        counts = np.asarray(pc.list_flatten(partials["counts"]))
        counts = faded(counts, np.repeat(own, sizes), np.repeat(then, sizes), self.half_life)
        missed = faded(np.asarray(partials["missed"]), own, then, self.half_life)
        missed = np.add.reduceat(missed, groups.starts) if groups.count else missed
        numbers = np.repeat(groups.numbers(), sizes)
        return self._columns(counted(pc.list_flatten(partials["values"]), numbers, counts, missed, self.tracked), at)

    def finish(self, partials: Columns) -> pa.Array:
        sizes = np.asarray(pc.list_value_length(partials["values"])).astype(np.int64)
        numbers = np.repeat(np.arange(len(sizes)), sizes)
        values, lower = pc.list_flatten(partials["values"]), np.asarray(pc.list_flatten(partials["counts"]))
        # Values lie in their own order already, which settles ties.
        order = np.lexsort([-lower, numbers])
        rows = order[places(numbers) < self.k]
        upper = pa.array((lower + np.asarray(partials["missed"])[numbers])[rows])
        columns = [values.take(pa.array(rows)), upper, pa.array(lower[rows]), upper]
        pairs = pa.StructArray.from_arrays(columns, ["value", "estimate", "lower", "upper"])
        offsets = np.append(0, np.cumsum(np.minimum(sizes, self.k))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pairs)

    def _columns(self, found: Counted, at: Int64s) -> Columns:
        sizes = np.bincount(found.numbers, minlength=len(at))
        offsets = pa.array(np.append(0, np.cumsum(sizes)).astype(np.int32))
        return {
            "values": pa.ListArray.from_arrays(offsets, found.values),
            "counts": pa.ListArray.from_arrays(offsets, pa.array(found.counts)),
            "missed": pa.array(found.missed),
            "at": pa.array(at),
        }


@dataclass(frozen=True)
class CountsAsked(Sketched):
    """How often some values came, nearly: count-min. Never too low."""

    asked: tuple[Any, ...] = ()
    error: float = 0.001
    confidence: float = 0.99
    title: ClassVar[str] = "count_min"

    def __post_init__(self) -> None:
        share("error", self.error)
        share("confidence", self.confidence)
        if not self.asked:
            raise ArgumentInvalid(name="asked", value=self.asked, expected='the values to be counted: ["a", "b"]')

    @property
    def kernel(self) -> CountMin:
        return CountMin.within(self.error, self.confidence)

    def check(self, kind: pa.DataType) -> None:
        super().check(kind)
        self._asked(kind)

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        # What is asked for must have the type of the column, which is known here and not when results are made.
        return {**super().partial(kind), "kind": kind}

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        return {**super().lift(values, order, groups), "kind": pa.nulls(groups.count, values.type)}

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        return {**super().merge(partials, groups), "kind": pa.nulls(groups.count, partials["kind"].type)}

    def result(self, kind: pa.DataType) -> pa.DataType:
        self.check(kind)
        return pa.list_(pa.struct([("value", kind), *ESTIMATE]))

    def finish(self, partials: Columns) -> pa.Array:
        asked = self._asked(partials["kind"].type)
        found = counts_of(partials["sketch"], asked)
        count = len(found.estimate)
        values = pa.concat_arrays([asked] * count) if count else asked.slice(0, 0)
        pairs = pa.StructArray.from_arrays(
            [values, *(pa.array(one.reshape(-1)) for one in found)], ["value", *(one.name for one in ESTIMATE)]
        )
        return pa.ListArray.from_arrays(pa.array(np.arange(count + 1, dtype=np.int32) * len(asked)), pairs)

    def _asked(self, kind: pa.DataType) -> pa.Array:
        try:
            return pa.array(self.asked, kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError) as error:
            raise ArgumentInvalid(name="asked", value=self.asked, expected=f"values of type {kind}") from error
