"""Beside each window's result, which share of its rows has been seen, as far as past lateness tells.

All partitions together count by how much rows are behind the latest that came before them. A result is told with the
share that follows from these counts; when its window closes it is told once more, with 1. What was told of an open
window is kept in the state, so that it can be taken back word by word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.operators.agg.groups import Groups, Int64s
from headwater.operators.changelog import OP, UPDATE_AFTER, UPDATE_BEFORE, signs_of
from headwater.operators.keyed.contract import Contract, Stepped
from headwater.operators.keyed.engine import KEY, micros, seen_in
from headwater.operators.keyed.watermark import NEVER, BatchTime, merge_learnt
from headwater.operators.windowed.delays import Floats, counted, delays_of, share_seen
from headwater.operators.windowed.step import END, SLICE, START, WAKE, WindowStep

COMPLETENESS = "completeness"
TOLD = "told"
DELAYS = "delays"


def with_completeness(contract: Contract, step: WindowStep) -> Contract:
    """The same windows, with a column that says how complete each result is."""
    return replace(
        contract,
        step=CompletenessStep(contract, step),
        state=contract.state.append(pa.field(TOLD, pa.float64())),
        output=contract.output.append(pa.field(COMPLETENESS, pa.float64())),
    )


@dataclass(frozen=True)
class Told:
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

    def take(self, chosen: npt.NDArray[np.generic]) -> Told:
        return Told(self.keys[chosen], self.starts[chosen], self.shares[chosen])

    def joined(self, other: Told) -> Told:
        pairs = ((self.keys, other.keys), (self.starts, other.starts))
        keys, starts = (np.concatenate(pair) for pair in pairs)
        return Told(keys, starts, np.concatenate([self.shares, other.shares]))


@dataclass(frozen=True)
class CompletenessStep:
    """A step of windows that speaks a changelog, and after it what is known of their completeness."""

    contract: Contract
    step: WindowStep

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:
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
        at_us = np.asarray(micros(fresh.column(self.step.on)))
        good = at_us <= self.contract.policy.bound_us(time.processing_us)
        places = [
            np.asarray(pc.fill_null(fresh.column(name), 0)).astype(np.int64)
            if name in fresh.column_names
            else np.zeros(len(at_us), np.int64)
            for name in ("_partition", "_offset")
        ]
        since_us = NEVER if time.watermark_us <= NEVER else time.watermark_us + self.contract.policy.late_by_us
        return counted(delays_of(at_us[good], places[0][good], places[1][good], since_us=since_us))

    def _now_us(self, rows: pa.Table, time: BatchTime) -> int:
        """The event time to which the rows lead, by the same rule as the watermark of the next batch."""
        policy = self.contract.policy
        seen = seen_in(rows, self.contract, time.processing_us)
        found = policy.watermark([seen], previous_us=time.watermark_us, now_us=None)
        return found if found <= NEVER else found + policy.late_by_us

    # -- results ------------------------------------------------------------------------------------------------------

    def _closes(self, starts: Int64s) -> Int64s:
        return self.step.spans.ends(starts) + self.step.lateness_us

    def _closed(self, slices: pa.Table, told: Told) -> pa.Table:
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
        self, changes: pa.Table | None, told: Told, counts: list[int], now_us: int, time: BatchTime
    ) -> tuple[pa.Table | None, Told]:
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
        return changes.append_column(COMPLETENESS, pa.array(shown, pa.float64())), Told(
            keys[last], starts[last], shares[last]
        )

    def _stored(self, told: Told) -> pa.Table:
        columns = {KEY: told.keys, SLICE: told.starts, TOLD: told.shares, WAKE: self._closes(told.starts)}
        return pa.table(columns)


def _told_in(rows: pa.Table) -> Told:
    return Told(_ints(rows, KEY), _ints(rows, SLICE), np.asarray(rows.column(TOLD)))


def _ints(table: pa.Table, name: str) -> Int64s:
    column = table.column(name)
    return np.asarray(micros(column) if pa.types.is_timestamp(column.type) else column)


def _first_of(keys: Int64s, starts: Int64s) -> npt.NDArray[np.bool_]:
    """Which rows are the first of their window."""
    order = np.lexsort([starts, keys])
    first = np.zeros(len(order), bool)
    first[order[Groups.of(keys[order], starts[order]).starts]] = True
    return first
