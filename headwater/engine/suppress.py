"""Hold the changes of a table back, and emit them together: `Suppress` says when.

Of each key the row that was emitted last is kept, and the row that holds now where it is another. So what is emitted is always a
changelog of the table as it stands, however many changes were held back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.aggregation import Int64s
from headwater.engine.changelog import OP, UPDATE_BEFORE, paired
from headwater.engine.columns import ALL, KEY, PROCESSING_TIMER
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import EVER, BatchTime
from headwater.engine.spark_plan import apply
from headwater.engine.table_changes import TableUpdate, taken
from headwater.errors import ArgumentInvalid
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Whether a row of the state was emitted, and how many changes of its key were not.
EMITTED = "_emitted"
CHANGES = "_changes"
STATE = (pa.field(EMITTED, pa.bool_()), pa.field(CHANGES, pa.int64()), pa.field(PROCESSING_TIMER, pa.int64()))


@dataclass(frozen=True, kw_only=True)
class Suppress:
    """When changes that are held back are emitted: so long after the first of them in processing time, or when there are so many.

    Given both, whichever comes first. At the end of bounded input everything is emitted.

    >>> from headwater.operators import AggregateTable, Suppress, agg
    >>> AggregateTable(by="page", compute={"n": agg.count()}, emit=Suppress(every="10 seconds")).emit
    Suppress(every='10 seconds', changes=None)
    """

    every: Duration | None = None
    changes: int | None = None

    def __post_init__(self) -> None:
        if self.every is None and self.changes is None:
            raise ArgumentInvalid(name="every", value=None, expected="a duration, or a number of `changes`, or both")
        if self.every is not None:
            parse_seconds(self.every, name="every")
        if self.changes is not None and (isinstance(self.changes, bool) or self.changes < 1):
            raise ArgumentInvalid(name="changes", value=self.changes, expected="a whole number, at least 1")

    @property
    def every_us(self) -> int | None:
        return None if self.every is None else round(parse_seconds(self.every) * 1e6)


@dataclass(frozen=True, kw_only=True)
class HeldChanges:
    """A changelog with one row per key, of which changes are held back."""

    name: str
    key: tuple[str, ...]
    suppress: Suppress
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
        return Contract(
            name=self.name,
            step=SuppressStep(update, self.suppress.every_us, self.suppress.changes),
            key=groups,
            rows=rows,
            state=pa.schema([*plain, *STATE]),
            output=pa.schema([one for one in rows if one.name != ALL]),
        )


@dataclass(frozen=True)
class SuppressStep:
    """One batch of changes: they are counted, and emitted for the keys that are due."""

    following: TableUpdate
    every_us: int | None
    changes: int | None

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        names = [KEY, *self.following.columns]
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
            _with_state(_of(now, due), emitted=True, changes=np.zeros_like(count), wakes=np.full_like(wakes, EVER)),
            _with_state(_of(emitted, ~due), emitted=True, changes=count, wakes=wakes),
            _with_state(_of(now, ~due & (count > 0)), emitted=False, changes=count, wakes=wakes),
        ]
        return StepResult(pa.concat_tables(parts), changes)

    def _counted(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> tuple[Int64s, Int64s]:
        """For each key how many changes are held back, and when they are emitted at the latest."""
        keys = _array(state, KEY), _array(rows, KEY)
        size = int(max(one.max(initial=-1) for one in keys)) + 1
        count, wakes = np.zeros(size, np.int64), np.full(size, EVER, np.int64)
        count[keys[0]] = _array(state, CHANGES)
        wakes[keys[0]] = np.asarray(state.column(PROCESSING_TIMER).fill_null(EVER))
        new = np.asarray(rows.column(OP)) != UPDATE_BEFORE
        np.add.at(count, keys[1][new], 1)
        if self.every_us is not None and time.processing_us is not None:
            begins = (count > 0) & (wakes == EVER)
            wakes[begins] = time.processing_us + self.every_us
        return count, wakes

    def _due(self, count: Int64s, wakes: Int64s, time: BatchTime) -> npt.NDArray[np.bool_]:
        if time.batch is None:  # bounded: all rows are there
            return np.ones(len(count), bool)
        due = np.zeros(len(count), bool) if time.processing_us is None else wakes <= time.processing_us
        return due if self.changes is None else due | (count >= self.changes)


def _with_state(rows: pa.Table, *, emitted: bool, changes: Int64s, wakes: Int64s) -> pa.Table:
    keys = _array(rows, KEY)
    at = wakes[keys]
    columns = (np.full(len(keys), emitted), changes[keys], pa.array(at, pa.int64(), mask=at >= EVER))
    for field, values in zip(STATE, columns, strict=True):
        rows = rows.append_column(field, pa.array(values, field.type))
    return rows


def _of(rows: pa.Table, keys: npt.NDArray[np.bool_]) -> pa.Table:
    return rows.filter(pa.array(keys[_array(rows, KEY)]))


def _array(table: pa.Table, name: str) -> Int64s:
    return np.asarray(table.column(name).combine_chunks())
