"""One batch of panes: first time moves on, then rows come; after each, the triggers of the windows concerned are asked.

That is the order in which things happen: the watermark and the processing time of a batch are known before its rows. So
the pane at the end of a window holds what came before, and rows of the same batch that belong to it are late.

A window is *ended* when the watermark has reached its end, and *closed* when it has passed it by the allowed lateness. A
closed window says what it has not yet said and is forgotten. One whose trigger has finished takes no more rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.operators.agg.computation import Computation, order_of
from headwater.operators.agg.groups import Groups, Int64s
from headwater.operators.changelog import OP, paired, rounds
from headwater.operators.keyed.contract import Stepped
from headwater.operators.keyed.engine import KEY, LATE_BY, micros
from headwater.operators.keyed.runs import PROCESSING_TIMER
from headwater.operators.keyed.watermark import EVER, NEVER, BatchTime
from headwater.operators.panes.machine import Machine, Mask, Moment, machine_of
from headwater.operators.panes.trigger import Trigger
from headwater.operators.panes.windows import (
    FRESH,
    PANES,
    PASSED,
    TIMING,
    Layout,
    Windows,
    joined,
    no_rows,
)
from headwater.operators.windowed import END, START, Spans
from headwater.operators.windowed.step import SLICE, among, in_rounds

PANE_INDEX = "pane_index"
PANE_TIMING = "pane_timing"
IS_LAST = "is_last"
Mode = Literal["discarding", "accumulating", "retracting"]
When = Literal["always", "non_empty"]
EARLY, ON_TIME, LATE = range(3)
TIMINGS = pa.array(["early", "on_time", "late"])


def output_fields(computation: Computation, mode: Mode) -> list[pa.Field]:
    """The columns that a pane has beside its key."""
    ops = [pa.field(OP, pa.string())] if mode == "retracting" else []
    times = [pa.field(name, pa.timestamp("us", "UTC")) for name in (START, END)]
    about = [pa.field(PANE_INDEX, pa.int64()), pa.field(PANE_TIMING, pa.string()), pa.field(IS_LAST, pa.bool_())]
    return [*ops, *times, *about, *computation.results]


class Fired(NamedTuple):
    """What came of asking the triggers: the windows as they are now, and the panes that they gave."""

    windows: Windows
    panes: list[pa.Table]


class Arrived(NamedTuple):
    """What came of rows: the windows as they are now, how many rows each got, and the rows that no window takes."""

    windows: Windows
    counts: Int64s
    late: list[pa.Table]


class Pane(NamedTuple):
    """One pane of some windows: which of them said it, its timing and results, and what goes out."""

    said: Mask
    timing: Int64s
    results: pa.Table
    table: pa.Table


@dataclass(frozen=True)
class PaneStep:
    """One batch of panes over all keys of a partition."""

    on: str
    spans: Spans
    computation: Computation
    trigger: Trigger
    mode: Mode = "accumulating"
    lateness_us: int = 0
    each: bool = False
    on_time: When = "always"
    closing: When = "non_empty"

    @cached_property
    def machine(self) -> Machine:
        return machine_of(self.trigger)

    @cached_property
    def layout(self) -> Layout:
        waits = tuple(self.machine.waits())
        return Layout(self.computation, self.machine.columns(), waits, self.mode == "retracting")

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:
        windows, panes = self._elapsed(Windows.of(state, self.layout), time)
        late = []
        for portion in self._portions(rows):
            arrived = self._arrived(windows, portion, time)
            windows, said = self._asked(arrived.windows, arrived.counts, time)
            panes += said
            late += arrived.late
        return Stepped(
            self._state(windows, time),
            in_rounds(panes) if panes else None,
            {"late": pa.concat_tables(late)} if late else {},
        )

    # -- time moves on ------------------------------------------------------------------------------------------------

    def _elapsed(self, windows: Windows, time: BatchTime) -> Fired:
        """What windows say because time has passed; those that are closed go."""
        if not len(windows):
            return Fired(windows, [])
        closed = self._closes(windows.starts) <= time.watermark_of(windows.keys)
        panes = self._closed(windows.only(closed), time)
        windows = windows.only(~closed)
        moment = self._moment(windows, time)
        due = moment.ended & (self.spans.ends(windows.starts) > time.watermark_before_of(windows.keys))
        if self.layout.waits and time.processing_us is not None:
            due |= windows.counters[PROCESSING_TIMER] <= time.processing_us
        live = ~self.machine.done(windows.counters)
        fired = self._fired(windows, due & live & self.machine.ready(windows.counters, moment), moment)
        return Fired(fired.windows, [*panes, *fired.panes])

    def _closed(self, windows: Windows, time: BatchTime) -> list[pa.Table]:
        """What windows have not yet said when they close."""
        live = ~self.machine.done(windows.counters)
        pane = self._told(windows, live, self._moment(windows, time), last=np.ones(len(windows), bool))
        return [] if pane is None else [pane.table]

    def _moment(self, windows: Windows, time: BatchTime) -> Moment:
        return Moment(self.spans.ends(windows.starts) <= time.watermark_of(windows.keys), time.processing_us)

    def _closes(self, starts: Int64s) -> Int64s:
        return self.spans.ends(starts) + self.lateness_us

    def _state(self, windows: Windows, time: BatchTime) -> pa.Table:
        """The windows, and when to look at each again: at its end, when it closes, and when a wait is over."""
        ends = self.spans.ends(windows.starts)
        if self.layout.waits:
            now_us = time.processing_us if time.processing_us is not None else NEVER
            until = np.stack([windows.counters[name] for name in self.layout.waits])
            windows.counters[PROCESSING_TIMER] = np.where(until > now_us, until, EVER).min(axis=0)
        return windows.state(np.where(ends > time.watermark_of(windows.keys), ends, ends + self.lateness_us))

    # -- rows come ----------------------------------------------------------------------------------------------------

    def _portions(self, rows: pa.Table) -> Iterator[pa.Table]:
        """The rows that come together: all of a batch, or one of each key after the other."""
        if not rows.num_rows:
            return
        times = np.asarray(micros(rows.column(self.on)).combine_chunks())
        slices = self.spans.slices(times)
        rows = rows.append_column(SLICE, pa.array(slices, pa.int64()))
        inside = self.spans.inside(slices)
        rows = rows if inside is None else rows.filter(pa.array(inside))
        if not self.each:
            yield rows
            return
        for number in rounds(np.asarray(rows.column(KEY).combine_chunks())):
            yield rows.take(pa.array(number))

    def _arrived(self, windows: Windows, rows: pa.Table, time: BatchTime) -> Arrived:
        keys, slices = (np.asarray(rows.column(name).combine_chunks()) for name in (KEY, SLICE))
        times = np.asarray(micros(rows.column(self.on)).combine_chunks())
        # Rows are in the order of key and time, and slices are in the order of time: groups stand together.
        groups = Groups.of(keys, slices)
        held = self.spans.windows(slices[groups.starts])
        owners = keys[groups.starts][held.slices]
        taken = self._closes(held.starts) > time.watermark_of(owners)
        taken &= ~self._finished(windows, owners, held.starts)
        is_taken = np.zeros(groups.count, bool)
        is_taken[held.slices[taken]] = True
        row_taken = np.repeat(is_taken, groups.sizes())
        late = [] if row_taken.all() else [self._late(rows, time.watermark_of(keys) - times, ~row_taken)]
        partials = self.computation.lift(rows, order_of(rows, times), groups)
        added = self._added(owners[taken], held.starts[taken], held.slices[taken], groups.sizes(), partials)
        added.counters[PASSED][:] = self._moment(added, time).ended
        holds = windows.counters[FRESH] > 0 if self.mode == "discarding" else np.ones(len(windows), bool)
        found, counts = joined(windows, added, held=holds, computation=self.computation)
        return Arrived(found, counts, late)

    def _asked(self, windows: Windows, counts: Int64s, time: BatchTime) -> Fired:
        """What windows say because rows have come."""
        moment = self._moment(windows, time)
        came = counts > 0
        self.machine.rows(windows.counters, came, counts, moment)
        return self._fired(windows, came & self.machine.ready(windows.counters, moment), moment)

    def _finished(self, windows: Windows, keys: Int64s, starts: Int64s) -> Mask:
        """Which of these windows have a trigger that has finished."""
        done = self.machine.done(windows.counters)
        if not done.any():
            return np.zeros(len(keys), bool)
        return among(keys, starts, pa.table({"key": windows.keys[done], "start": windows.starts[done]}))

    def _added(self, keys: Int64s, starts: Int64s, slices: Int64s, sizes: Int64s, partials: pa.Table) -> Windows:
        """The windows that rows came for, put together from their slices."""
        order = np.lexsort([starts, keys])
        keys, starts, slices = keys[order], starts[order], slices[order]
        groups = Groups.of(keys, starts)
        merged = self.computation.merge(partials.take(pa.array(slices)), groups)
        added = Windows.new(keys[groups.starts], starts[groups.starts], merged, self.layout)
        if groups.count:
            added.counters[FRESH][:] = np.add.reduceat(sizes[slices], groups.starts)
        return added

    def _late(self, rows: pa.Table, behind_us: Int64s, chosen: Mask) -> pa.Table:
        """Rows that no window takes, as they came, with how far they are behind the watermark."""
        side = rows.filter(pa.array(chosen)).drop_columns([SLICE, KEY])
        return side.append_column(LATE_BY, pa.array(behind_us[chosen], pa.int64()))

    # -- panes go -----------------------------------------------------------------------------------------------------

    def _fired(self, windows: Windows, ready: Mask, moment: Moment) -> Fired:
        """Let windows say what they know, and their triggers know that they did."""
        if not ready.any():
            return Fired(windows, [])
        counters = windows.counters
        self.machine.fire(counters, ready, moment)
        last = self.machine.done(counters)
        pane = self._told(windows, ready, moment, last=last)
        if pane is not None:
            counters[PANES] = counters[PANES] + pane.said  # a new column: the pane's own index is the old one
            counters[TIMING][pane.said] = pane.timing
            windows = windows.with_said(pane.said, pane.results)
        counters[PASSED][ready & moment.ended] = 1
        counters[FRESH][ready] = 0
        gone = ready if self.mode == "discarding" else ready & last
        return Fired(windows.with_partials(gone, no_rows(self.computation)), [] if pane is None else [pane.table])

    def _told(self, windows: Windows, ready: Mask, moment: Moment, *, last: Mask) -> Pane | None:
        """The panes of windows, as far as there is anything to say."""
        counters = windows.counters
        timing = np.where(counters[PASSED] == 1, LATE, np.where(moment.ended, ON_TIME, EARLY))
        said = counters[FRESH] > 0
        if self.on_time == "always":
            said |= timing == ON_TIME
        if self.closing == "always":
            said |= last
        said &= ready
        if not said.any():
            return None
        chosen = windows.only(said)
        results = self.computation.finish(chosen.partials)
        table = self._pane_table(chosen, timing[said], last[said], results, index=chosen.counters[PANES])
        if self.mode == "retracting":
            table = paired(self._taken_back(chosen, results.column_names), table, by=[KEY, START])
        return Pane(said, timing[said], results, table)

    def _taken_back(self, windows: Windows, names: list[str]) -> pa.Table:
        """The panes that windows gave before."""
        before = windows.only(windows.counters[PANES] > 0)
        never_last = np.zeros(len(before), bool)
        index = before.counters[PANES] - 1
        return self._pane_table(
            before, before.counters[TIMING], never_last, before.said.rename_columns(names), index=index
        )

    def _pane_table(
        self, windows: Windows, timing: Int64s, last: Mask, results: pa.Table, *, index: Int64s
    ) -> pa.Table:
        times = (windows.starts, self.spans.ends(windows.starts))
        columns = [
            pa.array(windows.keys, pa.int64()),
            *(pa.array(values, pa.timestamp("us", "UTC")) for values in times),
            pa.array(index, pa.int64()),
            TIMINGS.take(pa.array(timing)),
            pa.array(last),
            *results.columns,
        ]
        return pa.table(columns, names=[KEY, START, END, PANE_INDEX, PANE_TIMING, IS_LAST, *results.column_names])
