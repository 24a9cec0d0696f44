"""Approximate aggregates, in memory that does not grow with the values: their partial results are sketches or samples."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Aggregate, Columns, Groups, Int64s, Order, is_number
from headwater.errors import ArgumentInvalid
from headwater.operators.aggregates.numbers import faded, half_life_us
from headwater.operators.sketches import kll, tdigest
from headwater.operators.sketches.format import ESTIMATE, places
from headwater.operators.sketches.frequencies import CountMin, Frequent, ItemCounts, counted, counts_of
from headwater.operators.sketches.functions import Kernel, kernel_of
from headwater.operators.sketches.hll import Hll, lg_k_for
from headwater.operators.sketches.murmur3 import hashes_of, is_hashable, mixed
from headwater.operators.sketches.theta import Theta
from headwater.units import Duration

Method = Literal["kll", "tdigest"]
#: The type of a quantile in results.
QUANTILE = pa.struct([("at", pa.float64()), *ESTIMATE])


def share(name: str, value: float) -> float:
    """Return a share; raise unless it lies between 0 and 1, both excluded."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1:
        raise ArgumentInvalid(name=name, value=value, expected="a share between 0 and 1, such as 0.01")
    return value


def at_least_one(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ArgumentInvalid(name=name, value=value, expected="a whole number of 1 or more")
    return value


def present(values: pa.Array, groups: Groups) -> tuple[pa.Array, Int64s]:
    """The values that are not null, and the number of the group of each."""
    numbers = groups.numbers()
    if not values.null_count:
        return values, numbers
    return values.drop_null(), numbers[np.asarray(values.is_valid())]


@dataclass(frozen=True)
class Approximate(Aggregate):
    """An aggregate that forgets: what it has seen cannot be taken out of it again."""

    title: ClassVar[str] = ""

    @property
    def called(self) -> str:
        return self.title


@dataclass(frozen=True)
class Sketched(Approximate):
    """An aggregate whose partial result is one sketch."""

    @property
    @abstractmethod
    def kernel(self) -> Kernel:
        """What makes and merges the sketches."""

    def check(self, kind: pa.DataType) -> None:
        """Raise unless there is such a sketch for the type."""
        if not is_hashable(kind):
            raise self.refuse(kind, "a plain type, not a list or a struct")

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        self.check(kind)
        return {"sketch": pa.binary()}

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        return {"sketch": self.kernel.lift(*present(values, groups), groups.count)}

    def lift_unsorted(self, values: pa.Array, numbers: Int64s, count: int) -> Columns | None:
        kernel = self.kernel
        if not isinstance(kernel, Hll):
            return None
        if values.null_count:
            numbers, values = numbers[np.asarray(values.is_valid())], values.drop_null()
        return {"sketch": kernel.lift(values, numbers, count)}

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        return {"sketch": self.kernel.merge(partials["sketch"], groups.numbers(), groups.count)}


@dataclass(frozen=True)
class ApproxCountDistinct(Sketched):
    """How many different values, nearly: HyperLogLog. Of few values the answer is exact."""

    error: float = 0.01
    title: ClassVar[str] = "approx_count_distinct"

    def __post_init__(self) -> None:
        share("error", self.error)

    @property
    def kernel(self) -> Hll:
        return Hll(lg_k_for(self.error))

    def result(self, kind: pa.DataType) -> pa.DataType:
        self.check(kind)
        return ESTIMATE

    def finish(self, partials: Columns) -> pa.Array:
        return self.kernel.estimates(partials["sketch"]).column()


def check_numbers(aggregate: Aggregate, kind: pa.DataType) -> None:
    if not is_number(kind):
        raise aggregate.refuse(kind, "a number")


@dataclass(frozen=True)
class ApproxPercentile(Sketched):
    """The values at several ranks, nearly."""

    at: tuple[float, ...] = (0.5,)
    error: float = 0.0133
    method: Method = "kll"
    title: ClassVar[str] = "approx_percentile"

    def __post_init__(self) -> None:
        share("error", self.error)
        if not self.at or not all(isinstance(one, int | float) and 0 <= one <= 1 for one in self.at):
            raise ArgumentInvalid(name="at", value=self.at, expected="shares between 0 and 1, such as [0.5, 0.99]")
        if self.method not in ("kll", "tdigest"):
            raise ArgumentInvalid(name="method", value=self.method, expected='"kll" or "tdigest"')

    @property
    def kernel(self) -> Kernel:
        if self.method == "kll":
            return kll.Kll(kll.k_for(self.error))
        # A digest is as far off in the middle as one of its centroids is wide there.
        return tdigest.Digest(int(np.clip(np.ceil(np.pi / 2 / self.error), 10, 65_535)))

    def check(self, kind: pa.DataType) -> None:
        check_numbers(self, kind)

    def result(self, kind: pa.DataType) -> pa.DataType:
        self.check(kind)
        return pa.list_(QUANTILE)

    def finish(self, partials: Columns) -> pa.Array:
        known = kll.quantiles if self.method == "kll" else tdigest.quantiles
        found = known(partials["sketch"], np.array(self.at, np.float64))
        count, width = found[0].shape
        columns = [np.tile(np.array(self.at, np.float64), count), *(one.reshape(-1) for one in found)]
        pairs = pa.StructArray.from_arrays([pa.array(one) for one in columns], fields=list(QUANTILE))
        offsets = pa.array(np.arange(count + 1, dtype=np.int32) * width)
        nothing = np.isnan(found[0]).all(axis=1)
        return pa.ListArray.from_arrays(offsets, pairs, mask=pa.array(nothing))


@dataclass(frozen=True)
class SketchOf(Sketched):
    """The sketch itself, to be stored and merged later."""

    family: Literal["hll", "theta", "kll", "tdigest", "frequent", "count_min"] = "hll"
    #: 2^size registers or hashes, or k.
    size: int = 12
    #: Of count-min: how many rows its table has.
    depth: int = 1

    @property
    def called(self) -> str:
        return f"sketch.{self.family}"

    @property
    def kernel(self) -> Kernel:
        kernels: dict[str, Kernel] = {
            "hll": Hll(self.size),
            "theta": Theta(self.size),
            "kll": kll.Kll(self.size),
            "tdigest": tdigest.Digest(self.size),
            "frequent": Frequent(self.size),
            "count_min": CountMin(self.depth, self.size),
        }
        return kernels[self.family]

    def check(self, kind: pa.DataType) -> None:
        if self.family in ("kll", "tdigest"):
            check_numbers(self, kind)
        elif self.family == "frequent" and not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise self.refuse(kind, "text")
        else:
            super().check(kind)

    def result(self, kind: pa.DataType) -> pa.DataType:
        self.check(kind)
        return pa.binary()

    def finish(self, partials: Columns) -> pa.Array:
        return partials["sketch"]


@dataclass(frozen=True)
class MergedSketches(Approximate):
    """One sketch of many: minutes become an hour. Nulls are left out; of nothing the result is null."""

    lg_k: int = 12
    title: ClassVar[str] = "merge_sketches"

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
            raise self.refuse(kind, "a column of sketches, which are bytes")
        return {"sketch": pa.binary()}

    def result(self, kind: pa.DataType) -> pa.DataType:
        self.partial(kind)
        return pa.binary()

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        return {"sketch": self._merged(values.cast(pa.binary()), groups)}

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        return {"sketch": self._merged(partials["sketch"], groups)}

    def finish(self, partials: Columns) -> pa.Array:
        return partials["sketch"]

    def _merged(self, sketches: pa.Array, groups: Groups) -> pa.Array:
        sketches, numbers = present(sketches, groups)
        if not len(sketches):
            return pa.nulls(groups.count, pa.binary())
        known, among = np.unique(numbers, return_inverse=True)
        merged = kernel_of(sketches, lg_k=self.lg_k).merge(sketches, among, len(known))
        rows = np.full(groups.count, -1)
        rows[known] = np.arange(len(known))
        return merged.take(pa.array(rows, mask=rows < 0))


@dataclass(frozen=True)
class ApproxTopK(Approximate):
    """The commonest values, with bounds that are certain; with a half-life, what came long ago counts for less."""

    n: int = 10
    tracked: int = 1024
    half_life: Duration | None = None
    title: ClassVar[str] = "approx_top_k"

    def __post_init__(self) -> None:
        at_least_one("n", self.n)
        if at_least_one("tracked", self.tracked) < self.n:
            raise ArgumentInvalid(name="tracked", value=self.tracked, expected=f"at least n, which is {self.n}")
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
        # Values lie in their own order already, which breaks ties.
        order = np.lexsort([-lower, numbers])
        rows = order[places(numbers) < self.n]
        upper = pa.array((lower + np.asarray(partials["missed"])[numbers])[rows])
        columns = [values.take(pa.array(rows)), upper, pa.array(lower[rows]), upper]
        pairs = pa.StructArray.from_arrays(columns, ["value", "estimate", "lower", "upper"])
        offsets = np.append(0, np.cumsum(np.minimum(sizes, self.n))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pairs)

    def _columns(self, found: ItemCounts, at: Int64s) -> Columns:
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
