"""Results of windows beside those of the same window in earlier periods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.agg.groups import Groups, Int64s
from headwater.operators.agg.numbers import Floats
from headwater.operators.analytics.ordered import numbers
from headwater.operators.keyed.contract import Stepped
from headwater.operators.keyed.engine import KEY, micros
from headwater.operators.keyed.watermark import BatchTime
from headwater.operators.windowed.slides import rows_before
from headwater.operators.windowed.step import START
from headwater.operators.windowed.timers import earliest

AT = "start_us"
WAKE = "_wake_at"
PERIODS = "periods"
#: What is added for each statistic, after its name.
ADDED = ("before", "difference", "ratio", "mean", "zscore")


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

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:
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
        return Stepped(self._kept(known, keys, at, time), output)

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
