"""The step of a ranking: all rows of a group are kept, and the first n of them told as they change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.agg.groups import Groups
from headwater.operators.changelog import OP, paired, signs_of
from headwater.operators.keyed import BatchTime, Stepped
from headwater.operators.keyed.engine import KEY
from headwater.operators.tables.emitting import Emit, emitted
from headwater.operators.tables.replacing import Following, taken

RANK = "rank"


@dataclass(frozen=True)
class RankStep:
    """One batch of a ranking over all groups of a partition."""

    following: Following
    n: int
    order: tuple[tuple[str, str], ...]
    emit: Emit

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit)

    def answer(self, state: pa.Table) -> pa.Table:
        """The rankings as they stand."""
        return self._first(state.select([KEY, *self.following.columns]))

    def _net(self, state: pa.Table, rows: pa.Table) -> Stepped:
        names = [KEY, *self.following.columns]
        found = self.following.replaced(state, rows)
        after = pa.concat_tables([taken(state, found.stay, names), taken(rows, found.came, names)]).combine_chunks()
        changes = paired(self._first(state.select(names)), self._first(after), by=[KEY, RANK])
        return Stepped(after, withdrawn_first(changes))

    def _first(self, rows: pa.Table) -> pa.Table:
        """The first n rows of each group, with their rank. Nulls come last; ties are settled by the key."""
        by = [(KEY, "ascending"), *self.order, *((name, "ascending") for name in self.following.key if name != KEY)]
        order = pc.sort_indices(rows, sort_keys=by)  # nulls at the end, whichever the direction
        keys = np.asarray(rows.column(KEY).combine_chunks())[np.asarray(order)]
        groups = Groups.of(keys)
        ranks = np.arange(groups.rows) - np.repeat(groups.starts, groups.sizes()) + 1
        chosen = np.flatnonzero(ranks <= self.n)
        return rows.take(order.take(pa.array(chosen))).append_column(RANK, pa.array(ranks[chosen], pa.int64()))


def withdrawn_first(changes: pa.Table) -> pa.Table:
    """All withdrawals of a group before all that takes their place: rows change ranks with one another, so whoever keeps
    them by rank or by their own key finds each place free."""
    signs = signs_of(changes.column(OP))
    order = np.lexsort([signs, np.asarray(changes.column(KEY).combine_chunks())])
    return changes.take(pa.array(order))
