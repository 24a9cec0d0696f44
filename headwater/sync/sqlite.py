"""SQLite as a target: a file that needs no server.

Numbers, text and bytes are stored as such; dates, times and decimals are text in ISO form, nested values are JSON.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from headwater.sinks.retry import RetryLater
from headwater.sync.address import path_address
from headwater.sync.config import SyncConfig
from headwater.sync.database import SCAN_ROWS, DatabaseTarget, Row
from headwater.sync.errors import ChangeRefused, TargetRefused
from headwater.sync.port import TargetTable
from headwater.sync.values import plain

#: How long a statement waits for another writer.
BUSY_SECONDS_MAX = 30.0
_SCHEME = "sqlite:///"


class SqliteTarget(DatabaseTarget):
    """The tables of a SQLite database."""

    def __init__(self, path: str | Path, *, sync: str) -> None:
        super().__init__(f"{_SCHEME}{path}", sync=sync)
        self._path = Path(path)
        self._connection: sqlite3.Connection | None = None

    @classmethod
    def address(cls, url: str) -> str:
        return path_address(url, expected="sqlite:///path/to/file.db")

    @classmethod
    def open(cls, config: SyncConfig) -> SqliteTarget:
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
            if self._connection is None:
                self._connection = sqlite3.connect(
                    self._path, timeout=BUSY_SECONDS_MAX, isolation_level=None, check_same_thread=False
                )
            yield
        except sqlite3.IntegrityError as error:
            raise ChangeRefused(target=self.name, table="", key="", why=str(error)) from error
        except sqlite3.OperationalError as error:
            if "locked" in str(error) or "busy" in str(error):
                raise RetryLater(str(error)) from error
            self._refuse(error)
        except sqlite3.DatabaseError as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        instead = "Correct what SQLite complains of"
        if "ON CONFLICT" in str(error):
            instead = "Create a unique index over the key of the table, or name another table with `--table`"
        if "unable to open" in str(error):
            instead = "Create the folder of the file, and allow this user to write there"
        raise TargetRefused(target=self.name, why=f"SQLite says: {error}", instead=instead) from error

    @contextlib.contextmanager
    def _transaction(self, *, write: bool) -> Iterator[None]:
        self._execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            if self._connected.in_transaction:
                self._execute("ROLLBACK")
            raise

    @property
    def _connected(self) -> sqlite3.Connection:
        assert self._connection is not None
        return self._connection

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return self._connected.execute(statement, values).fetchall()

    def _stream(self, statement: str) -> Iterator[list[Row]]:
        cursor = self._connected.execute(statement)
        while rows := cursor.fetchmany(SCAN_ROWS):
            yield rows

    def _existing(self, table: str) -> list[str]:
        return [row[1] for row in self._execute(f"PRAGMA table_info({self.quoted(table)})")]

    def _type(self, column: pa.Field, *, is_key: bool) -> str | None:  # noqa: ARG002
        if pa.types.is_boolean(column.type):
            return "BOOLEAN"
        stored = plain(pa.array([], column.type)).type
        return {"int64": "INTEGER", "double": "REAL", "string": "TEXT", "binary": "BLOB"}[str(stored)]

    def stored(self, rows: pa.Table) -> pa.Table:
        return pa.table([plain(column) for column in rows.columns], names=rows.column_names)

    def _upsert(self, table: TargetTable, rows: pa.Table) -> None:
        names = [self.quoted(name) for name in rows.column_names]
        others = [self.quoted(name) for name in rows.column_names if name not in table.key]
        act = f"UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in others)}" if others else "NOTHING"
        self._connected.executemany(
            f"INSERT INTO {self.quoted(table.name)} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))}) "
            f"ON CONFLICT ({', '.join(map(self.quoted, table.key))}) DO {act}",
            self._values(rows),
        )

    def _delete(self, table: TargetTable, keys: pa.Table) -> None:
        same = " AND ".join(f"{self.quoted(name)} = ?" for name in keys.column_names)
        self._connected.executemany(f"DELETE FROM {self.quoted(table.name)} WHERE {same}", self._values(keys))

    def _values(self, rows: pa.Table) -> Iterator[Row]:
        return zip(*(column.to_pylist() for column in self.stored(rows).columns), strict=True)
