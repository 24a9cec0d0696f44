"""PostgreSQL as a target: rows go by COPY into a temporary table, and from there into the table by one statement.

Nested values become `jsonb`. Import this module only where `psycopg` is installed, or call `PostgresTarget.open`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.optional import require
from headwater.postgres.copy import family_of, sql_type
from headwater.sinks.retry import RetryLater
from headwater.sync.address import server_address
from headwater.sync.config import SyncConfig
from headwater.sync.database import SCAN_ROWS, DatabaseTarget, Row
from headwater.sync.errors import ChangeRefused, TargetRefused
from headwater.sync.port import TargetTable
from headwater.sync.values import as_text, canonical_json

if TYPE_CHECKING:
    from psycopg import Connection, Error, sql

#: How long to wait for a row or table that another connection has locked, before the step is retried.
LOCK_MILLISECONDS_MAX = 10_000
#: Classes of SQLSTATE that are about a row: values, constraints, sizes, triggers.
_ROW_STATES = ("22", "23", "54", "P0")
#: Those that pass: connections, conflicts, resources, locks, shutdowns, the system.
_PASSING_STATES = ("08", "40", "53", "55", "57", "58")
_INSTEAD = {
    "28": "Correct the user of the address, or the password behind `--password-env` or `--password-file`",
    "3D": "Create the database, or correct its name in the address",
    "42501": "Grant the user of the address what is missing",
    "42P10": "Create a unique index over the key of the table, or name another table with `--table`",
    "25006": "Name the primary server in the address, not a copy that can only be read",
}
#: Before a connection stands, the server's words are all there is.
_REFUSALS = {
    "password authentication failed": "28",
    "no password supplied": "28",
    "no pg_hba.conf entry": "28",
    'role "': "28",
    'database "': "3D",
}


class PostgresTarget(DatabaseTarget):
    """The tables of a PostgreSQL database. A table's name may have a schema before it, with a dot."""

    placeholder = "%s"
    key_text = "text"
    _for_update = " FOR UPDATE"
    _check = "SET CONSTRAINTS ALL IMMEDIATE"

    def __init__(self, url: str, *, sync: str, password: str | None = None) -> None:
        super().__init__(url, sync=sync)
        self._password = password
        self._connection: Connection | None = None
        self._types: dict[str, dict[str, str]] = {}

    @classmethod
    def address(cls, url: str) -> str:
        return server_address(url, expected="postgresql://user@host:5432/database")

    @classmethod
    def open(cls, config: SyncConfig) -> PostgresTarget:
        config.check_options({})
        config.check_current()
        require("psycopg", extra="postgres")
        return cls(config.url, sync=config.name, password=config.password())

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _session(self) -> Iterator[None]:
        import psycopg
        from psycopg.conninfo import make_conninfo

        from headwater.postgres.writer import connect

        try:
            if self._connection is None:
                given = {} if self._password is None else {"password": self._password}
                self._connection = connect(make_conninfo(self.name, **given))
                self._connection.execute(f"SET lock_timeout = {LOCK_MILLISECONDS_MAX}")
                self._connection.execute("SET TimeZone = 'UTC'")
            yield
        except psycopg.Error as error:
            self._explain(error)

    def _explain(self, error: Error) -> None:
        from psycopg import ProgrammingError

        from headwater.postgres.writer import words as words_of

        state, words = error.sqlstate or "", words_of(error)
        if state[:2] in _ROW_STATES and state:
            raise ChangeRefused(target=self.name, table="", key="", why=words) from error
        self.close()  # it may be broken; the next attempt connects again
        if not state:
            state = next((code for said, code in _REFUSALS.items() if said in words), "")
        if not isinstance(error, ProgrammingError) and (not state or state[:2] in _PASSING_STATES):
            raise RetryLater(words) from error
        instead = _INSTEAD.get(state) or _INSTEAD.get(state[:2]) or "Correct what the server complains of"
        raise TargetRefused(target=self.name, why=words, instead=instead) from error

    @contextlib.contextmanager
    def _transaction(self, *, write: bool) -> Iterator[None]:
        with self._connected.transaction():
            if not write:
                self._execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield

    @property
    def _connected(self) -> Connection:
        assert self._connection is not None
        return self._connection

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        cursor = self._connected.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def _stream(self, statement: str) -> Iterator[list[Row]]:
        with self._connected.cursor(name="headwater_scan") as cursor:
            cursor.execute(statement.encode())
            while rows := cursor.fetchmany(SCAN_ROWS):
                yield rows

    def _place(self, table: str) -> tuple[str, str]:
        schema, _, name = table.rpartition(".")
        return schema or "public", name

    def _table(self, name: str) -> str:
        return ".".join(map(self.quoted, self._place(name)))

    def _identifier(self, table: TargetTable) -> sql.Identifier:
        from psycopg import sql

        return sql.Identifier(*self._place(table.name))

    def _existing(self, table: str) -> list[str]:
        return list(self._existing_types(table))

    def _existing_types(self, table: str) -> dict[str, str]:
        """The columns of a table, with their types by PostgreSQL's own names."""
        found = self._execute(
            "SELECT a.attname::text, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a "
            "WHERE a.attrelid = to_regclass(format('%%I.%%I', %s::text, %s::text)) AND a.attnum > 0 AND NOT a.attisdropped",
            self._place(table),
        )
        return {name: kind for name, kind in found}  # noqa: C416

    def prepare(self, table: TargetTable) -> None:
        super().prepare(table)
        with self._session():
            self._types[table.name] = self._existing_types(table.name)

    def _type(self, column: pa.Field, *, is_key: bool) -> str | None:
        if is_key and family_of(column.type) == "nested":
            return None
        return sql_type(column.type)

    def _upsert(self, table: TargetTable, rows: pa.Table) -> None:
        from headwater.postgres.writer import upsert_rows

        upsert_rows(self._connected, self._identifier(table), rows, table.key, self._types[table.name])

    def _delete(self, table: TargetTable, keys: pa.Table) -> None:
        from headwater.postgres.writer import delete_rows

        delete_rows(self._connected, self._identifier(table), keys, self._types[table.name])

    # -- values -------------------------------------------------------------------------------------------------------

    def _selected(self, column: pa.Field) -> str:
        name = self.quoted(column.name)
        return f"{name}::text" if family_of(column.type) == "nested" else name

    def stored(self, rows: pa.Table) -> pa.Table:
        return self._restored(
            pa.table([_plain(column) for column in rows.columns], names=rows.column_names), rows.schema
        )

    def _restored(self, rows: pa.Table, columns: pa.Schema) -> pa.Table:
        for place, column in enumerate(columns):
            if family_of(column.type) == "nested":
                texts = [canonical_json(text) for text in rows.column(place).to_pylist()]
                rows = rows.set_column(place, column.name, pa.array(texts, pa.string()))
        return rows


def _plain(column: pa.ChunkedArray) -> pa.Array:
    """A column with the type that the driver's values fit."""
    array = column.combine_chunks()
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    kind, types = array.type, pa.types
    family = family_of(kind)
    if family == "nested":
        return as_text(array)
    if family == "text":
        return array.cast(pa.string())
    if family == "bytes":
        return array.cast(pa.binary())
    if family == "timestamp":
        return array.cast(pa.timestamp("us", "UTC" if kind.tz else None), safe=False)
    if family == "time":
        return array.cast(pa.time64("us"), safe=False)
    if family == "duration":
        return array.cast(pa.duration("us"), safe=False)
    if types.is_date(kind):
        return array.cast(pa.date32())
    if types.is_uint64(kind):
        return array.cast(pa.decimal128(20, 0))
    return array.cast(pa.float32()) if types.is_float16(kind) else array
