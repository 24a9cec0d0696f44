"""Settings that windowed operators share, and how they become a contract of the engine.

`WindowOperator` is for windows that time cuts (tumbling, hopping), `RowWindowOperator` for windows whose ends depend on the rows of a
key (session, sliding, count).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import pyarrow as pa

from headwater.engine.aggregation import ARGUMENT, Aggregate, Computation, arguments, check_arguments, check_compute
from headwater.engine.column_expressions import Expression, column
from headwater.engine.columns import ALL, PLACES, PUNCTUATION, ROWS, TOPIC
from headwater.engine.contract import Contract, Step
from headwater.engine.event_time import LATE_SAMPLE_ROWS, Late, WatermarkStrategy, check_late, late_schema
from headwater.engine.key_watermark import per_key
from headwater.engine.operator import EventTimeOperator
from headwater.engine.reader_protocol import DirectRead, direct_read, read_with
from headwater.engine.spark_plan import apply, partitions_of
from headwater.engine.watermark_origin import origins_of
from headwater.engine.window_combine import CHUNK, POSITION, Combine
from headwater.engine.window_completeness import COMPLETENESS, with_completeness
from headwater.engine.window_spans import Spans
from headwater.engine.window_step import (
    END,
    PROCESSED,
    SLICE,
    START,
    Emit,
    ProcessingStep,
    WindowStep,
    output_fields,
    processing_state,
    state_schema,
    without_time,
)
from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.schema.event_time import EventTime
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def _with(schema: pa.Schema, more: pa.Schema) -> pa.Schema:
    return pa.schema([*schema, *(field for field in more if field.name not in schema.names)])


EMITS = ("final", "changes", "every_change")
#: Whose clock cuts the windows: the event time of the rows, or the processing time of their batch.
Clock = Literal["event", "processing"]


def keys_of(by: str | tuple[str, ...]) -> tuple[str, ...]:
    """The columns of a key; of no column, the one that is the same for all rows."""
    return (by,) if isinstance(by, str) else tuple(by) or (ALL,)


def check_columns(operator: str, rows: DataFrame, *names: str) -> None:
    """Raise for columns that the rows do not have."""
    for name in names:
        if name not in rows.columns and name != ALL:
            raise ColumnUnknown(topic=operator, column=name, columns=", ".join(rows.columns))


def check_time(operator: str, rows: DataFrame, column: str) -> None:
    """Raise unless `column` is a timestamp column of the rows."""
    check_columns(operator, rows, column)
    time_kind("time", rows, column)


def time_kind(setting: str, rows: DataFrame, column: str) -> str:
    """The type of a timestamp column, by its name in Spark; raise for a column of another type."""
    kind: str = rows.schema[column].dataType.typeName()
    if kind not in ("timestamp", "timestamp_ntz"):
        raise ArgumentInvalid(name=setting, value=f"{column} ({kind})", expected="a column of timestamps")
    return kind


def prepared(
    operator: str,
    rows: DataFrame,
    *,
    time: str,
    by: str | tuple[str, ...],
    compute: Mapping[str, Aggregate],
    taken: tuple[str, ...] = (),
    whole: bool = False,
) -> DataFrame:
    """The rows with their key, time, place and the arguments of the aggregates; with `whole`, everything else too."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    keys = keys_of(by)
    check_time(operator, rows, time)
    check_columns(operator, rows, *keys)
    check_compute(compute, taken=(*keys, *taken))
    check_arguments(operator, compute, rows)
    needed = [name for name in (*keys, time, *PLACES) if name in rows.columns]
    kept = rows.columns if whole else list(dict.fromkeys(needed))
    more = {ALL: F.lit(0)} if ALL in keys else {}
    columns = {**more, **arguments(compute)}
    return rows.select(*(F.col(f"`{name}`") for name in kept), *(one.alias(name) for name, one in columns.items()))


@dataclass(frozen=True, kw_only=True)
class WindowOperator(EventTimeOperator, ABC):
    """Aggregation per key and window."""

    by: str | tuple[str, ...] = ()
    compute: Mapping[str, Aggregate] | None = None
    allowed_lateness: Duration = 0
    late: Late = "drop"
    clock: Clock = "event"
    emit: Emit = "final"
    completeness: bool = False
    combine: bool = True

    per_key: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.emit not in EMITS:
            raise ArgumentInvalid(name="emit", value=self.emit, expected='"final", "changes" or "every_change"')
        check_late(self.late)
        self._check_clock()
        self._check_completeness()
        self.spans()

    def strategy(self) -> WatermarkStrategy:
        return WatermarkStrategy() if self.clock == "processing" else super().strategy()

    def _check_clock(self) -> None:
        if self.clock not in ("event", "processing"):
            raise ArgumentInvalid(name="clock", value=self.clock, expected='"event" or "processing"')
        if self.clock == "processing":
            for name in ("time", "allowed_lateness"):
                if getattr(self, name):
                    expected = 'none beside clock="processing", in which nothing is late'
                    raise ArgumentInvalid(name=name, value=getattr(self, name), expected=expected)

    def _check_completeness(self) -> None:
        if not self.completeness:
            return
        if self.emit == "final":
            expected = 'none with emit="final", whose results are complete; say emit="changes"'
            raise ArgumentInvalid(name="completeness", value=True, expected=expected)
        if self._is_per_key or self.clock == "processing":
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
        if self.clock == "processing":
            return self._by_processing_time(called, rows)
        return self.resolved(rows)._by_event_time(called, rows)

    def _by_event_time(self, called: str, rows: DataFrame) -> DataFrame:
        if self.compute is None:
            check_time(called, rows, self.event_time.column)
            delay = f"{self.strategy().delay_us} microseconds"
            return rows.withWatermark(self.event_time.column, delay).withColumn("window", self.column())
        self._check_completeness()
        made = prepared(
            called,
            rows,
            time=self.event_time.column,
            by=self.by,
            compute=self.compute,
            taken=(START, END),
            whole=self.late == "side_output",
        )
        direct = direct_read(made) if self.can_combine and rows.isStreaming else None
        if direct is not None and self._may_push(made, direct):
            return self._pushed(made, direct)
        return apply(self.contract, made, partitions=self.partitions if self.by else 1)

    def _by_processing_time(self, called: str, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        if not rows.isStreaming:
            raise without_time()
        # Which time that is the step learns from the batch: here is only the place for it.
        timed = rows.withColumn(PROCESSED, F.lit(None).cast("timestamp"))
        made = prepared(called, timed, time=PROCESSED, by=self.by, compute=self.compute or {}, taken=(START, END))
        return apply(self.contract, made, partitions=self.partitions if self.by else 1)

    @property
    def can_combine(self) -> bool:
        """Whether rows may be combined before they come: not where each of them is looked at by itself."""
        each_row = self.emit == "every_change" or self.late == "side_output" or self._is_per_key or self.completeness
        return self.combine and not each_row

    @property
    def _is_per_key(self) -> bool:
        return isinstance(self.time, EventTime) and self.time.scope == "key"

    def _may_push(self, made: DataFrame, direct: DirectRead) -> bool:
        """Whether what comes out is the same if the reader combines these rows."""
        if {TOPIC, PUNCTUATION} & {*made.columns, *direct.topic.names}:
            return False
        if set(POSITION) <= set(made.columns):
            return True
        # Without their place, the aggregates must be such that it means nothing to them, and the watermark one that is recorded.
        from pyspark.sql.pandas.types import to_arrow_schema

        computation = Computation.over(self.compute or {}, to_arrow_schema(made.schema, timezone="UTC"))
        placeless = all(one.hashed(computation.kinds[name]) is not None for name, one in computation.compute.items())
        return placeless and bool(origins_of([made], self.strategy()))

    def _pushed(self, made: DataFrame, direct: DirectRead) -> DataFrame:
        """Let the source do the first half, where its reader can compute all that the operator needs."""
        from pyspark.sql.pandas.types import to_arrow_schema

        rows = to_arrow_schema(made.schema, timezone="UTC")
        direct = replace(direct, columns={**{name: column(name) for name in POSITION}, **direct.columns})
        places = pa.schema([("_partition", pa.int32()), ("_offset", pa.int64())])
        # Aggregates of the same column are given one column.
        firsts: dict[Expression, str] = {}
        of = {name: f"{ARGUMENT}{name}" for name, one in (self.compute or {}).items() if one.of is not None}
        arguments = {name: firsts.setdefault(direct.columns[argument], argument) for name, argument in of.items()}
        kept = [name for name in (*keys_of(self.by), self.event_time.column) if name not in POSITION]
        needed = dict.fromkeys((*kept, *arguments.values()))
        combine = Combine(
            name=self.called,
            time_column=self.event_time.column,
            keys=keys_of(self.by),
            spans=self.spans(),
            computation=Computation.over(self.compute or {}, rows),
            selection=replace(direct, topic=_with(direct.topic, places)).selection(
                _with(pa.schema([rows.field(name) for name in needed]), places)
            ),
            arguments=arguments,
            partitions=partitions_of(made, self.partitions if self.by else 1),
        )
        contract = partial(self.contract, combine=combine)
        packed = combine.partials if combine.packs else None
        read = read_with(made, combine, direct.options)
        return apply(contract, read, packed=packed, timed=made, partitions=combine.partitions)

    def contract(self, rows: pa.Schema, *, combine: Combine | None = None) -> Contract:
        keys = keys_of(self.by)
        computation = combine.computation if combine is not None else Computation.over(self.compute or {}, rows)
        shown = [rows.field(name) for name in keys if name != ALL]
        processing = self.clock == "processing"
        times = () if processing else result_times(self.event_time, self.emit)
        step = WindowStep(
            time_column=PROCESSED if processing else self.event_time.column,
            spans=self.spans(),
            computation=computation,
            allowed_lateness_us=round(parse_seconds(self.allowed_lateness) * 1e6),
            emit=self.emit,
            combined=combine is not None,
        )
        contract = Contract(
            name=self.called,
            step=ProcessingStep(step) if processing else step,
            key=keys,
            rows=rows,
            state=processing_state(state_schema(computation)) if processing else state_schema(computation),
            side_outputs={"late": late_schema(rows)},
            output=pa.schema([*shown, *output_fields(computation, self.emit)]),
            event_time=self.strategy(),
            output_times=times,
            output_floors=window_floors(step.spans, step.allowed_lateness_us) if times else {},
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


def result_times(time: EventTime, emit: str, *, column: str = START) -> tuple[EventTime, ...]:
    """The event time of results: those of closed windows come in its order, so that none is late for an operator behind.

    Corrections come in any order, and so do results where each key has its own watermark.
    """
    return (EventTime(column, future_max=time.future_max),) if emit == "final" and time.scope != "key" else ()


def window_floors(spans: Spans, allowed_lateness_us: int = 0) -> dict[str, Callable[[int], int]]:
    """By the watermark, the least start and the least end of windows that are still open.

    >>> from headwater.engine.window_spans import Fixed
    >>> floors = window_floors(Fixed(10))
    >>> floors[START](59), floors[START](60), floors[END](59)
    (50, 60, 59)
    """

    def start_us(watermark_us: int) -> int:
        at = np.array([watermark_us - allowed_lateness_us])
        return int(spans.windows(spans.slices(at)).starts.min(initial=at[0]))

    return {START: start_us, END: lambda watermark_us: watermark_us - allowed_lateness_us}


@dataclass(frozen=True, kw_only=True)
class RowWindowOperator(EventTimeOperator, ABC):
    """Aggregation per key over windows whose ends depend on the rows of the key."""

    by: str | tuple[str, ...] = ()
    compute: Mapping[str, Aggregate] | None = None
    allowed_lateness: Duration = 0
    late: Late = "drop"
    emit: Emit = "final"

    per_key: ClassVar[bool] = True
    #: Names that results have already.
    taken: ClassVar[tuple[str, ...]] = (START, END)

    def __post_init__(self) -> None:
        if self.emit not in EMITS:
            raise ArgumentInvalid(name="emit", value=self.emit, expected='"final", "changes" or "every_change"')
        check_late(self.late)

    @abstractmethod
    def step(self, computation: Computation) -> Step:
        """What happens to a batch."""

    @abstractmethod
    def state(self, computation: Computation) -> pa.Schema:
        """What is kept of a key."""

    def fields(self, computation: Computation) -> list[pa.Field]:
        """The columns of a result beside its key."""
        return output_fields(computation, self.emit)

    @property
    def output_times(self) -> tuple[EventTime, ...]:
        """The event time of results, where they come in its order."""
        return result_times(self.event_time, self.emit, column=END)

    @property
    def allowed_lateness_us(self) -> int:
        return round(parse_seconds(self.allowed_lateness) * 1e6)

    def __call__(self, rows: DataFrame) -> DataFrame:
        operator = self.resolved(rows)
        made = prepared(
            self.name or type(self).__name__,
            rows,
            time=operator.event_time.column,
            by=self.by,
            compute=self.compute or {},
            taken=self.taken,
            whole=operator.late == "side_output",
        )
        return apply(operator.contract, made, partitions=self.partitions if self.by else 1)

    def contract(self, rows: pa.Schema) -> Contract:
        keys = keys_of(self.by)
        computation = Computation.over(self.compute or {}, rows)
        shown = [rows.field(name) for name in keys if name != ALL]
        contract = Contract(
            name=self.called,
            step=self.step(computation),
            key=keys,
            rows=rows,
            state=self.state(computation),
            side_outputs={"late": late_schema(rows)},
            output=pa.schema([*shown, *self.fields(computation)]),
            event_time=self.strategy(),
            output_times=self.output_times,
            output_floors={END: lambda watermark_us: watermark_us - self.allowed_lateness_us}
            if self.output_times
            else {},
            late="step",
            hidden=tuple(name for name in rows.names if name.startswith(ARGUMENT) or name == ALL),
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
        )
        return per_key(contract)
