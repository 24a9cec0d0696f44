"""`Join`: rows of two streams that belong together, whenever they come, as far as they are remembered.

Rows of both inputs are kept until newer ones of their key take their place, or for a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.aggregation import Int64s
from headwater.engine.columns import INPUT, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import EVER, NEVER, BatchTime
from headwater.engine.join_inputs import Columns, JoinInputs, On, check_appends, pairs_of
from headwater.engine.spark_plan import apply, default_name
from headwater.engine.time_index import Line, Pairs
from headwater.errors import ArgumentInvalid
from headwater.operators.errors import unbounded
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SIDE = "_side"
CAME = "_came"
WAKE = "_wake_at_processing"
LEFT, RIGHT = 0, 1
NEVER_EXPIRES = "never"
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Join:
    """Join two streams without a time bound: rows that have the same key, without regard to when they happened.

    A row meets the rows of the other input that come in the same batch, and those that are remembered: the last
    `rows_max_per_key` of its key, those that came within `expire` of processing time, or both. `expire="never"` remembers
    all rows, for inputs that end or stay small; without any of these the join is refused. As long as no bound is reached
    the result is that of SQL's inner join; beyond, it depends on what arrived first. Pairs leave at once. Where rows have
    times, `IntervalJoin` is better: its bound does not depend on arrival.

    >>> from headwater.operators import Join
    >>> Join(None, on={"buyer": "user"}, rows_max_per_key=100).rows_max_per_key
    100
    """

    # None only where no row is ever joined, as in the example above.
    other: DataFrame | None = field(kw_only=False, repr=False)
    on: On
    rows_max_per_key: int | None = None
    expire: Duration | None = None
    suffix: str | None = None
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        pairs_of(self.on)
        if self.rows_max_per_key is None and self.expire is None:
            bounds = (
                '`rows_max_per_key=100` or `expire="1 hour"`, or use `IntervalJoin` with `within`; '
                '`expire="never"` says that both inputs may be kept whole'
            )
            raise unbounded(self.name or "Join", bounds=bounds)
        if self.rows_max_per_key is not None and self.rows_max_per_key < 1:
            raise ArgumentInvalid(name="rows_max_per_key", value=self.rows_max_per_key, expected="at least 1")
        if self.expire not in (None, NEVER_EXPIRES) and parse_seconds(self.expire, name="expire") <= 0:
            raise ArgumentInvalid(name="expire", value=self.expire, expected='a time such as "1 hour", or "never"')

    def __call__(self, rows: DataFrame) -> DataFrame:
        if self.other is None:
            raise ArgumentInvalid(name="other", value=None, expected="a DataFrame")
        check_appends("rows", rows)
        check_appends("other", self.other)
        meeting = JoinInputs.of(self.name or "Join", rows, self.other, on=self.on, suffix=self.suffix)
        make = partial(self.contract, columns=meeting.columns())
        return apply(make, meeting.left_rows(), meeting.right_rows(), partitions=self.partitions)

    def contract(self, rows: pa.Schema, columns: Columns) -> Contract:
        expire = None if self.expire == NEVER_EXPIRES else self.expire
        expire_us = None if expire is None else round(parse_seconds(expire) * 1e6)
        return Contract(
            name=self.name or default_name(self),
            step=JoinStep(columns=columns, rows_max_per_key=self.rows_max_per_key, expire_us=expire_us),
            key=columns.group,
            rows=rows,
            state=kept_schema(rows, columns, expires=expire_us is not None),
            output=pa.schema([rows.field(name) for name in columns.shown]),
        )


def kept_schema(rows: pa.Schema, columns: Columns, *, expires: bool) -> pa.Schema:
    """One row for each row that is kept: of which input, and when it came."""
    own = [pa.field(SIDE, pa.int8()), pa.field(CAME, pa.int64())]
    data = [rows.field(name).with_nullable(True) for name in columns.data]
    return pa.schema([*own, *data, *([pa.field(WAKE, pa.int64())] if expires else [])])


@dataclass(frozen=True)
class JoinStep:
    """One batch: what comes meets what is kept and what comes with it; then the oldest are forgotten."""

    columns: Columns
    rows_max_per_key: int | None
    expire_us: int | None

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        now = NEVER if time.processing_us is None else time.processing_us
        table = self._together(state, rows, now)
        keys, side, came = (np.asarray(table.column(name)) for name in (KEY, SIDE, CAME))
        fresh = np.arange(table.num_rows) >= state.num_rows
        held = fresh | ~self._expired(came, now)
        output = self._output(table, keys, met(keys, side, fresh, held))
        kept = np.flatnonzero(held & self._newest(keys, side))
        after = table.take(pa.array(kept))
        if self.expire_us is not None:
            wakes = came[kept] + self.expire_us + 1
            after = after.append_column(WAKE, pa.array(wakes, pa.int64(), mask=came[kept] <= NEVER))
        return StepResult(after, output)

    def _together(self, state: pa.Table, rows: pa.Table, now: int) -> pa.Table:
        """What is kept, in the order in which it came, and behind it what comes."""
        entered = {
            KEY: rows.column(KEY),
            SIDE: rows.column(INPUT).cast(pa.int8()),
            CAME: pa.array(np.full(rows.num_rows, now, np.int64)),
        }
        fresh = pa.table({**entered, **{name: rows.column(name) for name in self.columns.data}})
        return pa.concat_tables([state.select(fresh.column_names).cast(fresh.schema), fresh]).combine_chunks()

    def _expired(self, came: Int64s, now: int) -> Mask:
        if self.expire_us is None or now >= EVER:
            return np.zeros(len(came), bool)
        return came + self.expire_us < now

    def _newest(self, keys: Int64s, side: npt.NDArray[np.int8]) -> Mask:
        """Of each key and input the rows that came last, as many as are kept."""
        newest = np.ones(len(keys), bool)
        if self.rows_max_per_key is None:
            return newest
        of_input = keys * 2 + side
        order = np.argsort(of_input, kind="stable")[::-1]
        of_input = of_input[order]
        starts = np.flatnonzero(np.append(True, of_input[1:] != of_input[:-1])[: len(keys)])
        place = np.arange(len(keys)) - np.repeat(starts, np.diff(starts, append=len(keys)))
        newest[order] = place < self.rows_max_per_key
        return newest

    def _output(self, table: pa.Table, keys: Int64s, pairs: Pairs) -> pa.Table:
        left, right = pa.array(pairs.left, pa.int64()), pa.array(pairs.right, pa.int64())
        output = {KEY: pa.array(keys[pairs.left], pa.int64())}
        output |= {name: table.column(name).take(left) for name in self.columns.left}
        output |= {name: table.column(name).take(right) for name in self.columns.right}
        return pa.table(output)


def met(keys: Int64s, side: npt.NDArray[np.int8], fresh: Mask, held: Mask) -> Pairs:
    """Rows of one key and different inputs, of which at least one is fresh."""
    left, right = held & (side == LEFT), held & (side == RIGHT)
    found = [_same_key(keys, left & fresh, right), _same_key(keys, left & ~fresh, right & fresh)]
    return Pairs(*(np.concatenate(one) for one in zip(*found, strict=True)))


def _same_key(keys: Int64s, left: Mask, right: Mask) -> Pairs:
    mine, others = np.flatnonzero(left), np.flatnonzero(right)
    others = others[np.argsort(keys[others], kind="stable")]
    nothing = np.zeros(len(mine), np.int64)
    line = Line(keys[others], np.zeros(len(others), np.int64))
    found = line.between(keys[mine], nothing, nothing)
    return Pairs(mine[found.left], others[found.right])
