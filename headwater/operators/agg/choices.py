"""The least, the greatest, the first, the last, and all: values that are picked, not computed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.agg.aggregate import Aggregate, Columns
from headwater.operators.agg.groups import Groups, Int64s, Order


@dataclass(frozen=True)
class _Extreme(Aggregate):
    which: ClassVar[str]

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise self.refuse(kind, "a type that has an order")
        return {"value": kind}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return kind

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        kind = values.type
        if not values.null_count and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            picked = (np.minimum if self.which == "min" else np.maximum).reduceat
            return {"value": pa.array(picked(np.asarray(values), groups.starts) if groups.count else [], kind)}
        table = pa.table({"group": groups.numbers(), "value": values})
        found = table.group_by("group", use_threads=False).aggregate([("value", self.which)])
        return {"value": found.column(f"value_{self.which}").combine_chunks().cast(kind)}

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        nothing = np.empty(0, np.int64)
        return self.lift(partials["value"], Order(nothing, nothing), groups)

    def finish(self, partials: Columns) -> pa.Array:
        return partials["value"]


@dataclass(frozen=True)
class Min(_Extreme):
    """The least value."""

    which: ClassVar[str] = "min"


@dataclass(frozen=True)
class Max(_Extreme):
    """The greatest value."""

    which: ClassVar[str] = "max"


@dataclass(frozen=True)
class _Picked(Aggregate):
    """The value at one end of the order of processing."""

    ordered: ClassVar[bool] = True

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {"value": kind, "at": pa.int64(), "position": pa.int64()}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return kind

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        return self._pick(values, order.at_us, order.position, groups)

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        at, position = np.asarray(partials["at"]), np.asarray(partials["position"])
        by_order = np.lexsort([position, at, groups.numbers()])
        return self._pick(partials["value"].take(pa.array(by_order)), at[by_order], position[by_order], groups)

    def finish(self, partials: Columns) -> pa.Array:
        return partials["value"]

    def _pick(self, values: pa.Array, at: Int64s, position: Int64s, groups: Groups) -> Columns:
        valid = np.asarray(values.is_valid())
        rows = self._rows(valid, groups)
        return {"value": values.take(pa.array(rows)), "at": pa.array(at[rows]), "position": pa.array(position[rows])}

    @abstractmethod
    def _rows(self, valid: np.ndarray, groups: Groups) -> Int64s:
        """The row of each group whose value it is; where none has a value, the first."""


@dataclass(frozen=True)
class First(_Picked):
    """The value of the earliest row; of rows at the same time, the one with the lowest partition and offset."""

    def _rows(self, valid: np.ndarray, groups: Groups) -> Int64s:
        if not groups.count:
            return groups.starts
        # A group without a value keeps its first row, whose null says so.
        found: Int64s = np.minimum.reduceat(np.where(valid, np.arange(groups.rows), groups.rows), groups.starts)
        return np.where(found < groups.rows, found, groups.starts)


@dataclass(frozen=True)
class Last(_Picked):
    """The value of the latest row; of rows at the same time, the one with the highest partition and offset."""

    def _rows(self, valid: np.ndarray, groups: Groups) -> Int64s:
        if not groups.count:
            return groups.starts
        found: Int64s = np.maximum.reduceat(np.where(valid, np.arange(groups.rows), -1), groups.starts)
        return np.where(found >= 0, found, groups.starts)


@dataclass(frozen=True)
class Collect(Aggregate):
    """All values, as a list in the order of event time; at most `count_max` of the earliest, if given."""

    ordered: ClassVar[bool] = True

    count_max: int | None = None

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {"values": pa.list_(kind), "at": pa.list_(pa.int64()), "position": pa.list_(pa.int64())}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.list_(kind)

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        valid = np.asarray(values.is_valid())
        return self._lists(values, order.at_us, order.position, groups.numbers(), valid, groups.count)

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        sizes = np.asarray(pc.list_value_length(partials["values"]))
        numbers = np.repeat(groups.numbers(), sizes)
        at, position = (np.asarray(pc.list_flatten(partials[name])) for name in ("at", "position"))
        values = pc.list_flatten(partials["values"])
        order = np.lexsort([position, at, numbers])
        return self._lists(
            values.take(pa.array(order)),
            at[order],
            position[order],
            numbers[order],
            np.ones(len(order), bool),
            groups.count,
        )

    def finish(self, partials: Columns) -> pa.Array:
        return partials["values"]

    def _lists(
        self, values: pa.Array, at: Int64s, position: Int64s, numbers: Int64s, keep: np.ndarray, count: int
    ) -> Columns:
        if self.count_max is not None:
            before = np.cumsum(keep) - keep
            first = np.searchsorted(numbers, numbers, side="left")
            keep = keep & (before - before[first] < self.count_max) if len(keep) else keep
        rows = np.flatnonzero(keep)
        sizes = np.bincount(numbers[rows], minlength=count)
        offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
        columns = {
            "values": values.take(pa.array(rows)),
            "at": pa.array(at[rows]),
            "position": pa.array(position[rows]),
        }
        return {name: pa.ListArray.from_arrays(offsets, column) for name, column in columns.items()}
