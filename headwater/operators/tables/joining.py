"""The step of a table-table join: all rows of both tables that share a value of the joined columns are one group.

A batch says only what it changes: a row that changed meets all rows of the other side, a row that did not meets those
that did. So a group costs what it holds once per batch in which it is touched, and pairs only where something moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.agg.groups import Int64s
from headwater.operators.keyed import BatchTime, Stepped
from headwater.operators.keyed.engine import INPUT, KEY
from headwater.operators.keyed.runs import ranges
from headwater.operators.tables.codes import codes
from headwater.operators.tables.emitting import Emit, emitted
from headwater.operators.tables.replacing import Following, taken, told

How = Literal["inner", "left", "right", "outer"]
SIDE = "side"
NOBODY = -1


class Held(NamedTuple):
    """The rows of one side, sorted by group, and which of them are not the same before and after the batch."""

    rows: pa.Table
    keys: Int64s
    moved: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Side:
    """One of the two tables: its columns as they travel, and its key within a group, empty where a group has one row."""

    number: int
    following: Following
    unique: bool

    @property
    def columns(self) -> tuple[str, ...]:
        return self.following.columns

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(name for name in self.following.key if name != KEY)

    def moved(self, state: pa.Table, rows: pa.Table) -> tuple[Held, Held]:
        """The side before and after the batch."""
        names = [KEY, *self.columns]
        old = state.filter(pc.equal(state.column(SIDE), self.number)).select(names).combine_chunks()
        changes = rows.filter(pc.equal(rows.column(INPUT), self.number))
        found = self.following.replaced(old, changes)
        gone = np.zeros(old.num_rows, bool)
        gone[found.gone] = True
        after = pa.concat_tables([taken(old, found.stay, names), taken(changes, found.came, names)]).combine_chunks()
        came = np.arange(after.num_rows) >= len(found.stay)
        keys = np.asarray(after.column(KEY))
        order = np.argsort(keys, kind="stable")
        return (
            Held(old, np.asarray(old.column(KEY)), gone),
            Held(after.take(pa.array(order)), keys[order], came[order]),
        )


class Pairs(NamedTuple):
    """Which row of the left meets which row of the right; `NOBODY` where a row stands alone."""

    left: Int64s
    right: Int64s


@dataclass(frozen=True)
class JoinStep:
    """One batch of a join over all groups of a partition."""

    left: Side
    right: Side
    how: How
    emit: Emit
    #: The columns of the result: its name, and the columns of either side that it comes from, the first that has one.
    output: tuple[tuple[str, tuple[str, ...]], ...]
    places: bool

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:  # noqa: ARG002 - it has no timers
        return emitted(self._net, state, rows, emit=self.emit, places=self.places)

    def _net(self, state: pa.Table, rows: pa.Table) -> Stepped:
        left_before, left_after = self.left.moved(state, rows)
        right_before, right_after = self.right.moved(state, rows)
        stirred = [
            np.concatenate([before.keys[before.moved], after.keys[after.moved]])
            for before, after in ((left_before, left_after), (right_before, right_after))
        ]
        gone, gone_ids = self._joined(left_before, right_before, stirred)
        came, came_ids = self._joined(left_after, right_after, stirred)
        ids = codes(pa.concat_tables([gone_ids, came_ids]), gone_ids.column_names)
        groups = np.concatenate([np.asarray(one.column(KEY).combine_chunks()) for one in (gone_ids, came_ids)])
        return Stepped(self._kept(left_after, right_after), told(gone, came, ids=ids, groups=groups))

    def _kept(self, left: Held, right: Held) -> pa.Table:
        sides = [
            held.rows.append_column(SIDE, pa.array(np.full(held.rows.num_rows, number, np.int8)))
            for number, held in enumerate((left, right))
        ]
        return pa.concat_tables(sides, promote_options="default")

    def _joined(self, left: Held, right: Held, stirred: list[Int64s]) -> tuple[pa.Table, pa.Table]:
        """The joined rows that have to do with rows that moved, and what tells them apart."""
        pairs = self._pairs(left, right, stirred)
        sides = {
            name: _take(held.rows.column(name), chosen)
            for side, held, chosen in ((self.left, left, pairs.left), (self.right, right, pairs.right))
            for name in side.columns
        }
        keys = _take_numbers(left.keys, right.keys, pairs)
        columns = [_first([sides[name] for name in names]) for _, names in self.output]
        rows = pa.table([pa.array(keys, pa.int64()), *columns], names=[KEY, *(name for name, _ in self.output)])
        return rows, self._identities(keys, sides)

    def _pairs(self, left: Held, right: Held, stirred: list[Int64s]) -> Pairs:
        moved, still = np.flatnonzero(left.moved), np.flatnonzero(~left.moved)
        moved_right = np.flatnonzero(right.moved)
        first = _meetings(left.keys[moved], right.keys)
        second = _meetings(left.keys[still], right.keys[moved_right])
        lefts = [moved[first.left], still[second.left]]
        rights = [first.right, moved_right[second.right]]
        if self.how in ("left", "outer"):
            alone = _alone(left, right.keys, stirred[1])
            lefts, rights = [*lefts, alone], [*rights, np.full(len(alone), NOBODY)]
        if self.how in ("right", "outer"):
            alone = _alone(right, left.keys, stirred[0])
            lefts, rights = [*lefts, np.full(len(alone), NOBODY)], [*rights, alone]
        return Pairs(np.concatenate(lefts), np.concatenate(rights))

    def _identities(self, keys: Int64s, sides: dict[str, pa.Array]) -> pa.Table:
        """What makes a joined row the same row before and after: the keys of both sides, as far as a group has many."""
        named = {KEY: pa.array(keys, pa.int64())}
        for side in (self.left, self.right):
            if not side.unique:
                named |= {name: sides[name] for name in side.key}
        return pa.table(named)


def _meetings(left: Int64s, right: Int64s) -> Pairs:
    """All pairs of rows with one group; both sides are sorted by it.

    >>> [one.tolist() for one in _meetings(np.array([1, 1, 2]), np.array([1, 2, 2, 3]))]
    [[0, 1, 2, 2], [0, 0, 1, 2]]
    """
    first = np.searchsorted(right, left, side="left")
    counts = np.searchsorted(right, left, side="right") - first
    return Pairs(np.repeat(np.arange(len(left)), counts), ranges(first, counts))


def _alone(held: Held, others: Int64s, stirred: Int64s) -> Int64s:
    """The rows that meet nobody, of those that moved or whose group's other side did."""
    concerned = held.moved | np.isin(held.keys, stirred)
    found: Int64s = np.flatnonzero(concerned & ~np.isin(held.keys, others))
    return found


def _take(column: pa.ChunkedArray, rows: Int64s) -> pa.Array:
    taken_rows = column.take(pa.array(rows, pa.int64(), mask=rows == NOBODY))
    return taken_rows.combine_chunks() if isinstance(taken_rows, pa.ChunkedArray) else taken_rows


def _take_numbers(left: Int64s, right: Int64s, pairs: Pairs) -> Int64s:
    """The group of each pair, from whichever side is there."""
    found = np.zeros(len(pairs.left), np.int64)
    has_left, has_right = pairs.left != NOBODY, pairs.right != NOBODY
    found[has_right] = right[pairs.right[has_right]]
    found[has_left] = left[pairs.left[has_left]]
    return found


def _first(columns: list[pa.Array]) -> pa.Array:
    return columns[0] if len(columns) == 1 else pc.coalesce(*columns)
