"""`JoinTables`: two tables that change, joined; the result is a table that changes with them."""

from __future__ import annotations

import zlib
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING

from headwater.errors import ArgumentInvalid
from headwater.operators.keyed import apply
from headwater.operators.keyed.plan import default_name
from headwater.operators.tables.emitting import Emit, check_emit
from headwater.operators.tables.follow import Follow
from headwater.operators.tables.inputs import (
    Names,
    TableLike,
    check_key,
    check_names,
    frame_of,
    has_place,
    key_of,
    operation,
    own_columns,
    places,
)
from headwater.operators.tables.join_plan import ON, PREFIXES, SPREAD, Joined, JoinPlan
from headwater.operators.tables.joining import How

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

HOWS = ("inner", "left", "right", "outer")
SIDES = ("left", "right")
On = str | tuple[str, str] | list[str | tuple[str, str]]


@dataclass(frozen=True)
class JoinTables:
    """Join two tables that change, and say how the result changes.

    `on` is a column that both have, a pair of columns (of the left and of the right), or a list of those. `key` and
    `other_key` are the primary keys; left out, a table's key is the columns it is joined on. Where a table is joined on
    something else (a foreign key: many orders of one customer), its last rows are kept by key as well, so that a row that
    moves to another partner leaves the old one. Both inputs are changelogs (`_op`) or keyed topics, in which a row
    replaces the one before it and a tombstone deletes it.

    The joined columns appear once, under the left's names; `suffix` goes to names of the right that the left has, too.
    State: both tables. A batch costs as much as the groups it touches hold.

    >>> JoinTables(None, on=("customer", "id"), key="order", how="left").how
    'left'
    """

    other: TableLike = field(repr=False)
    _: KW_ONLY
    on: On
    how: How = "inner"
    key: Names | None = None
    other_key: Names | None = None
    suffix: str | None = None
    emit: Emit = "net"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        check_emit(self.emit)
        if self.how not in HOWS:
            raise ArgumentInvalid(name="how", value=self.how, expected='"inner", "left", "right" or "outer"')
        self.joined()

    def joined(self) -> list[tuple[str, str]]:
        """The pairs of columns that must be equal."""
        each = [self.on] if isinstance(self.on, str | tuple) else list(self.on)
        pairs = [(one, one) if isinstance(one, str) else one for one in each]
        if not pairs or any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
            expected = 'a column, a pair ("customer_id", "id"), or a list of those'
            raise ArgumentInvalid(name="on", value=self.on, expected=expected)
        return pairs

    def __call__(self, rows: TableLike) -> DataFrame:
        plan = self.plan(rows)
        frames = [self._side(number, frame_of(one), plan) for number, one in enumerate((rows, self.other))]
        result = apply(plan.contract, *frames, partitions=self.partitions)
        if plan.is_settled:
            return result
        count = self.partitions or int(result.sparkSession.conf.get("spark.sql.shuffle.partitions") or 2)
        return plan.regrouped(result, partitions=count)

    def plan(self, rows: TableLike) -> JoinPlan:
        """How the join runs, once it is clear that it can."""
        tables = (rows, self.other)
        frames = tuple(frame_of(one) for one in tables)
        made = []
        for number, keys in enumerate((self.key, self.other_key)):
            on = tuple(pair[number] for pair in self.joined())
            told_key = key_of(tables[number], keys)
            key = on if told_key is None else told_key
            called = f"{self.name or 'JoinTables'} ({SIDES[number]})"
            check_names("on", on, frames[number], operator=called)
            check_key(frames[number], key, operator=called)
            made.append(Joined(tuple(own_columns(frames[number])), key, on, has_place(frames[number])))
        self._check_types(*frames)
        mark = zlib.crc32(",".join([*made[0].columns, "|", *made[1].columns]).encode())
        name = self.name or f"{default_name(self)}-{mark:08x}"
        plan = JoinPlan(name, made[0], made[1], self.how, self.suffix, self.emit)
        plan.check()
        return plan

    def _check_types(self, left: DataFrame, right: DataFrame) -> None:
        for mine, theirs in self.joined():
            kinds = [frame.schema[name].dataType for frame, name in ((left, mine), (right, theirs))]
            if kinds[0] != kinds[1]:
                pair = f"{mine} ({kinds[0].simpleString()}) and {theirs} ({kinds[1].simpleString()})"
                raise ArgumentInvalid(name="on", value=pair, expected="columns of one type: cast one of them")

    def _side(self, number: int, rows: DataFrame, plan: JoinPlan) -> DataFrame:
        """The rows of one side under the names they travel by, with what they are joined on as the engine's key."""
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        prefix, table = PREFIXES[number], (plan.left, plan.right)[number]
        own = [F.col(f"`{name}`").alias(prefix + name) for name in table.columns]
        made = rows.select(*own, operation(rows, keyed=True), *places(rows))
        if not table.is_settled:
            key = tuple(prefix + name for name in table.key)
            made = Follow(name=f"{plan.name}-{SIDES[number]}", key=key, emit=self.emit, partitions=self.partitions)(
                made
            )
        groups = [
            _filled(F.col(f"`{prefix}{name}`"), rows.schema[name].dataType).alias(f"{ON}{place}")
            for place, name in enumerate(table.on)
        ]
        columns = [[F.col(f"`{prefix}{name}`") for name in names] for names in (table.on, table.key)]
        return made.select("*", *groups, _spread(number, *columns).alias(SPREAD))


def _filled(column: Column, kind: DataType) -> Column:
    """The column with something in place of null: such rows meet nobody, and `_spread` keeps them apart."""
    from pyspark.sql import functions as F  # noqa: N812

    plain = {"string": "", "boolean": False, "binary": b"", "date": "1970-01-01"}
    name = kind.typeName()
    nothing = plain.get(name, "1970-01-01 00:00:00" if name.startswith("timestamp") else 0)
    return F.coalesce(column, F.lit(nothing).cast(kind))


def _spread(number: int, on: list[Column], key: list[Column]) -> Column:
    """Zero for rows that may meet; for others a number of their own, so that they do not pile up in one group. Null for
    rows without a key, which the engine puts aside."""
    from pyspark.sql import functions as F  # noqa: N812

    apart = F.pmod(F.xxhash64(*key), F.lit(2**40)) + 1
    meets, has_key = F.lit(True), F.lit(True)
    for column in on:
        meets = meets & column.isNotNull()
    for column in key:
        has_key = has_key & column.isNotNull()
    alone = apart if number == 0 else -apart
    return F.when(has_key, F.when(meets, F.lit(0)).otherwise(alone)).cast("long")
