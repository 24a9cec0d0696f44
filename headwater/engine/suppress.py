"""Hold the changes of a table back, and emit them together: `Suppress` says when.

Of each key the row that was emitted last is kept, and the row that holds now where it is another. So what is emitted is always a
changelog of the table as it stands, however many changes were held back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Int64s
from headwater.engine.changelog import OP, UPDATE_BEFORE, nullable, paired
from headwater.engine.columns import ALL, EVENT_TIMER, KEY, PROCESSING_TIMER
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import EVER, NEVER, BatchTime
from headwater.engine.operator import event_time_of
from headwater.engine.rows import micros
from headwater.engine.spark_plan import apply, default_name
from headwater.engine.table_changes import TableUpdate, taken
from headwater.engine.table_input import Names, TableLike, check_names, frame_of, key_of, timed
from headwater.engine.table_read import as_table
from headwater.engine.time_metadata import carried_times
from headwater.errors import ArgumentInvalid
from headwater.schema.event_time import EventTime
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Clock = Literal["processing", "event"]
#: Whether a row of the state was emitted, and how many changes of its key were not.
EMITTED = "_emitted"
CHANGES = "_changes"
STATE = (pa.field(EMITTED, pa.bool_()), pa.field(CHANGES, pa.int64()))
#: A time that only the end of the input reaches.
END = EVER - 1
TIMERS: Mapping[Clock, str] = {"processing": PROCESSING_TIMER, "event": EVENT_TIMER}


@dataclass(frozen=True, kw_only=True)
class Suppress:
    """Hold the changes of a table back, and emit one correction per key: so long after the first of them, or when there are so many.

    Given both, whichever comes first. The time is processing time; with `clock="event"`, changes leave when the watermark is so
    far behind the event time of the first of them. At the end of the input everything is emitted.

    As `emit` of `AggregateTable` it holds the changes of groups. As an operator it holds those of any changelog, such as the
    output of `TableJoin`, `TopN` or windows, by its `key`.

    >>> from headwater.operators import AggregateTable, Suppress, agg
    >>> AggregateTable(by="page", compute={"n": agg.count()}, emit=Suppress(every="10 seconds")).emit.every
    '10 seconds'
    """

    every: Duration | None = None
    changes: int | None = None
    clock: Clock = "processing"
    key: Names = ()
    time: EventTime | str | None = None
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.every is None and self.changes is None:
            raise ArgumentInvalid(name="every", value=None, expected="a duration, or a number of `changes`, or both")
        if self.every is not None:
            parse_seconds(self.every, name="every")
        if self.changes is not None and (isinstance(self.changes, bool) or self.changes < 1):
            raise ArgumentInvalid(name="changes", value=self.changes, expected="a whole number, at least 1")
        if self.clock not in TIMERS:
            raise ArgumentInvalid(name="clock", value=self.clock, expected='"processing" or "event"')

    def __call__(self, rows: TableLike) -> DataFrame:
        """Hold the changes of a table back; `key` tells which row replaces which."""
        called = self.name or "Suppress"
        key = key_of(rows, self.key or None)
        frame = as_table(frame_of(rows), key, operator=called)
        if OP not in frame.columns or not key:
            what = "no changelog" if OP not in frame.columns else None
            raise ArgumentInvalid(name="key", value=what, expected="a changelog with `_op`, and the key of its rows")
        check_names("key", key, frame, operator=called)
        carried = carried_times(frame.schema)
        time = None
        if self.clock == "event" or self.time is not None or len(carried) == 1:
            time = event_time_of(frame, self.time, operator=called)
        kept = [name for name in frame.columns if name == OP or not name.startswith("_")]
        held = HeldChanges(
            name=self.name or default_name(self), key=key, suppress=self, time=time, partitions=self.partitions
        )
        return held(frame.select(*(f"`{name}`" for name in kept)))

    @property
    def every_us(self) -> int | None:
        return None if self.every is None else round(parse_seconds(self.every) * 1e6)


@dataclass(frozen=True, kw_only=True)
class HeldChanges:
    """A changelog with one row per key, of which changes are held back."""

    name: str
    key: tuple[str, ...]
    suppress: Suppress
    time: EventTime | None = None
    partitions: int | None = None

    def __call__(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        if self.key:
            return apply(self.contract, rows, partitions=self.partitions)
        return apply(self.contract, rows.withColumn(ALL, F.lit(0)), partitions=1)

    def contract(self, rows: pa.Schema) -> Contract:
        groups = self.key or (ALL,)
        plain = [one for one in rows if one.name not in (OP, *groups)]
        update = TableUpdate(self.name, (KEY,), tuple(one.name for one in rows if one.name != OP), ordered=False)
        clock, every_us = self.suppress.clock, self.suppress.every_us
        if self.time is None and clock == "event":
            expected = "`time` as well: the column of event time that changes are held back by"
            raise ArgumentInvalid(name="clock", value=clock, expected=expected)
        times = {} if self.time is None else timed(self.time, held_seconds=(every_us or 0) / 1e6)
        column = None if self.time is None else self.time.column
        step = SuppressStep(update, every_us, self.suppress.changes, TIMERS[clock], column)
        return Contract(
            name=self.name,
            step=step,
            key=groups,
            null_keys=True,
            rows=rows,
            state=pa.schema([*plain, *step.state()]),
            output=pa.schema([one for one in rows if one.name != ALL]),
            **times,
        )


@dataclass(frozen=True)
class SuppressStep:
    """One batch of changes: they are counted, and emitted for the keys that are due."""

    following: TableUpdate
    every_us: int | None
    changes: int | None
    timer: str
    time: str | None

    def state(self) -> list[pa.Field]:
        """How many changes are held back, and when the key is looked at: at the end of the input in any case."""
        timers = dict.fromkeys([self.timer, *([] if self.time is None else [EVENT_TIMER])])
        return [*STATE, *(pa.field(name, pa.int64()) for name in timers)]

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        names = [KEY, *self.following.columns]
        state, rows = nullable(state), nullable(rows)
        is_emitted = _array(state, EMITTED).astype(bool)
        held = _array(state, CHANGES)
        emitted = state.filter(pa.array(is_emitted)).select(names)
        # Where nothing is held back, what was emitted is what holds.
        before = state.filter(pa.array(~is_emitted | (held == 0))).select(names).combine_chunks()
        found = self.following.replaced(before, rows)
        now = pa.concat_tables([taken(before, found.stay, names), taken(rows, found.came, names)]).combine_chunks()
        count, wakes = self._counted(state, rows, time)
        due = self._due(count, wakes, time)
        changes = paired(_of(emitted, due), _of(now, due), by=[KEY])
        parts = [
            self._state(_of(now, due), emitted=True, changes=np.zeros_like(count), wakes=np.full_like(wakes, END)),
            self._state(_of(emitted, ~due), emitted=True, changes=count, wakes=wakes),
            self._state(_of(now, ~due & (count > 0)), emitted=False, changes=count, wakes=wakes),
        ]
        return StepResult(pa.concat_tables(parts), changes)

    def _counted(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> tuple[Int64s, Int64s]:
        """For each key how many changes are held back, and when they are emitted at the latest."""
        keys = _array(state, KEY), _array(rows, KEY)
        size = int(max(one.max(initial=-1) for one in keys)) + 1
        count, wakes = np.zeros(size, np.int64), np.full(size, END, np.int64)
        count[keys[0]] = _array(state, CHANGES)
        wakes[keys[0]] = np.asarray(state.column(self.timer).fill_null(END))
        new = np.asarray(rows.column(OP)) != UPDATE_BEFORE
        np.add.at(count, keys[1][new], 1)
        if self.every_us is not None:
            begins = (count > 0) & (wakes == END)
            wakes[begins] = self._begins(rows, keys[1], new, time, size)[begins] + self.every_us
        return count, wakes

    def _begins(self, rows: pa.Table, keys: Int64s, new: npt.NDArray[np.bool_], time: BatchTime, size: int) -> Int64s:
        """For each key the time of the first change that is held back."""
        begins = np.full(size, END - (self.every_us or 0), np.int64)
        if self.timer == PROCESSING_TIMER:
            begins[:] = begins if time.processing_us is None else time.processing_us
        elif self.time is not None:
            times = np.asarray(pc.fill_null(micros(rows.column(self.time)), NEVER).combine_chunks())
            np.minimum.at(begins, keys[new], times[new])
        return begins

    def _due(self, count: Int64s, wakes: Int64s, time: BatchTime) -> npt.NDArray[np.bool_]:
        now = time.processing_us if self.timer == PROCESSING_TIMER else time.watermark_us
        # Bounded rows are all there, and at the end of a stream nothing follows.
        if time.batch is None or time.final or time.watermark_us >= END:
            return np.ones(len(count), bool)
        due = np.zeros(len(count), bool) if now is None else wakes <= now
        return due if self.changes is None else due | (count >= self.changes)

    def _state(self, rows: pa.Table, *, emitted: bool, changes: Int64s, wakes: Int64s) -> pa.Table:
        keys = _array(rows, KEY)
        at, count = wakes[keys], changes[keys]
        columns = {EMITTED: np.full(len(keys), emitted), CHANGES: count}
        columns[EVENT_TIMER] = pa.array(np.full(len(keys), END), pa.int64(), mask=count == 0)
        columns[self.timer] = pa.array(np.minimum(at, END), pa.int64(), mask=count == 0)
        for field in self.state():
            rows = rows.append_column(field, pa.array(columns[field.name], field.type))
        return rows


def _of(rows: pa.Table, keys: npt.NDArray[np.bool_]) -> pa.Table:
    return rows.filter(pa.array(keys[_array(rows, KEY)]))


def _array(table: pa.Table, name: str) -> Int64s:
    return np.asarray(table.column(name).combine_chunks())
