"""The step of windows that are kept per key: rows become partial results per slice, slices become windows, windows become
results.

State is one row per key and slice. A window is closed when the watermark has passed its end by the allowed lateness;
its result is then final. A row all of whose windows are closed is late.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.aggregation import Computation, Groups, Int64s, order_of
from headwater.engine.changelog import OP, paired, rounds
from headwater.engine.columns import KEY, PROCESSING_TIMER
from headwater.engine.contract import StepResult
from headwater.engine.event_time import NEVER, BatchTime, with_late_by
from headwater.engine.rows import micros
from headwater.engine.window_spans import Spans
from headwater.errors import ArgumentInvalid

START = "window_start"
END = "window_end"
SLICE = "slice_us"
WAKE = "_wake_at"
Emit = Literal["final", "changes", "every_change"]
#: When a row was processed: all rows of a batch at once.
PROCESSED = "_processed_at"


def state_schema(computation: Computation) -> pa.Schema:
    return pa.schema([pa.field(SLICE, pa.int64()), *computation.partials, pa.field(WAKE, pa.int64())])


def output_fields(computation: Computation, emit: Emit) -> list[pa.Field]:
    """The columns that a window's result has beside its key."""
    ops = [] if emit == "final" else [pa.field(OP, pa.string())]
    times = [pa.field(name, pa.timestamp("us", "UTC")) for name in (START, END)]
    return [*ops, *times, *computation.results]


@dataclass(frozen=True)
class WindowStep:
    """One batch of windowed aggregation over all keys of a partition."""

    time_column: str
    spans: Spans
    computation: Computation
    allowed_lateness_us: int = 0
    emit: Emit = "final"
    #: Whether the rows are partial results already, of the slice that they name.
    combined: bool = False

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        fresh, late = self._in_time(rows, time)
        if self.emit == "every_change":
            return self._each(state, fresh, late, time)
        added = self._lifted(fresh)
        merged = self._merged(state, added)
        output = self._closed(merged, time) if self.emit == "final" else self._changes(state, merged, added, time)
        return StepResult(self._kept(merged, time), output, {"late": late} if late is not None else {})

    # -- rows in ------------------------------------------------------------------------------------------------------

    def _in_time(self, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table | None]:
        """Rows with the slice they fall in, and rows all of whose windows are closed."""
        times = np.asarray(micros(rows.column(self.time_column)).combine_chunks())
        if self.combined:
            slices = _slices(rows)
        else:
            slices = self.spans.slices(times)
            rows = rows.append_column(SLICE, pa.array(slices, pa.int64()))
        inside = self.spans.inside(slices)
        if inside is not None:
            rows, times, slices = rows.filter(pa.array(inside)), times[inside], slices[inside]
        reached = time.watermark_of(_keys(rows))
        late = reached >= self.spans.last_ends(slices) + self.allowed_lateness_us
        if not late.any():
            return rows, None
        side = rows.filter(pa.array(late))
        own = [
            SLICE,
            KEY,
            *(["_offset"] if self.combined else []),
        ]  # which is of a part of the rows, and of none of them
        side = with_late_by(side.drop_columns(own), (reached - times)[late])
        return rows.filter(pa.array(~late)), side

    def _lifted(self, rows: pa.Table) -> pa.Table:
        """Partial results of rows, per key and slice."""
        keys, slices = (np.asarray(rows.column(name).combine_chunks()) for name in (KEY, SLICE))
        times = np.asarray(micros(rows.column(self.time_column)).combine_chunks())
        # Rows are in the order of key and time, and slices are in the order of time: groups stand together.
        groups = Groups.of(keys, slices)
        if self.combined:
            partials = self.computation.merge(rows, groups)
        else:
            partials = self.computation.lift(rows, order_of(rows, times), groups)
        return self._keyed(keys[groups.starts], slices[groups.starts], partials)

    def _merged(self, state: pa.Table, added: pa.Table) -> pa.Table:
        """The slices of the state and of the rows, one row per key and slice, sorted by both."""
        if not state.num_rows:
            return added
        both = pa.concat_tables([state.select(added.column_names), added]).combine_chunks()
        keys, slices = (np.asarray(both.column(name)) for name in (KEY, SLICE))
        order = np.lexsort([slices, keys])
        groups = Groups.of(keys[order], slices[order])
        partials = self.computation.merge(both.take(pa.array(order)), groups)
        first = order[groups.starts]
        return self._keyed(keys[first], slices[first], partials)

    def _keyed(self, keys: Int64s, slices: Int64s, partials: pa.Table) -> pa.Table:
        names = [KEY, SLICE, *partials.column_names]
        return pa.table([pa.array(keys, pa.int64()), pa.array(slices, pa.int64()), *partials.columns], names=names)

    # -- results out --------------------------------------------------------------------------------------------------

    def answer(self, state: pa.Table) -> pa.Table:
        """What the windows that are kept amount to so far."""
        held = self.spans.windows(_slices(state))
        return self._results(state, held.slices, held.starts)

    def _closed(self, merged: pa.Table, time: BatchTime) -> pa.Table:
        """The results of windows that have closed since the last batch."""
        held = self.spans.windows(_slices(merged))
        closes = self.spans.ends(held.starts) + self.allowed_lateness_us
        keys = _keys(merged)[held.slices]
        now = (closes > time.watermark_before_of(keys)) & (closes <= time.watermark_of(keys))
        return self._results(merged, held.slices[now], held.starts[now])

    def _changes(self, before: pa.Table, after: pa.Table, added: pa.Table, time: BatchTime) -> pa.Table:
        """What a batch changed in windows: results that it retracts, and those that take their place."""
        touched = self.spans.windows(_slices(added))
        keys = np.asarray(added.column(KEY).combine_chunks())[touched.slices]
        # Of a window that is closed some slices may be gone: a row that an open one takes as well changes that one alone.
        open_still = self.spans.ends(touched.starts) + self.allowed_lateness_us > time.watermark_of(keys)
        wanted = (
            pa.table({"key": keys[open_still], "start": touched.starts[open_still]})
            .group_by(["key", "start"], use_threads=False)
            .aggregate([])
        )
        old = self._results_of(before, wanted)
        new = self._results_of(after, wanted)
        return paired(old, new, by=[KEY, START])

    def _results_of(self, slices: pa.Table, wanted: pa.Table) -> pa.Table:
        """The results of the windows named in `wanted`, as far as there are any."""
        held = self.spans.windows(_slices(slices))
        keys = np.asarray(slices.column(KEY).combine_chunks())[held.slices]
        chosen = among(keys, held.starts, wanted)
        return self._results(slices, held.slices[chosen], held.starts[chosen])

    def _results(self, slices: pa.Table, rows: Int64s, starts: Int64s) -> pa.Table:
        """Windows put together from their slices: row `rows[i]` of `slices` belongs to the window at `starts[i]`."""
        keys = np.asarray(slices.column(KEY).combine_chunks())[rows]
        order = np.lexsort([starts, keys])
        keys, starts = keys[order], starts[order]
        groups = Groups.of(keys, starts)
        partials = self.computation.merge(slices.take(pa.array(rows[order])), groups)
        starts = starts[groups.starts]
        times = [pa.array(values, pa.timestamp("us", "UTC")) for values in (starts, self.spans.ends(starts))]
        results = self.computation.finish(partials)
        names = [KEY, START, END, *results.column_names]
        return pa.table([pa.array(keys[groups.starts], pa.int64()), *times, *results.columns], names=names)

    def _kept(self, merged: pa.Table, time: BatchTime) -> pa.Table:
        """The slices that some window still needs, and when to look at each again."""
        slices = _slices(merged)
        gone = self.spans.last_ends(slices) + self.allowed_lateness_us
        reached = time.watermark_of(_keys(merged))
        kept = gone > reached
        merged, slices, gone = merged.filter(pa.array(kept)), slices[kept], gone[kept]
        wake = gone
        if self.emit == "final":
            held = self.spans.windows(slices)
            closes = self.spans.ends(held.starts) + self.allowed_lateness_us
            later = closes > reached[kept][held.slices]
            wake = gone.copy()
            np.minimum.at(wake, held.slices[later], closes[later])
        return merged.append_column(WAKE, pa.array(wake, pa.int64()))

    def _each(self, state: pa.Table, rows: pa.Table, late: pa.Table | None, time: BatchTime) -> StepResult:
        """Every change, as if each row had come alone: the n-th rows of all keys make the n-th round."""
        names = [KEY, SLICE, *self.computation.partials.names]
        slices = state.select(names)
        outputs = []
        for number in rounds(np.asarray(rows.column(KEY).combine_chunks())):
            added = self._lifted(rows.take(pa.array(number)))
            merged = self._merged(slices, added)
            outputs.append(self._changes(slices, merged, added, time))
            slices = merged
        output = in_rounds(outputs) if outputs else None
        return StepResult(self._kept(slices, time), output, {"late": late} if late is not None else {})


def _keys(table: pa.Table) -> Int64s:
    return np.asarray(table.column(KEY).combine_chunks())


def _slices(table: pa.Table) -> Int64s:
    return np.asarray(table.column(SLICE).combine_chunks())


def among(keys: Int64s, starts: Int64s, wanted: pa.Table) -> npt.NDArray[np.bool_]:
    """Which pairs of key and start are among those wanted."""
    if not len(keys) or not wanted.num_rows:
        return np.zeros(len(keys), bool)
    have = pa.table({"key": keys, "start": starts, "row": np.arange(len(keys))})
    found = have.join(wanted, keys=["key", "start"], join_type="left semi", use_threads=False)
    chosen = np.zeros(len(keys), bool)
    chosen[np.asarray(found.column("row").combine_chunks())] = True
    return chosen


def in_rounds(outputs: list[pa.Table]) -> pa.Table:
    """The changes of several rounds, those of one key in the order of the rounds."""
    table = pa.concat_tables(outputs).combine_chunks()
    order = np.argsort(np.asarray(table.column(KEY)), kind="stable")
    return table.take(pa.array(order))


@dataclass(frozen=True)
class ProcessingStep:
    """The step of windows over event time, for which event time is the processing time of the batch.

    So nothing is late, and the watermark is the processing time itself.
    """

    windows: WindowStep

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        now_us = time.processing_us
        if now_us is None:
            raise without_time()
        if PROCESSED in rows.column_names:
            rows = rows.drop_columns([PROCESSED])
        at = pa.array(np.full(rows.num_rows, now_us), pa.timestamp("us", "UTC"))
        before_us = NEVER if time.processing_before_us is None else time.processing_before_us
        by_processing = replace(time, watermark_us=now_us, watermark_before_us=before_us)
        stepped = self.windows(state, rows.append_column(PROCESSED, at), by_processing)
        return replace(stepped, state=renamed(stepped.state, WAKE, PROCESSING_TIMER))

    def answer(self, state: pa.Table) -> pa.Table:
        return self.windows.answer(state)


def processing_state(schema: pa.Schema) -> pa.Schema:
    """The same state, whose timers are those of processing time."""
    return pa.schema([one.with_name(PROCESSING_TIMER) if one.name == WAKE else one for one in schema])


def renamed(table: pa.Table, name: str, other: str) -> pa.Table:
    return table.rename_columns([other if one == name else one for one in table.column_names])


def without_time() -> ArgumentInvalid:
    """Bounded rows, and those of other sources, have no processing time that would be the same on every run."""
    expected = '"event" where rows are bounded or come from elsewhere: time="_appended_at" is when they reached the log'
    return ArgumentInvalid(name="clock", value="processing", expected=expected)


def earliest(keys: Int64s, wake_us: Int64s) -> pa.Array:
    """Of rows sorted by key, the earliest time of each key at its first row; nothing at the others.

    >>> earliest(np.array([0, 0, 1]), np.array([9, 7, 8])).to_pylist()
    [7, None, 8]
    """
    groups = Groups.of(keys)
    found = np.zeros(len(keys), np.int64)
    if groups.count:
        found[groups.starts] = np.minimum.reduceat(wake_us, groups.starts)
    silent = np.ones(len(keys), bool)
    silent[groups.starts] = False
    return pa.array(found, pa.int64(), mask=silent)


def narrowed(table: pa.Table, keys: Int64s) -> tuple[pa.Table, pa.Table]:
    """The rows of these keys, and those of all others.

    >>> some, others = narrowed(pa.table({"_key": [0, 1, 1, 2]}), np.array([1]))
    >>> some.column("_key").to_pylist(), others.column("_key").to_pylist()
    ([1, 1], [0, 2])
    """
    chosen = np.isin(np.asarray(table.column(KEY).combine_chunks()), keys)
    return table.filter(pa.array(chosen)), table.filter(pa.array(~chosen))
