"""`compute=` as a whole: several named aggregates, whose arguments Spark evaluates and whose partial results are columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators.agg.aggregate import Aggregate, Columns, Invertible
from headwater.operators.agg.groups import Groups, Order, positions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: What the argument of an aggregate is called on its way from the JVM: the name of the result comes after it.
ARGUMENT = "_of_"
SEPARATOR = "__"


def arguments(compute: Mapping[str, Aggregate]) -> dict[str, Column]:
    """The Spark columns that the aggregates need, by the name under which they travel."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    found = {}
    for name, aggregate in compute.items():
        if aggregate.of is not None:
            found[f"{ARGUMENT}{name}"] = F.col(aggregate.of) if isinstance(aggregate.of, str) else aggregate.of
    return found


def check_compute(compute: Mapping[str, Aggregate], *, taken: tuple[str, ...] = ()) -> None:
    """Refuse what is no aggregate, and names that the result has already."""
    if not compute:
        raise ArgumentInvalid(
            name="compute", value=compute, expected='aggregates, such as {"total": agg.sum("amount")}'
        )
    for name, aggregate in compute.items():
        if not isinstance(aggregate, Aggregate):
            raise ArgumentInvalid(
                name=f"compute[{name!r}]", value=aggregate, expected='an aggregate: agg.sum("amount")'
            )
        if name in taken or name.startswith("_"):
            raise ArgumentInvalid(name="compute", value=name, expected="names that are free, and begin with no `_`")


def check_arguments(operator: str, compute: Mapping[str, Aggregate], rows: DataFrame) -> None:
    """Refuse a column that the rows do not have, before Spark does it in many more words."""
    for aggregate in compute.values():
        if isinstance(aggregate.of, str) and aggregate.of.split(".")[0].strip("`") not in rows.columns:
            raise ColumnUnknown(topic=operator, column=aggregate.of, columns=", ".join(rows.columns))


@dataclass(frozen=True)
class Computation:
    """Aggregates whose argument types are known."""

    compute: Mapping[str, Aggregate]
    kinds: Mapping[str, pa.DataType]

    @staticmethod
    def over(compute: Mapping[str, Aggregate], rows: pa.Schema) -> Computation:
        """For rows that carry the arguments."""
        kinds = {
            name: pa.null() if aggregate.of is None else rows.field(f"{ARGUMENT}{name}").type
            for name, aggregate in compute.items()
        }
        # A column of Spark's cannot travel to workers; what is left of it is what people call it.
        named = {name: one if one.of is None else replace(one, of=str(one.of)) for name, one in compute.items()}
        return Computation(named, kinds)

    @property
    def partials(self) -> pa.Schema:
        """The columns of the partial results."""
        return pa.schema(
            [
                pa.field(f"{name}{SEPARATOR}{part}", kind)
                for name, aggregate in self.compute.items()
                for part, kind in aggregate.partial(self.kinds[name]).items()
            ]
        )

    @property
    def results(self) -> pa.Schema:
        """The columns of the values."""
        return pa.schema([pa.field(name, one.result(self.kinds[name])) for name, one in self.compute.items()])

    @property
    def ordered(self) -> bool:
        return any(aggregate.ordered for aggregate in self.compute.values())

    @property
    def invertible(self) -> bool:
        return all(isinstance(aggregate, Invertible) for aggregate in self.compute.values())

    def lift(self, rows: pa.Table, order: Order, groups: Groups) -> pa.Table:
        """The partial results of groups of rows."""
        columns: list[pa.Array] = []
        for name, aggregate in self.compute.items():
            if aggregate.of is None:
                values = pa.nulls(groups.rows)
            else:
                values = rows.column(f"{ARGUMENT}{name}").combine_chunks()
            columns += self._columns(name, aggregate.lift(values, order, groups))
        return self._table(columns)

    def merge(self, partials: pa.Table, groups: Groups) -> pa.Table:
        """One partial result for each group of them."""
        if groups.count == groups.rows:
            return partials.select(self.partials.names)
        columns: list[pa.Array] = []
        for name, aggregate in self.compute.items():
            columns += self._columns(name, aggregate.merge(self._of(name, partials), groups))
        return self._table(columns)

    def remove(self, partials: pa.Table) -> pa.Table:
        """What takes partial results out again; for computations that are `invertible`."""
        columns: list[pa.Array] = []
        for name, aggregate in self.compute.items():
            if isinstance(aggregate, Invertible):
                columns += self._columns(name, aggregate.remove(self._of(name, partials)))
        return self._table(columns)

    def finish(self, partials: pa.Table) -> pa.Table:
        """The values of partial results."""
        columns = [aggregate.finish(self._of(name, partials)) for name, aggregate in self.compute.items()]
        return pa.table(columns, schema=self.results)

    def _of(self, name: str, partials: pa.Table) -> Columns:
        parts = self.compute[name].partial(self.kinds[name])
        return {part: partials.column(f"{name}{SEPARATOR}{part}").combine_chunks() for part in parts}

    def _columns(self, name: str, found: Columns) -> list[pa.Array]:
        return [found[part].cast(kind) for part, kind in self.compute[name].partial(self.kinds[name]).items()]

    def _table(self, columns: list[pa.Array]) -> pa.Table:
        return pa.table(columns, schema=self.partials)


def order_of(rows: pa.Table, at_us: np.ndarray) -> Order:
    """The order of processing of rows that the engine has sorted."""
    if "_partition" in rows.column_names and "_offset" in rows.column_names:
        partitions, offsets = (
            np.asarray(rows.column(name).combine_chunks().fill_null(0)) for name in ("_partition", "_offset")
        )
        return Order(at_us, positions(partitions, offsets))
    # Rows that have lost their place are told apart by what they hold; here it is enough that they keep their order.
    return Order(at_us, np.zeros(rows.num_rows, np.int64))
