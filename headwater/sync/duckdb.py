"""DuckDB as a target: a file for analysis.

DuckDB lets one process write to a file, and no other read it meanwhile. So the file is open only while a step is applied;
if another process has it open, the step is retried.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.optional import require
from headwater.sinks.retry import RetryLater
from headwater.sync.address import path_address
from headwater.sync.config import SyncConfig
from headwater.sync.database import SCAN_ROWS, DatabaseTarget, Row
from headwater.sync.errors import ChangeRefused, TargetRefused
from headwater.sync.port import Position, TargetTable
from headwater.views.duckdb_types import ingestible, sql_type

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SCHEME = "duckdb:///"


class DuckdbTarget(DatabaseTarget):
    """The tables of a DuckDB database."""

    key_text = "VARCHAR"

    def __init__(self, path: str | Path, *, sync: str) -> None:
        super().__init__(f"{_SCHEME}{path}", sync=sync)
        self._path = Path(path)
        self._duckdb = require("duckdb", extra="views")
        self._connection: DuckDBPyConnection | None = None

    @classmethod
    def address(cls, url: str) -> str:
        return path_address(url, expected="duckdb:///path/to/file.duckdb")

    @classmethod
    def open(cls, config: SyncConfig) -> DuckdbTarget:
        config.check_options({})
        config.check_current()
        return cls(config.url.removeprefix(_SCHEME), sync=config.name)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _session(self) -> Iterator[None]:
        try:
            self._connection = self._duckdb.connect(str(self._path), config={"threads": 1})
            self._connection.execute("SET TimeZone = 'UTC'")
            yield
        except self._duckdb.Error as error:
            words = " ".join(str(error).split())
            if isinstance(error, self._duckdb.ConstraintException | self._duckdb.ConversionException):
                raise ChangeRefused(target=self.name, table="", key="", why=words) from error
            if "lock" in words:
                raise RetryLater(words) from error
            instead = "Correct what DuckDB complains of"
            if "ON CONFLICT" in words or "conflict target" in words:
                instead = "Create a unique index over the key of the table, or name another table with `--table`"
            if "No such file" in words or "Cannot open file" in words:
                instead = "Create the folder of the file, and allow this user to write there"
            raise TargetRefused(target=self.name, why=f"DuckDB says: {words}", instead=instead) from error
        finally:
            self.close()

    @contextlib.contextmanager
    def _transaction(self, *, write: bool) -> Iterator[None]:  # noqa: ARG002
        self._connected.begin()
        try:
            yield
            self._connected.commit()
        except BaseException:
            with contextlib.suppress(self._duckdb.Error):  # an error may have ended it
                self._connected.rollback()
            raise

    @property
    def _connected(self) -> DuckDBPyConnection:
        assert self._connection is not None
        return self._connection

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connected.execute(statement, list(values)).fetchall()

    def _stream(self, statement: str) -> Iterator[list[Row]]:
        cursor = self._connected.execute(statement)
        while rows := cursor.fetchmany(SCAN_ROWS):
            yield rows

    def _scanned(self, table: TargetTable) -> Iterator[Position | pa.Table | None]:
        shape = self.stored(table.columns.empty_table()).schema
        columns = ", ".join(self.quoted(one.name) for one in table.columns)
        with self._session(), self._transaction(write=False):
            yield self._stored_position(table.topic)
            found = self._connected.sql(f"SELECT {columns} FROM {self._table(table.name)}")
            for batch in found.to_arrow_reader(SCAN_ROWS):
                yield pa.Table.from_batches([batch]).cast(shape)

    def _existing(self, table: str) -> list[str]:
        found = self._execute(
            "SELECT column_name FROM duckdb_columns() WHERE table_name = ? AND schema_name = current_schema() AND database_name = current_database()",
            (table,),
        )
        return [row[0] for row in found]

    def _type(self, column: pa.Field, *, is_key: bool) -> str | None:  # noqa: ARG002
        try:
            return sql_type(self.stored(pa.schema([column]).empty_table()).schema.field(0).type)
        except ValueError:
            return None

    def stored(self, rows: pa.Table) -> pa.Table:
        return ingestible(pa.table([_plain(column) for column in rows.columns], names=rows.column_names))

    def _upsert(self, table: TargetTable, rows: pa.Table) -> None:
        names = ", ".join(map(self.quoted, rows.column_names))
        others = [self.quoted(name) for name in rows.column_names if name not in table.key]
        act = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in others)}" if others else "NOTHING"
        key = ", ".join(map(self.quoted, table.key))
        with self._staged(rows):
            self._execute(
                f"INSERT INTO {self._table(table.name)} ({names}) SELECT {names} FROM headwater_rows ON CONFLICT ({key}) DO {act}"
            )

    def _delete(self, table: TargetTable, keys: pa.Table) -> None:
        same = " AND ".join(
            f"old.{self.quoted(name)} = headwater_rows.{self.quoted(name)}" for name in keys.column_names
        )
        with self._staged(keys):
            self._execute(f"DELETE FROM {self._table(table.name)} AS old USING headwater_rows WHERE {same}")

    @contextlib.contextmanager
    def _staged(self, rows: pa.Table) -> Iterator[None]:
        self._connected.register("headwater_rows", self.stored(rows))
        try:
            yield
        finally:
            with contextlib.suppress(self._duckdb.Error):  # an error may have ended the transaction
                self._connected.unregister("headwater_rows")


def _plain(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if pa.types.is_duration(array.type):
        return array.cast(pa.duration("us"), safe=False).cast(pa.int64())
    if pa.types.is_fixed_size_binary(array.type):
        return array.cast(pa.binary())
    return array.cast(pa.float32()) if pa.types.is_float16(array.type) else array
