"""Aggregates that fade: what came a half-life ago counts half as much as what comes now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Aggregate, Columns, is_number, numbers_of, valid_counts
from headwater.operators.agg.groups import Groups, Int64s, Order
from headwater.units import parse_seconds

What = Literal["count", "sum", "mean"]


def half_life_us(half_life: str | float | None) -> float | None:
    """A half-life in microseconds; one that is no time is refused."""
    if half_life is None:
        return None
    seconds = parse_seconds(half_life, name="half_life")
    if seconds <= 0:
        raise ArgumentInvalid(name="half_life", value=half_life, expected='a time longer than none, such as "1 hour"')
    return seconds * 1e6


# Any: numbers of whichever kind.
def faded(weights: npt.NDArray[Any], own: Int64s, then: Int64s, half_life: str | float | None) -> npt.NDArray[Any]:
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
    half_life: str | float = "1 hour"
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
