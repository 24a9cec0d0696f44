"""`AggregateTable`: aggregates over a table that changes, kept up to date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Aggregate
from headwater.operators.agg.approximate import Approximate
from headwater.operators.agg.choices import Collect, First, Last
from headwater.operators.agg.computation import Computation, arguments, check_arguments, check_compute
from headwater.operators.changelog import OP
from headwater.operators.keyed import Contract, apply
from headwater.operators.keyed.plan import default_name
from headwater.operators.tables.aggregating import ORDER, Inverting, Keeping
from headwater.operators.tables.emitting import Emit, check_emit
from headwater.operators.tables.follow import Follow
from headwater.operators.tables.inputs import (
    Names,
    TableLike,
    check_key,
    check_names,
    frame_of,
    key_of,
    names_of,
    operation,
    places,
)
from headwater.operators.tables.steady import steady
from headwater.operators.windowed.prepared import ALL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What the columns of a primary key are called on their way, beside groups and arguments that may be made of the same.
ROW_KEY = "_row_"


@dataclass(frozen=True, kw_only=True)
class AggregateTable:
    """Aggregate the rows of a table by group; as rows come, change and go, so do the results.

    The input is a changelog (`_op`, with what is withdrawn), a table whose rows replace one another by their `key`, or a
    plain stream, of which every row is added. The output is a changelog with one row per group; a group without rows
    has none. Aggregates over this output, and over theirs, work alike.

    Counts, sums, means, distinct, quantile and top take a row back at the cost of a row; state is one row per group. With
    any other among them, the arguments of all rows are kept, and a group that changes is computed again. With `key`, the
    last row of each key is kept as well. `on` is the column by whose order first, last and collect go.

    >>> from headwater.operators import AggregateTable, agg
    >>> AggregateTable(by="country", compute={"customers": agg.count()}, key="id").by
    'country'
    """

    by: Names = ()
    compute: Mapping[str, Aggregate]
    key: Names | None = None
    on: str | None = None
    emit: Emit = "net"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_emit(self.emit)
        check_compute(self.compute, taken=names_of(self.by))
        for name, one in self.compute.items():
            if isinstance(one, Approximate):
                expected = "an exact aggregate: a table takes rows back, and a sketch cannot forget what it has seen"
                raise ArgumentInvalid(name=f"compute[{name!r}]", value=one, expected=expected)
        if self.on is None:
            for name, one in self.compute.items():
                if isinstance(one, First | Last | Collect):
                    expected = f"the column by whose order {name!r} goes: a table has no order of its own"
                    raise ArgumentInvalid(name="on", value=None, expected=expected)

    @property
    def groups(self) -> tuple[str, ...]:
        return names_of(self.by) or (ALL,)

    @property
    def called(self) -> str:
        return self.name or default_name(self)

    def __call__(self, rows: TableLike) -> DataFrame:
        made = self._prepared(frame_of(rows), key_of(rows, self.key))
        keys = tuple(name for name in made.columns if name.startswith(ROW_KEY))
        if keys:
            made = Follow(name=f"{self.called}-rows", key=keys, emit=self.emit, partitions=self.partitions)(made)
            made = made.drop(*keys)
        return apply(self.contract, made, partitions=self.partitions if names_of(self.by) else 1)

    def _prepared(self, rows: DataFrame, key: tuple[str, ...] | None) -> DataFrame:
        """The rows with their groups, the arguments of the aggregates, what they do, and their key."""
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        called = self.name or type(self).__name__
        check_names("by", names_of(self.by), rows, operator=called)
        check_key(rows, key, operator=called)
        check_arguments(called, self.compute, rows)
        columns = {name: F.col(f"`{name}`") for name in names_of(self.by)} or {ALL: F.lit(0)}
        columns |= arguments(self.compute)
        if self.on is not None:
            check_names("on", [self.on], rows, operator=called)
            columns[ORDER] = F.col(f"`{self.on}`")
        columns |= {f"{ROW_KEY}{name}": F.col(f"`{name}`") for name in key or ()}
        made = (column.alias(name) for name, column in columns.items())
        return rows.select(*made, operation(rows, keyed=key is not None), *places(rows))

    def contract(self, rows: pa.Schema) -> Contract:
        plain = Computation.over(self.compute, rows)
        computation = Computation(steady(plain.compute, plain.kinds), plain.kinds)
        step = (
            Inverting(self.called, computation, self.emit)
            if computation.invertible
            else Keeping(self.called, plain, self.emit, rows)
        )
        shown = [rows.field(name) for name in self.groups if name != ALL]
        return Contract(
            name=self.called,
            step=step,
            key=self.groups,
            rows=rows,
            state=step.state(),
            output=pa.schema([*shown, pa.field(OP, pa.string()), *computation.results]),
        )
