"""Aggregates that are nearly right, in memory that does not grow with the values: their partial results are sketches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Aggregate, Columns, is_number
from headwater.operators.agg.groups import Groups, Int64s, Order
from headwater.operators.sketches import kll, tdigest
from headwater.operators.sketches.count_min import CountMin
from headwater.operators.sketches.estimates import ESTIMATE
from headwater.operators.sketches.families import Kernel, kernel_of
from headwater.operators.sketches.frequent import Frequent
from headwater.operators.sketches.hashing import is_hashable
from headwater.operators.sketches.hll import Hll, lg_k_for
from headwater.operators.sketches.theta import Theta

Method = Literal["kll", "tdigest"]
#: The type of a quantile in results.
QUANTILE = pa.struct([("at", pa.float64()), *ESTIMATE])


def share(name: str, value: float) -> float:
    """A share between 0 and 1, both excluded; anything else is refused."""
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
        """Refuse a type that has no such sketch."""
        if not is_hashable(kind):
            raise self.refuse(kind, "a plain type, not a list or a struct")

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        self.check(kind)
        return {"sketch": pa.binary()}

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        return {"sketch": self.kernel.lift(*present(values, groups), groups.count)}

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        return {"sketch": self.kernel.merge(partials["sketch"], groups.numbers(), groups.count)}


@dataclass(frozen=True)
class DistinctApprox(Sketched):
    """How many different values, nearly: HyperLogLog. Of few values the answer is exact."""

    error: float = 0.01
    title: ClassVar[str] = "distinct_approx"

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
class QuantilesApprox(Sketched):
    """The values at several ranks, nearly."""

    at: tuple[float, ...] = (0.5,)
    error: float = 0.0133
    method: Method = "kll"
    title: ClassVar[str] = "quantiles_approx"

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
