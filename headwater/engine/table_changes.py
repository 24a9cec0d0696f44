"""A table that changes: which of its rows a batch removes, which it brings, and when the changes are emitted.

Changes come in two kinds, and both are understood. Rows of a keyed topic have a place, and the last one of a key is what
holds. Rows of another operator have none, but say what they retract: a row that was brought as often as it was retracted
is not there, in whatever order the rows are looked at. So the outcome never depends on how Spark moved them.

The changes of a batch are emitted together (`changes`), or each for itself in the order of processing (`every_change`). Changes that
have no place in a topic have no order among themselves: those of one batch then count as one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.aggregation import Groups, Int64s
from headwater.engine.changelog import (
    DELETE,
    INSERT,
    OP,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    equal_rows,
    nullable,
    rounds,
    signs_of,
)
from headwater.engine.columns import INPUT, KEY, TOPIC
from headwater.engine.contract import StepResult
from headwater.engine.errors import ChangelogInvalid
from headwater.errors import ArgumentInvalid

GONE = -1
UNTOUCHED = -2
Emit = Literal["changes", "every_change"]
Net = Callable[[pa.Table, pa.Table], StepResult]
#: Where a change stands among others, the first that tells them apart first.
PLACE = (INPUT, TOPIC, "_partition", "_offset")
#: Two columns' numbers are put into one as long as they fit.
LARGEST = 2**62


@dataclass(frozen=True)
class RowChanges:
    """Rows of the old table that are `gone`, rows of the changes that `came`, and rows of the old table that `stay`."""

    gone: Int64s
    came: Int64s
    stay: Int64s


@dataclass(frozen=True)
class TableUpdate:
    """How changes are applied: the key of the table, the columns it has, and whether its changes have places."""

    operator: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    ordered: bool

    def replaced(self, old: pa.Table, changes: pa.Table) -> RowChanges:
        """What the changes do to the old rows, of which each key has one at most."""
        names = list(dict.fromkeys([*self.key, *self.columns]))
        both = pa.concat_tables([nullable(old.select(names)), nullable(changes.select(names))]).combine_chunks()
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
        return RowChanges(gone, np.sort(after[after >= 0]), np.flatnonzero(stays))

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
        """Keys with several changes that have no place: what was brought more often than retracted holds."""
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
    """What each row does: it appears, or is retracted, alone or as half of an update."""
    return np.where(is_new, np.where(paired, UPDATE_AFTER, INSERT), np.where(paired, UPDATE_BEFORE, DELETE))


def taken(table: pa.Table, rows: Int64s, names: Sequence[str]) -> pa.Table:
    """Some rows and columns of a table."""
    return nullable(table.select(list(names))).take(pa.array(rows, pa.int64()))


def check_emit(emit: str) -> None:
    if emit not in ("changes", "every_change"):
        raise ArgumentInvalid(name="emit", value=emit, expected='"changes" or "every_change"')


def emitted(net: Net, state: pa.Table, rows: pa.Table, *, emit: Emit, places: bool = False) -> StepResult:
    """Run a step over all rows at once, or over those of each place after the other.

    With `places`, the changes of `every_change` carry the place of the row that caused them, for the next operator.
    """
    if emit == "changes" or not rows.num_rows:
        return net(state, rows)
    outputs = []
    for number in _rounds(rows):
        part = rows.take(pa.array(number))
        stepped = net(state, part)
        state = stepped.state.take(pa.array(np.argsort(_keys(stepped.state), kind="stable")))
        if stepped.output is not None:
            outputs.append(_placed(stepped.output, part) if places else stepped.output)
    table = pa.concat_tables(outputs).combine_chunks()
    return StepResult(state, table.take(pa.array(np.argsort(_keys(table), kind="stable"))))


def _rounds(rows: pa.Table) -> list[Int64s]:
    """The rows of each round, in which every key has the rows of one place at most."""
    names = [name for name in PLACE if name in rows.column_names]
    columns = [rows.column(name).combine_chunks() for name in names]
    values = [np.asarray(one.dictionary_encode(null_encoding="encode").indices) for one in columns]
    keys = _keys(rows)
    places = Groups.of(keys, *values)
    members = [np.arange(start, start + size) for start, size in zip(places.starts, places.sizes(), strict=True)]
    return [np.concatenate([members[one] for one in chosen]) for chosen in rounds(keys[places.starts])]


def _placed(output: pa.Table, rows: pa.Table) -> pa.Table:
    keys = _keys(rows)
    row_of = np.zeros(int(keys.max(initial=-1)) + 1, np.int64)
    row_of[keys] = np.arange(len(keys))
    causes = pa.array(row_of[_keys(output)])
    for name in PLACE:
        if name in rows.column_names:
            output = output.append_column(name, rows.column(name).take(causes))
    return output


def _keys(table: pa.Table) -> Int64s:
    return np.asarray(table.column(KEY).combine_chunks())


def codes(table: pa.Table, names: Sequence[str]) -> Int64s:
    """A number for each row, counted from 0; rows that are equal in these columns share it. Two nulls are equal.

    >>> codes(pa.table({"a": [7, 7, None, None], "b": ["x", "y", "x", "x"]}), ["a", "b"]).tolist()
    [0, 1, 2, 2]
    """
    found: Int64s = np.zeros(table.num_rows, np.int64)
    count = 1
    for name in names:
        more = _numbers(table.column(name))
        values = int(more.max(initial=0)) + 1
        if count > LARGEST // values:
            found, count = _dense(found)
        found = found * values + more
        count *= values
    return _dense(found)[0] if len(names) > 1 else found


def _numbers(column: pa.ChunkedArray) -> Int64s:
    array = column.combine_chunks()
    if pa.types.is_nested(array.type):
        array = pa.array([repr(value) for value in array.to_pylist()], pa.string())
    return np.asarray(array.dictionary_encode(null_encoding="encode").indices).astype(np.int64)


def _dense(found: Int64s) -> tuple[Int64s, int]:
    values, numbers = np.unique(found, return_inverse=True)
    return numbers.astype(np.int64), max(len(values), 1)
