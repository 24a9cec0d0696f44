"""`SeenBefore`: whether the value of a row has come before, in memory that does not grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.columns import KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import (
    LATE_SAMPLE_ROWS,
    BatchTime,
    Late,
    WatermarkStrategy,
    check_late,
)
from headwater.engine.operator import EventTimeOperator
from headwater.engine.rows import micros
from headwater.engine.spark_plan import apply
from headwater.engine.window_operator import check_columns, check_time
from headwater.errors import ArgumentInvalid
from headwater.operators.aggregates.approximate import at_least_one, share
from headwater.operators.sketches.bloom import VALUES_PER_SHARD, Bloom
from headwater.operators.sketches.format import Bytes, Int64s
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHARD, VALUE = "_shard", "_value_hash"
SLICE, BITS, WAKE = "slice_us", "bits", "_wake_at"
#: A period is remembered in so many filters: when it is over, the oldest of them is forgotten whole.
SLICES = 4
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class SeenBefore(EventTimeOperator):
    """Say of each row whether its value came before, with the same `by`, less than `period` earlier.

    Rows come out as they came in, with two more columns: `seen`, and `seen_error`, how likely a `true` is to be wrong.
    A `false` is always right. Values are remembered in Bloom filters for `period`, and up to a quarter longer, for they
    are forgotten a quarter at a time; without `period`, for ever. Of `capacity` different values in a period, at most
    the share `false_positives` of new ones is taken for old; beyond it more are, and `seen_error` tells. State is about
    1.44 * `capacity` * log2(5 / `false_positives`) bits for each quarter, however many keys there are.

    Rows come out at once, so of two rows that arrive in the wrong order the later one may be the one that is new. A row
    whose value is null has `seen` null.

    >>> SeenBefore(by="account", of="device", period="30 days").into
    'seen'
    """

    of: str | tuple[str, ...]
    by: str | tuple[str, ...] = ()
    period: Duration | None = None
    false_positives: float = 0.01
    capacity: int = 1_000_000
    into: str = "seen"
    late: Late = "drop"

    def __post_init__(self) -> None:
        check_late(self.late)
        share("false_positives", self.false_positives)
        at_least_one("capacity", self.capacity)
        if self.time is not None and self.period is None:
            raise ArgumentInvalid(name="period", value=None, expected="a period beside `time`, or no `time`")
        if self.period is not None and parse_seconds(self.period, name="period") <= 0:
            raise ArgumentInvalid(name="period", value=self.period, expected='a time longer than none: "1 day"')
        if not self.values:
            raise ArgumentInvalid(
                name="of", value=self.of, expected="the column or columns whose values are told apart"
            )

    @property
    def values(self) -> tuple[str, ...]:
        return (self.of,) if isinstance(self.of, str) else tuple(self.of)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.by,) if isinstance(self.by, str) else tuple(self.by)

    @property
    def shards(self) -> int:
        return max(1, self.capacity // VALUES_PER_SHARD)

    def strategy(self) -> WatermarkStrategy:
        return WatermarkStrategy() if self.period is None else super().strategy()

    def __call__(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        called = self.name or type(self).__name__
        check_columns(called, rows, *self.keys, *self.values)
        operator = self
        if self.period is not None:
            operator = self.resolved(rows)
            check_time(called, rows, operator.event_time.column)
        for name in (self.into, f"{self.into}_error"):
            if name in rows.columns:
                raise ArgumentInvalid(name="into", value=self.into, expected=f"a name that is free: there is {name!r}")
        value = F.xxhash64(*(F.col(f"`{name}`") for name in (*self.keys, *self.values)))
        without_value, without_key = (
            F.coalesce(*(F.when(F.col(f"`{name}`").isNull(), True) for name in names), F.lit(False))
            for names in (self.values, self.keys)
        )
        made = rows.withColumn(VALUE, F.when(~without_value, value))
        # A row without a key has no shard either, and the engine sends it to `rejected`; one without a value goes anywhere.
        shard = F.coalesce(F.pmod(F.col(VALUE), F.lit(self.shards)), F.lit(0))
        return apply(operator.contract, made.withColumn(SHARD, F.when(~without_key, shard)), partitions=self.partitions)

    def contract(self, rows: pa.Schema) -> Contract:
        shown = [one for one in rows if one.name not in (SHARD, VALUE)]
        added = [pa.field(self.into, pa.bool_()), pa.field(f"{self.into}_error", pa.float64())]
        fields = {SLICE: pa.int64(), BITS: pa.binary(), WAKE: pa.int64()}
        return Contract(
            name=self.called,
            step=self._step(),
            key=(SHARD,),
            rows=rows,
            state=pa.schema([pa.field(name, kind) for name, kind in fields.items()]),
            output=pa.schema([*shown, *added]),
            event_time=self.strategy(),
            output_times=() if self.period is None else (self.event_time,),
            hidden=(SHARD, VALUE),
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
        )

    def _step(self) -> _Step:
        expected = self.capacity / self.shards
        values = int(np.ceil(expected + 4 * np.sqrt(expected))) if self.shards > 1 else self.capacity
        if self.period is None:
            return _Step(None, self.into, Bloom.sized(values, self.false_positives), 0, 0)
        period_us = round(parse_seconds(self.period) * 1e6)
        slice_us = max(1, period_us // SLICES)
        # So many filters may be asked for one row: each may be mistaken.
        asked = SLICES + 1 + -(-self.strategy().delay_us // slice_us)
        return _Step(
            self.event_time.column, self.into, Bloom.sized(values, self.false_positives / asked), period_us, slice_us
        )


@dataclass(frozen=True)
class _Step:
    time_column: str | None
    into: str
    bloom: Bloom
    period_us: int
    slice_us: int

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        if time.final:
            return StepResult(state.slice(0, 0), None)
        there = np.asarray(rows.column(VALUE).combine_chunks().is_valid())
        keys = np.asarray(rows.column(KEY).combine_chunks())[there]
        hashes = np.asarray(rows.column(VALUE).combine_chunks().drop_null()).astype(np.int64).view(np.uint64)
        times = self._times(rows)[there]
        slices = times // self.slice_us * self.slice_us if self.slice_us else times
        filters = _Filters.of(state, self.bloom)
        places = self.bloom.places(hashes)
        seen = self._seen_in_batch(hashes, times, slices)
        mistaken = np.zeros(len(seen))
        left = np.flatnonzero(~seen)
        found, chance = self._seen_in_filters(filters, keys[left], times[left], places[left])
        seen[left] = found
        mistaken[left] = np.where(found, chance, 0.0)
        after = filters.with_added(self.bloom, keys, slices, places)
        return StepResult(self._kept(after, time), self._output(rows, there, seen, mistaken))

    def _times(self, rows: pa.Table) -> Int64s:
        if self.time_column is None:
            return np.zeros(rows.num_rows, np.int64)
        return np.asarray(micros(rows.column(self.time_column)).combine_chunks())

    def _seen_in_batch(self, hashes: npt.NDArray[np.uint64], times: Int64s, slices: Int64s) -> Mask:
        """Whether the row before it with the same value is near enough; rows are in the order of time."""
        order = np.argsort(hashes, kind="stable")
        seen = np.zeros(len(hashes), bool)
        again = np.flatnonzero(hashes[order][1:] == hashes[order][:-1]) + 1
        now, before = order[again], order[again - 1]
        seen[now] = self._remembered(slices[before], times[now])
        return seen

    def _remembered(self, slices: Int64s, times: Int64s) -> Mask:
        """Whether what fell into a slice still counts at a time."""
        if not self.slice_us:
            return np.ones(len(times), bool)
        found: Mask = slices + self.slice_us > times - self.period_us
        return found

    def _seen_in_filters(
        self, filters: _Filters, keys: Int64s, times: Int64s, places: Int64s
    ) -> tuple[Mask, npt.NDArray[np.float64]]:
        seen, right = np.zeros(len(keys), bool), np.ones(len(keys))
        chances = self.bloom.mistaken(filters.bits)
        for begin in np.unique(filters.slices).tolist():
            own = np.flatnonzero(filters.slices == begin)
            at = np.minimum(np.searchsorted(filters.keys[own], keys), len(own) - 1)
            rows = np.flatnonzero((filters.keys[own][at] == keys) & self._remembered(np.full(len(times), begin), times))
            where = own[at[rows]]
            seen[rows] |= self.bloom.holds(filters.bits, where, places[rows])
            right[rows] *= 1 - chances[where]
        return seen, 1 - right

    def _kept(self, filters: _Filters, time: BatchTime) -> pa.Table:
        wake = filters.slices + self.slice_us + self.period_us
        if self.slice_us:
            alive = np.flatnonzero(wake > time.watermark_us)
            filters, wake = filters.at(alive), wake[alive]
        return pa.table(
            {
                SLICE: filters.slices,
                BITS: filters.column(self.bloom.size),
                WAKE: pa.array(wake, pa.int64(), mask=np.full(len(wake), not self.slice_us)),
                KEY: filters.keys,
            }
        )

    def _output(self, rows: pa.Table, there: Mask, seen: Mask, mistaken: npt.NDArray[np.float64]) -> pa.Table:
        answers, chances = np.zeros(len(there), bool), np.zeros(len(there))
        answers[there], chances[there] = seen, mistaken
        rows = rows.append_column(self.into, pa.array(answers, mask=~there))
        return rows.append_column(f"{self.into}_error", pa.array(chances, mask=~there))


@dataclass(frozen=True)
class _Filters:
    """Filters by key and slice, in this order."""

    keys: Int64s
    slices: Int64s
    bits: Bytes

    @staticmethod
    def of(state: pa.Table, bloom: Bloom) -> _Filters:
        keys, slices = (np.asarray(state.column(name).combine_chunks()) for name in (KEY, SLICE))
        joined = b"".join(state.column(BITS).to_pylist())
        found = _Filters(keys, slices, np.frombuffer(joined, np.uint8).reshape(len(keys), bloom.size))
        return found.at(np.lexsort([slices, keys]))

    def at(self, rows: Int64s) -> _Filters:
        return _Filters(self.keys[rows], self.slices[rows], self.bits[rows])

    def with_added(self, bloom: Bloom, keys: Int64s, slices: Int64s, places: Int64s) -> _Filters:
        """The filters with some more values; those that are not there yet are made."""
        begins, codes = np.unique(np.concatenate([self.slices, slices]), return_inverse=True)
        numbers = np.concatenate([self.keys, keys]) * max(1, len(begins)) + codes
        known, inverse = np.unique(numbers, return_inverse=True)
        bits = np.zeros((len(known), bloom.size), np.uint8)
        bits[inverse[: len(self.keys)]] = self.bits
        bloom.add(bits, inverse[len(self.keys) :], places)
        return _Filters(known // max(1, len(begins)), begins[known % max(1, len(begins))], bits)

    def column(self, size: int) -> pa.Array:
        offsets = pa.py_buffer((np.arange(len(self.keys) + 1) * size).astype(np.int32))
        return pa.Array.from_buffers(
            pa.binary(), len(self.keys), [None, offsets, pa.py_buffer(np.ascontiguousarray(self.bits))]
        )
