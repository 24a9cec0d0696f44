"""`KMeans`: puts each row into one of k clusters whose centres follow the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.aggregation import is_number
from headwater.engine.columns import ALL, KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.errors import AggregateInvalid
from headwater.engine.event_time import (
    LATE_SAMPLE_ROWS,
    BatchTime,
    Late,
    check_late,
)
from headwater.engine.operator import EventTimeOperator
from headwater.engine.rows import micros
from headwater.engine.spark_plan import apply
from headwater.engine.window_operator import check_columns, check_time, keys_of
from headwater.errors import ArgumentInvalid
from headwater.operators.aggregates.approximate import at_least_one
from headwater.operators.aggregates.numbers import half_life_us
from headwater.operators.sketches.clusters import Centres, Floats, begin
from headwater.operators.sketches.format import Int64s, places
from headwater.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What is kept of a key, all of it flat lists: before the first centres the rows themselves, then the centres.
STATE = {
    "held": pa.list_(pa.float64()),
    "centres": pa.list_(pa.float64()),
    "weights": pa.list_(pa.float64()),
    "sums": pa.list_(pa.float64()),
    "counts": pa.list_(pa.float64()),
    "pending": pa.int64(),
    "faded_us": pa.int64(),
}


@dataclass(frozen=True, kw_only=True)
class KMeans(EventTimeOperator):
    """Put each row into the nearest of `k` clusters, for each key by itself or for all rows together.

    Rows come out as they came in, with three more columns: `cluster` (0 to k-1), `cluster_distance`, and
    `cluster_centre`, where the centre was. The first `warm_up` rows of a key have none: of them the first centres are
    made. After that a centre moves with every `block` rows of its key. With a `half_life`, what came that long ago
    weighs half as much, so the centres follow a stream that changes; without, they converge. A row with a coordinate that
    is null, NaN or infinite has no cluster. State: k centres per key, which are never forgotten.

    >>> KMeans(columns=("amount", "hour"), k=3, by="card", half_life="7 days").k
    3
    """

    columns: str | tuple[str, ...]
    k: int
    by: str | tuple[str, ...] = ()
    half_life: Duration | None = None
    warm_up: int | None = None
    block: int = 256
    into: str = "cluster"
    late: Late = "drop"

    def __post_init__(self) -> None:
        check_late(self.late)
        at_least_one("k", self.k)
        at_least_one("block", self.block)
        half_life_us(self.half_life)
        if not self.coordinates:
            raise ArgumentInvalid(name="columns", value=self.columns, expected="the columns that are the coordinates")
        if self.warm_up is not None and at_least_one("warm_up", self.warm_up) < self.k:
            raise ArgumentInvalid(name="warm_up", value=self.warm_up, expected=f"at least k rows, which is {self.k}")

    @property
    def coordinates(self) -> tuple[str, ...]:
        return (self.columns,) if isinstance(self.columns, str) else tuple(self.columns)

    @property
    def added(self) -> tuple[str, ...]:
        return (self.into, f"{self.into}_distance", f"{self.into}_centre")

    def __call__(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        called = self.name or type(self).__name__
        keys = keys_of(self.by)
        check_columns(called, rows, *keys, *self.coordinates)
        operator = self.resolved(rows)
        check_time(called, rows, operator.event_time.column)
        for name in self.added:
            if name in rows.columns:
                raise ArgumentInvalid(name="into", value=self.into, expected=f"a name that is free: there is {name!r}")
        made = rows.withColumn(ALL, F.lit(0)) if ALL in keys else rows
        return apply(operator.contract, made, partitions=self.partitions if self.by else 1)

    def contract(self, rows: pa.Schema) -> Contract:
        for name in self.coordinates:
            if not is_number(rows.field(name).type):
                kind = str(rows.field(name).type)
                raise AggregateInvalid(aggregate="KMeans", argument=name, kind=kind, expected="a number")
        kinds = (pa.int32(), pa.float64(), pa.list_(pa.float64()))
        added = [pa.field(name, kind) for name, kind in zip(self.added, kinds, strict=True)]
        return Contract(
            name=self.called,
            step=_Step(
                self.coordinates,
                self.k,
                self.event_time.column,
                half_life_us(self.half_life),
                self.warm_up or max(10 * self.k, 50),
                self.block,
                self.added,
            ),
            key=keys_of(self.by),
            rows=rows,
            state=pa.schema([pa.field(name, kind) for name, kind in STATE.items()]),
            output=pa.schema([*(one for one in rows if one.name != ALL), *added]),
            event_time=self.strategy(),
            output_times=(self.event_time,),
            hidden=(ALL,),
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
        )


@dataclass(frozen=True)
class _Step:
    columns: tuple[str, ...]
    k: int
    time_column: str
    half_life_us: float | None
    warm_up: int
    block: int
    added: tuple[str, ...]

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:  # noqa: ARG002 - no time passes here
        keys = np.asarray(rows.column(KEY).combine_chunks())
        count = int(max(keys.max(initial=-1), np.asarray(state.column(KEY)).max(initial=-1))) + 1
        known = _Known.of(state, count, self.k, len(self.columns))
        points = self._points(rows)
        times = np.asarray(micros(rows.column(self.time_column)).combine_chunks())
        clusters, away = np.full(len(keys), -1), np.zeros(len(keys))
        centre = np.zeros((len(keys), len(self.columns)))
        left = self._warmed_up(known, keys, points, times, np.flatnonzero(np.isfinite(points).all(axis=1)))
        for now in self._blocks(known, keys, left):
            clusters[now], away[now] = known.centres.assign(keys[now], points[now])
            centre[now] = known.centres.centres[keys[now], clusters[now]]
            known.centres.add(keys[now], clusters[now], points[now])
            last = now[np.flatnonzero(np.append(keys[now][1:] != keys[now][:-1], True))]
            full = last[known.centres.pending[keys[last]] >= self.block]
            if len(full):
                known.centres.move(keys[full], times[full], self.half_life_us)
        return StepResult(known.table(), self._output(rows, clusters, away, centre))

    def _blocks(self, known: _Known, keys: Int64s, rows: Int64s) -> list[Int64s]:
        """The rows block by block: of each key as many as its block still takes, then as many as the next one does."""
        turn = (known.centres.pending[keys[rows]] + places(keys[rows])) // self.block
        order = np.argsort(turn, kind="stable")
        cuts = np.flatnonzero(turn[order][1:] != turn[order][:-1]) + 1
        return np.split(rows[order], cuts) if len(rows) else []

    def _points(self, rows: pa.Table) -> Floats:
        columns = [
            np.asarray(rows.column(name).combine_chunks().cast(pa.float64()).fill_null(np.nan)) for name in self.columns
        ]
        return np.stack(columns, axis=1)

    def _warmed_up(self, known: _Known, keys: Int64s, points: Floats, times: Int64s, usable: Int64s) -> Int64s:
        """Hold the rows of keys that have no centres yet, make centres where there are enough; the rows that go on."""
        cold = usable[~known.ready[keys[usable]]]
        place = places(keys[cold])
        held = cold[place < (self.warm_up - known.held_rows())[keys[cold]]]
        known.hold(keys[held], points[held])
        ready = np.flatnonzero(~known.ready & (known.held_rows() >= self.warm_up))
        if len(ready):
            chosen = np.isin(known.held_keys, ready)
            first = known.held[chosen].reshape(len(ready), self.warm_up, len(self.columns))
            last = np.searchsorted(keys[held], ready, side="right") - 1
            known.begin(ready, *begin(first, self.k), times[held[last]])
        going_on = np.setdiff1d(usable, held, assume_unique=True)
        return going_on[known.ready[keys[going_on]]]

    def _output(self, rows: pa.Table, clusters: Int64s, away: Floats, centre: Floats) -> pa.Table:
        none = clusters < 0
        offsets = pa.array(np.arange(len(none) + 1, dtype=np.int32) * centre.shape[1])
        lists = pa.ListArray.from_arrays(offsets, pa.array(centre.reshape(-1)), mask=pa.array(none))
        arrays = (pa.array(clusters.astype(np.int32), mask=none), pa.array(away, mask=none), lists)
        for name, array in zip(self.added, arrays, strict=True):
            rows = rows.append_column(name, array)
        return rows


@dataclass
class _Known:
    """What is known of the keys of a batch."""

    there: npt.NDArray[np.bool_]
    ready: npt.NDArray[np.bool_]
    held_keys: Int64s
    held: Floats
    centres: Centres

    @staticmethod
    def of(state: pa.Table, count: int, k: int, width: int) -> _Known:
        keys = np.asarray(state.column(KEY).combine_chunks())
        there, ready = np.zeros(count, bool), np.zeros(count, bool)
        there[keys] = True
        centres = Centres(
            np.zeros((count, k, width)),
            np.zeros((count, k)),
            np.zeros((count, k, width)),
            np.zeros((count, k)),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
        )
        sizes = {name: np.asarray(pc.list_value_length(state.column(name))).astype(np.int64) for name in LISTS}
        flat = {name: np.asarray(pc.list_flatten(state.column(name).combine_chunks())) for name in LISTS}
        begun = keys[sizes["centres"] > 0]
        ready[begun] = True
        shapes = {"centres": (k, width), "weights": (k,), "sums": (k, width), "counts": (k,)}
        for name, shape in shapes.items():
            getattr(centres, name)[begun] = flat[name].reshape(len(begun), *shape)
        centres.pending[keys] = np.asarray(state.column("pending"))
        centres.at_us[keys] = np.asarray(state.column("faded_us"))
        held_keys = np.repeat(keys, sizes["held"] // width)
        return _Known(there, ready, held_keys, flat["held"].reshape(-1, width), centres)

    def held_rows(self) -> Int64s:
        return np.bincount(self.held_keys, minlength=len(self.ready))

    def hold(self, keys: Int64s, points: Floats) -> None:
        self.there[keys] = True
        keys = np.concatenate([self.held_keys, keys])
        order = np.argsort(keys, kind="stable")
        self.held_keys, self.held = keys[order], np.concatenate([self.held, points])[order]

    def begin(self, keys: Int64s, centres: Floats, weights: Floats, at_us: Int64s) -> None:
        """These keys have their first centres, and hold rows no more."""
        self.ready[keys] = True
        self.centres.centres[keys], self.centres.weights[keys], self.centres.at_us[keys] = centres, weights, at_us
        kept = ~np.isin(self.held_keys, keys)
        self.held_keys, self.held = self.held_keys[kept], self.held[kept]

    def table(self) -> pa.Table:
        keys = np.flatnonzero(self.there)
        kept = self.ready[keys]
        held = self.held_rows()[keys] * self.held.shape[1]
        columns = {"held": _lists(held, self.held)}
        for name in ("centres", "weights", "sums", "counts"):
            values = getattr(self.centres, name)
            columns[name] = _lists(np.where(kept, values[:1].size, 0), values[keys[kept]])
        columns["pending"] = pa.array(self.centres.pending[keys])
        columns["faded_us"] = pa.array(self.centres.at_us[keys])
        return pa.table({**columns, KEY: keys})


LISTS = ("held", "centres", "weights", "sums", "counts")


def _lists(sizes: Int64s, values: Floats) -> pa.Array:
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.ascontiguousarray(values).reshape(-1)))
