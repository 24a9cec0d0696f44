"""The open windows of a partition, as columns: what their rows come to, what they have said, what their triggers know."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headwater.operators.agg.computation import ARGUMENT, Computation
from headwater.operators.agg.groups import Groups, Int64s, Order
from headwater.operators.keyed.engine import KEY
from headwater.operators.keyed.runs import EVENT_TIMER, PROCESSING_TIMER, TIMERS
from headwater.operators.keyed.watermark import EVER
from headwater.operators.panes.machine import Mask, Memory

START_US = "_start_us"
#: How many rows came since the last pane; how many panes there were; the timing of the last of them; and whether the
#: end of the window has been told, or was over before the first row came.
FRESH, PANES, TIMING, PASSED = "_fresh", "_panes", "_timing", "_passed"
#: What the last pane said, where it must be taken back.
SAID = "_said_"


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
