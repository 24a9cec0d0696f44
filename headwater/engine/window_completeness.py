"""Beside each window's result, which share of its rows has been seen, as far as past lateness tells.

All partitions together count by how much rows are behind the latest that came before them. A result is told with the
share that follows from these counts; when its window closes it is told once more, with 1. What was told of an open
window is kept in the state, so that it can be retracted as it was emitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Groups, Int64s
from headwater.engine.changelog import OP, UPDATE_AFTER, UPDATE_BEFORE, signs_of
from headwater.engine.columns import KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import NEVER, BatchTime, merge_learnt
from headwater.engine.rows import micros, source_progress
from headwater.engine.window_step import END, SLICE, START, WAKE, WindowStep

COMPLETENESS = "completeness"
TOLD = "told"
DELAYS = "delays"
Floats = npt.NDArray[np.float64]
#: Where buckets end, in microseconds: rows in order, then from a millisecond to forty days, four buckets to each doubling.
EDGES: Floats = np.concatenate([[0.0], 1000.0 * 2.0 ** (np.arange(128) / 4)])
#: The least share that is told: of a window in which a row was seen, something was seen.
SHARE_MIN = 1e-6


def with_completeness(contract: Contract, step: WindowStep) -> Contract:
    """The same windows, with a column that says how complete each result is."""
    return replace(
        contract,
        step=CompletenessStep(contract, step),
        state=contract.state.append(pa.field(TOLD, pa.float64())),
        output=contract.output.append(pa.field(COMPLETENESS, pa.float64())),
    )


@dataclass(frozen=True)
class EmittedShares:
    """What was last said of windows that are open."""

    keys: Int64s
    starts: Int64s
    shares: Floats

    def find(self, keys: Int64s, starts: Int64s) -> Int64s:
        """For each window its place here, or -1."""
        count = len(self.keys)
        both = [np.concatenate(pair) for pair in ((self.keys, keys), (self.starts, starts))]
        order = np.lexsort([both[1], both[0]])  # stable: what was told stands first among its equals
        groups = Groups.of(both[0][order], both[1][order])
        first = order[groups.starts]
        places = np.empty(len(order), np.int64)
        places[order] = np.where(first < count, first, -1)[groups.numbers()]
        return places[count:]

    def take(self, chosen: npt.NDArray[np.generic]) -> EmittedShares:
        return EmittedShares(self.keys[chosen], self.starts[chosen], self.shares[chosen])

    def joined(self, other: EmittedShares) -> EmittedShares:
        pairs = ((self.keys, other.keys), (self.starts, other.starts))
        keys, starts = (np.concatenate(pair) for pair in pairs)
        return EmittedShares(keys, starts, np.concatenate([self.shares, other.shares]))


@dataclass(frozen=True)
class CompletenessStep:
    """A step of windows that speaks a changelog, and after it what is known of their completeness."""

    contract: Contract
    step: WindowStep

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        is_told = pc.is_valid(state.column(TOLD))
        slices = state.filter(pc.invert(is_told))
        told = _told_in(state.filter(is_told))
        learnt = {DELAYS: self._delays(rows, time)}
        counts = merge_learnt([time.learnt, learnt])[DELAYS]
        closing = self._closes(told.starts) <= time.watermark_us
        closed = self._closed(slices, told.take(closing))
        stepped = self.step(slices.drop_columns([TOLD]), rows, time)
        open_now = told.take(~closing)
        changes, fresh = self._with_shares(stepped.output, open_now, counts, self._now_us(rows, time), time)
        kept = open_now.take(fresh.find(open_now.keys, open_now.starts) < 0).joined(fresh)
        state = pa.concat_tables([stepped.state, self._stored(kept)], promote_options="default")
        output = closed if changes is None else pa.concat_tables([closed, changes])
        return replace(stepped, state=state, output=output, learnt=learnt)

    def answer(self, state: pa.Table) -> pa.Table:
        return self.step.answer(state.filter(pc.is_null(state.column(TOLD))))

    # -- lateness -----------------------------------------------------------------------------------------------------

    def _delays(self, rows: pa.Table, time: BatchTime) -> list[int]:
        """How late the rows of this batch are. Rows that are too late for any window do not count."""
        fresh, _ = self.step._in_time(rows, time)
        at_us = np.asarray(micros(fresh.column(self.step.time_column)))
        good = at_us <= self.contract.event_time.bound_us(time.processing_us)
        places = [
            np.asarray(pc.fill_null(fresh.column(name), 0)).astype(np.int64)
            if name in fresh.column_names
            else np.zeros(len(at_us), np.int64)
            for name in ("_partition", "_offset")
        ]
        since_us = NEVER if time.watermark_us <= NEVER else time.watermark_us + self.contract.event_time.delay_us
        return counted(delays_of(at_us[good], places[0][good], places[1][good], since_us=since_us))

    def _now_us(self, rows: pa.Table, time: BatchTime) -> int:
        """The event time to which the rows lead, by the same rule as the watermark of the next batch."""
        strategy = self.contract.event_time
        seen = source_progress(rows, self.contract, time.processing_us)
        found = strategy.watermark([seen], previous_us=time.watermark_us, now_us=None)
        return found if found <= NEVER else found + strategy.delay_us

    # -- results ------------------------------------------------------------------------------------------------------

    def _closes(self, starts: Int64s) -> Int64s:
        return self.step.spans.ends(starts) + self.step.allowed_lateness_us

    def _closed(self, slices: pa.Table, told: EmittedShares) -> pa.Table:
        """The results of windows that have closed, once more, as complete."""
        told = told.take(told.shares < 1)
        wanted = pa.table({"key": told.keys, "start": told.starts})
        results = self.step._results_of(slices.drop_columns([TOLD]), wanted)
        count = results.num_rows
        shares = told.shares[told.find(_ints(results, KEY), _ints(results, START))]
        both = pa.concat_tables([results, results])
        both = both.add_column(0, OP, pa.array([UPDATE_BEFORE] * count + [UPDATE_AFTER] * count, pa.string()))
        both = both.append_column(COMPLETENESS, pa.array(np.concatenate([shares, np.ones(count)]), pa.float64()))
        in_pairs = np.arange(2 * count).reshape(2, count).T.ravel()
        return both.take(pa.array(in_pairs))

    def _with_shares(
        self, changes: pa.Table | None, told: EmittedShares, counts: list[int], now_us: int, time: BatchTime
    ) -> tuple[pa.Table | None, EmittedShares]:
        """The changes with their shares, and what has been told by them."""
        if changes is None:
            return None, told.take(np.zeros(len(told.keys), bool))
        keys, starts, ends = (_ints(changes, name) for name in (KEY, START, END))
        # Bounded rows are all there: nothing is missing.
        whole = time.batch is None
        shares = np.ones(len(keys)) if whole else share_seen(counts, starts, ends, now_us=now_us)
        groups_first = _first_of(keys, starts)
        minus = signs_of(changes.column(OP)) < 0
        places = told.find(keys, starts)
        known = minus & groups_first & (places >= 0)
        shown = shares.copy()
        shown[known] = told.shares[places[known]]
        plus = np.flatnonzero(~minus)
        last = plus[::-1][_first_of(keys[plus][::-1], starts[plus][::-1])]
        return changes.append_column(COMPLETENESS, pa.array(shown, pa.float64())), EmittedShares(
            keys[last], starts[last], shares[last]
        )

    def _stored(self, told: EmittedShares) -> pa.Table:
        columns = {KEY: told.keys, SLICE: told.starts, TOLD: told.shares, WAKE: self._closes(told.starts)}
        return pa.table(columns)


def _told_in(rows: pa.Table) -> EmittedShares:
    return EmittedShares(_ints(rows, KEY), _ints(rows, SLICE), np.asarray(rows.column(TOLD)))


def _ints(table: pa.Table, name: str) -> Int64s:
    column = table.column(name)
    return np.asarray(micros(column) if pa.types.is_timestamp(column.type) else column)


def _first_of(keys: Int64s, starts: Int64s) -> npt.NDArray[np.bool_]:
    """Which rows are the first of their window."""
    order = np.lexsort([starts, keys])
    first = np.zeros(len(order), bool)
    first[order[Groups.of(keys[order], starts[order]).starts]] = True
    return first


def delays_of(at_us: Int64s, partitions: Int64s, offsets: Int64s, *, since_us: int) -> Int64s:
    """How far each row is behind the latest that came before it from its partition; time began with `since_us`.

    >>> delays_of(np.array([5, 9, 7]), np.array([0, 0, 0]), np.array([0, 1, 2]), since_us=6).tolist()
    [1, 0, 2]
    """
    order = np.lexsort([offsets, partitions])
    arrived = at_us[order]
    latest = np.empty_like(arrived)
    groups = Groups.of(partitions[order])
    for start, stop in zip(groups.starts, groups.starts + groups.sizes(), strict=True):
        np.maximum.accumulate(arrived[start:stop], out=latest[start:stop])
    delays = np.empty_like(at_us)
    delays[order] = np.maximum(latest, since_us) - arrived
    return delays


def counted(delays_us: Int64s) -> list[int]:
    """How many delays fall into each bucket; what is longer than all of them, into the last.

    >>> counts = counted(np.array([0, 0, 900, 1000, 2**60]))
    >>> counts[0], counts[1], counts[-1], sum(counts)
    (2, 2, 1, 5)
    """
    places = np.minimum(np.searchsorted(EDGES, delays_us, side="left"), len(EDGES) - 1)
    return [int(count) for count in np.bincount(places, minlength=len(EDGES))]


def share_seen(counts: Sequence[int], starts_us: Int64s, ends_us: Int64s, *, now_us: int) -> Floats:
    """The share of a window's rows that has come by now, where its rows are spread evenly over it.

    Of the rows that happened `t` ago, those are there whose delay is at most `t`; a window's share is the mean of that
    over its length.

    >>> in_order = counted(np.zeros(9, np.int64))
    >>> share_seen(in_order, np.array([0, 0]), np.array([10, 40]), now_us=20).tolist()
    [1.0, 0.5]
    """
    if not sum(counts):
        counts = counted(np.zeros(1, np.int64))  # until something else is known, rows come in order
    known = np.cumsum(np.asarray(counts, np.float64)) / sum(counts)
    seen = _summed(known, now_us - starts_us) - _summed(known, now_us - ends_us)
    shares: Floats = np.clip(seen / (ends_us - starts_us), SHARE_MIN, 1.0)
    return shares


def _summed(known: Floats, ages_us: Int64s) -> Floats:
    """The area under the line through the buckets' ends, from 0 to each age."""
    widths, rises = np.diff(EDGES), np.diff(known)
    areas = np.concatenate([[0.0], np.cumsum(widths * (known[:-1] + known[1:]) / 2)])
    ages = np.maximum(ages_us, 0).astype(np.float64)
    places = np.clip(np.searchsorted(EDGES, ages, side="right") - 1, 0, len(EDGES) - 1)
    slopes = np.append(rises / widths, 0.0)[places]
    beyond = ages - EDGES[places]
    found: Floats = areas[places] + known[places] * beyond + slopes * beyond**2 / 2
    return found
