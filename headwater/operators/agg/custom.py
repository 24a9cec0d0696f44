"""An aggregate of one's own, in Arrow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Aggregate, Columns
from headwater.operators.agg.groups import Groups, Order
from headwater.schema import parse_schema

Fold = Callable[[pa.Table], pa.Table]


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
