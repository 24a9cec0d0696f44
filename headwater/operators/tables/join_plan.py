"""How a join of tables runs: the names columns travel by, the engine's contract, and what follows where rows change groups.

A row that changes its foreign key leaves one group and enters another, in different partitions. Its withdrawal and its
new row are brought together again by its key, so that whoever applies the changes meets them in their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ArgumentInvalid
from headwater.operators.changelog import OP, signs_of
from headwater.operators.keyed import Contract
from headwater.operators.keyed.engine import KEY, ranks
from headwater.operators.tables.codes import codes
from headwater.operators.tables.emitting import PLACE, Emit
from headwater.operators.tables.joining import SIDE, How, JoinStep, Side
from headwater.operators.tables.replacing import Following, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What the columns of either side are called on their way, so that both may use one name.
PREFIXES = ("l_", "r_")
#: What the rows are joined on, as the engine's key.
ON = "_on_"
SPREAD = "_spread"


@dataclass(frozen=True)
class Joined:
    """One of the tables of a join: its columns, its key, what it is joined on, and whether its rows have places."""

    columns: tuple[str, ...]
    key: tuple[str, ...]
    on: tuple[str, ...]
    has_place: bool = True

    @property
    def is_settled(self) -> bool:
        """Whether a row stays in its group for as long as it has its key."""
        return set(self.on) <= set(self.key)

    @property
    def is_unique(self) -> bool:
        """Whether a group has one row at most."""
        return set(self.key) <= set(self.on)


@dataclass(frozen=True)
class JoinPlan:
    """Everything about a join that follows from its settings and the columns of its tables."""

    name: str
    left: Joined
    right: Joined
    how: How = "inner"
    suffix: str | None = None
    emit: Emit = "net"

    @property
    def is_settled(self) -> bool:
        return self.left.is_settled and self.right.is_settled

    def right_name(self, column: str) -> str:
        """What a column of the right is called in the result."""
        if column in self.right.on:
            return self.left.on[self.right.on.index(column)]
        return column + (self.suffix or "") if column in self.left.columns else column

    def output(self) -> list[tuple[str, tuple[str, ...]]]:
        """The columns of the result, and where each comes from: the first of those that is there."""
        partner = dict(zip(self.left.on, self.right.on, strict=True)) if self.how in ("right", "outer") else {}
        mine = [
            (name, (PREFIXES[0] + name, *([PREFIXES[1] + partner[name]] if name in partner else [])))
            for name in self.left.columns
        ]
        theirs = [
            (self.right_name(name), (PREFIXES[1] + name,)) for name in self.right.columns if name not in self.right.on
        ]
        return [*mine, *theirs]

    def check(self) -> None:
        """Refuse names that two columns of the result would have."""
        names = [name for name, _ in self.output()]
        for name in names:
            if names.count(name) > 1:
                expected = 'one that tells columns of one name apart, such as "_right", or rename them first'
                raise ArgumentInvalid(name="suffix", value=self.suffix, expected=f"{expected}: both have {name!r}")

    def contract(self, rows: pa.Schema) -> Contract:
        sides = [self._side(number, one) for number, one in enumerate((self.left, self.right))]
        stored = [rows.field(name) for side in sides for name in side.columns]
        kept = [
            rows.field(name) for name in PLACE if name in rows.names and not self.is_settled and self.emit == "each"
        ]
        output = self.output()
        return Contract(
            name=self.name,
            step=JoinStep(sides[0], sides[1], self.how, self.emit, tuple(output), places=bool(kept)),
            key=(*(f"{ON}{place}" for place in range(len(self.left.on))), SPREAD),
            rows=rows,
            state=pa.schema([*stored, pa.field(SIDE, pa.int8())]),
            output=pa.schema(
                [pa.field(OP, pa.string()), *(pa.field(name, rows.field(of[0]).type) for name, of in output), *kept]
            ),
        )

    def _side(self, number: int, table: Joined) -> Side:
        key = () if table.is_unique else tuple(PREFIXES[number] + name for name in table.key)
        columns = tuple(PREFIXES[number] + name for name in table.columns)
        ordered = table.has_place and table.is_settled
        return Side(number, Following(self.name, (KEY, *key), columns, ordered), table.is_unique)

    # -- rows that change groups --------------------------------------------------------------------------------------

    def keys(self) -> tuple[list[str], list[str]]:
        """The columns of the result by which a row is known, and those that count where the first are null."""
        mine, theirs = list(self.left.key), [self.right_name(name) for name in self.right.key]
        if self.left.is_unique and not self.right.is_unique:
            return theirs, mine
        return (mine, theirs) if self.right.is_unique else ([*mine, *theirs], [])

    def regrouped(self, rows: DataFrame, *, partitions: int) -> DataFrame:
        """The changes of each row of the result in one partition, in their order."""
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know
        from pyspark.sql.types import StructType

        known, otherwise = self.keys()
        first = [F.col(f"`{name}`") for name in (known if otherwise else self.left.key)]
        by = [*first, *(F.when(first[0].isNull(), F.col(f"`{name}`")) for name in otherwise)]
        kept = [one for one in rows.schema if one.name not in PLACE]
        return rows.repartition(partitions, *by).mapInArrow(self._reorder, StructType(kept))

    def _reorder(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        if found:
            yield from self.reordered(pa.Table.from_batches(found)).to_batches()

    def reordered(self, rows: pa.Table) -> pa.Table:
        """Changes of which each row's withdrawal stands before what takes its place."""
        places = [name for name in PLACE if name in rows.column_names]
        signs = signs_of(rows.column(OP))
        order = np.lexsort([signs > 0])
        rows, gone = rows.take(pa.array(order)), int((signs < 0).sum())
        groups = np.zeros(rows.num_rows, np.int64)
        if places:
            order_by = [ranks(rows.column(name)) for name in places]
            groups = np.unique(np.stack(order_by, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
        identity, names = self._identity(rows)
        ids = codes(identity.append_column("place", pa.array(groups)), [*names, "place"])
        plain = rows.drop_columns([OP, *places])
        return told(plain.slice(0, gone), plain.slice(gone), ids=ids, groups=groups).select(
            [name for name in rows.column_names if name not in places]
        )

    def _identity(self, rows: pa.Table) -> tuple[pa.Table, list[str]]:
        known, otherwise = self.keys()
        named = {f"k{place}": rows.column(name) for place, name in enumerate(known)}
        missing = pc.is_null(rows.column(known[0]))
        for place, name in enumerate(otherwise):
            column = rows.column(name)
            named[f"o{place}"] = pc.if_else(missing, column, pa.scalar(None, column.type))
        return pa.table(named), list(named)
