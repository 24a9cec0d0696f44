"""A watermark for each key: a key's own latest time says what is late for it, and when its timers are due.

The operator's step is wrapped, the engine knows nothing of it. A key's watermark is kept as one more row of its state,
for as long as the key is remembered. It moves with the rows of the key alone; with `key_idle_us` it also never falls
further behind the watermark of the slowest partition than that, so a key that is silent is closed, and forgotten, in the
end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Int64s
from headwater.engine.columns import EVENT_TIMER, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import EVER, NEVER, BatchTime, merge_learnt, with_late_by
from headwater.engine.questions import answer_of
from headwater.engine.rows import micros
from headwater.engine.step import due_keys

#: The key's watermark, in the one row of its state that has one.
REACHED = "_reached_us"


def per_key(contract: Contract) -> Contract:
    """The same operator with a watermark for each key, where its watermark strategy says so."""
    if contract.event_time.scope != "key" or contract.time is None or REACHED in contract.state.names:
        return contract
    fields = [one for one in contract.state if one.name != EVENT_TIMER]
    state = pa.schema([*fields, pa.field(EVENT_TIMER, pa.int64()), pa.field(REACHED, pa.int64())])
    return replace(contract, step=PerKey(contract), state=state, late="step")


@dataclass(frozen=True)
class PerKey:
    """A step that goes by the watermarks of keys: first with the rows, then with the time to which they lead."""

    contract: Contract

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        before = self._reached(state, rows)
        begin = np.maximum(before, self._floor(time))
        rows_in_time, late = self._split(rows, begin)
        first = self._run(self._inner(state), rows_in_time, _at(time, before, begin))
        after = np.maximum(begin, self._moved_by(rows, len(begin), time))
        second = self._close(first, _names(self.contract, state, rows), rows.slice(0, 0), _at(time, begin, after))
        sides = dict(first.side_outputs)
        for name, table in [*second.side_outputs.items(), *([("late", late)] if late is not None else [])]:
            sides[name] = pa.concat_tables([sides[name], table]) if name in sides else table
        outputs = [one.output for one in (first, second) if one.output is not None]
        return StepResult(
            self._stored(second.state, after, time),
            pa.concat_tables(outputs) if outputs else None,
            sides,
            merge_learnt([first.learnt, second.learnt]),
        )

    def answer(self, state: pa.Table) -> pa.Table:
        """What the step within says of the same state."""
        return answer_of(self.contract, self._inner(state))

    # -- time ---------------------------------------------------------------------------------------------------------

    def _reached(self, state: pa.Table, rows: pa.Table) -> Int64s:
        """The watermark that each key had, by its number."""
        numbers = [np.asarray(one.column(KEY)) for one in (state, rows)]
        reached = np.full(int(max(one.max(initial=-1) for one in numbers)) + 1, NEVER, np.int64)
        marks = state.filter(pc.is_valid(state.column(REACHED)))
        reached[np.asarray(marks.column(KEY))] = np.asarray(marks.column(REACHED))
        return reached

    def _floor(self, time: BatchTime) -> int:
        """The time behind which no key stays."""
        if time.final:
            return EVER
        key_idle_us = self.contract.event_time.key_idle_us
        return NEVER if key_idle_us is None or time.watermark_us <= NEVER else time.watermark_us - key_idle_us

    def _moved_by(self, rows: pa.Table, count: int, time: BatchTime) -> Int64s:
        """The watermark to which the rows lead each key; a clock from the far future leads nowhere."""
        strategy = self.contract.event_time
        moved = np.full(count, NEVER, np.int64)
        times = self._times(rows)
        good = times <= strategy.bound_us(time.processing_us)
        np.maximum.at(moved, np.asarray(rows.column(KEY))[good], times[good] - strategy.delay_us)
        return moved

    def _times(self, rows: pa.Table) -> Int64s:
        return np.asarray(micros(rows.column(self.contract.time or "")))

    def _split(self, rows: pa.Table, reached: Int64s) -> tuple[pa.Table, pa.Table | None]:
        """Rows in time, and rows behind the watermark of their key, unless the step tells them apart itself."""
        times = self._times(rows)
        behind = reached[np.asarray(rows.column(KEY))] - times
        late = behind > 0
        if self.contract.late == "step" or not late.any():
            return rows, None
        side = rows.filter(pa.array(late)).drop_columns([KEY])
        return rows.filter(pa.array(~late)), with_late_by(side, behind[late])

    # -- the step within ----------------------------------------------------------------------------------------------

    def _run(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        found = self.contract.step(state, rows, time)
        stepped = found if isinstance(found, StepResult) else StepResult(*found)
        names = [*self.contract.state.names, KEY]
        return replace(stepped, state=stepped.state.select(names))

    def _close(self, first: StepResult, names: pa.Table, no_rows: pa.Table, time: BatchTime) -> StepResult:
        """Call the step again for the keys whose timers have become due by their own rows."""
        keys = np.asarray(first.state.column(KEY))
        due = np.isin(keys, due_keys(first.state, time)) if EVENT_TIMER in self.contract.state.names else keys < 0
        if not due.any():
            return StepResult(first.state)
        chosen = first.state.filter(pa.array(due))
        named = names.take(chosen.column(KEY))
        for name in self.contract.key:
            chosen = chosen.append_column(name, named.column(name))
        second = self._run(chosen, no_rows, time)
        rest = first.state.filter(pa.array(~due))
        return replace(second, state=pa.concat_tables([rest, second.state.cast(rest.schema)]))

    # -- state --------------------------------------------------------------------------------------------------------

    def _inner(self, state: pa.Table) -> pa.Table:
        """The state as the step left it."""
        inner = state.filter(pc.is_null(state.column(REACHED))).drop_columns([REACHED])
        if EVENT_TIMER not in self.contract.state.names:
            return inner.drop_columns([EVENT_TIMER])
        return _shifted(inner, -(self.contract.event_time.key_idle_us or 0))

    def _stored(self, inner: pa.Table, reached: Int64s, time: BatchTime) -> pa.Table:
        """The state as it is kept: timers wait until silent keys are closed, and each key has its mark."""
        key_idle_us = self.contract.event_time.key_idle_us
        if EVENT_TIMER in self.contract.state.names:
            inner = _shifted(inner, key_idle_us or 0)
        needed = reached > self._floor(time)
        needed[np.asarray(inner.column(KEY))] = True
        keys = np.flatnonzero(needed & (reached > NEVER))
        wake = (
            pa.nulls(len(keys), pa.int64())
            if key_idle_us is None
            else pa.array(reached[keys] + key_idle_us, pa.int64())
        )
        names = [KEY, REACHED, EVENT_TIMER]
        marks = pa.table([pa.array(keys, pa.int64()), pa.array(reached[keys], pa.int64()), wake], names=names)
        return pa.concat_tables([inner, marks], promote_options="default")


def _at(time: BatchTime, before: Int64s, now: Int64s) -> BatchTime:
    return replace(time, key_watermarks_before_us=before, key_watermarks_us=now)


def _shifted(state: pa.Table, by_us: int) -> pa.Table:
    place = state.column_names.index(EVENT_TIMER)
    return state.set_column(place, EVENT_TIMER, pc.add(state.column(EVENT_TIMER), by_us))


def _names(contract: Contract, state: pa.Table, rows: pa.Table) -> pa.Table:
    """The columns of each key, by its number."""
    columns = [KEY, *contract.key]
    both = pa.concat_tables([one.select(columns).cast(_named(contract)) for one in (state, rows)])
    numbers = np.asarray(both.column(KEY))
    found, first = np.unique(numbers, return_index=True)
    places = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    places[found] = first
    return both.take(pa.array(places))


def _named(contract: Contract) -> pa.Schema:
    return pa.schema([pa.field(KEY, pa.int64()), *contract.key_schema])
