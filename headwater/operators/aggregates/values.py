"""Aggregates that choose, collect or count values, and those that a user writes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Aggregate, Columns, Groups, Int64s, Invertible, Order, is_number
from headwater.errors import ArgumentInvalid
from headwater.schema import parse_schema

Fold = Callable[[pa.Table], pa.Table]
#: What rows go by: their event time, or their place in the topic, which is the order in which they were appended.
By = Literal["time", "arrival"]


@dataclass(frozen=True)
class _Extreme(Aggregate):
    which: ClassVar[str]

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        if not has_order(kind):
            raise self.refuse(kind, "a type that has an order")
        return {"value": kind}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return kind

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        kind = values.type
        if not values.null_count and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            picked = (np.minimum if self.which == "min" else np.maximum).reduceat
            return {"value": pa.array(picked(np.asarray(values), groups.starts) if groups.count else [], kind)}
        if pa.types.is_struct(kind):
            return {"value": values.take(pa.array(self._rows(values, groups)))}
        table = pa.table({"group": groups.numbers(), "value": values})
        found = table.group_by("group", use_threads=False).aggregate([("value", self.which)])
        return {"value": found.column(f"value_{self.which}").combine_chunks().cast(kind)}

    def hashed(self, kind: pa.DataType) -> Mapping[str, str] | None:
        # Not of fractions: Arrow leaves NaN out.
        is_plain = pa.types.is_integer(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)
        return {"value": self.which} if is_plain else None

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        nothing = np.empty(0, np.int64)
        return self.lift(partials["value"], Order(nothing, nothing), groups)

    def finish(self, partials: Columns) -> pa.Array:
        return partials["value"]

    def _rows(self, values: pa.Array, groups: Groups) -> Int64s:
        """The row of each group whose value it is, of values that Arrow cannot compare."""
        least, valid = self.which == "min", np.asarray(values.is_valid())
        places = np.where(valid, struct_ranks(values), len(values) if least else -1)
        order = np.lexsort([places, groups.numbers()])
        found: Int64s = order[groups.starts if least else groups.starts + groups.sizes() - 1]
        return found


def has_order(kind: pa.DataType) -> bool:
    """Whether values of a type have an order: plain ones have, and structs of such."""
    if pa.types.is_struct(kind):
        return all(has_order(one.type) for one in kind)
    return not pa.types.is_nested(kind) and not pa.types.is_null(kind)


def struct_ranks(values: pa.StructArray) -> Int64s:
    """For each struct its place among all, by the first field, then the second; equal ones share it. As in Spark, a field
    that is null comes before all others.

    >>> struct_ranks(pa.array([{"a": 2, "b": "x"}, {"a": 1, "b": "y"}, {"a": 2, "b": None}])).tolist()
    [2, 0, 1]
    """
    fields = [
        struct_ranks(one)
        if pa.types.is_struct(one.type)
        else np.where(one.is_valid(), pc.rank(one, sort_keys="ascending", tiebreaker="min"), 0)
        for one in values.flatten()
    ]
    order = np.lexsort(fields[::-1])
    places = np.empty(len(values), np.int64)
    places[order] = Groups.of(*(one[order] for one in fields)).numbers()
    return places


@dataclass(frozen=True)
class Min(_Extreme):
    """The least value; of structs, that with the least first field, then the second."""

    which: ClassVar[str] = "min"


@dataclass(frozen=True)
class Max(_Extreme):
    """The greatest value; of structs, that with the greatest first field, then the second."""

    which: ClassVar[str] = "max"


@dataclass(frozen=True)
class Ordered(Aggregate):
    """An aggregate for which the order of rows counts: that of event time, or that of arrival."""

    ordered: ClassVar[bool] = True

    order: By = field(default="time", kw_only=True)

    def __post_init__(self) -> None:
        if self.order not in ("time", "arrival"):
            raise ArgumentInvalid(name="order", value=self.order, expected='"time" or "arrival"')

    @property
    def by_place(self) -> bool:
        return self.order == "arrival"

    def in_order(self, values: pa.Array, order: Order, groups: Groups) -> tuple[pa.Array, Order]:
        """The rows of each group in the order that counts; they come in that of event time."""
        if self.order == "time":
            return values, order
        rows = np.lexsort([order.position, groups.numbers()])
        return values.take(pa.array(rows)), Order(np.zeros(len(rows), np.int64), order.position[rows])


@dataclass(frozen=True)
class _Picked(Ordered):
    """The value at one end of the order of rows."""

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {"value": kind, "at": pa.int64(), "position": pa.int64()}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return kind

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        values, order = self.in_order(values, order, groups)
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
class CollectList(Ordered):
    """All values, as a list in the order of rows; at most `count_max` of the earliest, if given."""

    count_max: int | None = None

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {"values": pa.list_(kind), "at": pa.list_(pa.int64()), "position": pa.list_(pa.int64())}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.list_(kind)

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        values, order = self.in_order(values, order, groups)
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
class CountDistinct(_Counted):
    """How many different values."""

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.int64()

    def finish(self, partials: Columns) -> pa.Array:
        return pc.list_value_length(partials["values"]).cast(pa.int64())


@dataclass(frozen=True)
class TopK(_Counted):
    """The commonest values with their counts, the commonest first; of equally common ones the least value first."""

    n: int = 10

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ArgumentInvalid(name="n", value=self.n, expected="at least 1")

    def result(self, kind: pa.DataType) -> pa.DataType:
        return pa.list_(pa.struct([("value", kind), ("count", pa.int64())]))

    def finish(self, partials: Columns) -> pa.Array:
        sizes = np.asarray(pc.list_value_length(partials["values"]))
        numbers = np.repeat(np.arange(len(sizes)), sizes)
        values, counts = (pc.list_flatten(partials[name]) for name in ("values", "counts"))
        # Values lie in their own order already, which breaks ties.
        order = np.lexsort([-np.asarray(counts), numbers])
        begins = np.cumsum(sizes) - sizes
        place = np.arange(len(order)) - np.repeat(begins, sizes)
        rows = pa.array(order[place < self.n])
        kept = np.minimum(sizes, self.n)
        offsets = pa.array(np.concatenate([[0], np.cumsum(kept)]).astype(np.int32))
        pairs = pa.StructArray.from_arrays([values.take(rows), counts.take(rows)], ["value", "count"])
        return pa.ListArray.from_arrays(offsets, pairs)


@dataclass(frozen=True)
class Percentile(_Counted):
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


@dataclass(frozen=True)
class Custom(Aggregate):
    """Three functions over whole tables: rows to partial results, partial results to one each, and those to values."""

    ordered: ClassVar[bool] = True

    partials: Any = None
    returns: Any = None
    lifting: Fold = field(default=None, repr=False)  # type: ignore[assignment] # `agg.custom` always gives it
    merging: Fold = field(default=None, repr=False)  # type: ignore[assignment]
    finishing: Callable[[pa.Table], pa.Array] = field(default=None, repr=False)  # type: ignore[assignment]

    def partial(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {one.name: one.type for one in parse_schema(self.partials)}

    def result(self, kind: pa.DataType) -> pa.DataType:
        return parse_schema({"value": self.returns}).field(0).type

    def lift(self, values: pa.Array, order: Order, groups: Groups) -> Columns:
        table = pa.table({"group": groups.numbers(), "value": values})
        return self._columns(self.lifting(table), groups, "lift")

    def merge(self, partials: Columns, groups: Groups) -> Columns:
        return self._columns(self.merging(pa.table({"group": groups.numbers(), **partials})), groups, "merge")

    def finish(self, partials: Columns) -> pa.Array:
        found = self.finishing(pa.table(dict(partials)))
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    def _columns(self, table: pa.Table, groups: Groups, which: str) -> Columns:
        names = list(parse_schema(self.partials).names)
        given = table.column("group").to_pylist() if "group" in table.column_names else None
        if given is None or sorted(given) != list(range(groups.count)) or not set(names) <= set(table.column_names):
            raise ArgumentInvalid(
                name=which,
                value=f"a table of {', '.join(table.column_names)} with {table.num_rows} rows",
                expected=f"one row for each of {groups.count} groups, with the columns group, {', '.join(names)}",
            )
        table = table.sort_by("group")
        kinds = self.partial(pa.null())
        return {name: table.column(name).combine_chunks().cast(kinds[name]) for name in names}
