"""`Session`: rows of a key that follow one another closely, until there is a gap.

Rows close to one another make a run; runs and open sessions that touch become one. State is one row per key and open
session. Time comes first: what the watermark has closed is closed before the rows of a batch are looked at, so no row
reopens a result that is final.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import Computation, Groups, Int64s, order_of
from headwater.engine.changelog import DELETE, OP, paired, rounds
from headwater.engine.columns import KEY
from headwater.engine.contract import Step, StepResult
from headwater.engine.event_time import BatchTime, split_late_rows
from headwater.engine.rows import micros
from headwater.engine.window_operator import RowWindowOperator, check_time
from headwater.engine.window_spans import duration_us
from headwater.engine.window_step import END, START, WAKE, Emit, earliest, in_rounds, narrowed
from headwater.errors import ArgumentInvalid
from headwater.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FIRST = "first_us"
LAST = "last_us"


@dataclass(frozen=True, kw_only=True)
class Session(RowWindowOperator):
    """Aggregate the rows of each key per session: rows at most `gap` apart, however long that goes on.

    `window_start` is the first row's time, `window_end` the last row's plus `gap`. With `emit="final"` a session comes
    once, when the watermark has passed its end by `allowed_lateness`. With `"changes"` or `"every_change"` sessions are live: a row that
    extends one, or makes one of two, retracts the old ones and puts the new one in their place (`_op`). A row is late
    when no open session takes it and its own would be closed already. State: one row per key and open session.

    Rows exactly `gap` apart are in one session, as in Kafka Streams, Flink and Spark; with `inclusive=False` in two, as
    in Beam. Without `compute`, rows get the column `window`, for Spark's own `groupBy`.

    >>> from headwater.operators import Session, agg
    >>> Session(gap="30 minutes", by="user", compute={"pages": agg.count()}, emit="changes").gap
    '30 minutes'
    """

    gap: Duration
    inclusive: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if duration_us("gap", self.gap) == 1 and not self.inclusive:
            raise ArgumentInvalid(name="gap", value=self.gap, expected="more than a microsecond")

    def __call__(self, rows: DataFrame) -> DataFrame:
        if self.compute is not None:
            return super().__call__(rows)
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        operator = self.resolved(rows)
        time = operator.event_time.column
        check_time(self.name or "Session", rows, time)
        # Spark makes one session of rows exactly its gap apart.
        window = F.session_window(time, f"{self._reach_us - 1} microseconds")
        return rows.withWatermark(time, f"{operator.strategy().delay_us} microseconds").withColumn("window", window)

    @property
    def _reach_us(self) -> int:
        """How far from a session a row has its own."""
        return duration_us("gap", self.gap) + (1 if self.inclusive else 0)

    def step(self, computation: Computation) -> Step:
        return SessionStep(
            time_column=self.event_time.column,
            computation=computation,
            gap_us=duration_us("gap", self.gap),
            reach_us=self._reach_us,
            allowed_lateness_us=self.allowed_lateness_us,
            emit=self.emit,
        )

    def state(self, computation: Computation) -> pa.Schema:
        return session_state(computation)


class Joined(NamedTuple):
    """Sessions after rows have joined them; which of the old ones are gone, and which of the new ones hold new rows."""

    sessions: pa.Table
    old: npt.NDArray[np.bool_]
    new: npt.NDArray[np.bool_]


def session_state(computation: Computation) -> pa.Schema:
    times = [pa.field(name, pa.int64()) for name in (FIRST, LAST)]
    return pa.schema([*times, *computation.partials, pa.field(WAKE, pa.int64())])


@dataclass(frozen=True)
class SessionStep:
    """One batch of sessions over all keys of a partition.

    Rows less than `reach_us` apart belong to one session; `gap_us` is what is added to the last for the session's end.
    """

    time_column: str
    computation: Computation
    gap_us: int
    reach_us: int
    allowed_lateness_us: int = 0
    emit: Emit = "final"

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        sessions = state.select([KEY, FIRST, LAST, *self.computation.partials.names]).combine_chunks()
        closed = self._closes(sessions) <= time.watermark_of(_numbers(sessions, KEY))
        output = self._results(sessions.filter(pa.array(closed))) if self.emit == "final" else None
        sessions = sessions.filter(pa.array(~closed))
        rows, sides = self._in_time(sessions, rows, time)
        if self.emit == "every_change":
            sessions, output = self._each(sessions, rows)
        else:
            joined = self._joined(sessions, self._runs(rows)[0])
            if self.emit == "changes":
                output = self._changes(sessions, joined)
            sessions = joined.sessions
        kept = sessions.append_column(WAKE, earliest(_numbers(sessions, KEY), self._closes(sessions)))
        return StepResult(kept, output, sides)

    def _closes(self, sessions: pa.Table) -> Int64s:
        return _numbers(sessions, LAST) + self.reach_us + self.allowed_lateness_us

    # -- rows in ------------------------------------------------------------------------------------------------------

    def _in_time(self, sessions: pa.Table, rows: pa.Table, time: BatchTime) -> tuple[pa.Table, dict[str, pa.Table]]:
        """Rows in time, and late ones: those that no open session takes, and whose own would be closed."""
        runs, run_of_row = self._runs(rows)
        late = self._closes(runs) <= time.watermark_of(_numbers(runs, KEY))
        if not late.any():
            return rows, {}
        both = _together(sessions, runs)
        order, groups = self._touching(both)
        taken = ~np.concatenate([np.zeros(sessions.num_rows, bool), late])[order]
        alone = np.empty(both.num_rows, bool)
        alone[order] = np.repeat(~np.logical_or.reduceat(taken, groups.starts), groups.sizes())
        behind = time.watermark_of(_numbers(rows, KEY)) - self._times(rows)
        return split_late_rows(rows, alone[sessions.num_rows :][run_of_row], behind)

    def _runs(self, rows: pa.Table) -> tuple[pa.Table, Int64s]:
        """Sessions as the rows alone would make them, and for each row the number of its own."""
        keys, times = _numbers(rows, KEY), self._times(rows)
        begins = np.ones(rows.num_rows, bool)
        begins[1:] = (keys[1:] != keys[:-1]) | (times[1:] - times[:-1] >= self.reach_us)
        groups = Groups(np.flatnonzero(begins), rows.num_rows)
        partials = self.computation.lift(rows, order_of(rows, times), groups)
        ends = groups.starts + groups.sizes() - 1
        return self._table(keys[groups.starts], times[groups.starts], times[ends], partials), groups.numbers()

    def _times(self, rows: pa.Table) -> Int64s:
        return np.asarray(micros(rows.column(self.time_column)).combine_chunks())

    # -- sessions -----------------------------------------------------------------------------------------------------

    def _touching(self, sessions: pa.Table) -> tuple[Int64s, Groups]:
        """The order of key and time, and in it the groups that belong together."""
        keys, first, last = (_numbers(sessions, name) for name in (KEY, FIRST, LAST))
        order = np.lexsort([first, keys])
        keys, first, last = keys[order], first[order], last[order]
        until = running_max(keys, last)
        begins = np.ones(len(order), bool)
        begins[1:] = (keys[1:] != keys[:-1]) | (first[1:] - until[:-1] >= self.reach_us)
        return order, Groups(np.flatnonzero(begins), len(order))

    def _joined(self, sessions: pa.Table, runs: pa.Table) -> Joined:
        """Open sessions and runs, those that touch made one."""
        both = _together(sessions, runs)
        if not both.num_rows:
            return Joined(both, np.zeros(0, bool), np.zeros(0, bool))
        order, groups = self._touching(both)
        fresh = np.logical_or.reduceat(order >= sessions.num_rows, groups.starts)
        old = np.empty(both.num_rows, bool)
        old[order] = np.repeat(fresh, groups.sizes())
        keys, first, last = (_numbers(both, name)[order] for name in (KEY, FIRST, LAST))
        partials = self.computation.merge(both.take(pa.array(order)), groups)
        latest = np.maximum.reduceat(last, groups.starts)
        made = self._table(keys[groups.starts], first[groups.starts], latest, partials)
        return Joined(made, old[: sessions.num_rows], fresh)

    def _table(self, keys: Int64s, first: Int64s, last: Int64s, partials: pa.Table) -> pa.Table:
        numbers = [pa.array(values, pa.int64()) for values in (keys, first, last)]
        return pa.table([*numbers, *partials.columns], names=[KEY, FIRST, LAST, *partials.column_names])

    # -- results out --------------------------------------------------------------------------------------------------

    def answer(self, state: pa.Table) -> pa.Table:
        """What the sessions that are open amount to so far."""
        return self._results(state)

    def _results(self, sessions: pa.Table) -> pa.Table:
        first, last = (_numbers(sessions, name) for name in (FIRST, LAST))
        times = [pa.array(values, pa.timestamp("us", "UTC")) for values in (first, last + self.gap_us)]
        results = self.computation.finish(sessions)
        names = [KEY, START, END, *results.column_names]
        return pa.table([sessions.column(KEY), *times, *results.columns], names=names)

    def _changes(self, before: pa.Table, joined: Joined) -> pa.Table:
        """Retract the sessions that rows have joined, then say what has become of them."""
        old = self._results(before.filter(pa.array(joined.old)))
        new = self._results(joined.sessions.filter(pa.array(joined.new)))
        found = paired(old, new, by=[KEY, START])
        gone = np.asarray(pc.equal(found.column(OP), DELETE)).astype(bool)
        return found.take(pa.array(np.lexsort([~gone, _numbers(found, KEY)])))

    def _each(self, sessions: pa.Table, rows: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Every change, as if each row had come alone: the n-th rows of all keys make the n-th round."""
        outputs, done = [], []
        for number in rounds(_numbers(rows, KEY)):
            runs, _ = self._runs(rows.take(pa.array(number)))
            sessions, others = narrowed(sessions, _numbers(runs, KEY))
            done.append(others)
            joined = self._joined(sessions, runs)
            outputs.append(self._changes(sessions, joined))
            sessions = joined.sessions
        return in_rounds([*done, sessions]), in_rounds(outputs) if outputs else None


def running_max(keys: Int64s, values: Int64s) -> Int64s:
    """The greatest value so far among those of the same key, of rows sorted by key.

    >>> running_max(np.array([0, 0, 0, 1, 1]), np.array([5, 3, 9, 1, 0])).tolist()
    [5, 5, 9, 1, 1]
    """
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values))
    highest = np.maximum.accumulate(keys * len(values) + ranks) - keys * len(values)
    found: Int64s = values[order[highest]]
    return found


def _together(sessions: pa.Table, runs: pa.Table) -> pa.Table:
    return pa.concat_tables([sessions.select(runs.column_names), runs]).combine_chunks()


def _numbers(table: pa.Table, name: str) -> Int64s:
    return np.asarray(table.column(name).combine_chunks())
