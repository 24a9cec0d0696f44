"""From DataFrames to the engine: inputs are tagged and joined, rows go to the partition of their key, one call does all.

inputs ──(combine)──► tagged union ──► hash of the key ──► repartition ──► mapInArrow: engine over one partition
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.engine import packed_rows
from headwater.engine.analyzed_plan import analyzed_plan, is_shuffled
from headwater.engine.column_expressions import Selection
from headwater.engine.columns import HASH, INPUT, SLOT
from headwater.engine.contract import Broadcast, Contract
from headwater.engine.errors import StateFolderUnknown, StateMissing
from headwater.engine.event_time import WatermarkStrategy
from headwater.engine.micro_batch import (
    MicroBatch,
    current_batch,
    is_final,
    questions_of,
    record_of_batch,
    record_once,
    recorded,
    time_folder,
)
from headwater.engine.open_logs import shared_log
from headwater.engine.packed_rows import unpacked
from headwater.engine.questions import read_questions
from headwater.engine.reader_protocol import OperatorOutput, Pack, direct_reads, note_output
from headwater.engine.state_folder import Folder, open_folder
from headwater.engine.step import PartitionEngine, run_bounded
from headwater.engine.time_metadata import marked
from headwater.engine.watermark_origin import Origin, origins_of, recorded_progress, source_records
from headwater.errors import ColumnUnknown, NotPossible
from headwater.workers import freeze_modules

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STATE_SETTING = "spark.headwater.state"
#: `<query>:<batch>` while state is being rebuilt: bounded rows are then taken for those of that batch.
REBUILD_SETTING = "spark.headwater.rebuild"
Combine = Callable[[pa.Table], pa.Table]
_applied: ContextVar[list[Contract] | None] = ContextVar("applied", default=None)
_partitions: ContextVar[int | None] = ContextVar("partitions", default=None)
#: The run of the query in which this process last had a batch of an operator's partition.
_runs: dict[tuple[str, str, int], str] = {}


@contextmanager
def applied_operators() -> Iterator[list[Contract]]:
    """Collect the operators that are applied inside of the block."""
    found: list[Contract] = []
    token = _applied.set(found)
    try:
        yield found
    finally:
        _applied.reset(token)


def note_applied(contract: Contract) -> None:
    """Register an operator with the block of `applied_operators` around it."""
    collected = _applied.get()
    if collected is not None:
        collected.append(contract)


def apply(
    contract: Callable[[pa.Schema], Contract],
    *inputs: DataFrame,
    combine: tuple[Combine, pa.Schema] | None = None,
    packed: pa.Schema | None = None,
    timed: DataFrame | None = None,
    partitions: int | None = None,
    side: str | None = None,
) -> DataFrame:
    """Run an operator over DataFrames, streaming or bounded. `contract` is given the schema of the rows it will get.

    With `side`, the rows of that side output are the result instead of the output; for bounded input only. `packed` is the
    schema of rows that come packed for their partitions, as many as `partitions_of` says; `timed` are the rows before that,
    with their column of event time.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    spark = inputs[0].sparkSession
    frames = [_combined(frame, *combine) for frame in inputs] if combine is not None else list(inputs)
    rows = frames[0] if len(frames) == 1 else _union(frames)
    count = partitions_of(rows, partitions)
    schema = to_arrow_schema(rows.schema, timezone="UTC") if packed is None else packed
    made = replace(contract(schema), partitions=count, packed=packed is not None)
    _check_columns(made)
    made = replace(made, origins=origins_of(inputs if timed is None else [timed], made.event_time))
    if packed is None and (found := _packed(frames, rows, made)) is not None:
        rows, made = found, replace(made, packed=True)
    note_applied(made)
    state = spark.conf.get(STATE_SETTING, None)
    streaming = rows.isStreaming
    if streaming and state is None:
        raise StateFolderUnknown(operator=made.name)
    task = Task(
        contract=made,
        state=state or "",
        streaming=streaming,
        side=side,
        rebuilding=rebuilding(spark.conf.get(REBUILD_SETTING, None)),
    )
    placed = rows.repartitionById(count, SLOT) if made.packed else _placed(rows, made)
    if side is not None:
        return placed.mapInArrow(task.run, from_arrow_schema(made.side_outputs[side]))
    columns = marked(from_arrow_schema(made.output), made.output_times, _output_origins(made))
    output = placed.mapInArrow(task.run, columns)
    if streaming:
        note_output(output, OperatorOutput(placed, task.run))
    return output


def _output_origins(contract: Contract) -> dict[str, str]:
    """Where operators behind find the watermarks of columns of the output, if this operator records them."""
    if not contract.origins:
        return {}
    delays = dict.fromkeys(contract.output_floors, 0)
    delays |= {time.column: WatermarkStrategy.of(time).delay_us for time in contract.output_times}
    return {
        column: Origin(operator=contract.name, column=column, delay_us=delay_us).to_text()
        for column, delay_us in delays.items()
    }


@contextmanager
def state_partitions(count: int | None) -> Iterator[None]:
    """Cut the state of operators that are applied inside of the block into so many partitions.

    An operator that says how many it has keeps to that; without a count, all others have as many as a shuffle.
    """
    token = _partitions.set(count)
    try:
        yield
    finally:
        _partitions.reset(token)


def partitions_of(rows: DataFrame, partitions: int | None) -> int:
    """How many partitions an operator over these rows has: as many as it or its query says, else as a shuffle."""
    return partitions or _partitions.get() or int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 2)


def _is_first_of_run(operator: str, slot: int, batch: MicroBatch) -> bool:
    """Whether this process has no earlier batch of an operator's partition in this run of the query."""
    place = (batch.query, operator, slot)
    known = _runs.get(place)
    _runs[place] = batch.run
    return known != batch.run


def rebuilding(setting: str | None) -> MicroBatch | None:
    """The batch whose state is being rebuilt, by the setting that says so."""
    if not setting:
        return None
    query, _, number = setting.rpartition(":")
    return MicroBatch(query=query, number=int(number))


def _combined(frame: DataFrame, combine: Combine, schema: pa.Schema) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = list(batches)
        if found:
            yield from combine(pa.Table.from_batches(found)).cast(schema).to_batches()

    return frame.mapInArrow(run, from_arrow_schema(schema))


def _union(frames: list[DataFrame]) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    tagged = [frame.withColumn(INPUT, F.lit(number)) for number, frame in enumerate(frames)]
    return union_by_name(tagged)


def union_by_name(frames: list[DataFrame]) -> DataFrame:
    """The union of inputs, with their columns in the order in which they are given."""
    columns = dict.fromkeys(name for frame in frames for name in frame.columns)
    ordered = [frames[number] for number in _union_order(frames)]
    union = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), ordered)
    return union.select(*(f"`{name}`" for name in columns))


def _union_order(frames: list[DataFrame]) -> list[int]:
    """The order of inputs in a union: those that are the output of operators first.

    A union numbers the tasks of an input behind those of the inputs before it. A task without rows finds its partition of
    an operator by its number, which must be the same in each batch; but a source without new rows has no tasks.
    """
    is_fixed = [frame.isStreaming and is_shuffled(analyzed_plan(frame)) for frame in frames]
    return sorted(range(len(frames)), key=lambda number: not is_fixed[number])


def _packed(frames: list[DataFrame], rows: DataFrame, contract: Contract) -> DataFrame | None:
    """The rows as their readers pack them, where one of the inputs is a topic as far as a reader can compute, or as the tasks
    of the operator that gives them do.

    Another input beside it is packed by tasks in front of the shuffle.
    """
    if not all(packed_rows.can_hash(contract.rows.field(key).type) for key in contract.key):
        return None
    inputs = frames if len(frames) == 1 else [_aligned(frame, number, rows) for number, frame in enumerate(frames)]
    reads = [direct_reads(one, outputs=True) for one in inputs]
    if not any(reads):
        return None
    pack = Pack(contract.name, Selection.whole(contract.rows), contract.key, contract.partitions)
    parts = []
    for number in _union_order(frames):
        one, direct = inputs[number], reads[number]
        own = [replace(pack, selection=each.selection(contract.rows)) for each in direct]
        parts += [each.with_stage(rows, stage) for stage, each in zip(own, direct, strict=True)]
        parts += [] if direct else [_packed_by_tasks(one, pack)]
    return reduce(lambda left, right: left.union(right), parts)


def _aligned(frame: DataFrame, number: int, rows: DataFrame) -> DataFrame:
    """An input with the columns of the union of all inputs, in their order and types."""
    from pyspark.sql import functions as F  # noqa: N812

    columns = []
    for one in rows.schema.fields:
        if one.name == INPUT:
            columns.append(F.lit(number).alias(INPUT))
        elif one.name not in frame.columns:
            columns.append(F.lit(None).cast(one.dataType).alias(one.name))
        else:
            own = F.col(f"`{one.name}`")
            same = frame.schema[one.name].dataType == one.dataType
            columns.append(own if same else own.cast(one.dataType).alias(one.name))
    return frame.select(*columns)


def _packed_by_tasks(rows: DataFrame, pack: Pack) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_modules()
        return pack(one.cast(pack.rows) for one in batches)

    return rows.mapInArrow(run, from_arrow_schema(pack.output))


def _placed(rows: DataFrame, contract: Contract) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812

    hashed = rows.withColumn(HASH, F.xxhash64(*contract.key))
    slotted = hashed.withColumn(SLOT, F.pmod(HASH, F.lit(contract.partitions)).cast("int"))
    return slotted.repartitionById(contract.partitions, SLOT)


def _check_columns(contract: Contract) -> None:
    for name in (*contract.key, *([contract.time] if contract.time is not None else [])):
        if name not in contract.rows.names:
            raise ColumnUnknown(topic=contract.name, column=name, columns=", ".join(contract.rows.names))


@dataclass(frozen=True, kw_only=True)
class Task:
    """What travels to the workers: everything needed to run one partition of one batch."""

    contract: Contract
    state: str
    streaming: bool
    side: str | None = None
    rebuilding: MicroBatch | None = None
    #: Of which call of `apply` this is: no two have the same.
    plan: str = field(default_factory=lambda: secrets.token_hex(8))

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_modules()
        found = list(batches)
        rows = self._rows(found)
        batch = current_batch() if self.streaming else self._rebuilt_batch()
        if batch is None:
            output, sides = run_bounded(self.contract, rows, self._broadcast(None))
            table = (
                output
                if self.side is None
                else sides.get(self.side, self.contract.side_outputs[self.side].empty_table())
            )
        else:
            table = self._run_batch(rows, batch)
        yield from table.to_batches()

    def _rebuilt_batch(self) -> MicroBatch | None:
        from pyspark import TaskContext

        context = TaskContext.get()
        if self.rebuilding is None or context is None:
            return None
        return replace(self.rebuilding, partition=context.partitionId())

    def _run_batch(self, rows: pa.Table, batch: MicroBatch) -> pa.Table:
        folder = open_folder(self.state).within(batch.query).within(self.contract.name)
        records = open_folder(self.state).within(batch.query).within("operators")
        self._check_known(records, batch)
        self._check_alone(records, batch)
        slot = self._slot(rows, batch, records)
        engine = PartitionEngine(self.contract, folder, slot=slot)
        state, contract = self.state, self.contract
        told = source_records(state, batch)
        processing_us = max((one.at_us for one in told), default=None)
        progress = None
        if contract.origins:
            progress = recorded_progress(
                told, contract.origins, contract.event_time, state=state, batch=batch, now_us=processing_us
            )
        output = engine.run(
            rows,
            batch=batch.number,
            processing_us=processing_us,
            broadcast=self._broadcast(batch),
            recorded=progress,
            final=progress is None and is_final(state, batch),
            first_of_run=_is_first_of_run(contract.name, slot, batch),
        )
        asked = questions_of(self.state, batch)
        if asked is not None:
            engine.answer(read_questions(shared_log(asked["log"]), asked), batch=batch.number)
        return output

    def _rows(self, found: list[pa.RecordBatch]) -> pa.Table:
        if found:
            return unpacked(found) if self.contract.packed else pa.Table.from_batches(found)
        return pa.schema([*self.contract.rows, pa.field(HASH, pa.int64()), pa.field(SLOT, pa.int32())]).empty_table()

    def _check_known(self, records: Folder, batch: MicroBatch) -> None:
        """Never begin with empty state where there should be some."""
        if recorded(records, self.contract.name) is None:
            if batch.number > 0 and self.rebuilding is None:
                raise StateMissing(operator=self.contract.name, batch=batch.number)
            about = {"first_batch": batch.number, "key": list(self.contract.key)}
            record_once(records, self.contract.name, about)

    def _check_alone(self, records: Folder, batch: MicroBatch) -> None:
        """Two operators of one name in one query would write the same state, and each undo what the other did."""
        if not batch.run:
            return
        name = f"{self.contract.name}-run-{batch.run}"
        if recorded(records, name) is None:
            for earlier in records.names(f"{self.contract.name}-run-"):
                if earlier != f"{name}.json":
                    records.remove(earlier)
        if record_once(records, name, {"plan": self.plan})["plan"] != self.plan:
            why = (
                f"Two operators of this query are called {self.contract.name!r}, and would overwrite each other's state"
            )
            raise NotPossible(why=why, instead="Give one of them another name: `name=…`")

    def _slot(self, rows: pa.Table, batch: MicroBatch, records: Folder) -> int:
        """Which partition of the operator this task has. Rows say it; a task without rows goes by its own number.

        Behind a union, Spark numbers the tasks of one branch after those of the other. The first task with rows
        writes down by how much.
        """
        name = f"{self.contract.name}-base-{self.contract.partitions}"
        if rows.num_rows:
            slot: int = rows.column(SLOT)[0].as_py()
            record_once(records, name, {"base": batch.partition - slot})
            return slot
        known = recorded(records, name)
        return (batch.partition - (known["base"] if known is not None else 0)) % self.contract.partitions

    def _broadcast(self, batch: MicroBatch | None) -> Mapping[str, pa.Table]:
        return {name: self._read(name, table, batch) for name, table in self.contract.broadcast.items()}

    def _read(self, name: str, table: Broadcast, batch: MicroBatch | None) -> pa.Table:
        log = shared_log(table.log)
        ends = {str(partition): offset for partition, offset in log.end_offsets(table.topic).items()}
        if batch is not None:
            # Every task of the batch, and every retry, reads up to the offsets that the first one wrote down.
            folder = time_folder(self.state, batch.query)
            ends = record_of_batch(folder, "table", batch.number, f"{self.contract.name}-{name}", ends)
        stop = {int(partition): offset for partition, offset in ends.items()}
        found: pa.Table = log.read(table.topic, stop=stop).table()
        return found


def default_name(operator: object) -> str:
    """A name for an operator that was given none: its kind, and a mark of its settings."""
    mark = hashlib.sha256(repr(operator).encode()).hexdigest()[:8]
    return f"{type(operator).__name__.lower()}-{mark}"
