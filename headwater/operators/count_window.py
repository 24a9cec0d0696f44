"""`CountWindow`: windows of so many rows of a key.

Rows wait until their place among the others is certain, then they are counted. State is, per key, one row with how many
were counted, one per slice of an open window, and one per row that waits. Slices are those of windows over time, with
the number of a row in place of its time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Computation, Groups, Int64s, order_of
from headwater.engine.changelog import paired, rounds
from headwater.engine.columns import KEY
from headwater.engine.contract import Step, StepResult
from headwater.engine.event_time import BatchTime, split_late_rows
from headwater.engine.rows import micros
from headwater.engine.window_operator import RowWindowOperator
from headwater.engine.window_spans import Fixed
from headwater.engine.window_step import END, START, WAKE, Emit, among, earliest, in_rounds, output_fields
from headwater.errors import ArgumentInvalid
from headwater.schema.event_time import EventTime

#: A row that falls into more windows than this is a mistake.
WINDOWS_MAX = 10_000
ROWS_MAX = 1_000_000_000
KIND = "kind"
NUMBER = "number"
FIRST = "first_us"
LAST = "last_us"
WINDOW = "window_number"
COUNTER, SLICE, WAITING = 0, 1, 2
Ordering = Literal["time", "arrival"]


@dataclass(frozen=True, kw_only=True)
class CountWindow(RowWindowOperator):
    """Aggregate every `size` rows of a key; with `every`, a window begins every so many rows, so that they overlap.

    Rows are counted in the order of event time, partition and offset: a row waits until the watermark (the latest event
    time less its delay) has passed it, and one behind the watermark is late. With `order="arrival"` rows are counted as
    they come, which is quicker, and depends on how they came. Results have `window_number`, from 0, and the times of
    the first and the last row. With `emit="final"` a window comes when it is full; with `"changes"` or `"every_change"` also while
    it fills, as a changelog. State: a counter per key, for ever, and the open windows and waiting rows.

    >>> from headwater.operators import CountWindow, agg
    >>> CountWindow(size=100, by="sensor", compute={"mean": agg.mean("celsius")}).size
    100
    """

    size: int
    every: int | None = None
    order: Ordering = "time"

    taken: ClassVar[tuple[str, ...]] = (START, END, WINDOW)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("size", self.size), ("every", self.every)):
            if value is not None and (not isinstance(value, int) or not 0 < value <= ROWS_MAX):
                raise ArgumentInvalid(name=name, value=value, expected=f"a number of rows from 1 to {ROWS_MAX:,}")
        if self.every is not None and self.size // self.every > WINDOWS_MAX:
            expected = f"a period in which a row falls into at most {WINDOWS_MAX:,} windows"
            raise ArgumentInvalid(name="every", value=self.every, expected=expected)
        if self.order not in ("time", "arrival"):
            raise ArgumentInvalid(name="order", value=self.order, expected='"time" or "arrival"')
        if self.allowed_lateness:
            raise ArgumentInvalid(
                name="allowed_lateness",
                value=self.allowed_lateness,
                expected="none: rows wait for the delay of the event time",
            )

    def step(self, computation: Computation) -> Step:
        return CountStep(
            time_column=self.event_time.column,
            computation=computation,
            size=self.size,
            every=self.every or self.size,
            order=self.order,
            emit=self.emit,
        )

    def state(self, computation: Computation) -> pa.Schema:
        return count_state(computation)

    @property
    def output_times(self) -> tuple[EventTime, ...]:
        return () if self.order == "arrival" else super().output_times

    def fields(self, computation: Computation) -> list[pa.Field]:
        return [pa.field(WINDOW, pa.int64()), *output_fields(computation, self.emit)]


def count_state(computation: Computation) -> pa.Schema:
    numbers = [pa.field(name, pa.int64()) for name in (NUMBER, FIRST, LAST)]
    return pa.schema([pa.field(KIND, pa.int8()), *numbers, *computation.partials, pa.field(WAKE, pa.int64())])


@dataclass(frozen=True)
class Counted:
    """What is known of all keys of a partition between two batches. `counted[key]` is how many rows a key has had."""

    counted: Int64s
    slices: pa.Table
    waiting: pa.Table


@dataclass(frozen=True)
class CountStep:
    """One batch of windows by count over all keys of a partition."""

    time_column: str
    computation: Computation
    size: int
    every: int
    order: Ordering = "time"
    emit: Emit = "final"

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        before = self._known(state, rows)
        rows, sides = self._in_time(rows, time)
        waiting = self._in_order(pa.concat_tables([before.waiting, self._singles(rows)]).combine_chunks())
        ready = self._ready(waiting, time)
        known = replace(before, waiting=waiting.filter(pa.array(~ready)))
        chosen = waiting.filter(pa.array(ready))
        parts = [chosen]
        if self.emit == "every_change":
            parts = [chosen.take(pa.array(number)) for number in rounds(_numbers(chosen, KEY))]
        outputs = []
        for part in parts:
            after, output = self._count(known, part)
            outputs.append(output)
            known = after
        return StepResult(self._state(known), in_rounds(outputs) if outputs else None, sides)

    # -- rows in ------------------------------------------------------------------------------------------------------

    def _known(self, state: pa.Table, rows: pa.Table) -> Counted:
        keys, kinds = _numbers(state, KEY), _numbers(state, KIND)
        counted = np.zeros(int(max(keys.max(initial=-1), _numbers(rows, KEY).max(initial=-1))) + 1, np.int64)
        counted[keys[kinds == COUNTER]] = _numbers(state, NUMBER)[kinds == COUNTER]
        plain = state.select([KEY, NUMBER, FIRST, LAST, *self.computation.partials.names])
        return Counted(counted, *(plain.filter(pa.array(kinds == kind)).combine_chunks() for kind in (SLICE, WAITING)))

    def _in_time(self, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, dict[str, pa.Table]]:
        """Rows whose place is not certain yet, and those that come when later ones are counted already."""
        if self.order == "arrival":
            return rows, {}
        behind = time.watermark_of(_numbers(rows, KEY)) - self._times(rows)
        return split_late_rows(rows, behind > 0, behind)

    def _singles(self, rows: pa.Table) -> pa.Table:
        """Each row as a partial result of its own, with its time and its place in its topic."""
        times = self._times(rows)
        order = order_of(rows, times)
        partials = self.computation.lift(rows, order, Groups(np.arange(rows.num_rows), rows.num_rows))
        return _keyed(_numbers(rows, KEY), order.position, times, times, partials)

    def _times(self, rows: pa.Table) -> Int64s:
        return np.asarray(micros(rows.column(self.time_column)).combine_chunks())

    def _in_order(self, waiting: pa.Table) -> pa.Table:
        keys, places, times = (_numbers(waiting, name) for name in (KEY, NUMBER, FIRST))
        # Stable: rows that have lost their place keep the order in which they came.
        return waiting.take(pa.array(np.lexsort([places, times, keys] if self.order == "time" else [places, keys])))

    def _ready(self, waiting: pa.Table, time: BatchTime) -> np.ndarray:
        if self.order == "arrival":
            return np.ones(waiting.num_rows, bool)
        return _numbers(waiting, FIRST) < time.watermark_of(_numbers(waiting, KEY))

    # -- counting -----------------------------------------------------------------------------------------------------

    @property
    def _spans(self) -> Fixed:
        return Fixed(self.size, self.every)

    def _count(self, before: Counted, rows: pa.Table) -> tuple[Counted, pa.Table]:
        """Give rows their numbers, put them into slices, and tell what that makes of windows."""
        keys = _numbers(rows, KEY)
        groups = Groups.of(keys)
        place = np.arange(len(keys)) - np.repeat(groups.starts, groups.sizes())
        slices = self._spans.slices(before.counted[keys] + place)
        counted = before.counted.copy()
        counted[keys[groups.starts]] += groups.sizes()
        rows = rows.set_column(rows.column_names.index(NUMBER), NUMBER, pa.array(slices, pa.int64()))
        inside = self._spans.inside(slices)
        added = self._merged(rows if inside is None else rows.filter(pa.array(inside)))
        merged = self._merged(pa.concat_tables([before.slices, added]).combine_chunks())
        if self.emit == "final":
            output = self._results(merged, after=before.counted, until=counted)
        else:
            output = self._changes(before, added, merged)
        open_still = self._spans.last_ends(_numbers(merged, NUMBER)) > counted[_numbers(merged, KEY)]
        return replace(before, counted=counted, slices=merged.filter(pa.array(open_still))), output

    def _merged(self, rows: pa.Table) -> pa.Table:
        """One row per key and slice."""
        keys, numbers = _numbers(rows, KEY), _numbers(rows, NUMBER)
        order = np.lexsort([numbers, keys])  # stable: what came first stays first
        return self._grouped(rows.take(pa.array(order)), keys[order], numbers[order])

    def _grouped(self, rows: pa.Table, keys: Int64s, numbers: Int64s) -> pa.Table:
        groups = Groups.of(keys, numbers)
        partials = self.computation.merge(rows, groups)
        first, last = _numbers(rows, FIRST), _numbers(rows, LAST)
        if groups.count:
            first, last = np.minimum.reduceat(first, groups.starts), np.maximum.reduceat(last, groups.starts)
        return _keyed(keys[groups.starts], numbers[groups.starts], first, last, partials)

    # -- results out --------------------------------------------------------------------------------------------------

    def _results(
        self,
        slices: pa.Table,
        *,
        after: Int64s | None = None,
        until: Int64s | None = None,
        added: pa.Table | None = None,
    ) -> pa.Table:
        """Windows that became full between two counts, or that hold one of the slices in `added`."""
        held = self._spans.windows(_numbers(slices, NUMBER))
        keys = _numbers(slices, KEY)[held.slices]
        chosen = held.starts >= 0
        if after is not None and until is not None:
            ends = self._spans.ends(held.starts)
            chosen &= (ends > after[keys]) & (ends <= until[keys])
        if added is not None:
            chosen &= _touched(keys, held.starts, added, self._spans)
        rows, keys, starts = held.slices[chosen], keys[chosen], held.starts[chosen]
        order = np.lexsort([starts, keys])
        windows = self._grouped(slices.take(pa.array(rows[order])), keys[order], starts[order])
        return self._finished(windows)

    def _finished(self, windows: pa.Table) -> pa.Table:
        numbers = pc.divide(windows.column(NUMBER), self.every)
        times = [windows.column(name).cast(pa.timestamp("us", "UTC")) for name in (FIRST, LAST)]
        results = self.computation.finish(windows)
        names = [KEY, WINDOW, START, END, *results.column_names]
        return pa.table([windows.column(KEY), numbers, *times, *results.columns], names=names)

    def _changes(self, before: Counted, added: pa.Table, merged: pa.Table) -> pa.Table:
        """What rows changed in windows: results that they retract, and those that take their place."""
        old, new = (self._results(slices, added=added) for slices in (before.slices, merged))
        return paired(old, new, by=[KEY, WINDOW])

    def _state(self, known: Counted) -> pa.Table:
        keys = np.flatnonzero(known.counted)
        counter = pa.table(
            {
                KEY: pa.array(keys, pa.int64()),
                KIND: pa.array(np.full(len(keys), COUNTER, np.int8)),
                NUMBER: pa.array(known.counted[keys], pa.int64()),
            }
        )
        parts = [counter]
        for kind, table in ((SLICE, known.slices), (WAITING, known.waiting)):
            marked = table.append_column(KIND, pa.array(np.full(table.num_rows, kind, np.int8)))
            if kind == WAITING:
                marked = marked.append_column(WAKE, earliest(_numbers(table, KEY), _numbers(table, FIRST) + 1))
            parts.append(marked)
        return pa.concat_tables(parts, promote_options="default")


def _touched(keys: Int64s, starts: Int64s, added: pa.Table, spans: Fixed) -> np.ndarray:
    """Which pairs of key and window hold one of these slices."""
    held = spans.windows(_numbers(added, NUMBER))
    wanted = pa.table({"key": _numbers(added, KEY)[held.slices], "start": held.starts})
    return among(keys, starts, wanted.group_by(["key", "start"], use_threads=False).aggregate([]))


def _keyed(keys: Int64s, numbers: Int64s, first: Int64s, last: Int64s, partials: pa.Table) -> pa.Table:
    columns = [pa.array(values, pa.int64()) for values in (keys, numbers, first, last)]
    return pa.table([*columns, *partials.columns], names=[KEY, NUMBER, FIRST, LAST, *partials.column_names])


def _numbers(table: pa.Table, name: str) -> Int64s:
    return np.asarray(table.column(name).combine_chunks())
