"""What tumbling and hopping windows share: their settings, and how they become a contract of the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.agg.aggregate import Aggregate
from headwater.operators.agg.computation import ARGUMENT, Computation
from headwater.operators.keyed import Contract, Policy, apply
from headwater.operators.keyed.direct import Direct, direct_read, read_with
from headwater.operators.keyed.engine import ROWS
from headwater.operators.keyed.per_key import per_key
from headwater.operators.keyed.plan import default_name, partitions_of
from headwater.operators.keyed.watermark import Scope
from headwater.operators.process import check_late, policy
from headwater.operators.windowed.completeness import COMPLETENESS, with_completeness
from headwater.operators.windowed.prepared import ALL, LATE_SAMPLE_ROWS, Late, check_time, keys_of, prepared
from headwater.operators.windowed.processing import PROCESSED, ProcessingStep, processing_state, without_time
from headwater.operators.windowed.pushed import CHUNK, POSITION, Combine, can_push
from headwater.operators.windowed.spans import Spans
from headwater.operators.windowed.step import END, SLICE, START, Emit, WindowStep, output_fields, state_schema
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EMITS = ("final", "net", "each")
#: Which time windows are made of: the one in the rows, or the one at which their batch was taken.
Time = Literal["event", "processing"]


@dataclass(frozen=True, kw_only=True)
class Windowed(ABC):
    """Aggregation per key and window."""

    on: str = ""
    by: str | tuple[str, ...] = ()
    compute: Mapping[str, Aggregate] | None = None
    late_by: str | float = 0.0
    lateness: str | float = 0.0
    late: Late = "drop"
    time: Time = "event"
    emit: Emit = "final"
    idle: str | float | None = None
    ahead: str | float | None = "1 day"
    watermark: Scope = "partition"
    quiet: str | float | None = None
    completeness: bool = False
    combine: bool = True
    partitions: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.emit not in EMITS:
            raise ArgumentInvalid(name="emit", value=self.emit, expected='"final", "net" or "each"')
        check_late(self.late)
        self._policy()
        self._check_which_time()
        self._check_completeness()
        self.spans()

    def _policy(self) -> Policy:
        return policy(
            late_by=self.late_by, idle=self.idle, ahead=self.ahead, watermark=self.watermark, quiet=self.quiet
        )

    def _check_which_time(self) -> None:
        if self.time not in ("event", "processing"):
            raise ArgumentInvalid(name="time", value=self.time, expected='"event" or "processing"')
        if self.time == "event" and not self.on:
            raise ArgumentInvalid(name="on", value=self.on, expected="the column of event time")
        if self.time == "processing":
            for name in ("on", "late_by", "lateness"):
                if getattr(self, name):
                    expected = 'none beside time="processing", in which nothing is late'
                    raise ArgumentInvalid(name=name, value=getattr(self, name), expected=expected)

    def _check_completeness(self) -> None:
        if not self.completeness:
            return
        if self.emit == "final":
            expected = 'none with emit="final", whose results are complete; say emit="net"'
            raise ArgumentInvalid(name="completeness", value=True, expected=expected)
        if self.watermark == "key" or self.time == "processing":
            expected = "none where time is that of keys, or of processing"
            raise ArgumentInvalid(name="completeness", value=True, expected=expected)
        if COMPLETENESS in (self.compute or {}):
            raise ArgumentInvalid(name="compute", value=COMPLETENESS, expected="names that are free")

    @abstractmethod
    def spans(self) -> Spans:
        """How time is cut."""

    @abstractmethod
    def column(self) -> Column:
        """The window as a column, for Spark's own grouping."""

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Aggregate; without `compute`, only add the column `window`, for `groupBy` and everything else of Spark's."""
        called = self.name or type(self).__name__
        if self.time == "processing":
            return self._by_processing_time(called, rows)
        if self.compute is None:
            check_time(called, rows, self.on)
            late_by = f"{round(parse_seconds(self.late_by) * 1e6)} microseconds"
            return rows.withWatermark(self.on, late_by).withColumn("window", self.column())
        if self.can_combine and rows.isStreaming and can_push(rows, self.compute):
            direct = direct_read(rows)
            if direct is not None and all(name == of for name, of in direct.columns.items()):
                return self._pushed(called, rows, direct)
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

    def _by_processing_time(self, called: str, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        if not rows.isStreaming:
            raise without_time()
        # Which time that is the step learns from the batch: here is only the place for it.
        timed = rows.withColumn(PROCESSED, F.lit(None).cast("timestamp"))
        made = prepared(called, timed, on=PROCESSED, by=self.by, compute=self.compute or {}, taken=(START, END))
        return apply(self.contract, made, partitions=self.partitions if self.by else 1)

    @property
    def can_combine(self) -> bool:
        """Whether rows may be combined before they come: not where each of them is looked at by itself."""
        each_row = self.emit == "each" or self.late == "side" or self.watermark == "key" or self.completeness
        return self.combine and not each_row

    def _pushed(self, called: str, rows: DataFrame, direct: Direct) -> DataFrame:
        """Let the source do the first half, where the operator sits directly on a topic."""
        from pyspark.sql.pandas.types import to_arrow_schema

        compute = self.compute or {}
        made = prepared(called, rows, on=self.on, by=self.by, compute=compute, taken=(START, END))
        arguments = {name: str(one.of) for name, one in compute.items() if one.of is not None}
        needed = dict.fromkeys((*keys_of(self.by), self.on, *arguments.values(), *POSITION))
        read = rows.select(*(name for name in needed if name != ALL))
        combine = Combine(
            name=self.name or default_name(self),
            on=self.on,
            keys=keys_of(self.by),
            spans=self.spans(),
            computation=Computation.over(compute, to_arrow_schema(made.schema, timezone="UTC")),
            rows=to_arrow_schema(read.schema, timezone="UTC"),
            arguments=arguments,
            partitions=partitions_of(rows, self.partitions if self.by else 1),
        )
        contract = partial(self.contract, combine=combine)
        packed = combine.partials if combine.packs else None
        return apply(contract, read_with(rows, combine, direct.options), packed=packed, partitions=combine.partitions)

    def contract(self, rows: pa.Schema, *, combine: Combine | None = None) -> Contract:
        keys = keys_of(self.by)
        computation = combine.computation if combine is not None else Computation.over(self.compute or {}, rows)
        shown = [rows.field(name) for name in keys if name != ALL]
        processing = self.time == "processing"
        step = WindowStep(
            on=PROCESSED if processing else self.on,
            spans=self.spans(),
            computation=computation,
            lateness_us=round(parse_seconds(self.lateness) * 1e6),
            emit=self.emit,
            combined=combine is not None,
        )
        contract = Contract(
            name=self.name or default_name(self),
            step=ProcessingStep(step) if processing else step,
            key=keys,
            rows=rows,
            state=processing_state(state_schema(computation)) if processing else state_schema(computation),
            sides={"late": late_schema(rows)},
            output=pa.schema([*shown, *output_fields(computation, self.emit)]),
            time=None if processing else self.on,
            policy=self._policy(),
            late="step",
            order=(SLICE, "_partition", CHUNK) if combine is not None else (),
            hidden=tuple(
                name
                for name in rows.names
                if name.startswith(ARGUMENT) or name in (ALL, PROCESSED, ROWS, SLICE, *computation.partials.names)
            ),
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
        )
        return with_completeness(contract, step) if self.completeness else per_key(contract)


def late_schema(rows: pa.Schema) -> pa.Schema:
    """What late rows look like in a topic of their own: as they came, and by how much they were late."""
    return pa.schema([*(one for one in rows if not one.name.startswith("_")), pa.field("late_by_us", pa.int64())])
