"""Sums and means of floats from which anything can be taken back: a NaN that is corrected leaves no trace.

Infinity less infinity is not zero. So values that are no finite numbers are counted apart, and the sum is that of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.agg.aggregate import Aggregate, Columns, Invertible
from headwater.operators.agg.groups import Groups, Order
from headwater.operators.agg.numbers import Mean, Sum, summed

#: How often each value came that is no finite number.
APART = {"_nan": np.nan, "_up": np.inf, "_down": -np.inf}


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
    """The aggregates, those over floats such that anything can be taken back."""
    return {
        name: Steady(one.of, one) if isinstance(one, Sum | Mean) and pa.types.is_floating(kinds[name]) else one
        for name, one in compute.items()
    }
