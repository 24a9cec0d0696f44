"""`Guard`: what Spark's own stateful operators do with late, early and timeless rows, made as careful as ours.

Spark's operators count the rows that they drop and keep none, and one clock from the far future moves their watermark
for good. The guard stands in front of them. It needs no key and no shuffle: every task sorts the rows that it has, by
a watermark that all tasks of a batch compute from what the tasks of earlier batches have noted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import SystemClock
from headwater.engine.column_expressions import Selection
from headwater.engine.columns import LATE_BY, PUNCTUATION, REASON
from headwater.engine.contract import Contract, StepResult
from headwater.engine.errors import StateFolderUnknown
from headwater.engine.event_time import LATE_SAMPLE_ROWS, NEVER, Late, SourceProgress, check_late, merge_progress
from headwater.engine.micro_batch import MicroBatch, batch_time_us, current_batch, record_of_batch, time_folder
from headwater.engine.operator import EventTimeOperator
from headwater.engine.reader_protocol import DirectRead, direct_read, read_with
from headwater.engine.rows import micros, source_progress
from headwater.engine.spark_plan import REBUILD_SETTING, STATE_SETTING, note_applied, rebuilding
from headwater.engine.state_folder import Folder, open_folder
from headwater.engine.state_store import VERSIONS_KEPT, Manifest
from headwater.engine.time_metadata import marked, metadata_of
from headwater.engine.window_operator import check_columns, check_time, time_kind
from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

EARLY_BY = "_early_by_us"
#: The watermark of the guard, on its way to Spark's.
HELD = "_guarded_until"
#: Where Spark notes on a column that it has a watermark, and by how many milliseconds it trails.
SPARKS_DELAY = "spark.watermarkDelayMs"
MILLISECOND_US = 1000
#: Spark's watermark begins in 1970, and what lies before it is late.
FIRST_US = 1
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Guard(EventTimeOperator):
    """Stand in front of Spark's own `groupBy(window)`, `session_window`, `dropDuplicatesWithinWatermark` or joins.

    Rows in time pass, and Spark drops none of them; it has its watermark from the guard. Rows behind the watermark are
    counted and a sample is kept (`late="drop"`), or they go whole to the side output `late` (`late="side_output"`). Rows
    without a time go to the side output `rejected`; rows more than `future_max` in front of the clock (or of the column
    `received`) to the side output `early`, so that a broken clock moves nothing. Costs one trip of the rows through
    Python, and no shuffle.

    With the scope `"input"` the watermark follows the latest time of all rows, as Spark's does; with `"partition"`, the
    default of an event time, it follows the slowest partition, and results come one batch later.

    >>> from headwater import EventTime
    >>> Guard(time=EventTime("at", delay="10 minutes", future_max="1 hour", scope="input")).late
    'drop'
    """

    received: str | None = None
    late: Late = "drop"

    def __post_init__(self) -> None:
        check_late(self.late)

    def __call__(self, rows: DataFrame) -> DataFrame:
        """The rows that are in time, with Spark's watermark on their event time."""
        guard = self._checked(rows)
        rebuilt = rows.sparkSession.conf.get(REBUILD_SETTING, None)
        if not rows.isStreaming and not rebuilt:
            return guard._bounded(rows)
        return guard._guarded(rows, rebuilt)

    def side_output(self, name: Literal["early", "rejected"], rows: DataFrame) -> DataFrame:
        """The rows of a side output of bounded input. In a stream it lies in the state folder; bounded rows are never late."""
        guard = self._checked(rows)
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        if name == "rejected":
            return rows.where(F.col(guard.event_time.column).isNull()).withColumn(
                "reason", F.lit("the event time is null")
            )
        if name != "early":
            raise ArgumentInvalid(name="name", value=name, expected='"early" or "rejected"')
        return rows.where(~guard._not_early())

    def contract(self, rows: pa.Schema) -> Contract:
        """The operator as the plan of a query describes it."""
        public = [one for one in rows if not one.name.startswith("_") and one.name != LATE_BY]
        mores = {
            "late": pa.field(LATE_BY, pa.int64()),
            "early": pa.field("early_by_us", pa.int64()),
            "rejected": pa.field("reason", pa.string()),
        }
        return Contract(
            name=self.called,
            step=_nothing,
            key=(),
            rows=rows,
            state=pa.schema([]),
            output=rows,
            side_outputs={side: pa.schema([*public, more]) for side, more in mores.items()},
            event_time=self.strategy(),
            output_times=(self.event_time,),
            late_rows_max=LATE_SAMPLE_ROWS if self.late == "drop" else None,
        )

    # -- behind -------------------------------------------------------------------------------------------------------

    def _checked(self, rows: DataFrame) -> Self:
        guard, called = self.resolved(rows), self.name or type(self).__name__
        check_time(called, rows, guard.event_time.column)
        if self.received is not None:
            check_columns(called, rows, self.received)
            time_kind("received", rows, self.received)
        return guard

    def _guarded(self, rows: DataFrame, rebuilt: str | None) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructField, StructType, TimestampType

        state = rows.sparkSession.conf.get(STATE_SETTING, None)
        if state is None:
            raise StateFolderUnknown(operator=self.called)
        contract = self.contract(to_arrow_schema(rows.schema, timezone="UTC"))
        note_applied(contract)
        time, holding = self.event_time.column, self.event_time.scope == "partition"
        task = GuardTask(
            contract=contract, state=state, received=self.received, holding=holding, rebuilding=rebuilding(rebuilt)
        )
        schema = StructType([*rows.schema.fields, *([StructField(HELD, TimestampType())] if holding else [])])
        direct = None if rebuilt else direct_read(rows)
        sorted_out = (
            rows.mapInArrow(task.run, marked(schema, [self.event_time]))
            if direct is None
            else _read_guarded(rows, direct, task, marked(schema, [self.event_time]))
        )
        if holding:
            held = sorted_out.withWatermark(HELD, "0 seconds")
            metadata = {**metadata_of(self.event_time), SPARKS_DELAY: 0}
            own = F.col(f"`{time}`").alias(time, metadata=metadata)
            passed = held.select(*(own if name == time else F.col(f"`{name}`") for name in held.columns))
        else:
            passed = sorted_out.withWatermark(time, f"{self._trailing_ms()} milliseconds")
        if PUNCTUATION in rows.columns:
            # Mentioning the time keeps Spark from dropping these rows before their time was seen.
            passed = passed.where(F.col(PUNCTUATION).isNull() | F.col(f"`{HELD if holding else time}`").isNull())
        return passed.drop(HELD) if holding else passed

    def _trailing_ms(self) -> int:
        # Spark's watermark has milliseconds, and a row exactly at it is late to some of its operators.
        return -(-self.strategy().delay_us // MILLISECOND_US) + 1

    def _bounded(self, rows: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        kept = rows.where(F.col(f"`{self.event_time.column}`").isNotNull() & self._not_early())
        if PUNCTUATION in rows.columns:
            kept = kept.where(F.col(PUNCTUATION).isNull())
        return kept

    # Any: a column of Spark's.
    def _not_early(self) -> Any:
        from pyspark.sql import functions as F  # noqa: N812

        future_us = self.strategy().future_us
        if self.received is None or future_us is None:
            return F.lit(True)
        latest = F.col(f"`{self.received}`") + F.expr(f"INTERVAL {future_us} MICROSECOND")
        return F.coalesce(F.col(f"`{self.event_time.column}`") <= latest, F.lit(True))


def _read_guarded(rows: DataFrame, direct: DirectRead, task: GuardTask, schema: StructType) -> DataFrame:
    """The rows as the reader of their topic sorts them, so that they make no trip through Python of their own."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.pandas.types import to_arrow_schema

    output = to_arrow_schema(schema, timezone="UTC")
    read = read_with(rows, GuardStage(task, direct.selection(task.contract.rows), output), direct.options)
    # A read carries no metadata of columns.
    return read.select(*(F.col(f"`{one.name}`").alias(one.name, metadata=one.metadata) for one in schema.fields))


def _nothing(state: pa.Table, rows: pa.Table, time: object) -> StepResult:  # noqa: ARG001 - the guard keeps no state of keys
    return StepResult(state)


@dataclass(frozen=True, kw_only=True)
class GuardTask:
    """What travels to the workers: everything needed to guard one task's rows of one batch."""

    contract: Contract
    state: str
    received: str | None
    holding: bool
    rebuilding: MicroBatch | None = None

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batch = self._batch()
        folder = open_folder(self.state).within(batch.query).within(self.contract.name)
        processing_us = self._time_us(batch)
        noted = noted_before(folder, batch.number)
        watermark_us = max(
            FIRST_US,
            self.contract.event_time.watermark(
                [one.progress for one in noted.values()],
                previous_us=max((one.watermark_us for one in noted.values()), default=NEVER),
                now_us=processing_us,
            ),
        )
        sorting = Sorting(self.contract, self.received, watermark_us=watermark_us, processing_us=processing_us)
        for rows in batches:
            passing = sorting.passing(rows)
            if passing.num_rows:
                yield self._held(passing, watermark_us) if self.holding else passing
        self._save(folder, batch, sorting, noted.get(batch.partition))

    def _batch(self) -> MicroBatch:
        from dataclasses import replace

        from pyspark import TaskContext

        context = TaskContext.get()
        batch = self.rebuilding if self.rebuilding is not None else current_batch()
        if batch is None or context is None:
            raise StateFolderUnknown(operator=self.contract.name)
        return replace(batch, partition=context.partitionId())

    def _time_us(self, batch: MicroBatch) -> int:
        """The batch's processing time; where its source tells none, what the first of its tasks finds."""
        known = batch_time_us(self.state, batch)
        if known is not None:
            return known
        folder = time_folder(self.state, batch.query)
        found = record_of_batch(folder, "guard", batch.number, self.contract.name, {"at_us": SystemClock().now_us()})
        return int(found["at_us"])

    def _held(self, rows: pa.RecordBatch, watermark_us: int) -> pa.RecordBatch:
        until = max(0, watermark_us // MILLISECOND_US * MILLISECOND_US - MILLISECOND_US)
        column = pa.repeat(pa.scalar(until, pa.timestamp("us", "UTC")), rows.num_rows)
        return rows.append_column(pa.field(HELD, column.type), column)

    def _save(self, folder: Folder, batch: MicroBatch, sorting: Sorting, before: Manifest | None) -> None:
        for side, tables in sorting.sides.items():
            if tables:
                table = pa.Table.from_batches(tables)
                folder.within("sides").within(side).write(f"{batch.number:012d}-{batch.partition:05d}", table)
        counts = before.counts if before is not None else {}
        sides = {name: counts.get(name, 0) + count for name, count in sorting.counts.items()}
        manifest = Manifest(
            batch=batch.number,
            partitions=0,  # those of its input
            progress=merge_progress([before.progress if before is not None else {}, sorting.progress]),
            watermark_us=sorting.watermark_us,
            processing_us=sorting.processing_us,
            counts={"rows": sorting.rows, **sides},
        )
        own = folder.within(str(batch.partition))
        own.write_text(f"{batch.number:012d}.json", manifest.dumps())
        own.sync()
        for number in versions(own)[:-VERSIONS_KEPT]:
            own.remove(f"{number:012d}.json")


@dataclass(frozen=True)
class GuardStage:
    """The guard in the reader of a topic."""

    task: GuardTask
    selection: Selection
    output: pa.Schema

    @property
    def name(self) -> str:
        return self.task.contract.name

    @property
    def rows(self) -> pa.Schema:
        return self.selection.read

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chosen = (self.selection(pa.Table.from_batches([batch], self.rows)) for batch in batches)
        for batch in self.task.run(one for table in chosen for one in table.to_batches()):
            yield batch.cast(self.output)


def noted_before(folder: Folder, batch: int) -> dict[int, Manifest]:
    """What each task had noted by the batch before, by the number of the task."""
    found = {}
    for name in folder.folders():
        if name.isdigit():
            earlier = [number for number in versions(folder.within(name)) if number < batch]
            text = folder.within(name).read_text(f"{max(earlier):012d}.json") if earlier else None
            if text is not None:
                found[int(name)] = Manifest.loads(text)
    return found


def versions(folder: Folder) -> list[int]:
    return sorted(int(name.removesuffix(".json")) for name in folder.names() if name.endswith(".json"))


@dataclass
class Sorting:
    """The rows of one task in one batch: those that pass, and what is kept of the others."""

    contract: Contract
    received: str | None
    watermark_us: int
    processing_us: int
    rows: int = 0
    progress: SourceProgress = field(default_factory=dict)
    sides: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: {"late": [], "early": [], "rejected": []})
    counts: dict[str, int] = field(default_factory=lambda: {"late": 0, "early": 0, "rejected": 0})

    def passing(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in time; punctuations pass as rows that Spark's watermark follows."""
        self.rows += rows.num_rows
        rows, times = self._promised(rows)
        missing = np.asarray(pc.is_null(times))
        at_us: Ints = np.asarray(pc.fill_null(times, 0))
        early_by = at_us - self._bound_us(rows)
        early = (early_by > 0) & ~missing
        late = (at_us < self.watermark_us) & ~missing & ~early
        self.progress = merge_progress([self.progress, self._source_progress(rows, at_us, ~missing & ~early)])
        if not (missing.any() or early.any() or late.any()):
            return rows
        if PUNCTUATION in rows.schema.names:  # a punctuation from the far future is no row
            promise = np.asarray(pc.is_valid(rows.column(PUNCTUATION)))
            missing, early, late, gone = missing & ~promise, early & ~promise, late & ~promise, promise & (early | late)
        else:
            gone = np.zeros(len(at_us), bool)
        self._divert("late", rows, late, LATE_BY, self.watermark_us - at_us)
        self._divert("early", rows, early, EARLY_BY, early_by)
        self._divert("rejected", rows, missing, REASON, None)
        return rows.filter(pa.array(~(missing | early | late | gone)))

    def _promised(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array]:
        """Rows whose punctuations have the time of a row that lets the watermark come to what they promise."""
        column = self.contract.time or ""
        if PUNCTUATION not in rows.schema.names or rows.column(PUNCTUATION).null_count == rows.num_rows:
            return rows, micros(rows.column(column))
        promised = pc.add(micros(rows.column(PUNCTUATION)), self.contract.event_time.delay_us)
        times = pc.coalesce(promised, micros(rows.column(column)))
        place = rows.schema.get_field_index(column)
        return rows.set_column(place, rows.schema.field(place), times.cast(rows.schema.field(place).type)), times

    def _bound_us(self, rows: pa.RecordBatch) -> Ints | int:
        """The latest time that is believed, of each row or of all."""
        strategy = self.contract.event_time
        if self.received is None or strategy.future_us is None:
            return strategy.bound_us(self.processing_us)
        return np.asarray(pc.fill_null(micros(rows.column(self.received)), self.processing_us)) + strategy.future_us

    def _source_progress(self, rows: pa.RecordBatch, at_us: Ints, good: Bools) -> SourceProgress:
        if not good.any():
            return {}
        if self.contract.event_time.scope == "input":
            return {"": {"": (int(at_us[good].max()), self.processing_us)}}
        followed = rows if good.all() else rows.filter(pa.array(good))
        return source_progress(pa.Table.from_batches([followed]), self.contract, self.processing_us)

    def _divert(self, side: str, rows: pa.RecordBatch, chosen: Bools, more: str, values: Ints | None) -> None:
        count = int(chosen.sum())
        self.counts[side] += count
        most = self.contract.late_rows_max
        if side == "late" and most is not None:
            room = most - sum(kept.num_rows for kept in self.sides[side])
            chosen = chosen & (np.cumsum(chosen) <= room)
        if chosen.any():
            kept = rows.filter(pa.array(chosen))
            column = pa.repeat("the event time is null", kept.num_rows) if values is None else pa.array(values[chosen])
            if more in kept.schema.names:
                kept = kept.drop_columns([more])
            self.sides[side].append(kept.append_column(more, column))
