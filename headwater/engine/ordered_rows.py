"""Rows in the order of event time, each with what its key's past amounts to: what `Rolling`, `Rate`, `Trend` and `Anomaly` share.

A row waits until nothing earlier, and nothing at its own time, can follow. So every row sees the same past in whichever
order the rows came. State is the rows that wait, whole, and what is remembered of those that have left; both lie in one
table, in which a row that left has only what is remembered of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.aggregation import ARGUMENT, Aggregate, Groups, Int64s
from headwater.engine.columns import ALL, KEY, PUNCTUATION
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import (
    LATE_SAMPLE_ROWS,
    BatchTime,
    Late,
    check_late,
    late_schema,
    split_late_rows,
)
from headwater.engine.join_inputs import check_appends
from headwater.engine.key_watermark import per_key
from headwater.engine.operator import EventTimeOperator
from headwater.engine.rows import micros
from headwater.engine.spark_plan import apply
from headwater.engine.window_operator import keys_of, prepared
from headwater.engine.window_step import earliest
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AT = "_at_us"
WAITS = "_waits"
WAKE = "_wake_at"
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class OrderedOperator(EventTimeOperator, ABC):
    """A row in, the same row out with more columns, when nothing earlier can follow.

    Rows leave in the order of event time over all keys, so that an operator behind this one finds none of them late. With
    `prompt=True` a row leaves in its own batch where that is known to be early enough; rows of other keys that are
    earlier may then follow a batch later, and an operator behind needs a delay for them.
    """

    by: str | tuple[str, ...] = ()
    late: Late = "drop"
    prompt: bool = False

    per_key: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_late(self.late)
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Raise on settings that make no sense."""

    @abstractmethod
    def arguments(self) -> Mapping[str, Aggregate]:
        """What Spark is to evaluate for each row."""

    @abstractmethod
    def measure(self, rows: pa.Schema) -> Measure:
        """What is made of the past of a row."""

    def __call__(self, rows: DataFrame) -> DataFrame:
        check_appends("rows", rows)
        operator, called = self.resolved(rows), self.name or type(self).__name__
        time = operator.event_time.column
        made = prepared(called, rows, time=time, by=self.by, compute=self.arguments(), whole=True)
        return apply(operator.contract, made, partitions=self.partitions if self.by else 1)

    def contract(self, rows: pa.Schema) -> Contract:
        keys = keys_of(self.by)
        hidden = tuple(name for name in rows.names if name.startswith(ARGUMENT) or name == ALL)
        carried = tuple(name for name in rows.names if name not in (*keys, PUNCTUATION))
        shown = tuple(name for name in rows.names if name not in (*hidden, PUNCTUATION))
        measure = self.measure(rows)
        self._check_free(measure.added, shown)
        contract = Contract(
            name=self.called,
            step=OrderedStep(self.event_time.column, keys, carried, shown, measure, self.prompt),
            key=keys,
            rows=rows,
            state=ordered_state(rows, carried, measure.memory),
            side_outputs={"late": late_schema(rows)},
            output=pa.schema([*(rows.field(name) for name in shown), *measure.added]),
            event_time=self.strategy(),
            output_times=(self.event_time,),
            late="step",
            prompt=self.prompt,
            hidden=hidden,
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
        )
        return per_key(contract)

    def _check_free(self, added: pa.Schema, shown: tuple[str, ...]) -> None:
        for name in added.names:
            if name in shown:
                expected = "other names, or a `prefix`: the rows have a column of that name already"
                raise ArgumentInvalid(name=type(self).__name__, value=name, expected=expected)


class Past(NamedTuple):
    """What is remembered of the rows of keys, sorted by key and time. `fresh` are those that are to be measured now: of
    a key they stand after all others."""

    table: pa.Table
    keys: Int64s
    at: Int64s
    fresh: Mask


class Measured(NamedTuple):
    """The columns that fresh rows get, in their order, and what is to be remembered of all rows of the past.

    `needed` says which of them are worth remembering at all; `None` stands for all.
    """

    added: pa.Table
    memory: pa.Table
    needed: Mask | None = None


class Measure(Protocol):
    """What is made of the past of a row."""

    @property
    def added(self) -> pa.Schema:
        """The columns that a row gets."""

    @property
    def memory(self) -> pa.Schema:
        """What is remembered of a row."""

    @property
    def horizon_us(self) -> int:
        """For how long a row is remembered."""

    def remember(self, rows: pa.Table) -> pa.Table:
        """What to remember of rows that leave now; their times are the column `AT`."""

    def measure(self, past: Past) -> Measured:
        """The columns of the fresh rows."""


def ordered_state(rows: pa.Schema, carried: tuple[str, ...], memory: pa.Schema) -> pa.Schema:
    """Rows that wait, and what is remembered of others."""
    own = [pa.field(AT, pa.int64()), pa.field(WAITS, pa.bool_())]
    waiting = [rows.field(name).with_nullable(True) for name in carried]
    return pa.schema([*own, *waiting, *memory, pa.field(WAKE, pa.int64())])


@dataclass(frozen=True)
class OrderedStep:
    """One batch of rows that leave in the order of event time, with what the past of their key amounts to."""

    time_column: str
    key: tuple[str, ...]
    #: The columns with which a row waits, and those with which it leaves.
    carried: tuple[str, ...]
    shown: tuple[str, ...]
    measure: Measure
    #: Whether a row leaves as soon as its own partition knows that nothing earlier can follow.
    prompt: bool = False

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        waits = np.asarray(state.column(WAITS).combine_chunks()).astype(bool)
        rows, sides = self._in_time(rows, time)
        asking = self._asking(state.filter(pa.array(waits)), rows)
        keys, at = numbers(asking, KEY), numbers(asking, AT)
        settled = at < self._settled_before(time, keys)
        leaving = asking.filter(pa.array(settled))
        past = self._past(state.filter(pa.array(~waits)), leaving)
        measured = self.measure.measure(past)
        output = pa.table(
            [*(leaving.column(name) for name in self.shown), *measured.added.columns],
            names=[*self.shown, *measured.added.column_names],
        )
        kept = self._kept(past, measured, asking.filter(pa.array(~settled)), time)
        return StepResult(kept, output, sides)

    def answer(self, state: pa.Table) -> pa.Table:
        """The rows that wait, with what their past amounts to if nothing else comes before them."""
        waits = np.asarray(state.column(WAITS).combine_chunks()).astype(bool)
        waiting = state.filter(pa.array(waits)).combine_chunks()
        measured = self.measure.measure(self._past(state.filter(pa.array(~waits)), waiting))
        columns = [waiting.column(KEY), *(waiting.column(name) for name in self.shown), *measured.added.columns]
        return pa.table(columns, names=[KEY, *self.shown, *measured.added.column_names])

    def _in_time(self, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, dict[str, pa.Table]]:
        """Rows in time, and those that come after later rows have left."""
        before = self._late_before(time, numbers(rows, KEY))
        at = np.asarray(micros(rows.column(self.time_column)).combine_chunks())
        return split_late_rows(rows, at < before, before - at)

    def _asking(self, waiting: pa.Table, rows: pa.Table) -> pa.Table:
        """The rows that have waited and those that came, in the order of key, time and place."""
        names = [KEY, AT, *self.key, *self.carried]
        came = rows.append_column(AT, micros(rows.column(self.time_column))).select(names)
        if not waiting.num_rows:
            return came.combine_chunks()
        both = pa.concat_tables([waiting.select(names).cast(came.schema), came]).combine_chunks()
        places = [np.asarray(both.column(name).combine_chunks().fill_null(0)) for name in self._places]
        return both.take(pa.array(np.lexsort([*places, numbers(both, AT), numbers(both, KEY)])))

    def _settled_before(self, time: BatchTime, keys: Int64s) -> Int64s:
        """The time before which rows of these keys may leave.

        With the watermark all keys move together, so that what leaves in one batch is later than all that left before.
        Promptly, a key moves when it has rows, and the others follow when the watermark does.
        """
        if time.key_watermarks_us is not None:
            return time.watermark_of(keys)
        prompt = self.prompt or time.batch is None
        return np.full(len(keys), time.local_watermark_us if prompt else time.watermark_us, np.int64)

    def _late_before(self, time: BatchTime, keys: Int64s) -> Int64s:
        """The time before which rows have left already."""
        if time.key_watermarks_us is not None:
            return time.watermark_of(keys)
        return np.full(len(keys), time.local_watermark_before_us if self.prompt else time.watermark_before_us, np.int64)

    @property
    def _places(self) -> list[str]:
        return [name for name in ("_offset", "_partition") if name in self.carried]

    def _past(self, remembered: pa.Table, leaving: pa.Table) -> Past:
        names = self.measure.memory.names
        fresh = self.measure.remember(leaving)
        table = pa.concat_tables([remembered.select(names).cast(fresh.schema), fresh]).combine_chunks()
        keys, at = (np.concatenate([numbers(remembered, name), numbers(leaving, name)]) for name in (KEY, AT))
        is_fresh = np.arange(len(keys)) >= remembered.num_rows
        # What is remembered of a key is earlier than all that leaves now: it is enough to sort by key.
        order = np.argsort(keys, kind="stable")
        if remembered.num_rows:
            table = table.take(pa.array(order))
        return Past(table, keys[order], at[order], is_fresh[order])

    def _kept(self, past: Past, measured: Measured, waiting: pa.Table, time: BatchTime) -> pa.Table:
        """What a row that is still to come can ask for, the rows that wait, and when to look at each key again."""
        horizon_us = self.measure.horizon_us
        kept = past.at >= self._settled_before(time, past.keys) - horizon_us
        if measured.needed is not None:
            kept &= measured.needed
        memory = measured.memory.filter(pa.array(kept))
        memory = memory.append_column(KEY, pa.array(past.keys[kept])).append_column(AT, pa.array(past.at[kept]))
        memory = memory.append_column(WAITS, pa.array(np.zeros(memory.num_rows, bool)))
        waiting = waiting.drop_columns(list(self.key))
        waiting = waiting.append_column(WAITS, pa.array(np.ones(waiting.num_rows, bool)))
        both = pa.concat_tables([memory, waiting], promote_options="default").combine_chunks()
        keys, at, waits = (np.asarray(both.column(name).combine_chunks()) for name in (KEY, AT, WAITS))
        order = np.argsort(keys, kind="stable")
        wake = _wake(keys[order], at[order], waits[order].astype(bool), horizon_us)
        return both.take(pa.array(order)).append_column(WAKE, wake)


def _wake(keys: Int64s, at: Int64s, waits: Mask, horizon_us: int) -> pa.Array:
    """A key is looked at when the first of its rows may leave, or when the last one that is remembered is too old."""
    groups = Groups.of(keys)
    last = np.zeros(len(keys), bool)
    last[groups.starts[1:] - 1] = True
    last[-1:] = True
    never = np.iinfo(np.int64).max
    return earliest(keys, np.where(waits, at + 1, np.where(last, at + horizon_us + 1, never)))


def numbers(table: pa.Table, name: str) -> Int64s:
    return np.asarray(table.column(name).combine_chunks())
