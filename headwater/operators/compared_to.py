"""`ComparedTo`: the result of each window beside that of the same window one period, and several periods, earlier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.aggregation import Aggregate, Groups, Int64s, is_number
from headwater.engine.columns import ALL, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import BatchTime, Late, WatermarkStrategy, check_late
from headwater.engine.join_inputs import check_appends
from headwater.engine.operator import EventTimeOperator
from headwater.engine.ordered_rows import numbers
from headwater.engine.rows import micros
from headwater.engine.spark_plan import apply
from headwater.engine.time_index import rows_before
from headwater.engine.window_operator import keys_of, window_floors
from headwater.engine.window_spans import duration_us, fixed
from headwater.engine.window_step import END, START, earliest
from headwater.errors import ArgumentInvalid
from headwater.operators.aggregates.numbers import Floats
from headwater.operators.tumbling import Tumbling
from headwater.schema.event_time import EventTime
from headwater.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

AT = "start_us"
WAKE = "_wake_at"
PERIODS = "periods"
#: What is added for each statistic, after its name.
ADDED = ("before", "difference", "ratio", "mean", "zscore")


@dataclass(frozen=True, kw_only=True)
class ComparedTo(EventTimeOperator):
    """Aggregate per key and window of length `every`, and compare each result with those of the last `periods` periods.

    "Against the same hour last week" is `every="1 hour"`, `period="1 week"`. For each aggregate `n` of `compute` there are
    `n_before` (one period earlier), `n_difference`, `n_ratio`, and over the earlier periods `n_mean` and `n_zscore`, how
    many standard deviations it is from that mean; the column `periods` says how many of them are known. What is not known
    is null, never zero. A result comes once, when its window is closed. State: the results of the last `periods`.

    >>> from headwater.operators import ComparedTo, agg
    >>> ComparedTo(by="shop", every="1 hour", period="1 week", compute={"orders": agg.count()}).periods
    4
    """

    by: str | tuple[str, ...] = ()
    every: Duration
    period: Duration
    compute: Mapping[str, Aggregate]
    periods: int = 4
    offset: Duration = 0
    allowed_lateness: Duration = 0
    late: Late = "drop"

    def __post_init__(self) -> None:
        check_late(self.late)
        fixed(size=self.every, offset=self.offset)
        if duration_us("period", self.period) % self._every_us:
            raise ArgumentInvalid(name="period", value=self.period, expected="a multiple of `every`")
        if isinstance(self.periods, bool) or not isinstance(self.periods, int) or not 1 <= self.periods <= 1000:
            raise ArgumentInvalid(name="periods", value=self.periods, expected="a whole number from 1 to 1000")
        taken = {PERIODS, *(f"{name}_{word}" for name in self.compute for word in ADDED)}
        for name in self.compute:
            if name in taken:
                raise ArgumentInvalid(name="compute", value=name, expected="names that no other result has")

    @property
    def _every_us(self) -> int:
        return duration_us("every", self.every)

    def windows(self) -> Tumbling:
        """The windows whose results are compared."""
        return Tumbling(
            size=self.every,
            offset=self.offset,
            time=self.time,
            by=self.by,
            compute=self.compute,
            allowed_lateness=self.allowed_lateness,
            late=self.late,
            partitions=self.partitions,
            name=f"{self.called}-windows",
        )

    def __call__(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        check_appends("rows", rows)
        compared = self.resolved(rows)  # the windows of keys that go by times of their own come in no order
        results = rows.transform(compared.windows())
        if not self.by:
            results = results.withColumn(ALL, F.lit(0))
        return apply(compared.contract, results, partitions=self.partitions if self.by else 1)

    def contract(self, rows: pa.Schema) -> Contract:
        keys = keys_of(self.by)
        statistics = pa.schema([rows.field(name).with_nullable(True) for name in self.compute])
        for one in statistics:
            if not is_number(one.type):
                raise ArgumentInvalid(name="compute", value=f"{one.name} ({one.type})", expected="numbers to compare")
        step = CompareStep(statistics, duration_us("period", self.period), self._every_us, self.periods)
        shown = [rows.field(name) for name in (*keys, START, END) if name != ALL]
        return Contract(
            name=self.called,
            step=step,
            key=keys,
            rows=rows,
            state=step.state(),
            output=pa.schema([*shown, *compared_fields(statistics)]),
            # Windows come in the order of time, whatever their rows did: none of them is late.
            event_time=WatermarkStrategy(time=END, future_us=None),
            output_times=(EventTime(START, future_max=None),),
            output_floors=window_floors(self.windows().spans()),
            late="step",
            hidden=(ALL,),
        )


def compared_fields(results: pa.Schema) -> list[pa.Field]:
    """The statistics, what each is compared with, and how many earlier periods are known."""
    fields = []
    for one in results:
        fields.append(one)
        for word in ADDED:
            fields.append(pa.field(f"{one.name}_{word}", one.type if word == "before" else pa.float64()))
    return [*fields, pa.field(PERIODS, pa.int64())]


@dataclass(frozen=True)
class CompareStep:
    """One batch of windows that meet those of earlier periods. They come in the order of time: nothing waits."""

    statistics: pa.Schema
    period_us: int
    every_us: int
    periods: int

    def state(self) -> pa.Schema:
        return pa.schema([pa.field(AT, pa.int64()), *self.statistics, pa.field(WAKE, pa.int64())])

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        fresh = rows.append_column(AT, micros(rows.column(START)))
        names = [KEY, AT, *self.statistics.names]
        known = pa.concat_tables([state.select(names), fresh.select(names).cast(state.select(names).schema)])
        keys, at = numbers(known, KEY), numbers(known, AT)
        order = np.lexsort([at, keys])
        known, keys, at = known.take(pa.array(order)).combine_chunks(), keys[order], at[order]
        places = self._places(keys, at, numbers(fresh, KEY), numbers(fresh, AT))
        output = rows.drop_columns(self.statistics.names)
        for name, column in self._compared(rows, known, places).items():
            output = output.append_column(name, column)
        return StepResult(self._kept(known, keys, at, time), output)

    def _places(self, keys: Int64s, at: Int64s, of: Int64s, starts: Int64s) -> npt.NDArray[np.int64]:
        """For each window and each of the last periods where its counterpart stands, or -1."""
        found = np.full((len(of), self.periods), -1, np.int64)
        for number in range(self.periods):
            wanted = starts - (number + 1) * self.period_us
            place = np.minimum(rows_before(keys, at, of, wanted), max(len(keys) - 1, 0))
            there = (keys[place] == of) & (at[place] == wanted)
            found[there, number] = place[there]
        return found

    def _compared(self, rows: pa.Table, known: pa.Table, places: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
        columns: dict[str, pa.Array] = {}
        for name in self.statistics.names:
            value = rows.column(name).combine_chunks()
            all_known = known.column(name).combine_chunks()
            before = all_known.take(pa.array(places[:, 0], mask=places[:, 0] < 0))
            held = _floats(all_known)
            earlier = np.where(places >= 0, held[places] if len(held) else np.nan, np.nan)
            columns |= {name: value, f"{name}_before": before}
            found = _comparison(_floats(value), earlier)
            columns |= {f"{name}_{word}": pa.array(one, mask=np.isnan(one)) for word, one in found.items()}
        columns[PERIODS] = pa.array((places >= 0).sum(axis=1))
        return columns

    def _kept(self, known: pa.Table, keys: Int64s, at: Int64s, time: BatchTime) -> pa.Table:
        """The windows that a later one is compared with, and when the last of a key is too old."""
        for_us = self.periods * self.period_us + self.every_us
        kept = at >= time.watermark_us - for_us
        known, keys, at = known.filter(pa.array(kept)), keys[kept], at[kept]
        groups = Groups.of(keys)
        last = np.append(groups.starts[1:], groups.rows) - 1 if groups.count else groups.starts
        wake = np.repeat(at[last] + for_us + 1, groups.sizes())
        return known.append_column(WAKE, earliest(keys, wake))


def _floats(values: pa.Array) -> Floats:
    found: Floats = np.asarray(values.cast(pa.float64()))
    return found


def _comparison(value: Floats, earlier: npt.NDArray[np.float64]) -> dict[str, Floats]:
    """What is not known is NaN: a difference from nothing, a share of zero, a deviation among fewer than two values."""
    before = earlier[:, 0]
    there = ~np.isnan(earlier)
    counts = there.sum(axis=1)
    mean = np.where(there, earlier, 0.0).sum(axis=1) / np.where(counts > 0, counts, np.nan)
    squares = np.where(there, (earlier - mean[:, None]) ** 2, 0.0).sum(axis=1)
    deviation = np.sqrt(squares / np.where(counts > 1, counts - 1, np.nan))
    return {
        "difference": value - before,
        "ratio": value / np.where(before == 0, np.nan, before),
        "mean": mean,
        "zscore": (value - mean) / np.where(deviation > 0, deviation, np.nan),
    }
