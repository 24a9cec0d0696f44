"""`Sliding`: windows of one length that follow the rows: one that ends with each row, one that begins just after it.

State is one row per key and instant at which a row came, kept until no open window can hold it or begin after it. Time
comes first: what the watermark has closed is closed before the rows of a batch are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.aggregation import Computation, Groups, Int64s, order_of
from headwater.engine.changelog import paired, rounds
from headwater.engine.columns import KEY
from headwater.engine.contract import Step, StepResult
from headwater.engine.event_time import BatchTime, split_late_rows
from headwater.engine.rows import micros
from headwater.engine.time_index import interleaved, rows_before
from headwater.engine.window_operator import RowWindowOperator
from headwater.engine.window_spans import duration_us
from headwater.engine.window_step import END, START, WAKE, Emit, earliest, in_rounds, narrowed
from headwater.errors import ArgumentInvalid
from headwater.operators.aggregates.ranges import merged_ranges
from headwater.units import Duration

AT = "at_us"
Which = Literal["all", "trailing"]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Sliding(RowWindowOperator):
    """Aggregate the rows of each key over every window of length `size` whose rows differ: Kafka Streams' sliding windows.

    A window holds both its ends. One ends with each row's time, `[t - size, t]`, and one begins a `tick` after it, where
    there are rows in it: so each set of rows that lie at most `size` apart is seen, and each window comes once. With
    `windows="trailing"` only those that end with a row are made: the past `size` as of each row. `emit`, lateness and
    late rows are those of `Tumbling`; a window is closed when the watermark is later than its end and `allowed_lateness`. State:
    one row per key and instant of the last `size` and lateness.

    `tick` is the smallest step of time: Kafka Streams' is `"1 ms"`, and times are taken down to it. `floor=True` lets no
    window begin before 1970, as there.

    >>> from headwater.operators import Sliding, agg
    >>> Sliding(size="5 minutes", by="card", compute={"spent": agg.sum("amount")}, windows="trailing").size
    '5 minutes'
    """

    size: Duration
    windows: Which = "all"
    tick: Duration = 1e-6
    floor: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        size_us, tick_us = duration_us("size", self.size), duration_us("tick", self.tick)
        if size_us % tick_us:
            raise ArgumentInvalid(name="tick", value=self.tick, expected="a length of which `size` is a multiple")
        if self.windows not in ("all", "trailing"):
            raise ArgumentInvalid(name="windows", value=self.windows, expected='"all" or "trailing"')

    def step(self, computation: Computation) -> Step:
        return SlideStep(
            time_column=self.event_time.column,
            computation=computation,
            size_us=duration_us("size", self.size),
            tick_us=duration_us("tick", self.tick),
            allowed_lateness_us=self.allowed_lateness_us,
            floor=self.floor,
            which=self.windows,
            emit=self.emit,
        )

    def state(self, computation: Computation) -> pa.Schema:
        return slide_state(computation)


class Slides(NamedTuple):
    """Windows over instants in the order of key and time: from row `first[i]` up to, and without, row `stop[i]`.

    `maker[i]` is the row of the instant without which there would be no such window.
    """

    starts: Int64s
    first: Int64s
    stop: Int64s
    maker: Int64s

    def where(self, chosen: Mask) -> Slides:
        return Slides(*(values[chosen] for values in self))


def slide_state(computation: Computation) -> pa.Schema:
    return pa.schema([pa.field(AT, pa.int64()), *computation.partials, pa.field(WAKE, pa.int64())])


@dataclass(frozen=True)
class SlideStep:
    """One batch of sliding windows over all keys of a partition."""

    time_column: str
    computation: Computation
    size_us: int
    tick_us: int = 1
    allowed_lateness_us: int = 0
    floor: bool = False
    which: Which = "all"
    emit: Emit = "final"

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        before = _sorted(state.select([KEY, AT, *self.computation.partials.names]))
        output = self._closed(before, time) if self.emit == "final" else None
        rows, sides = self._in_time(rows, time)
        if self.emit == "every_change":
            after, output = self._each(before, rows, time)
        else:
            added = self._lifted(rows)
            after = self._merged(before, added)
            if self.emit == "changes":
                output = self._changes(before, added, after, time)
        return StepResult(self._kept(after, time), output, sides)

    # -- rows in ------------------------------------------------------------------------------------------------------

    def _instants(self, rows: pa.Table) -> Int64s:
        times = self._times(rows)
        found: Int64s = times if self.tick_us == 1 else times // self.tick_us * self.tick_us
        return found

    def _times(self, rows: pa.Table) -> Int64s:
        return np.asarray(micros(rows.column(self.time_column)).combine_chunks())

    def _in_time(self, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, dict[str, pa.Table]]:
        """Rows that some window may still take, and those that none will."""
        at = self._instants(rows)
        watermark = time.watermark_of(_numbers(rows, KEY))
        late = self._closes(at) <= watermark
        if self.floor:
            late |= at < 0
        return split_late_rows(rows, late, watermark - self._times(rows))

    def _lifted(self, rows: pa.Table) -> pa.Table:
        """Partial results of rows, per key and instant."""
        keys, at = _numbers(rows, KEY), self._instants(rows)
        groups = Groups.of(keys, at)
        partials = self.computation.lift(rows, order_of(rows, self._times(rows)), groups)
        return _keyed(keys[groups.starts], at[groups.starts], partials)

    def _merged(self, before: pa.Table, added: pa.Table) -> pa.Table:
        """The instants of the state and of the rows, in the order of key and time."""
        if not before.num_rows or not added.num_rows:
            return added if added.num_rows else before
        both = pa.concat_tables([before, added]).combine_chunks()
        keys, at = _numbers(both, KEY), _numbers(both, AT)
        order = interleaved(keys, at, before.num_rows)
        groups = Groups.of(keys[order], at[order])
        partials = self.computation.merge(both.take(pa.array(order)), groups)
        first = order[groups.starts]
        return _keyed(keys[first], at[first], partials)

    # -- windows ------------------------------------------------------------------------------------------------------

    def _closes(self, starts: Int64s) -> Int64s:
        """When a window is closed: its end belongs to it, so the watermark must have passed it."""
        return starts + self.size_us + 1 + self.allowed_lateness_us

    def _ending(self, keys: Int64s, at: Int64s, makers: Int64s) -> Slides:
        """The windows that end with these instants."""
        starts, stop = at[makers] - self.size_us, makers + 1
        if self.floor:
            early = at[makers] <= self.size_us
            last = np.ones(len(makers), bool)  # of all that would begin below zero, one stands for all
            following = np.minimum(makers + 1, len(at) - 1)
            last[early] = ~((keys[following] == keys[makers]) & (at[following] <= self.size_us))[early] | (
                makers[early] + 1 == len(at)
            )
            starts, stop, makers = np.maximum(starts, 0)[last], stop[last], makers[last]
        return Slides(starts, rows_before(keys, at, keys[makers], starts), stop, makers)

    def _following(self, keys: Int64s, at: Int64s, makers: Int64s) -> Slides:
        """The windows that begin just after these instants, where there is a row in them."""
        starts = at[makers] + self.tick_us
        ends = starts + self.size_us
        stop = rows_before(keys, at, keys[makers], ends + 1)
        some = stop > makers + 1
        # One that ends with an instant is that instant's own.
        some &= at[stop - 1] != ends
        return Slides(starts[some], makers[some] + 1, stop[some], makers[some])

    def _windows(self, instants: pa.Table, *, after: Int64s, until: Int64s) -> Slides:
        """All windows that close later than `after` and not later than `until`, which are given for each instant."""
        keys, at = _numbers(instants, KEY), _numbers(instants, AT)
        closes = self._closes(np.maximum(at - self.size_us, 0) if self.floor else at - self.size_us)
        found = self._ending(keys, at, np.flatnonzero((closes > after) & (closes <= until)))
        if self.which == "trailing":
            return found
        closes = self._closes(at + self.tick_us)
        more = self._following(keys, at, np.flatnonzero((closes > after) & (closes <= until)))
        return Slides(*(np.concatenate(both) for both in zip(found, more, strict=True)))

    def _results(self, instants: pa.Table, windows: Slides) -> pa.Table:
        keys = _numbers(instants, KEY)
        partials = merged_ranges(self.computation, instants, keys, windows.first, windows.stop)
        ends = windows.starts + self.size_us
        times = [pa.array(values, pa.timestamp("us", "UTC")) for values in (windows.starts, ends)]
        results = self.computation.finish(partials)
        names = [KEY, START, END, *results.column_names]
        return pa.table([pa.array(keys[windows.maker], pa.int64()), *times, *results.columns], names=names)

    def answer(self, state: pa.Table) -> pa.Table:
        """What the windows that are kept amount to so far."""
        instants = _sorted(state.select([KEY, AT, *self.computation.partials.names]))
        ever = np.full(instants.num_rows, np.iinfo(np.int64).max)
        return self._results(instants, self._windows(instants, after=-ever, until=ever))

    # -- results out --------------------------------------------------------------------------------------------------

    def _closed(self, instants: pa.Table, time: BatchTime) -> pa.Table:
        """The results of windows that have closed since the last batch."""
        keys = _numbers(instants, KEY)
        windows = self._windows(instants, after=time.watermark_before_of(keys), until=time.watermark_of(keys))
        return self._results(instants, windows)

    def _changes(self, before: pa.Table, added: pa.Table, after: pa.Table, time: BatchTime) -> pa.Table:
        """What rows changed in open windows: results that they retract, and those that take their place."""
        old = self._open(before, time)
        old = old.where(_holding(before, old, added, self.size_us))
        new = self._open(after, time)
        made = ~_contains(before, after)[new.maker]
        new = new.where(made | _holding(after, new, added, self.size_us))
        return paired(self._results(before, old), self._results(after, new), by=[KEY, START])

    def _open(self, instants: pa.Table, time: BatchTime) -> Slides:
        watermark = time.watermark_of(_numbers(instants, KEY))
        return self._windows(instants, after=watermark, until=np.full(len(watermark), np.iinfo(np.int64).max))

    def _kept(self, instants: pa.Table, time: BatchTime) -> pa.Table:
        """The instants that an open window needs, and when to look at each again."""
        at = _numbers(instants, AT)
        watermark = time.watermark_of(_numbers(instants, KEY))
        gone = self._closes(at + (self.tick_us if self.which == "all" else 0))
        wake = gone
        if self.emit == "final":
            closes = self._closes(np.maximum(at - self.size_us, 0) if self.floor else at - self.size_us)
            wake = np.where(closes > watermark, closes, gone)
        kept = gone > watermark
        instants = instants.filter(pa.array(kept))
        return instants.append_column(WAKE, earliest(_numbers(instants, KEY), wake[kept]))

    def _each(self, before: pa.Table, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, pa.Table | None]:
        """Every change, as if each row had come alone: the n-th rows of all keys make the n-th round."""
        outputs, done = [], []
        for number in rounds(_numbers(rows, KEY)):
            added = self._lifted(rows.take(pa.array(number)))
            before, others = narrowed(before, _numbers(added, KEY))
            done.append(others)
            after = self._merged(before, added)
            outputs.append(self._changes(before, added, after, time))
            before = after
        return in_rounds([*done, before]), in_rounds(outputs) if outputs else None


def _holding(instants: pa.Table, windows: Slides, added: pa.Table, size_us: int) -> Mask:
    """Which windows hold one of the instants added."""
    keys = _numbers(instants, KEY)[windows.maker]
    places = (_numbers(added, KEY), _numbers(added, AT))
    found: Mask = rows_before(*places, keys, windows.starts) < rows_before(*places, keys, windows.starts + size_us + 1)
    return found


def _contains(before: pa.Table, after: pa.Table) -> Mask:
    """Which instants were there before."""
    keys, at = _numbers(before, KEY), _numbers(before, AT)
    of_keys, of_at = _numbers(after, KEY), _numbers(after, AT)
    found: Mask = rows_before(keys, at, of_keys, of_at) < rows_before(keys, at, of_keys, of_at + 1)
    return found


def _sorted(instants: pa.Table) -> pa.Table:
    instants = instants.combine_chunks()
    keys, at = _numbers(instants, KEY), _numbers(instants, AT)
    if not ((keys[1:] == keys[:-1]) & (at[1:] < at[:-1])).any():
        return instants
    return instants.take(pa.array(np.lexsort([at, keys])))


def _keyed(keys: Int64s, at: Int64s, partials: pa.Table) -> pa.Table:
    columns = [pa.array(keys, pa.int64()), pa.array(at, pa.int64()), *partials.columns]
    return pa.table(columns, names=[KEY, AT, *partials.column_names])


def _numbers(table: pa.Table, name: str) -> Int64s:
    return np.asarray(table.column(name).combine_chunks())
