"""A table that changes: which of its rows a batch takes away, and which it brings.

Changes come in two kinds, and both are understood. Rows of a keyed topic have a place, and the last one of a key is what
holds. Rows of another operator have none, but say what they withdraw: a row that was brought as often as it was
withdrawn is not there, in whatever order the rows are looked at. So the outcome never depends on how Spark moved them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.errors import ChangelogInvalid
from headwater.operators.agg.groups import Int64s
from headwater.operators.changelog import (
    DELETE,
    INSERT,
    OP,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    equal_rows,
    signs_of,
)
from headwater.operators.tables.codes import codes

GONE = -1
UNTOUCHED = -2


@dataclass(frozen=True)
class Replaced:
    """Rows of the old table that are `gone`, rows of the changes that `came`, and rows of the old table that `stay`."""

    gone: Int64s
    came: Int64s
    stay: Int64s


@dataclass(frozen=True)
class Following:
    """How changes are applied: the key of the table, the columns it has, and whether its changes have places."""

    operator: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    ordered: bool

    def replaced(self, old: pa.Table, changes: pa.Table) -> Replaced:
        """What the changes do to the old rows, of which each key has one at most."""
        names = list(dict.fromkeys([*self.key, *self.columns]))
        both = pa.concat_tables([old.select(names), changes.select(names)]).combine_chunks()
        ids = codes(both, self.key)
        count = int(ids.max(initial=-1)) + 1
        held = np.full(count, GONE)
        held[ids[: old.num_rows]] = np.arange(old.num_rows)
        after = self._after(both, ids, changes, first=old.num_rows, count=count)
        kept = np.flatnonzero((held >= 0) & (after >= 0))
        same = equal_rows(both, held[kept], after[kept] + old.num_rows, skip=list(self.key))
        after[kept[same]] = UNTOUCHED
        touched = after != UNTOUCHED
        gone = np.sort(held[touched & (held >= 0)])
        stays = np.ones(old.num_rows, bool)
        stays[gone] = False
        return Replaced(gone, np.sort(after[after >= 0]), np.flatnonzero(stays))

    def _after(self, both: pa.Table, ids: Int64s, changes: pa.Table, *, first: int, count: int) -> Int64s:
        """For each key the row of the changes that holds now, or that none does, or that nothing was said."""
        after = np.full(count, UNTOUCHED)
        mine = ids[first:]
        signs = signs_of(changes.column(OP))
        if self.ordered:
            after[mine] = np.where(
                signs > 0, np.arange(len(mine)), GONE
            )  # of several rows the last one is written last
            return after
        busy = np.bincount(mine, minlength=count) > 1
        alone = ~busy[mine]
        after[mine[alone]] = np.where(signs[alone] > 0, np.flatnonzero(alone), GONE)
        if not alone.all():
            rows = np.flatnonzero(~alone)
            self._settle(after, both.take(pa.array(first + rows)), mine[rows], signs[rows], rows)
        return after

    def _settle(self, after: Int64s, rows: pa.Table, ids: Int64s, signs: Int64s, numbers: Int64s) -> None:
        """Keys with several changes that have no place: what was brought more often than withdrawn holds."""
        content = codes(rows, rows.column_names)
        balance = np.bincount(content, weights=signs).astype(np.int64)
        first = np.full(len(balance), -1)
        first[content[::-1]] = np.arange(len(content))[::-1]
        owner = ids[first]
        after[owner[balance < 0]] = GONE
        brought = np.flatnonzero(balance > 0)
        owners, times = np.unique(owner[brought], return_counts=True)
        if (times > 1).any():
            wrong = first[brought[owner[brought] == owners[times > 1][0]][0]]
            key = {name: rows.column(name)[int(wrong)].as_py() for name in self.key if not name.startswith("_key")}
            raise ChangelogInvalid(
                operator=self.operator,
                key=str(key),
                why="one batch brings two rows for it, and nothing says which of them is later",
            )
        after[owner[brought]] = numbers[first[brought]]


def told(gone: pa.Table, came: pa.Table, *, ids: Int64s, groups: Int64s) -> pa.Table:
    """Rows that are gone and rows that came, as a changelog. Rows of one id belong together: `ids` and `groups` are those
    of the gone rows first.

    In a group deletions stand before all else, so that whatever key a reader has, a row that moves to it finds it free.
    """
    both = pa.concat_tables([gone, came.select(gone.column_names)])
    is_new = np.arange(both.num_rows) >= gone.num_rows
    count = int(ids.max(initial=-1)) + 1
    is_pair = (np.bincount(ids[~is_new], minlength=count) > 0) & (np.bincount(ids[is_new], minlength=count) > 0)
    paired = is_pair[ids] if len(ids) else np.empty(0, bool)
    order = np.lexsort([is_new, ids, is_new | paired, groups])
    ops = ops_of(is_new, paired)[order]
    return both.take(pa.array(order)).add_column(0, OP, pa.array(ops.tolist(), pa.string()))


def ops_of(is_new: npt.NDArray[np.bool_], paired: npt.NDArray[np.bool_]) -> npt.NDArray[np.str_]:
    """What each row does: it appears, or is withdrawn, alone or as half of an update."""
    return np.where(is_new, np.where(paired, UPDATE_AFTER, INSERT), np.where(paired, UPDATE_BEFORE, DELETE))


def taken(table: pa.Table, rows: Int64s, names: Sequence[str]) -> pa.Table:
    """Some rows and columns of a table."""
    return table.select(list(names)).take(pa.array(rows, pa.int64()))
