"""`Dedupe`: of rows with the same id, only the first within a period passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.engine.columns import KEY
from headwater.engine.contract import Contract, StepResult
from headwater.engine.event_time import LATE_SAMPLE_ROWS, BatchTime, Late, check_late
from headwater.engine.key_watermark import per_key
from headwater.engine.operator import EventTimeOperator
from headwater.engine.rows import micros
from headwater.engine.spark_plan import apply
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Dedupe(EventTimeOperator):
    """Let the first row of each id pass, and no other whose event time lies less than `within` after it.

    Rows pass as soon as they arrive, so a repeated delivery costs no delay. Of each id the row that passed last is
    remembered: one that comes out of order, more than `within` before that row, passes as well. Ids are forgotten when the watermark is
    `within` past them: state is bounded by the ids of that period. A row behind the watermark is late: counted, and a
    sample kept (`late="drop"`), or sent whole to the side output `late` (`late="side_output"`). Costs one look-up per id
    and batch.

    >>> Dedupe(by="id", within="10 minutes").within
    '10 minutes'
    """

    by: str | tuple[str, ...]
    within: Duration
    late: Late = "drop"

    per_key: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_late(self.late)

    def __call__(self, rows: DataFrame) -> DataFrame:
        return apply(self.resolved(rows).contract, rows, partitions=self.partitions)

    def contract(self, rows: pa.Schema) -> Contract:
        contract = Contract(
            name=self.called,
            step=_Step(self.event_time.column, round(parse_seconds(self.within) * 1e6)),
            key=(self.by,) if isinstance(self.by, str) else tuple(self.by),
            rows=rows,
            state=pa.schema([pa.field("first_us", pa.int64()), pa.field("_wake_at", pa.int64())]),
            output=rows,
            event_time=self.strategy(),
            output_times=(self.event_time,),
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
        )
        return per_key(contract)


@dataclass(frozen=True)
class _Step:
    time_column: str
    within_us: int

    def __call__(self, state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
        keys = np.asarray(rows.column(KEY).combine_chunks())
        times = np.asarray(micros(rows.column(self.time_column)).combine_chunks())
        count = int(max(keys.max(initial=-1), np.asarray(state.column(KEY)).max(initial=-1))) + 1
        first = np.full(count, np.iinfo(np.int64).min // 2)
        first[np.asarray(state.column(KEY))] = np.asarray(state.column("first_us"))
        passing = self._passing(keys, times, first)
        first[keys[passing]] = times[passing]  # rows are in the order of time: the last one written is the latest
        held = np.zeros(count, bool)
        held[np.asarray(state.column(KEY))] = True
        held[keys] = True
        # An id is forgotten once no row in time could still be its repetition.
        held &= first + self.within_us > time.watermark_of(np.arange(count))
        numbers = np.flatnonzero(held)
        kept = pa.table({"first_us": first[numbers], "_wake_at": first[numbers] + self.within_us, KEY: numbers})
        return StepResult(kept, rows.filter(pa.array(passing)))

    def _passing(self, keys: Int64s, times: Int64s, first: Int64s) -> npt.NDArray[np.bool_]:
        """Which rows are the first of their id for a period."""
        passing = np.zeros(len(keys), bool)
        left = np.arange(len(keys))
        first = first.copy()
        while len(left):
            # The first row of each id that is not a repetition passes; what follows it is looked at again.
            left = left[
                (times[left] >= first[keys[left]] + self.within_us) | (times[left] < first[keys[left]] - self.within_us)
            ]
            if not len(left):
                break
            now = left[np.unique(keys[left], return_index=True)[1]]
            passing[now] = True
            first[keys[now]] = times[now]
            left = np.setdiff1d(left, now, assume_unique=True)
        return passing
