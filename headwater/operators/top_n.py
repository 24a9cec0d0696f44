"""`TopN`: the first n rows of each group of a table that changes, with their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.changelog import OP
from headwater.operators.keyed import Contract, apply
from headwater.operators.keyed.engine import KEY
from headwater.operators.keyed.plan import default_name
from headwater.operators.tables.emitting import PLACE, Emit, check_emit
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
    own_columns,
    places,
)
from headwater.operators.tables.ranking import RANK, RankStep
from headwater.operators.tables.replacing import Following
from headwater.operators.windowed.prepared import ALL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIRECTIONS = {"asc": "ascending", "desc": "descending"}
#: Null where a row has no key: the engine puts such rows aside.
KNOWN = "_known"


@dataclass(frozen=True, kw_only=True)
class TopN:
    """Keep the first `n` rows of each group, and say how they change as the table does.

    `order` is columns with "asc" or "desc", the most important first; rows that are equal in all of them are in the order
    of their `key`, and nulls come last. `by` is the group; without it there is one, in a single partition. The result has
    all columns of the rows and `rank`, from 1. A view of it has the key `by` and `rank`, or `by` and `key`.

    State: all rows of all groups, as any of them may move up when others go; a batch costs what the groups it touches
    hold. Where a group is large, aggregate or filter first.

    >>> TopN(n=10, order=[("turnover", "desc")], key="symbol").n
    10
    """

    n: int
    order: Sequence[tuple[str, str]] | str
    key: Names | None = None
    by: Names = ()
    emit: Emit = "net"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_emit(self.emit)
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise ArgumentInvalid(name="n", value=self.n, expected="a whole number, at least 1")
        self.ordered()

    def ordered(self) -> tuple[tuple[str, str], ...]:
        """The columns of the order, and their directions in Arrow's words."""
        each = [self.order] if isinstance(self.order, str) else list(self.order)
        pairs = [(one, "asc") if isinstance(one, str) else tuple(one) for one in each]
        if not pairs or any(len(one) != 2 or one[1] not in DIRECTIONS for one in pairs):
            expected = 'columns with "asc" or "desc", such as [("total", "desc")]'
            raise ArgumentInvalid(name="order", value=self.order, expected=expected)
        return tuple((name, DIRECTIONS[direction]) for name, direction in pairs)

    @property
    def called(self) -> str:
        return self.name or default_name(self)

    def __call__(self, rows: TableLike) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        frame, by = frame_of(rows), names_of(self.by)
        key = self._checked(frame, key_of(rows, self.key))
        columns = [F.col(f"`{name}`") for name in own_columns(frame)]
        made = frame.select(*columns, operation(frame, keyed=True), *places(frame))
        if not set(by) <= set(key):
            made = Follow(name=f"{self.called}-rows", key=key, emit=self.emit, partitions=self.partitions)(made)
        known = F.lit(True)
        for name in key:
            known = known & F.col(f"`{name}`").isNotNull()
        extra = {KNOWN: F.when(known, F.lit(0)), **({} if by else {ALL: F.lit(0)})}
        made = made.select("*", *(column.alias(name) for name, column in extra.items()))
        ordered = set(by) <= set(key) and "_offset" in frame.columns

        def contract(schema: pa.Schema) -> Contract:
            return self.contract(schema, key=key, ordered=ordered)

        return apply(contract, made, partitions=self.partitions if by else 1)

    def _checked(self, rows: DataFrame, key: tuple[str, ...] | None) -> tuple[str, ...]:
        called = self.name or type(self).__name__
        if not key:
            expected = "the primary key of the rows: it settles ties, and tells which row replaces which"
            raise ArgumentInvalid(name="key", value=key, expected=expected)
        check_key(rows, key, operator=called)
        check_names("by", names_of(self.by), rows, operator=called)
        check_names("order", [name for name, _ in self.ordered()], rows, operator=called)
        if RANK in rows.columns:
            raise ArgumentInvalid(
                name=RANK, value="a column of the rows", expected="it another name: the result has it"
            )
        for name, _ in self.ordered():
            kind = rows.schema[name].dataType.typeName()
            if kind in ("array", "map", "struct", "void", "variant"):
                raise ArgumentInvalid(name="order", value=f"{name} ({kind})", expected="columns that have an order")
        return key

    def contract(self, rows: pa.Schema, *, key: tuple[str, ...], ordered: bool) -> Contract:
        groups = (*(names_of(self.by) or (ALL,)), KNOWN)
        plain = [one for one in rows if one.name not in (*PLACE, OP, *groups)]
        columns = tuple(one.name for one in rows if one.name not in (*PLACE, OP, ALL, KNOWN))
        within = tuple(name for name in key if name not in groups)
        return Contract(
            name=self.called,
            step=RankStep(Following(self.called, (KEY, *within), columns, ordered), self.n, self.ordered(), self.emit),
            key=groups,
            rows=rows,
            state=pa.schema(plain),
            output=pa.schema(
                [pa.field(OP, pa.string()), *(rows.field(name) for name in columns), pa.field(RANK, pa.int64())]
            ),
        )
