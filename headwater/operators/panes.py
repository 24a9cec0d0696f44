"""`Panes`: windows that emit more than one result, and how a later result relates to the earlier ones.

In a batch first time moves on, then rows come; after each, the triggers of the windows concerned are asked. That is the
order in which things happen: the watermark and the processing time of a batch are known before its rows. So the pane at
the end of a window holds what came before, and rows of the same batch that belong to it are late.

A window is *ended* when the watermark has reached its end, and *closed* when it has passed it by the allowed lateness. A
closed window emits what it has not yet emitted and is removed. One whose trigger has finished takes no more rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.engine.aggregation import (
    ARGUMENT,
    Aggregate,
    Computation,
    Groups,
    Int64s,
    Order,
    check_compute,
    order_of,
)
from headwater.engine.changelog import OP, paired, rounds
from headwater.engine.columns import ALL, EVENT_TIMER, KEY, PROCESSING_TIMER, TIMERS
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import (
    EVER,
    LATE_SAMPLE_ROWS,
    NEVER,
    BatchTime,
    late_schema,
    with_late_by,
)
from headwater.engine.key_watermark import per_key
from headwater.engine.rows import micros
from headwater.engine.spark_plan import apply, default_name
from headwater.engine.window_operator import WindowOperator, keys_of, prepared
from headwater.engine.window_spans import Spans, Whole
from headwater.engine.window_step import END, SLICE, START, among, in_rounds
from headwater.errors import ArgumentInvalid
from headwater.operators.trigger import (
    AfterWatermark,
    Machine,
    Mask,
    Memory,
    Moment,
    Trigger,
    check_trigger,
    machine_of,
    rows,
)
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHOICES: dict[str, tuple[str, ...]] = {
    "mode": ("discarding", "accumulating", "retracting"),
    "emit": ("changes", "every_change"),
    "on_time": ("always", "non_empty"),
    "closing": ("always", "non_empty"),
}
#: What a window in panes must not be given: most of it is given to the panes.
WINDOWS_OWN = {
    "compute": (None, "none: `compute` of Panes"),
    "by": ((), "none: `by` of Panes"),
    "allowed_lateness": (0.0, "none: `allowed_lateness` of Panes"),
    "emit": ("final", "none: `emit` of Panes"),
    "name": (None, "none: `name` of Panes"),
    "clock": ("event", '"event": panes are of event time'),
    "completeness": (False, "none: panes have none"),
}
PANE_INDEX = "pane_index"
PANE_TIMING = "pane_timing"
IS_FIRST = "is_first"
IS_LAST = "is_last"
Mode = Literal["discarding", "accumulating", "retracting"]
When = Literal["always", "non_empty"]
EARLY, ON_TIME, LATE = range(3)
TIMINGS = pa.array(["early", "on_time", "late"])
START_US = "_start_us"
#: How many rows came since the last pane; how many panes there were; the timing of the last of them; and whether the
#: end of the window has been told, or was over before the first row came.
FRESH, PANES, TIMING, PASSED = "_fresh", "_panes", "_timing", "_passed"
#: What the last pane said, where it must be retracted.
SAID = "_said_"


@dataclass(frozen=True, kw_only=True)
class Panes:
    """Aggregate the rows of each key per window, and say the result early, on time, and again when late rows come.

    Each time a window says something is a pane, with its number (`pane_index`), its timing (`pane_timing`: `"early"`,
    `"on_time"` or `"late"`) and whether it is the first or the last (`is_first`, `is_last`). A discarding pane holds the rows since the pane
    before, an accumulating one all rows so far; retracting ones are a changelog (`_op`) in which each pane retracts
    the one before. `early` and `late` say how often; `trigger` says it all in one, and Beam's triggers can be put
    together. State: one row per key and window, until the window's end lies `allowed_lateness` behind the watermark.

    >>> from headwater.operators import Panes, Tumbling, agg
    >>> from headwater.operators.trigger import every
    >>> Panes(
    ...     window=Tumbling(size="1 hour"), by="url", compute={"views": agg.count()},
    ...     early=every("5 seconds"), allowed_lateness="1 day", mode="retracting",
    ... ).mode
    'retracting'
    """

    window: WindowOperator
    compute: Mapping[str, Aggregate]
    by: str | tuple[str, ...] = ()
    early: Trigger | None = None
    late: Trigger | None = None
    trigger: Trigger | None = None
    mode: Mode = "accumulating"
    allowed_lateness: Duration = 0
    emit: Literal["changes", "every_change"] = "changes"
    on_time: When = "always"
    closing: When = "non_empty"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                expected = " or ".join(f'"{choice}"' for choice in choices)
                raise ArgumentInvalid(name=name, value=getattr(self, name), expected=expected)
        self._check_window()
        check_compute(self.compute)
        self._check_triggers()
        machine_of(self.triggers)

    def _check_window(self) -> None:
        if not isinstance(self.window, WindowOperator):
            raise ArgumentInvalid(name="window", value=self.window, expected="a Tumbling, a Hopping or a Global window")
        for name, (default, expected) in WINDOWS_OWN.items():
            if getattr(self.window, name) != default:
                raise ArgumentInvalid(name=f"window.{name}", value=getattr(self.window, name), expected=expected)

    def _check_triggers(self) -> None:
        for name in ("early", "late", "trigger"):
            if getattr(self, name) is not None:
                check_trigger(name, getattr(self, name))
        if self.trigger is not None and (self.early is not None or self.late is not None):
            raise ArgumentInvalid(name="trigger", value=self.trigger, expected="either it, or `early` and `late`")
        if not self.allowed_lateness_us and self.late is not None:
            raise ArgumentInvalid(name="late", value=self.late, expected="an `allowed_lateness` beside it")

    @property
    def triggers(self) -> Trigger:
        """The whole trigger. By default every late arrival gives a pane."""
        return self.trigger or AfterWatermark(early=self.early, late=self.late or rows(1))

    @property
    def allowed_lateness_us(self) -> int:
        return round(parse_seconds(self.allowed_lateness, name="allowed_lateness") * 1e6)

    def __call__(self, rows: DataFrame) -> DataFrame:
        window = self.window.resolved(rows)
        panes = replace(self, window=replace(window, name=None), name=self.name or default_name(self))
        made = prepared(
            self.name or type(self).__name__,
            rows,
            time=window.event_time.column,
            by=self.by,
            compute=self.compute,
            taken=(START, END, PANE_INDEX, PANE_TIMING, IS_FIRST, IS_LAST),
            whole=window.late == "side_output",
        )
        partitions = self.partitions or self.window.partitions
        return apply(panes.contract, made, partitions=partitions if self.by else 1)

    def contract(self, rows: pa.Schema) -> Contract:
        keys = keys_of(self.by)
        computation = Computation.over(self.compute, rows)
        step = PaneStep(
            time_column=self.window.event_time.column,
            spans=self.window.spans(),
            computation=computation,
            trigger=self.triggers,
            mode=self.mode,
            allowed_lateness_us=self.allowed_lateness_us,
            each=self.emit == "every_change",
            on_time=self.on_time,
            closing=self.closing,
        )
        shown = [rows.field(name) for name in keys if name != ALL]
        contract = Contract(
            name=self.name or default_name(self),
            step=step,
            key=keys,
            rows=rows,
            state=step.layout.schema,
            side_outputs={"late": late_schema(rows)},
            output=pa.schema([*shown, *output_fields(computation, self.mode)]),
            event_time=self.window.strategy(),
            late="step",
            hidden=tuple(name for name in rows.names if name.startswith(ARGUMENT) or name == ALL),
            late_rows_max=LATE_SAMPLE_ROWS if self.window.late == "drop" else None,
        )
        return per_key(contract)


def output_fields(computation: Computation, mode: Mode) -> list[pa.Field]:
    """The columns that a pane has beside its key."""
    ops = [pa.field(OP, pa.string())] if mode == "retracting" else []
    times = [pa.field(name, pa.timestamp("us", "UTC")) for name in (START, END)]
    about = [pa.field(PANE_INDEX, pa.int64()), pa.field(PANE_TIMING, pa.string())]
    ends = [pa.field(name, pa.bool_()) for name in (IS_FIRST, IS_LAST)]
    return [*ops, *times, *about, *ends, *computation.results]


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

    time_column: str
    spans: Spans
    computation: Computation
    trigger: Trigger
    mode: Mode = "accumulating"
    allowed_lateness_us: int = 0
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

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        windows, panes = self._elapsed(Windows.of(state, self.layout), time)
        late = []
        for portion in self._portions(rows):
            arrived = self._arrived(windows, portion, time)
            windows, said = self._asked(arrived.windows, arrived.counts, time)
            panes += said
            late += arrived.late
        return StepResult(
            self._state(windows, time),
            self._output(panes) if panes else None,
            {"late": pa.concat_tables(late)} if late else {},
        )

    def _output(self, panes: list[pa.Table]) -> pa.Table:
        table = in_rounds(panes)
        if isinstance(self.spans, Whole):  # it begins and ends nowhere
            for name in (START, END):
                nulls = pa.nulls(len(table), table.schema.field(name).type)
                table = table.set_column(table.column_names.index(name), name, nulls)
        return table

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
        return np.minimum(self.spans.ends(starts) + self.allowed_lateness_us, EVER)

    def _state(self, windows: Windows, time: BatchTime) -> pa.Table:
        """The windows, and when to look at each again: at its end, when it closes, and when a wait is over."""
        ends = self.spans.ends(windows.starts)
        if self.layout.waits:
            now_us = time.processing_us if time.processing_us is not None else NEVER
            until = np.stack([windows.counters[name] for name in self.layout.waits])
            windows.counters[PROCESSING_TIMER] = np.where(until > now_us, until, EVER).min(axis=0)
        return windows.state(np.where(ends > time.watermark_of(windows.keys), ends, ends + self.allowed_lateness_us))

    # -- rows come ----------------------------------------------------------------------------------------------------

    def _portions(self, rows: pa.Table) -> Iterator[pa.Table]:
        """The rows that come together: all of a batch, or one of each key after the other."""
        if not rows.num_rows:
            return
        times = np.asarray(micros(rows.column(self.time_column)).combine_chunks())
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
        times = np.asarray(micros(rows.column(self.time_column)).combine_chunks())
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
        return with_late_by(side, behind_us[chosen])

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
            pa.array(index == 0),
            pa.array(last),
            *results.columns,
        ]
        about = [PANE_INDEX, PANE_TIMING, IS_FIRST, IS_LAST]
        return pa.table(columns, names=[KEY, START, END, *about, *results.column_names])


@dataclass(frozen=True)
class Layout:
    """Which columns windows have in the state."""

    computation: Computation
    #: The columns of the triggers, and what stands there at the beginning.
    triggers: dict[str, int]
    #: Those of them that are times to wait for.
    waits: tuple[str, ...]
    #: Whether what was said must be remembered.
    says: bool

    @property
    def counters(self) -> dict[str, int]:
        """The columns of whole numbers, and what stands there at the beginning."""
        alarms = {PROCESSING_TIMER: EVER} if self.waits else {}
        return {FRESH: 0, PANES: 0, TIMING: 0, PASSED: 0, **self.triggers, **alarms}

    @property
    def said(self) -> pa.Schema:
        fields = self.computation.results if self.says else []
        return pa.schema([pa.field(f"{SAID}{one.name}", one.type) for one in fields])

    @property
    def schema(self) -> pa.Schema:
        numbers = [pa.field(name, pa.int64()) for name in (START_US, *self.counters, EVENT_TIMER)]
        return pa.schema([*numbers, *self.computation.partials, *self.said])


@dataclass(frozen=True)
class Windows:
    """Windows in the order of key and start, each once."""

    keys: Int64s
    starts: Int64s
    counters: Memory
    partials: pa.Table
    said: pa.Table

    def __len__(self) -> int:
        return len(self.keys)

    @staticmethod
    def of(state: pa.Table, layout: Layout) -> Windows:
        """The windows of a state."""
        state = state.combine_chunks()
        keys, starts = (_numbers(state, name) for name in (KEY, START_US))
        found = Windows(
            keys,
            starts,
            {name: _numbers(state, name, none=EVER).copy() for name in layout.counters},
            state.select(layout.computation.partials.names),
            state.select(layout.said.names),
        )
        return found.take(np.lexsort([starts, keys]))

    @staticmethod
    def new(keys: Int64s, starts: Int64s, partials: pa.Table, layout: Layout) -> Windows:
        """Windows that nothing is known of but what their rows come to."""
        counters = {name: np.full(len(keys), initial, np.int64) for name, initial in layout.counters.items()}
        said = pa.table({one.name: pa.nulls(len(keys), one.type) for one in layout.said}, schema=layout.said)
        return Windows(keys, starts, counters, partials, said)

    def take(self, rows: Int64s) -> Windows:
        if len(rows) == len(self) and (rows == np.arange(len(rows))).all():
            return self
        chosen = pa.array(rows)
        counters = {name: column[rows] for name, column in self.counters.items()}
        return Windows(
            self.keys[rows], self.starts[rows], counters, self.partials.take(chosen), _taken(self.said, chosen)
        )

    def only(self, chosen: Mask) -> Windows:
        return self.take(np.flatnonzero(chosen))

    def with_partials(self, chosen: Mask, empty: pa.Table) -> Windows:
        """The same, with what the rows of some windows come to replaced by what no row comes to."""
        if not chosen.any():
            return self
        rows = np.where(chosen, len(self), np.arange(len(self)))
        return replace(self, partials=pa.concat_tables([self.partials, empty]).combine_chunks().take(pa.array(rows)))

    def with_said(self, chosen: Mask, said: pa.Table) -> Windows:
        """The same, with what some windows have said replaced."""
        if not self.said.num_columns or not chosen.any():
            return self
        rows = np.where(chosen, len(self) + np.cumsum(chosen) - 1, np.arange(len(self)))
        both = pa.concat_tables([self.said, said.rename_columns(self.said.column_names)])
        return replace(self, said=both.combine_chunks().take(pa.array(rows)))

    def state(self, wake: Int64s) -> pa.Table:
        """The windows as a state; `wake` is the event time at which to look at each again."""
        numbers = {KEY: self.keys, START_US: self.starts, **self.counters, EVENT_TIMER: wake}
        arrays = [
            pa.array(one, pa.int64(), mask=one == EVER if name in TIMERS else None) for name, one in numbers.items()
        ]
        names = [*numbers, *self.partials.column_names, *self.said.column_names]
        return pa.table([*arrays, *self.partials.columns, *self.said.columns], names=names)


def joined(known: Windows, added: Windows, *, held: Mask, computation: Computation) -> tuple[Windows, Int64s]:
    """Windows that are known and those that rows have come for, and how many rows have come for each.

    `held` says which of those that are known still hold rows.
    """
    if not len(known):
        return added, added.counters[FRESH].copy()
    keys = np.concatenate([known.keys, added.keys])
    starts = np.concatenate([known.starts, added.starts])
    order = np.lexsort([starts, keys])  # of one window what is known comes first
    groups = Groups.of(keys[order], starts[order])
    first = order[groups.starts]
    counters = {name: np.concatenate([column, added.counters[name]])[first] for name, column in known.counters.items()}
    came = np.concatenate([np.zeros(len(known), np.int64), added.counters[FRESH]])
    arrived = np.add.reduceat(came[order], groups.starts)
    counters[FRESH] = np.where(first < len(known), counters[FRESH], 0) + arrived
    partials = pa.concat_tables([known.partials, added.partials]).combine_chunks()
    said = _taken(pa.concat_tables([known.said, added.said]), pa.array(first))
    merged = _merged(partials, order, groups, np.concatenate([held, np.ones(len(added), bool)]), computation)
    return Windows(keys[first], starts[first], counters, merged, said), arrived


def _merged(partials: pa.Table, order: Int64s, groups: Groups, held: Mask, computation: Computation) -> pa.Table:
    """One partial result per group; those that hold no rows are left out where others do."""
    used = held[order]
    if used.all():
        return computation.merge(partials.take(pa.array(order)), groups)
    numbers = groups.numbers()
    # A window that holds nothing keeps what stands there, which is what no row comes to.
    alone = ~np.isin(numbers, numbers[used])
    kept = used | alone
    return computation.merge(partials.take(pa.array(order[kept])), Groups.of(numbers[kept]))


def no_rows(computation: Computation) -> pa.Table:
    """The partial results of no row at all, in one row: nulls are left out, so one of them comes to nothing."""
    compute = {
        name: replace(one, of=one.of if one.of is not None else name) for name, one in computation.compute.items()
    }
    rows = pa.table({f"{ARGUMENT}{name}": pa.nulls(1, kind) for name, kind in computation.kinds.items()})
    zero = np.zeros(1, np.int64)
    return Computation(compute, computation.kinds).lift(rows, Order(zero, zero), Groups(zero, 1))


def _numbers(table: pa.Table, name: str, *, none: int = 0) -> Int64s:
    return np.asarray(table.column(name).combine_chunks().fill_null(none))


def _taken(table: pa.Table, rows: pa.Array) -> pa.Table:
    # A table without columns has forgotten how many rows it had.
    return table.combine_chunks().take(rows) if table.num_columns else table
