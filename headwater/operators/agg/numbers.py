"""Counts, sums, means and deviations: what a partial result can be taken out of again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import NumberTooLarge
from headwater.operators.agg.aggregate import (
    Aggregate,
    Columns,
    Invertible,
    is_number,
    nulled,
    numbers_of,
    valid_counts,
)
from headwater.operators.agg.groups import Groups, Order

Floats = npt.NDArray[np.float64]
LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Count(Invertible):
    """How many rows; with an argument, how many whose argument is not null."""

    of: object = None  # type: ignore[assignment] # a count needs no argument

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {"count": pa.int64()}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.int64()

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        return {"count": pa.array(groups.sizes() if self.of is None else valid_counts(values, groups))}

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        return {"count": pa.array(summed(np.asarray(partials["count"]), groups))}

    def finish(self, partials: Columns) -> pa.Array:
        return partials["count"]

    def hashed(self, kind: pa.DataType) -> Mapping[str, str] | None:
        return {"count": "count_all" if self.of is None else "count"}

    def remove(self, partials: Columns) -> Columns:
        return {"count": pc.negate(partials["count"])}


@dataclass(frozen=True)
class Sum(Invertible):
    """The sum. Whole numbers stay exact and never wrap round: a sum beyond 64 bits is an error."""

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {"sum": self.result(kind), "count": pa.int64()}

    def result(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_decimal(kind):
            return pa.decimal128(38, kind.scale)
        if pa.types.is_duration(kind):
            return pa.duration("us")
        if not is_number(kind):
            raise self.refuse(kind, "a number")
        return pa.int64() if pa.types.is_integer(kind) else pa.float64()

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        counts = pa.array(valid_counts(values, groups))
        return {"sum": self._sums(values.cast(self.result(values.type)), groups), "count": counts}

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        counts = summed(np.asarray(partials["count"]), groups)
        return {"sum": self._sums(partials["sum"], groups), "count": pa.array(counts)}

    def hashed(self, kind: pa.DataType) -> Mapping[str, str] | None:
        return {"sum": "sum", "count": "count"} if _is_plain(kind) else None

    def finish(self, partials: Columns) -> pa.Array:
        nothing = pc.equal(partials["count"], 0)
        return pc.if_else(nothing, pa.scalar(None, partials["sum"].type), partials["sum"])

    def remove(self, partials: Columns) -> Columns:
        return {"sum": pc.negate(partials["sum"]), "count": pc.negate(partials["count"])}

    def _sums(self, values: pa.Array, groups: Groups) -> pa.Array:
        kind = values.type
        if pa.types.is_decimal(kind):
            table = pa.table({"group": groups.numbers(), "value": values})
            found = table.group_by("group", use_threads=False).aggregate([("value", "sum")]).column("value_sum")
            return pc.fill_null(found.combine_chunks().cast(kind), pa.scalar(0, kind))
        plain, _ = numbers_of(values.cast(pa.int64()) if pa.types.is_duration(kind) else values)
        return pa.array(self._checked(plain, summed(plain, groups), groups)).cast(kind)

    def _checked(
        self, values: npt.NDArray[np.generic], sums: npt.NDArray[np.generic], groups: Groups
    ) -> npt.NDArray[np.generic]:
        if values.dtype == np.int64 and len(values):
            most = max(abs(int(values.min())), abs(int(values.max())))
            if most > LARGEST // len(values):  # only then can any sum be too large, and is it worth a second look
                rough = summed(values.astype(np.float64), groups)
                wrong = np.abs(rough - sums.astype(np.float64)) > 2.0**62
                if wrong.any():
                    raise NumberTooLarge(aggregate=self.called, argument=str(self.of))
        return sums


@dataclass(frozen=True)
class Mean(Invertible):
    """The mean, as a float."""

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        if not is_number(kind):
            raise self.refuse(kind, "a number")
        return {"sum": pa.float64(), "count": pa.int64()}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.float64()

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        plain, _ = numbers_of(values.cast(pa.float64()))
        return {"sum": pa.array(summed(plain, groups)), "count": pa.array(valid_counts(values, groups))}

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        return {name: pa.array(summed(np.asarray(column), groups)) for name, column in partials.items()}

    def finish(self, partials: Columns) -> pa.Array:
        counts = np.asarray(partials["count"])
        return nulled(np.asarray(partials["sum"]) / np.maximum(counts, 1), counts, pa.float64())

    def remove(self, partials: Columns) -> Columns:
        return {name: pc.negate(column) for name, column in partials.items()}


@dataclass(frozen=True)
class StdDev(Aggregate):
    """The standard deviation of a sample, or with `population=True` of all there is.

    Kept as count, mean and squared distance from it, which stays accurate where sums of squares would not.
    """

    population: bool = False

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        if not is_number(kind):
            raise self.refuse(kind, "a number")
        return {"count": pa.int64(), "mean": pa.float64(), "squares": pa.float64()}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.float64()

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        plain, valid = numbers_of(values.cast(pa.float64()))
        counts = valid_counts(values, groups)
        mean = summed(plain, groups) / np.maximum(counts, 1)
        away = (plain - np.repeat(mean, groups.sizes())) ** 2
        if valid is not None:
            away = np.where(valid, away, 0.0)
        return {"count": pa.array(counts), "mean": pa.array(mean), "squares": pa.array(summed(away, groups))}

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        counts, means = np.asarray(partials["count"]), np.asarray(partials["mean"])
        total = summed(counts, groups)
        mean = summed(counts * means, groups) / np.maximum(total, 1)
        between = counts * (means - np.repeat(mean, groups.sizes())) ** 2
        squares = summed(np.asarray(partials["squares"]) + between, groups)
        return {"count": pa.array(total), "mean": pa.array(mean), "squares": pa.array(squares)}

    def finish(self, partials: Columns) -> pa.Array:
        counts, squares = np.asarray(partials["count"]), np.asarray(partials["squares"])
        least = 0 if self.population else 1
        divisor = np.maximum(counts - least, 1)
        return pa.array(np.sqrt(squares / divisor), mask=counts <= least)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def summed(values: npt.NDArray[np.generic], groups: Groups) -> npt.NDArray[np.generic]:
    """The sum of each group."""
    return np.add.reduceat(values, groups.starts) if groups.count else values[:0]
