"""The Parquet sink: rows become files of a lake, exactly once.

Tasks write files that nobody reads yet; the driver names those of the attempts that reached it in one record of the
lake, together with the batch's number (see `headwater.sinks.lake`). So a batch that is done again changes nothing, and
files of attempts that failed never count; they are swept away when the next run begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import orjson
import pyarrow as pa

from headwater.batches import MicroBatch, current_batch
from headwater.errors import ArgumentInvalid, SinkMisfit
from headwater.faults import reach
from headwater.sinks.changelog import OPERATION
from headwater.sinks.changes import Changes, Refusal, appended, without_own
from headwater.sinks.commits import Progress
from headwater.sinks.driver import DriverSink
from headwater.sinks.lake import DataFile, Record, Snapshot, check_path, current, publish
from headwater.sinks.lake_files import Origin, file_schema, write_files
from headwater.sinks.lake_upkeep import compact, sweep
from headwater.sinks.port import Guarantee, finish, streaming_batch
from headwater.sinks.refusals import Refusals
from headwater.units import parse_bytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, kw_only=True)
class Written:
    """What a task tells the driver: its files, and rows that it would not take."""

    files: tuple[DataFile, ...]
    refused: pa.Table | None = None
    why: tuple[str, ...] = ()

    def to_batch(self) -> pa.RecordBatch:
        """One row for the driver: the files and reasons as JSON, the rows that were refused as Arrow."""
        about = orjson.dumps({"files": [asdict(file) for file in self.files], "why": self.why})
        refused = None
        if self.refused is not None:
            stream = pa.BufferOutputStream()
            with pa.ipc.new_stream(stream, self.refused.schema) as writer:
                writer.write_table(self.refused)
            refused = stream.getvalue().to_pybytes()
        columns = [pa.array([about], pa.binary()), pa.array([refused], pa.binary())]
        return pa.record_batch(columns, names=["written", "refused"])

    @classmethod
    def of(cls, written: bytes, refused: bytes | None) -> Written:
        """What `to_batch` made."""
        about = orjson.loads(written)
        return cls(
            files=tuple(DataFile(**file) for file in about["files"]),
            refused=None if refused is None else pa.ipc.open_stream(refused).read_all(),
            why=tuple(about["why"]),
        )


@dataclass(frozen=True, kw_only=True)
class ParquetSink(DriverSink):
    """Rows into a lake of Parquet files, in folders by the values of `partition_by`; exactly once.

    All rows are kept; those of a changelog keep their `_op`. Read it with `read_lake(path)`, which sees whole batches
    only. A folder with `compact_files` small files is compacted by itself, and all are by `compact()`.

    >>> ParquetSink(path="lake/payments", partition_by="country").partition_by
    ('country',)
    """

    path: str | Path
    partition_by: str | tuple[str, ...] = ()
    compact_files: int | None = 32
    small_bytes: int | str = "16 MiB"
    file_bytes: int | str = "128 MiB"
    keep_seconds: float = 3_600.0

    guarantee: ClassVar[Guarantee] = "exactly once"

    def __post_init__(self) -> None:
        super().__post_init__()
        by = (self.partition_by,) if isinstance(self.partition_by, str) else tuple(self.partition_by)
        object.__setattr__(self, "partition_by", by)
        object.__setattr__(self, "path", check_path(self.path))
        if self.keys:
            raise ArgumentInvalid(name="key", value=self.key, expected="none: a lake keeps all rows")
        if self.compact_files is not None and self.compact_files < 2:
            raise ArgumentInvalid(name="compact_files", value=self.compact_files, expected="2 or more, or None")
        parse_bytes(self.small_bytes, name="small_bytes")
        parse_bytes(self.file_bytes, name="file_bytes")

    @property
    def name(self) -> str:
        return f"lake:{self.path}"

    @property
    def folder(self) -> Path:
        return Path(self.path)

    @property
    def by(self) -> tuple[str, ...]:
        return self.partition_by if isinstance(self.partition_by, tuple) else (self.partition_by,)

    def examine(self, columns: pa.Schema) -> None:
        """Refuse columns that the files there could not be read together with."""
        super().examine(columns)
        self._schema(current(self.folder), columns)

    def begin(self, batch: MicroBatch) -> bool:
        admitted: list[Progress] = []

        def step(lake: Snapshot) -> Record | None:
            before = lake.progress.get(batch.query, Progress())
            admitted[:] = [before.admit(self.name, batch)]
            return None if admitted[0] == before else Record(progress={batch.query: admitted[0]})

        before = current(self.folder).version
        lake = publish(self.folder, step)
        if lake.version != before:  # a new run: what older ones left behind is nobody's
            sweep(lake, keep_seconds=self.keep_seconds)
        return admitted[0].has(batch)

    def apply(self, changes: Changes, batch: MicroBatch, refusals: Refusals) -> None:
        columns = file_schema(changes.rows.schema)
        self._schema(current(self.folder), columns)
        files = write_files(self.folder, iter(changes.rows.to_batches()), columns, self.by, Origin.of(batch))
        refusals.post()
        self._record(files, columns, batch)

    def compact(self) -> int:
        """Join the small files of every folder now; returns how many files were replaced."""
        return compact(
            self.folder,
            files_min=2,
            small_bytes=parse_bytes(self.small_bytes),
            file_bytes=parse_bytes(self.file_bytes),
            keep_seconds=self.keep_seconds,
        )

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        from headwater.sinks.topic import arrow_schema

        batch = streaming_batch(rows, batch_id)
        if self.begin(batch):
            finish(rows)
            return
        columns = arrow_schema(rows.schema)
        self.examine(columns)
        reach("delivery.before")
        kept = without_own(columns, keep=(OPERATION,))
        write = partial(_write_in_task, self, file_schema(kept))
        answers = rows.mapInArrow(write, "written binary, refused binary").collect()
        written = [
            Written.of(bytes(answer.written), None if answer.refused is None else bytes(answer.refused))
            for answer in answers
        ]
        self._post(written, columns, batch)
        self._record([file for one in written for file in one.files], file_schema(kept), batch)
        reach("delivery.committed")

    def _post(self, written: Sequence[Written], columns: pa.Schema, batch: MicroBatch) -> None:
        refused = [one.refused for one in written if one.refused is not None]
        rows = pa.concat_tables(refused) if refused else columns.empty_table()
        refusals = self._refusals(rows, batch)
        refusals.add(Refusal(at, why) for at, why in enumerate(why for one in written for why in one.why))
        refusals.post()

    def _record(self, files: Sequence[DataFile], columns: pa.Schema, batch: MicroBatch) -> None:
        reach("lake.staged")

        def step(lake: Snapshot) -> Record | None:
            progress = lake.progress.get(batch.query, Progress()).admit(self.name, batch)
            if progress.has(batch):
                return None
            schema = self._schema(lake, columns)
            return Record(
                add=tuple(files),
                progress={batch.query: progress.after(batch)},
                schema=None if schema == lake.schema else schema,
                partition_by=self.by if lake.schema is None else None,
            )

        publish(self.folder, step)
        if self.compact_files is not None and files:
            compact(
                self.folder,
                files_min=self.compact_files,
                small_bytes=parse_bytes(self.small_bytes),
                file_bytes=parse_bytes(self.file_bytes),
                keep_seconds=self.keep_seconds,
                folders={file.folder for file in files},
            )

    def _schema(self, lake: Snapshot, columns: pa.Schema) -> pa.Schema | None:
        """The lake's columns once these have come; refuses what does not go together."""
        mine = file_schema(without_own(columns, keep=(OPERATION,)))
        for name in self.by:
            if name not in mine.names and len(mine.names):
                raise SinkMisfit(sink=self.name, column=name, why="is to name folders, but not among the columns")
            if name in mine.names and not _may_name_folders(mine.field(name).type):
                raise SinkMisfit(
                    sink=self.name, column=name, why=f"is {mine.field(name).type}, and cannot name folders"
                )
        if lake.schema is None:
            return mine if len(mine.names) else None
        if lake.partition_by != self.by:
            why = f"is in folders by {', '.join(lake.partition_by) or 'nothing'} already"
            raise ArgumentInvalid(name="partition_by", value=self.by, expected=f"the same as before: the lake {why}")
        for column in mine:
            if column.name in lake.schema.names and lake.schema.field(column.name).type != column.type:
                why = f"is {column.type}, and the lake has {lake.schema.field(column.name).type}"
                raise SinkMisfit(sink=self.name, column=column.name, why=why)
        new = [column for column in mine if column.name not in lake.schema.names]
        return pa.schema([*lake.schema, *new]) if new else lake.schema


def _may_name_folders(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_integer(kind) or types.is_date(kind) or types.is_boolean(kind))


def _write_in_task(sink: ParquetSink, columns: pa.Schema, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    batch = current_batch()
    if batch is None:
        raise ArgumentInvalid(name="batch", value=None, expected="a call inside of `foreachBatch`")
    refused: list[pa.Table] = []
    why: list[str] = []

    def taken() -> Iterator[pa.RecordBatch]:
        for part in rows:
            table = pa.Table.from_batches([part])
            changes, refusals = appended(table)
            if refusals and sink.on_refused == "stop":
                sink._refusals(table, batch).add(refusals)
            refused.extend(table.slice(refusal.position, 1) for refusal in refusals)
            why.extend(refusal.why for refusal in refusals)
            yield from changes.rows.cast(columns).to_batches()

    files = write_files(sink.folder, taken(), columns, sink.by, Origin.of(batch))
    told = Written(files=tuple(files), refused=pa.concat_tables(refused) if refused else None, why=tuple(why))
    yield told.to_batch()
