"""Aggregates of numbers: counts, sums, means and deviations, also with what is past counting ever less.

`Steady` is for tables, which retract rows. Infinity less infinity is not zero. So values that are no finite numbers are
counted apart, and the sum is that of the rest: a NaN that is corrected leaves no trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import (
    LARGEST,
    Aggregate,
    Columns,
    Groups,
    Int64s,
    Invertible,
    Order,
    is_number,
    nulled,
    numbers_of,
    valid_counts,
)
from headwater.engine.errors import NumberTooLarge
from headwater.errors import ArgumentInvalid
from headwater.units import Duration, parse_seconds

Floats = npt.NDArray[np.float64]
What = Literal["count", "sum", "mean"]
#: How often each value came that is no finite number.
APART = {"_nan": np.nan, "_up": np.inf, "_down": -np.inf}


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

    def hashed(self, kind: pa.DataType) -> Mapping[str, str] | None:
        # Not of fractions, whose sum depends on the order in which they are added.
        return {"sum": "sum", "count": "count"} if pa.types.is_integer(kind) else None

    def finish(self, partials: Columns) -> pa.Array:
        counts = np.asarray(partials["count"])
        return nulled(np.asarray(partials["sum"]) / np.maximum(counts, 1), counts, pa.float64())

    def remove(self, partials: Columns) -> Columns:
        return {name: pc.negate(column) for name, column in partials.items()}


@dataclass(frozen=True)
class Stddev(Aggregate):
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


def half_life_us(half_life: Duration | None) -> float | None:
    """Return a half-life in microseconds; raise unless it is a duration."""
    if half_life is None:
        return None
    seconds = parse_seconds(half_life, name="half_life")
    if seconds <= 0:
        raise ArgumentInvalid(name="half_life", value=half_life, expected='a time longer than none, such as "1 hour"')
    return seconds * 1e6


# Any: numbers of whichever kind.
def faded(weights: npt.NDArray[Any], own: Int64s, then: Int64s, half_life: Duration | None) -> npt.NDArray[Any]:
    """Weights as they are later: `own` is the time that they are of, `then` the time at which they are looked at.

    >>> faded(np.array([8.0]), np.array([0]), np.array([2_000_000]), "1 second").tolist()
    [2.0]
    """
    half = half_life_us(half_life)
    return weights if half is None else weights * np.exp2((own - then) / half)


@dataclass(frozen=True)
class Decayed(Aggregate):
    """A count, a sum or a mean in which every value fades; it is that of the latest event time of its group."""

    of: object = None  # type: ignore[assignment] # a count needs no argument
    half_life: Duration = "1 hour"
    what: What = "count"

    def __post_init__(self) -> None:
        half_life_us(self.half_life)

    @property
    def called(self) -> str:
        return f"decayed_{self.what}"

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        if self.what != "count" and not is_number(kind):
            raise self.refuse(kind, "a number")
        return {"weight": pa.float64(), "sum": pa.float64(), "count": pa.int64(), "at": pa.int64()}

    def result(self, kind: pa.DataType) -> pa.DataType:
        self.partial(kind)
        return pa.float64()

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        valid = np.ones(groups.rows) if self.of is None else np.asarray(values.is_valid()).astype(np.float64)
        plain = np.zeros(groups.rows) if self.what == "count" else numbers_of(values.cast(pa.float64()))[0]
        counts = groups.sizes() if self.of is None else valid_counts(values, groups)
        return self._added(valid, plain.astype(np.float64) * valid, counts, order.at_us, groups)

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        weight, total, counts, at = (np.asarray(partials[name]) for name in ("weight", "sum", "count", "at"))
        return self._added(weight, total, np.add.reduceat(counts, groups.starts), at, groups)

    def finish(self, partials: Columns) -> pa.Array:
        weight, total, counts = (np.asarray(partials[name]) for name in ("weight", "sum", "count"))
        if self.what == "count":
            return pa.array(weight)
        if self.what == "sum":
            return pa.array(total, mask=counts == 0)
        return pa.array(total / np.where(weight > 0, weight, 1.0), mask=counts == 0)

    def _added(self, weight: Any, total: Any, counts: Int64s, own: Int64s, groups: Groups) -> Columns:
        at = np.maximum.reduceat(own, groups.starts) if groups.count else own[:0]
        then = at[groups.numbers()]
        added = [
            np.add.reduceat(faded(one, own, then, self.half_life), groups.starts) if groups.count else one[:0]
            for one in (weight, total)
        ]
        return {
            "weight": pa.array(added[0]),
            "sum": pa.array(added[1]),
            "count": pa.array(counts),
            "at": pa.array(at),
        }


@dataclass(frozen=True)
class Steady(Invertible):
    """A sum or a mean of floats."""

    inner: Sum | Mean = None  # type: ignore[assignment] # `steady` always gives it

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {**self.inner.partial(kind), **dict.fromkeys(APART, pa.int64())}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return self.inner.result(kind)

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        finite = pc.if_else(pc.is_finite(values), values, pa.scalar(None, values.type))
        counts = {}
        for name, value in APART.items():
            found = pc.is_nan(values) if np.isnan(value) else pc.equal(values, pa.scalar(value, values.type))
            ones = np.asarray(pc.fill_null(found, fill_value=False)).astype(np.int64)
            counts[name] = pa.array(summed(ones, groups))
        return {**self.inner.lift(finite, order, groups), **counts}

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        counts = {name: pa.array(summed(np.asarray(partials[name]), groups)) for name in APART}
        return {**self.inner.merge(_without(partials), groups), **counts}

    def finish(self, partials: Columns) -> pa.Array:
        nan, up, down = (np.asarray(partials[name]) > 0 for name in APART)
        odd = np.where(nan | (up & down), np.nan, np.where(up, np.inf, -np.inf))
        plain = self.inner.finish(_without(partials))
        return pc.if_else(pa.array(nan | up | down), pa.array(odd).cast(plain.type), plain)

    def remove(self, partials: Columns) -> Columns:
        return {**self.inner.remove(_without(partials)), **{name: pc.negate(partials[name]) for name in APART}}


def _without(partials: Columns) -> Columns:
    return {name: column for name, column in partials.items() if name not in APART}


def steady(compute: Mapping[str, Aggregate], kinds: Mapping[str, pa.DataType]) -> dict[str, Aggregate]:
    """The aggregates, those over floats such that any row can be retracted."""
    return {
        name: Steady(one.of, one) if isinstance(one, Sum | Mean) and pa.types.is_floating(kinds[name]) else one
        for name, one in compute.items()
    }
