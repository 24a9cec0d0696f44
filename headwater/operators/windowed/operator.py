"""What tumbling and hopping windows share: their settings, and how they become a contract of the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Aggregate
from headwater.operators.agg.computation import Computation
from headwater.operators.keyed import Contract, apply
from headwater.operators.keyed.plan import default_name
from headwater.operators.process import policy
from headwater.operators.windowed.prepared import ALL, LATE_SAMPLE_ROWS, Late, check_time, keys_of, prepared
from headwater.operators.windowed.spans import Spans
from headwater.operators.windowed.step import END, START, Emit, WindowStep, output_fields, state_schema
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EMITS = ("final", "net", "each")


@dataclass(frozen=True, kw_only=True)
class Windowed(ABC):
    """Aggregation per key and window."""

    on: str
    by: str | tuple[str, ...] = ()
    compute: Mapping[str, Aggregate] | None = None
    late_by: str | float = 0.0
    lateness: str | float = 0.0
    late: Late = "drop"
    emit: Emit = "final"
    idle: str | float | None = None
    ahead: str | float | None = "1 day"
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.emit not in EMITS:
            raise ArgumentInvalid(name="emit", value=self.emit, expected='"final", "net" or "each"')
        self.spans()

    @abstractmethod
    def spans(self) -> Spans:
        """How time is cut."""

    @abstractmethod
    def column(self) -> Column:
        """The window as a column, for Spark's own grouping."""

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Aggregate; without `compute`, only add the column `window`, for `groupBy` and everything else of Spark's."""
        called = self.name or type(self).__name__
        if self.compute is None:
            check_time(called, rows, self.on)
            late_by = f"{round(parse_seconds(self.late_by) * 1e6)} microseconds"
            return rows.withWatermark(self.on, late_by).withColumn("window", self.column())
        made = prepared(
            called,
            rows,
            on=self.on,
            by=self.by,
            compute=self.compute,
            taken=(START, END),
            whole=self.late == "side",
        )
        return apply(self.contract, made, partitions=self.partitions if self.by else 1)

    def contract(self, rows: pa.Schema) -> Contract:
        keys = keys_of(self.by)
        computation = Computation.over(self.compute or {}, rows)
        shown = [rows.field(name) for name in keys if name != ALL]
        return Contract(
            name=self.name or default_name(self),
            step=WindowStep(
                on=self.on,
                spans=self.spans(),
                computation=computation,
                lateness_us=round(parse_seconds(self.lateness) * 1e6),
                emit=self.emit,
            ),
            key=keys,
            rows=rows,
            state=state_schema(computation),
            sides={"late": late_schema(rows)},
            output=pa.schema([*shown, *output_fields(computation, self.emit)]),
            time=self.on,
            policy=policy(late_by=self.late_by, idle=self.idle, ahead=self.ahead),
            late="step",
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
        )


def late_schema(rows: pa.Schema) -> pa.Schema:
    """What late rows look like in a topic of their own: as they came, and by how much they were late."""
    return pa.schema([*(one for one in rows if not one.name.startswith("_")), pa.field("late_by_us", pa.int64())])
