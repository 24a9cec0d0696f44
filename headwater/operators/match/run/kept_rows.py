"""The rows that a key keeps from batch to batch: those of its open search, those it looks back at, those that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.columns import KEY, POSITION, TOPIC
from headwater.engine.event_time import NEVER
from headwater.engine.rows import micros, ranks
from headwater.operators.match.kernel.codes import Bools, Int64s

#: Of each kept row: whether the search that begins at it is decided, and whether a match has it.
DECIDED = "_decided"
TAKEN = "_taken"
#: Of each key, on all of its rows: how many matches it has had, whether none of its rows has been let go, and up to
#: which time it has been searched.
MATCHES = "_matches"
WHOLE = "_whole"
REACHED = "_reached"
WAKE = "_wake_at"
MARKS = (
    pa.field(DECIDED, pa.bool_()),
    pa.field(TAKEN, pa.bool_()),
    pa.field(MATCHES, pa.int64()),
    pa.field(WHOLE, pa.bool_()),
    pa.field(REACHED, pa.int64()),
    pa.field(WAKE, pa.int64()),
)


@dataclass(frozen=True)
class KeptRows:
    """The rows of all keys of a batch, old and new, by key and time, and what is known of the keys."""

    #: As they came, the old ones first.
    rows: pa.Table
    #: By key and time: which of `rows` each one is.
    order: Int64s
    keys: Int64s
    times: Int64s
    decided: Bools
    taken: Bools
    matches: Int64s
    whole: Bools
    reached_us: Int64s

    @property
    def count(self) -> int:
        """How many keys there are."""
        return len(self.matches)

    def part(self, at: Int64s, columns: Sequence[str]) -> pa.Table:
        """Some columns of some rows: moving them all costs more than the search."""
        return self.rows.select(list(columns)).take(pa.array(self.order[at]))


def joined(
    state: pa.Table, rows: pa.Table, *, columns: tuple[str, ...], time: str, then_by: tuple[str, ...] = ()
) -> KeptRows:
    """What was kept and what is new, in order; `then_by` orders rows of one moment before all else."""
    numbers = [np.asarray(one.column(KEY).combine_chunks()) for one in (state, rows)]
    count = int(max(one.max(initial=-1) for one in numbers)) + 1
    matches, whole, reached = np.zeros(count, np.int64), np.ones(count, bool), np.full(count, NEVER, np.int64)
    new = rows.select([*columns, KEY])
    if not state.num_rows:
        keys, times = numbers[1], _micros(new, time)
        nothing = np.zeros(len(keys), bool)
        order = ordered(new, np.arange(len(keys)), keys, times, then_by)
        return KeptRows(new, order, keys[order], times[order], nothing, nothing.copy(), matches, whole, reached)
    matches[numbers[0]] = np.asarray(state.column(MATCHES))
    whole[numbers[0]] = np.asarray(state.column(WHOLE))
    reached[numbers[0]] = np.asarray(state.column(REACHED))
    old = state.filter(pc.is_valid(state.column(time)))
    both = pa.concat_tables([old.select([*columns, KEY]), new.cast(old.select([*columns, KEY]).schema)])
    keys, times = np.asarray(both.column(KEY).combine_chunks()), _micros(both, time)
    order = ordered(both, merged(both, keys, times, old.num_rows), keys, times, then_by)
    nothing = np.zeros(new.num_rows, bool)
    decided = np.concatenate([np.asarray(old.column(DECIDED)).astype(bool), nothing])[order]
    taken = np.concatenate([np.asarray(old.column(TAKEN)).astype(bool), nothing])[order]
    return KeptRows(both, order, keys[order], times[order], decided, taken, matches, whole, reached)


def ordered(rows: pa.Table, order: Int64s, keys: Int64s, times: Int64s, then_by: tuple[str, ...]) -> Int64s:
    """The order of rows by key and time, with those of one moment in the order of further columns."""
    if not then_by:
        return order
    further = [ranks(rows.column(name))[order] for name in reversed(then_by)]
    return order[np.lexsort([*further, times[order], keys[order]])]


def _micros(rows: pa.Table, time: str) -> Int64s:
    return np.asarray(micros(rows.column(time)).combine_chunks()).astype(np.int64, copy=False)


def merged(rows: pa.Table, keys: Int64s, times: Int64s, old: int) -> Int64s:
    """The order of rows by key and time, where those up to `old` and those behind are in order already."""
    earliest = times.min(initial=0)
    span = int(times.max(initial=0)) - int(earliest) + 1
    if (int(keys.max(initial=0)) + 1) * span < 2**63:
        packed = keys * span + (times - earliest)
        order = np.argsort(packed, kind="stable")  # of two ordered runs, it is no more than a merge
        same = packed[order[1:]] == packed[order[:-1]]
    else:
        order = np.lexsort((times, keys))
        same = (keys[order[1:]] == keys[order[:-1]]) & (times[order[1:]] == times[order[:-1]])
    if not (same & (order[:-1] < old) & (order[1:] >= old)).any():
        return order
    groups = np.concatenate([[0], np.cumsum(~same)])
    tied = np.flatnonzero(np.concatenate([[False], same]) | np.concatenate([same, [False]]))
    within = np.lexsort([*_places(rows.take(pa.array(order[tied]))), groups[tied]])
    order[tied] = order[tied][within]
    return order


def _places(rows: pa.Table) -> list[Int64s]:
    """The tie-breakers, the least important first: the place in the topic, or else the values of the rows."""
    names = rows.column_names
    if not all(name in names for name in POSITION):
        return [ranks(rows.column(name)) for name in reversed(names) if name != KEY]
    order = [np.asarray(pc.fill_null(rows.column(name), 0)).astype(np.int64) for name in POSITION]
    return [*order, *([ranks(rows.column(TOPIC))] if TOPIC in names else [])]


def state_of(
    kept: KeptRows, keep: Bools, decided: Bools, wake_us: Int64s, *, counts: bool, schema: pa.Schema
) -> pa.Table:
    """The rows that stay, with what is known of their keys. `counts`: keys without rows are remembered too."""
    at = np.flatnonzero(keep)
    keys = kept.keys[at]
    marks = {
        DECIDED: pa.array(decided[at]),
        TAKEN: pa.array(kept.taken[at]),
        MATCHES: pa.array(kept.matches[keys]),
        WHOLE: pa.array(kept.whole[keys]),
        REACHED: pa.array(kept.reached_us[keys]),
        WAKE: _wake(keys, wake_us),
        KEY: pa.array(keys),
    }
    rows = kept.part(at, [one.name for one in schema if one.name in kept.rows.column_names])
    state = pa.table({**{name: rows.column(name) for name in rows.column_names}, **marks})
    if not counts:
        return state
    bare = np.setdiff1d(np.flatnonzero((kept.matches > 0) | ~kept.whole), keys)
    nothing = pa.table({name: pa.nulls(len(bare), state.schema.field(name).type) for name in state.column_names})
    known = {KEY: bare, MATCHES: kept.matches[bare], WHOLE: kept.whole[bare], REACHED: kept.reached_us[bare]}
    known |= {DECIDED: np.ones(len(bare), bool), TAKEN: np.ones(len(bare), bool)}
    for name, values in known.items():
        nothing = nothing.set_column(nothing.column_names.index(name), name, pa.array(values))
    return pa.concat_tables([state, nothing.cast(state.schema)])


def _wake(keys: Int64s, wake_us: Int64s) -> pa.Array:
    """The timer of each key, on the first of its rows."""
    first = np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)]
    times = wake_us[keys]
    return pa.array(times, pa.int64(), mask=~(first & (times >= 0)))
