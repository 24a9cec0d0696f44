"""From rows that replace one another to a whole changelog: for each key the last row is kept, so that it can be withdrawn.

Needed where a table is grouped by something else than its key: the old group must learn that a row has left it, and only
the row's own key knows which group that was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headwater.operators.changelog import OP
from headwater.operators.keyed import BatchTime, Contract, Stepped, apply
from headwater.operators.keyed.engine import KEY
from headwater.operators.tables.emitting import PLACE, Emit, emitted
from headwater.operators.tables.replacing import Following, taken, told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Follow:
    """The last row of each key, told as a changelog that withdraws what it replaces. Nothing comes of a row that is equal.

    State: one row per key.
    """

    name: str
    key: tuple[str, ...]
    emit: Emit = "net"
    partitions: int | None = None

    def __call__(self, rows: DataFrame) -> DataFrame:
        return apply(self.contract, rows, partitions=self.partitions)

    def contract(self, rows: pa.Schema) -> Contract:
        places = [name for name in PLACE if name in rows.names]
        plain = [one for one in rows if one.name not in (*places, OP, *self.key)]
        columns = tuple(one.name for one in plain)
        kept = places if self.emit == "each" else []
        names = [*self.key, OP, *columns, *kept]
        return Contract(
            name=self.name,
            step=FollowStep(Following(self.name, (KEY,), (*self.key, *columns), "_offset" in rows.names), self.emit),
            key=self.key,
            rows=rows,
            state=pa.schema(plain),
            output=pa.schema([rows.field(name) for name in names]),
        )


@dataclass(frozen=True)
class FollowStep:
    """One batch of changes to all keys of a partition."""

    following: Following
    emit: Emit

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit, places=True)

    def _net(self, state: pa.Table, rows: pa.Table) -> Stepped:
        names = [KEY, *self.following.columns]
        found = self.following.replaced(state, rows)
        gone, came = taken(state, found.gone, names), taken(rows, found.came, names)
        after = pa.concat_tables([taken(state, found.stay, names), came])
        ids = np.concatenate([np.asarray(one.column(KEY).combine_chunks()) for one in (gone, came)])
        return Stepped(after, told(gone, came, ids=ids, groups=ids))
