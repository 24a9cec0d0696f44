"""The step of `Enrich` with `as_of`: each row gets what its key stood for at the row's own time.

State is one row for each version of a key that a row in time can still ask for, and one for each row that waits for its
version. A version is forgotten when a later one holds at the horizon, which is the stream's watermark less the grace.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.agg.groups import Groups, Int64s
from headwater.operators.joining.current import enriched, is_gone, parted
from headwater.operators.joining.inputs import AT, Columns
from headwater.operators.joining.line import Line
from headwater.operators.keyed.contract import Stepped
from headwater.operators.keyed.engine import INPUT, KEY, LATE_BY, micros
from headwater.operators.keyed.watermark import EVER, NEVER, BatchTime, Policy, Seen

WAITS = "_waits"
GONE = "_gone"
WAKE = "_wake_at"
#: How long after the horizon it is remembered that a key was deleted.
DELETED_US = 86_400_000_000
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Settling(Policy):
    """Time moves to where nobody waits any more: the table has come so far, or the stream has by more than the grace."""

    grace_us: int = 0
    inputs: int = 2

    def watermark(self, seen: Iterable[Seen], *, previous_us: int, now_us: int | None) -> int:
        found = self.of_inputs(seen, previous_us={}, now_us=now_us)
        return max(previous_us, found.get("0", NEVER) - self.grace_us, found.get("1", NEVER))


def as_of_state(rows: pa.Schema, columns: Columns, *, waiting: bool) -> pa.Schema:
    """Versions of the table, and with `waiting` the rows of the stream that wait for theirs."""
    names = columns.data if waiting else columns.right
    own = [pa.field(WAITS, pa.bool_()), pa.field(AT, pa.int64()), pa.field(GONE, pa.bool_())]
    return pa.schema([*own, *(rows.field(name).with_nullable(True) for name in names), pa.field(WAKE, pa.int64())])


class Versions(NamedTuple):
    """The versions of keys, sorted by key and by the time from which they hold."""

    table: pa.Table
    keys: Int64s
    at: Int64s
    gone: Mask


class Asking(NamedTuple):
    """Rows of the stream, by key; those that came with this batch are fresh."""

    table: pa.Table
    keys: Int64s
    at: Int64s
    fresh: Mask


@dataclass(frozen=True)
class AsOfStep:
    """One batch of rows that meet the version of their key that held at their time."""

    columns: Columns
    grace_us: int
    how: Literal["left", "inner"]

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:
        stream_us, table_us = (time.of_inputs_us.get(name, NEVER) for name in ("0", "1"))
        horizon = stream_us - self.grace_us
        stream, changes = parted(rows)
        versions = self._versions(state, changes)
        asking = self._asking(state, stream)
        line = Line(versions.keys, versions.at)
        found = line.latest(asking.keys, asking.at)
        late = asking.fresh & is_late(line, asking, found, horizon)
        settled = (asking.at < table_us) | (asking.at <= horizon)
        ready = ~late & (settled | (self.grace_us == 0) | (time.batch is None))
        found = np.where((found >= 0) & ~versions.gone[found], found, -1) if len(versions.keys) else found
        leaving = asking.table if ready.all() else asking.table.filter(pa.array(ready))
        output = enriched(leaving, versions.table, found[ready], self.columns, how=self.how)
        waits = ~late & ~ready
        changed = self._changed(state, changes, asking.keys[waits & asking.fresh], time.watermark_us)
        after = self._after(versions, asking, waits, changed, horizon, time.watermark_us)
        return Stepped(after, output, _aside(asking, late, stream_us), changed=changed)

    # -- what is known ------------------------------------------------------------------------------------------------

    def _versions(self, state: pa.Table, changes: pa.Table) -> Versions:
        """What the state holds and what has come; of two versions from the same time the one that came later counts."""
        held = state
        if self.grace_us:
            held = state.filter(pa.array(~np.asarray(state.column(WAITS)).astype(bool)))
        names = [KEY, AT, GONE, *self.columns.right]
        if not changes.num_rows:
            table = held.select(names).combine_chunks()  # sorted when it was saved
        else:
            came = changes.set_column(changes.column_names.index(AT), AT, micros(changes.column(AT)))
            came = came.append_column(GONE, pa.array(is_gone(changes))).select(names)
            table = pa.concat_tables([held.select(names).cast(came.schema), came]).combine_chunks()
            keys, at = np.asarray(table.column(KEY)), np.asarray(table.column(AT))
            order = np.lexsort([at, keys])  # stable: what came later stands later
            groups = Groups.of(keys[order], at[order])
            table = table.take(pa.array(order[groups.starts + groups.sizes() - 1]))
        keys, at, gone = (np.asarray(table.column(name).combine_chunks()) for name in (KEY, AT, GONE))
        return Versions(table, keys, at, gone.astype(bool))

    def _asking(self, state: pa.Table, stream: pa.Table) -> Asking:
        keys = np.asarray(stream.column(KEY).combine_chunks())
        at = np.asarray(micros(stream.column(AT)).combine_chunks())
        fresh = np.ones(len(keys), bool)
        if not self.grace_us:
            return Asking(stream, keys, at, fresh)
        waiting = state.filter(pa.array(np.asarray(state.column(WAITS)).astype(bool)))
        if not waiting.num_rows:
            return Asking(stream, keys, at, fresh)
        names = [KEY, *self.columns.key, *self.columns.left]
        # Late rows are shown as they came; what has waited cannot be late, so what it no longer has is never asked for.
        table = pa.concat_tables([waiting.select(names), stream], promote_options="default").combine_chunks()
        held = [np.asarray(waiting.column(name).combine_chunks()) for name in (KEY, AT)]
        fresh = np.arange(table.num_rows) >= waiting.num_rows
        return Asking(table, np.concatenate([held[0], keys]), np.concatenate([held[1], at]), fresh)

    # -- what is kept -------------------------------------------------------------------------------------------------

    def _changed(self, state: pa.Table, changes: pa.Table, waiting: Int64s, watermark_us: int) -> Int64s:
        """The keys whose state must be written: something came, waits, leaves, or is due and must be woken again."""
        wakes = np.asarray(state.column(WAKE).fill_null(EVER + 1))
        due = np.asarray(state.column(KEY).combine_chunks())[wakes <= watermark_us]
        return np.unique(np.concatenate([due, np.asarray(changes.column(KEY).combine_chunks()), waiting]))

    def _after(
        self, versions: Versions, asking: Asking, waits: Mask, changed: Int64s, horizon: int, watermark_us: int
    ) -> pa.Table:
        """The state of the keys that changed: versions that can still be asked for, and rows that wait."""
        mine = np.isin(versions.keys, changed)
        kept = np.flatnonzero(mine & ~forgotten(versions, horizon))
        table = versions.table.take(pa.array(kept))
        table = table.append_column(WAITS, pa.array(np.zeros(len(kept), bool)))
        wakes = next_look(versions)[kept]
        if self.grace_us:
            waiting = np.flatnonzero(waits & np.isin(asking.keys, changed))
            names = [KEY, *self.columns.left]
            rows = asking.table.select(names).take(pa.array(waiting))
            rows = rows.append_column(AT, pa.array(asking.at[waiting], pa.int64()))
            rows = rows.append_column(WAITS, pa.array(np.ones(len(waiting), bool)))
            table = pa.concat_tables([table, rows], promote_options="default")
            wakes = np.concatenate([wakes, asking.at[waiting]])
        # Who was looked at and could not go yet is looked at again when time has moved.
        wakes = np.where(wakes >= EVER, wakes, np.maximum(wakes, watermark_us + 1))
        return table.append_column(WAKE, pa.array(wakes, pa.int64(), mask=wakes >= EVER))


def is_late(line: Line, asking: Asking, found: Int64s, horizon: int) -> Mask:
    """Which rows ask for a version that is forgotten by now: a later one holds at the horizon."""
    late = np.zeros(len(asking.keys), bool)
    behind = np.flatnonzero(asking.at < horizon)
    if not len(behind):
        return late
    keys, at = asking.keys[behind], asking.at[behind]
    newest = line.latest(keys, np.full(len(behind), horizon))
    superseded = (newest >= 0) & (newest != found[behind])
    # Of a key without a version it is not known whether it was deleted, once that is forgotten.
    late[behind] = superseded | ((found[behind] < 0) & (at < horizon - DELETED_US))
    return late


def followed_at(versions: Versions) -> Int64s:
    """For each version the time from which another of its key holds."""
    following = np.full(len(versions.keys), EVER, np.int64)
    if len(following) > 1:
        same = versions.keys[1:] == versions.keys[:-1]
        following[:-1][same] = versions.at[1:][same]
    return following


def next_look(versions: Versions) -> Int64s:
    """When a version can be forgotten at the earliest."""
    return np.minimum(followed_at(versions), np.where(versions.gone, versions.at + DELETED_US, EVER))


def forgotten(versions: Versions, horizon: int) -> Mask:
    return next_look(versions) <= horizon


def _aside(asking: Asking, late: Mask, stream_us: int) -> dict[str, pa.Table]:
    if not late.any():
        return {}
    side = asking.table.filter(pa.array(late))
    side = side.drop_columns([name for name in (KEY, AT, INPUT) if name in side.column_names])
    return {"late": side.append_column(LATE_BY, pa.array(stream_us - asking.at[late], pa.int64()))}
