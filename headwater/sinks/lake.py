"""The lake sink: rows become a Delta Lake table, exactly once.

Tasks write Parquet files that no reader sees yet. The driver then commits the files of the attempts that reported to
it in one transaction of the table, together with two application transactions: the batch's number under the query's
id, and the epoch of the query's run. So:

- a batch that Spark repeats finds its number, and changes nothing;
- files of failed attempts are in no version of the table, and maintenance deletes them;
- a run that another has replaced finds a newer epoch, and is refused, also where both commit at the same moment: Delta
  lets only one of two commits with the same application transaction through.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import orjson
import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch, current_batch
from headwater.errors import ArgumentInvalid, ColumnMisfit
from headwater.faults import reach
from headwater.filelock import try_lock
from headwater.optional import require
from headwater.sinks.changes import Changes, Refusal, appended, without_own
from headwater.sinks.driver import DriverSink, Refusals
from headwater.sinks.errors import SinkFenced, SinkRefused
from headwater.sinks.lake_files import DataFile, Written, is_same_type, lake_type, may_name_folders, write_files
from headwater.sinks.parquet import local_folder, sync
from headwater.sinks.port import Guarantee, finish, streaming_batch
from headwater.sinks.retry import RetryLater
from headwater.spark.changelog import OPERATION
from headwater.units import HOUR, Duration, parse_bytes, parse_seconds

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable
    from pyspark.sql import DataFrame

_LOG = "_delta_log"
_LOCK = "_headwater.lock"
_RUN, _QUERY = "headwater.run", "headwater.query"
#: Files that no version names may belong to a task that still runs; younger ones are never deleted.
STRAY_HOURS_MIN = 1


@dataclass(frozen=True, kw_only=True)
class LakeSink(DriverSink):
    """Rows into a Delta Lake table in a folder, in folders by the values of `partition_by`; exactly once.

    All rows are kept; those of a changelog keep their `_op`. Spark, DuckDB, Trino, polars and pandas read the table;
    `deltalake.DeltaTable(path)` does in Python. Every `maintenance_batches` batches, maintenance joins files smaller
    than `small_bytes` and deletes what no version within `retention` needs; `maintain()` does so now.

    >>> LakeSink(path="lake/payments", partition_by="country").partition_by
    ('country',)
    """

    path: str | Path
    partition_by: str | tuple[str, ...] = ()
    maintenance_batches: int | None = 32
    small_bytes: int | str = "16 MiB"
    file_bytes: int | str = "128 MiB"
    retention: Duration = "1 hour"

    guarantee: ClassVar[Guarantee] = "exactly once"

    def __post_init__(self) -> None:
        super().__post_init__()
        by = (self.partition_by,) if isinstance(self.partition_by, str) else tuple(self.partition_by)
        object.__setattr__(self, "partition_by", by)
        object.__setattr__(self, "path", local_folder(self.path))
        if self.keys:
            raise ArgumentInvalid(name="key", value=self.key, expected="none: a lake keeps all rows")
        if self.maintenance_batches is not None and self.maintenance_batches < 1:
            expected = "1 or more, or None"
            raise ArgumentInvalid(name="maintenance_batches", value=self.maintenance_batches, expected=expected)
        parse_bytes(self.small_bytes, name="small_bytes")
        parse_bytes(self.file_bytes, name="file_bytes")
        if parse_seconds(self.retention, name="retention") < 0:
            raise ArgumentInvalid(name="retention", value=self.retention, expected="0 seconds or more")

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
        """Refuse columns that the table could not hold beside those that it has."""
        super().examine(columns)
        self._new_columns(self._table(), self._lake_schema(columns))

    def begin(self, batch: MicroBatch) -> bool:
        table = self._table()
        if table is None:  # the first batch with columns makes it
            return False
        epoch = self._epoch(table, batch)
        if epoch != table.transaction_version(_runs(batch)):
            self._commit_files(table, (), batch, epoch, number=None)
        return _has(table, batch)

    def apply(self, changes: Changes, batch: MicroBatch, refusals: Refusals) -> None:
        columns = self._lake_schema(changes.rows.schema)
        table = self._table()
        self._new_columns(table, columns)
        files = write_files(self.folder, changes.rows.to_batches(), columns, self.by, batch)
        refusals.post()
        self._publish(files, columns, batch, table)

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        from headwater.spark.source.columns import arrow_schema

        batch = streaming_batch(rows, batch_id)
        if self.retry.run(self.name, lambda: self.begin(batch)):
            finish(rows)
            return
        columns = arrow_schema(rows.schema)
        self.examine(columns)
        reach("delivery.before")
        kept = self._lake_schema(columns)
        answers = rows.mapInArrow(partial(_write_in_task, self, kept), "written binary, refused binary").collect()
        written = [
            Written.of(bytes(answer.written), None if answer.refused is None else bytes(answer.refused))
            for answer in answers
        ]
        self._post(written, columns, batch)
        files = [file for one in written for file in one.files]
        self._publish(files, kept, batch, self._table())
        reach("delivery.committed")

    def maintain(self) -> int:
        """Compact all folders to files of `file_bytes` and vacuum; return how many files were replaced.

        If another process maintains the table, return 0 at once.
        """
        return self._maintain(parse_bytes(self.file_bytes))

    def _maintain(self, file_bytes: int) -> int:
        if self._table() is None:
            return 0
        with self._maintenance_lock() as held, self._explained():
            if not held:
                return 0
            table = self._open()
            replaced = int(table.optimize.compact(target_size=file_bytes)["numFilesRemoved"])
            reach("lake.compacted")
            hours = math.ceil(parse_seconds(self.retention) / HOUR)
            table = self._open()
            table.vacuum(hours, dry_run=False, enforce_retention_duration=False)
            stray_hours = max(hours, STRAY_HOURS_MIN)
            table.vacuum(stray_hours, dry_run=False, enforce_retention_duration=False, full=True)
            reach("lake.vacuumed")
            return replaced

    @contextlib.contextmanager
    def _maintenance_lock(self) -> Iterator[bool]:
        """Let one process compact at a time: deltalake does not notice that two compactions replace the same files,
        and both results would stay."""
        with (self.folder / _LOCK).open("a") as file:
            yield try_lock(file.fileno())

    # -- the table ----------------------------------------------------------------------------------------------------

    def _table(self) -> DeltaTable | None:
        """The table as it is now; None where there is none yet."""
        require("deltalake", extra="lake")
        from deltalake import DeltaTable

        return self._open() if DeltaTable.is_deltatable(str(self.folder)) else None

    def _open(self) -> DeltaTable:
        from deltalake import DeltaTable

        with self._explained():
            return DeltaTable(self.folder)

    def _create(self, columns: pa.Schema) -> DeltaTable:
        from deltalake import DeltaTable, Schema
        from deltalake.exceptions import DeltaError

        seconds = max(math.ceil(parse_seconds(self.retention)), STRAY_HOURS_MIN * HOUR)
        kept = f"interval {round(seconds)} seconds"
        configuration = {
            "delta.logRetentionDuration": kept,
            "delta.deletedFileRetentionDuration": kept,
            "delta.checkpointInterval": "10",  # each batch reads the commits since the last checkpoint
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        schema = Schema.from_arrow(columns)
        try:
            return DeltaTable.create(self.folder, schema, partition_by=list(self.by), configuration=configuration)
        except DeltaError as error:
            if DeltaTable.is_deltatable(str(self.folder)):
                raise RetryLater("another writer was first") from error
            self._explain(error)

    def _publish(
        self, files: Sequence[DataFile], columns: pa.Schema, batch: MicroBatch, table: DeltaTable | None
    ) -> None:
        """Commit the files and the number of a batch; nothing where an earlier attempt has done so."""
        known = [table]

        def attempt() -> None:
            # A table that was opened before is good for one attempt: a commit that it does not know makes that fail.
            table = known.pop() if known else self._table()
            if table is None and not columns.names:
                return  # there is nothing to make a table of, and nothing to commit
            if table is None:
                table = self._create(columns)
            epoch = self._epoch(table, batch)
            if _has(table, batch):
                return
            new = self._new_columns(table, columns)
            if new:
                self._add_columns(table, new)
                table = self._open()
            self._commit_files(table, files, batch, epoch, number=batch.number)

        reach("lake.staged")
        self.retry.run(self.name, attempt)
        reach("lake.committed")
        every = self.maintenance_batches
        if every is not None and files and (batch.number + 1) % every == 0:
            self._maintain(parse_bytes(self.small_bytes))

    def _commit_files(
        self, table: DeltaTable, files: Sequence[DataFile], batch: MicroBatch, epoch: int, *, number: int | None
    ) -> None:
        """One commit: files, the number of their batch, and the epoch of the run that writes."""
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import AddAction

        numbers = {} if number is None else {batch.query: number}
        if batch.run:
            numbers |= {_runs(batch): epoch, f"{_runs(batch)}/{batch.run}": epoch}
        properties = CommitProperties(
            custom_metadata={_QUERY: batch.query, _RUN: batch.run},
            app_transactions=[Transaction(app, version, None) for app, version in numbers.items()],
        )
        now_ms = int(time.time() * 1000)
        added = [
            AddAction(
                file.path, file.bytes, file.values, now_ms, True, orjson.dumps({"numRecords": file.rows}).decode()
            )
            for file in files
        ]
        self._write(table, added, properties)

    # Any: actions of deltalake.
    def _write(self, table: DeltaTable, actions: list[Any], properties: CommitProperties) -> None:
        from deltalake.exceptions import CommitFailedError

        before = table.version()
        try:
            with self._explained():
                table.create_write_transaction(
                    actions, "append", table.schema(), list(self.by), commit_properties=properties
                )
        except CommitFailedError as error:
            raise RetryLater(f"another writer was first ({error})") from error
        # Delta's own writer leaves the commit to the page cache. Spark must not forget the batch before the disk has it.
        for path in (self.folder / _LOG).glob("*.json"):
            if path.stem.isdigit() and int(path.stem) > before:
                sync(path)
        sync(self.folder / _LOG)

    def _add_columns(self, table: DeltaTable, columns: Sequence[pa.Field]) -> None:
        from deltalake import Schema
        from deltalake.exceptions import CommitFailedError

        try:
            with self._explained():
                table.alter.add_columns(list(Schema.from_arrow(pa.schema(columns)).fields))
        except CommitFailedError as error:
            raise RetryLater(f"another writer was first ({error})") from error

    def _epoch(self, table: DeltaTable, batch: MicroBatch) -> int:
        """The number of this run among the runs of its query; raise `SinkFenced` where a newer one has begun."""
        newest = table.transaction_version(_runs(batch)) or 0
        if not batch.run:
            return newest
        own = table.transaction_version(f"{_runs(batch)}/{batch.run}")
        if own is not None and own < newest:
            history = (commit for commit in table.history() if commit.get(_QUERY) == batch.query)
            current = next((str(commit[_RUN]) for commit in history), "")
            raise SinkFenced(sink=self.name, query=batch.query, run=batch.run, current=current)
        return newest + 1 if own is None else own

    def _lake_schema(self, columns: pa.Schema) -> pa.Schema:
        """The columns as the table holds them: all nullable, of types that Delta has."""
        kept = without_own(columns, keep=(OPERATION,))
        fields = [pa.field(column.name, lake_type(self.name, column.name, column.type)) for column in kept]
        found = pa.schema(fields)
        for name in self.by:
            if name not in found.names and found.names:
                raise ColumnMisfit(target=self.name, column=name, why="is to name folders, but not among the columns")
            if name in found.names and not may_name_folders(found.field(name).type):
                why = f"is {found.field(name).type}, and cannot name folders"
                raise ColumnMisfit(target=self.name, column=name, why=why)
        return found

    def _new_columns(self, table: DeltaTable | None, columns: pa.Schema) -> list[pa.Field]:
        """Those columns that the table lacks; raise where the others are not of the table's types."""
        if table is None:
            return []
        before = tuple(table.metadata().partition_columns)
        if before != self.by:
            why = f"is in folders by {', '.join(before) or 'nothing'} already"
            raise ArgumentInvalid(name="partition_by", value=self.by, expected=f"the same as before: the lake {why}")
        known = pa.schema(table.schema().to_arrow())
        for column in columns:
            if column.name in known.names and not is_same_type(known.field(column.name).type, column.type):
                why = f"is {column.type}, and the lake has {known.field(column.name).type}"
                raise ColumnMisfit(target=self.name, column=column.name, why=why)
        return [column for column in columns if column.name not in known.names]

    def _post(self, written: Sequence[Written], columns: pa.Schema, batch: MicroBatch) -> None:
        refused = [one.refused for one in written if one.refused is not None]
        rows = pa.concat_tables(refused) if refused else columns.empty_table()
        refusals = self._refusals(rows, batch)
        refusals.add(Refusal(at, why) for at, why in enumerate(why for one in written for why in one.why))
        refusals.post()

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Errors of Delta as what they mean for the query; lost races stay `CommitFailedError`."""
        from deltalake.exceptions import CommitFailedError, DeltaError

        try:
            yield
        except CommitFailedError:
            raise
        except DeltaError as error:
            self._explain(error)

    def _explain(self, error: Exception) -> NoReturn:
        why = " ".join(str(error).split()).rstrip(".")[:500]
        raise SinkRefused(sink=self.name, why=why, what="Repair the table in the folder, or name another") from error


def _runs(batch: MicroBatch) -> str:
    return f"{batch.query}/runs"


def _has(table: DeltaTable, batch: MicroBatch) -> bool:
    newest = table.transaction_version(batch.query)
    return newest is not None and batch.number <= newest


def _write_in_task(sink: LakeSink, columns: pa.Schema, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
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
            yield from changes.rows.to_batches()

    files = write_files(sink.folder, taken(), columns, sink.by, batch)
    told = Written(files=tuple(files), refused=pa.concat_tables(refused) if refused else None, why=tuple(why))
    yield told.to_batch()
