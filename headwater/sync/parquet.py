"""Parquet files as a target: one file for each table, replaced as a whole by each step.

The position is in the file's metadata, so that rows and position change together. A step costs as much as the whole
table: for large tables use a `delta://` target.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.faults import reach
from headwater.filelock import try_lock
from headwater.sinks.parquet import sync
from headwater.sinks.retry import RetryLater
from headwater.sync.address import path_address
from headwater.sync.config import SyncConfig
from headwater.sync.lake import CURRENT, FROM, TO, history_columns, history_of, lake_rows
from headwater.sync.port import Position, Step, TableChanges, TargetTable, is_pending

_SCHEME = "parquet:///"


class ParquetTarget:
    """Parquet files in a folder: `<table>.parquet`."""

    def __init__(self, config: SyncConfig) -> None:
        config.check_options({})
        config.check_no_transactions()
        self._root = Path(config.url.removeprefix(_SCHEME))
        self._sync = config.name
        self._mode = config.mode

    @classmethod
    def address(cls, url: str) -> str:
        return path_address(url, expected="parquet:///path/to/folder")

    @classmethod
    def open(cls, config: SyncConfig) -> ParquetTarget:
        return cls(config)

    @property
    def name(self) -> str:
        return f"{_SCHEME}{self._root}"

    def close(self) -> None:
        """Nothing is open between steps."""

    def prepare(self, table: TargetTable) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        self._columns(table)

    def position(self, table: TargetTable) -> Position | None:
        path = self._path(table)
        if not path.exists():
            return None
        text = (pq.read_schema(path).metadata or {}).get(self._marker)
        return None if text is None else Position.from_json(text)

    def apply(self, changes: Sequence[TableChanges], *, trial: bool = False) -> None:
        if trial:
            return  # files have no constraints
        for one in changes:
            with self._lock(one.table):
                if is_pending(self._sync, self.position(one.table), one):
                    rows = self._read(one.table)
                    if self._mode == "history" and one.before != one.after:
                        rows = self._with_history(rows, one)
                    else:
                        for step in one.steps:
                            rows = self._with_step(rows, one.table, step)
                    self._write(one.table, rows, one.after)
            reach("target.committed")

    def _with_step(self, rows: pa.Table, table: TargetTable, step: Step) -> pa.Table:
        """Replace the current rows of the changed keys."""
        changed = pa.concat_tables([self.stored(step.gone), self.stored(step.rows).select(list(table.key))])
        if self._mode == "history":  # a repair: the current rows only
            versions = step.rows.append_column("_tombstone", pa.array([False] * step.rows.num_rows, pa.bool_()))
            now = pa.array([0] * step.rows.num_rows, pa.int64())
            new = history_of(versions.append_column("_at", now), table).opened
            current = rows.filter(rows.column(CURRENT))
            kept = pa.concat_tables([rows.filter(pc.invert(rows.column(CURRENT))), _without(current, changed, table)])
            return pa.concat_tables([kept, new.cast(self._columns(table))])
        return pa.concat_tables([_without(rows, changed, table), self.stored(step.rows)])

    def _with_history(self, rows: pa.Table, changes: TableChanges) -> pa.Table:
        columns = self._columns(changes.table)
        found = history_of(changes.versions, changes.table)
        key = list(changes.table.key)
        current = rows.filter(rows.column(CURRENT))
        ended = self.stored(found.closed.select(key)).append_column("_end", found.closed.column(TO))
        closed = current.drop_columns([TO, CURRENT]).join(ended, keys=key, join_type="inner")
        end, begin = closed.column("_end"), closed.column(FROM)
        closed = closed.append_column(TO, pc.if_else(pc.less(end, begin), begin, end))  # a clock may be set back
        closed = closed.append_column(CURRENT, pa.array([False] * closed.num_rows, pa.bool_()))
        parts = [
            rows.filter(pc.invert(rows.column(CURRENT))),
            closed.select(columns.names).cast(columns),
            _without(current, self.stored(found.closed.select(key)), changes.table),
            found.opened.cast(columns),
        ]
        return pa.concat_tables(parts)

    def scan(self, table: TargetTable) -> tuple[Position | None, Iterator[pa.Table]]:
        rows = self._read(table)
        if self._mode == "history":
            rows = rows.filter(rows.column(CURRENT)).select(table.columns.names)
        return self.position(table), iter([rows])

    def stored(self, rows: pa.Table) -> pa.Table:
        return lake_rows(self.name, rows)

    def switch(self, table: TargetTable, new: TargetTable) -> None:
        with self._lock(table):
            reach("target.before_switch")
            os.replace(self._path(new), self._path(table))
            sync(self._root)

    def discard(self, table: TargetTable) -> None:
        self._path(table).unlink(missing_ok=True)

    def forget(self) -> None:
        for path in self._root.glob("*.parquet"):
            rows = pq.read_table(path)
            metadata = dict(rows.schema.metadata or {})
            if metadata.pop(self._marker, None) is not None:
                self._replace(path, rows.replace_schema_metadata(metadata))

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _marker(self) -> bytes:
        return f"headwater.sync.{self._sync}".encode()

    def _path(self, table: TargetTable) -> Path:
        return self._root / f"{table.name}.parquet"

    def _columns(self, table: TargetTable) -> pa.Schema:
        columns = self.stored(table.columns.empty_table()).schema
        return history_columns(columns) if self._mode == "history" else columns

    def _read(self, table: TargetTable) -> pa.Table:
        """The rows of the file, with all columns that the table has now."""
        columns = self._columns(table)
        if not self._path(table).exists():
            return columns.empty_table()
        rows = pq.read_table(self._path(table)).replace_schema_metadata(None)
        for column in columns:
            if column.name not in rows.column_names:
                rows = rows.append_column(column, pa.nulls(rows.num_rows, column.type))
        return rows.select(columns.names).cast(columns)

    def _write(self, table: TargetTable, rows: pa.Table, position: Position) -> None:
        metadata = {}
        if self._path(table).exists():
            metadata = dict(pq.read_schema(self._path(table)).metadata or {})
        metadata[self._marker] = position.to_json().encode()
        self._replace(self._path(table), rows.replace_schema_metadata(metadata))

    def _replace(self, path: Path, rows: pa.Table) -> None:
        beside = path.with_suffix(".parquet.new")
        pq.write_table(rows, beside, compression="zstd")
        sync(beside)
        reach("target.written")
        reach("target.before_commit")
        os.replace(beside, path)
        sync(self._root)

    @contextlib.contextmanager
    def _lock(self, table: TargetTable) -> Iterator[None]:
        with (self._root / f".{table.name}.lock").open("a") as file:
            if not try_lock(file.fileno()):
                raise RetryLater("another process writes to it")
            yield


def _without(rows: pa.Table, keys: pa.Table, table: TargetTable) -> pa.Table:
    """The rows whose keys are not among some."""
    key = list(table.key)
    numbered = rows.select(key).append_column("_row", pa.array(range(rows.num_rows), pa.int64()))
    kept = numbered.join(keys.select(key), keys=key, join_type="left anti").column("_row").combine_chunks()
    return rows.take(kept.sort() if len(kept) else pa.array([], pa.int64()))
