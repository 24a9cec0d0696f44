"""MariaDB and MySQL as targets: rows go into a temporary table, and from there into the table by two statements.

`ON DUPLICATE KEY` is not used: it would replace the row of any unique index, not only that of the key. Text is compared
by its bytes in keys. Times are stored in UTC; nested values are JSON in text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from headwater.optional import require
from headwater.postgres.copy import family_of
from headwater.sinks.retry import RetryLater
from headwater.sync.address import server_address
from headwater.sync.config import SyncConfig
from headwater.sync.database import SCAN_ROWS, DatabaseTarget, Row
from headwater.sync.errors import ChangeRefused, TargetRefused
from headwater.sync.port import TargetTable
from headwater.sync.values import as_text, canonical_json

#: The numbers of errors about a row: keys, nulls, checks, and values that do not fit.
_ROW_ERRORS = {1048, 1062, 1216, 1217, 1264, 1265, 1292, 1364, 1366, 1406, 1451, 1452, 1557, 1586, 3819, 4025}
#: Those that pass: locks, connections and shutdowns.
_PASSING_ERRORS = {0, 1040, 1053, 1152, 1158, 1159, 1160, 1161, 1203, 1205, 1213, 1927, 2002, 2003, 2006, 2013}
_INSTEAD = {
    1044: "Grant the user of the address what is missing",
    1045: "Correct the user of the address, or the password behind `--password-env` or `--password-file`",
    1049: "Create the database, or correct its name in the address",
    1142: "Grant the user of the address what is missing",
    1698: "Correct the user of the address, or the password behind `--password-env` or `--password-file`",
}
_INTEGERS = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
#: The most characters of text in a key.
KEY_CHARACTERS_MAX = 190


class MariadbTarget(DatabaseTarget):
    """The tables of a MariaDB database."""

    placeholder = "%s"
    key_text = f"VARCHAR({KEY_CHARACTERS_MAX})"
    _for_update = " FOR UPDATE"

    def __init__(self, url: str, *, sync: str, password: str | None = None) -> None:
        super().__init__(url, sync=sync)
        self._url = urlsplit(url)
        self._password = password
        # Any: the driver has no types.
        self._pymysql: Any = require("pymysql", extra="mysql")
        self._connection: Any = None
        self._collation = ""

    @classmethod
    def address(cls, url: str) -> str:
        return server_address(url, expected="mariadb://user@host:3306/database")

    @classmethod
    def open(cls, config: SyncConfig) -> MariadbTarget:
        config.check_options({})
        config.check_current()
        return cls(config.url, sync=config.name, password=config.password())

    def close(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
            self._connection = None

    @contextlib.contextmanager
    def _session(self) -> Iterator[None]:
        try:
            if self._connection is None:
                self._connect()
            yield
        except self._pymysql.MySQLError as error:
            self._explain(error)

    def _connect(self) -> None:
        self._connection = self._pymysql.connect(
            host=self._url.hostname,
            port=self._url.port or 3306,
            user=unquote(self._url.username or ""),
            password=self._password or "",
            database=unquote(self._url.path.strip("/")),
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=10,
            # Otherwise the server cuts values that do not fit, in silence.
            init_command="SET sql_mode = 'STRICT_ALL_TABLES', time_zone = '+00:00'",
        )
        is_mariadb = "mariadb" in self._execute("SELECT version()")[0][0].lower()
        self._collation = "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"

    def _explain(self, error: Any) -> None:
        number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
        words = str(error.args[1]) if len(error.args) > 1 else str(error) or type(error).__name__
        if number in _ROW_ERRORS:
            raise ChangeRefused(target=self.name, table="", key="", why=words) from error
        self.close()  # it may be broken; the next attempt connects again
        if number in _PASSING_ERRORS:
            raise RetryLater(words) from error
        instead = _INSTEAD.get(number, "Correct what the server complains of")
        raise TargetRefused(target=self.name, why=words, instead=instead) from error

    @contextlib.contextmanager
    def _transaction(self, *, write: bool) -> Iterator[None]:
        self._execute("START TRANSACTION" + ("" if write else " WITH CONSISTENT SNAPSHOT, READ ONLY"))
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            with contextlib.suppress(self._pymysql.MySQLError):
                self._execute("ROLLBACK")
            raise

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def _stream(self, statement: str) -> Iterator[list[Row]]:
        with self._connection.cursor(self._pymysql.cursors.SSCursor) as cursor:
            cursor.execute(statement)
            while rows := cursor.fetchmany(SCAN_ROWS):
                yield list(rows)

    def quoted(self, name: str) -> str:
        return "`" + name.replace("`", "``") + "`"

    def _existing(self, table: str) -> list[str]:
        found = self._execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = database() AND table_name = %s "
            "ORDER BY ordinal_position",
            (table,),
        )
        return [row[0] for row in found]

    def _type(self, column: pa.Field, *, is_key: bool) -> str | None:
        kind, types = column.type, pa.types
        family = family_of(kind)
        if types.is_integer(kind):
            return _INTEGERS[kind.bit_width] + (" UNSIGNED" if types.is_unsigned_integer(kind) else "")
        if types.is_decimal(kind):
            fits = kind.precision <= 65 and 0 <= kind.scale <= 38
            return f"DECIMAL({kind.precision}, {kind.scale})" if fits else None
        if family == "text" and is_key:
            return f"VARCHAR({KEY_CHARACTERS_MAX}) CHARACTER SET utf8mb4 COLLATE {self._collation}"
        if family == "bytes" and is_key:
            return "VARBINARY(767)"
        if family == "nested" and is_key:
            return None
        return {
            "boolean": "BOOLEAN",
            "number": "DOUBLE",
            "text": f"LONGTEXT CHARACTER SET utf8mb4 COLLATE {self._collation}",
            "bytes": "LONGBLOB",
            "date": "DATE",
            "timestamp": "DATETIME(6)",
            "time": "TIME(6)",
            "duration": "BIGINT",
            "nested": "LONGTEXT CHARACTER SET utf8mb4",
        }.get(family)

    def _upsert(self, table: TargetTable, rows: pa.Table) -> None:
        name = self._table(table.name)
        columns = [self.quoted(one) for one in rows.column_names]
        others = [self.quoted(one) for one in rows.column_names if one not in table.key]
        with self._staged(table, rows):
            if others:
                new = ", ".join(f"old.{one} = new.{one}" for one in others)
                self._execute(f"UPDATE headwater_rows AS new JOIN {name} AS old ON {self._same(table)} SET {new}")
            first = self.quoted(table.key[0])
            self._execute(
                f"INSERT INTO {name} ({', '.join(columns)}) SELECT {', '.join(f'new.{one}' for one in columns)} "
                f"FROM headwater_rows AS new LEFT JOIN {name} AS old ON {self._same(table)} WHERE old.{first} IS NULL"
            )

    def _delete(self, table: TargetTable, keys: pa.Table) -> None:
        with self._staged(table, keys):
            self._execute(
                f"DELETE old FROM headwater_rows AS new JOIN {self._table(table.name)} AS old ON {self._same(table)}"
            )

    def _same(self, table: TargetTable) -> str:
        return " AND ".join(f"old.{self.quoted(name)} = new.{self.quoted(name)}" for name in table.key)

    @contextlib.contextmanager
    def _staged(self, table: TargetTable, rows: pa.Table) -> Iterator[None]:
        columns = ", ".join(map(self.quoted, rows.column_names))
        self._execute("DROP TEMPORARY TABLE IF EXISTS headwater_rows")
        self._execute(
            f"CREATE TEMPORARY TABLE headwater_rows AS SELECT {columns} FROM {self._table(table.name)} LIMIT 0"
        )
        marks = ", ".join(["%s"] * rows.num_columns)
        values = zip(*(column.to_pylist() for column in self.stored(rows).columns), strict=True)
        with self._connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO headwater_rows ({columns}) VALUES ({marks})", list(values))
        yield
        self._execute("DROP TEMPORARY TABLE IF EXISTS headwater_rows")

    # -- values -------------------------------------------------------------------------------------------------------

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
    """A column with the type that the driver's values fit. Not-a-number becomes null: SQL has no such value."""
    array = column.combine_chunks()
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    kind, types = array.type, pa.types
    family = family_of(kind)
    if types.is_boolean(kind):
        return array.cast(pa.int64())
    if types.is_floating(kind):
        wide = array.cast(pa.float64())
        return pc.if_else(pc.is_nan(wide), pa.scalar(None, pa.float64()), wide)
    if family == "bytes":
        return array.cast(pa.binary())
    if types.is_date(kind):
        return array.cast(pa.date32())
    if family == "timestamp":
        return array.cast(pa.timestamp("us", kind.tz), safe=False).cast(pa.timestamp("us"))
    if family == "time":  # the driver reads a time as a duration
        return array.cast(pa.time64("us"), safe=False).cast(pa.int64()).cast(pa.duration("us"))
    if family == "duration":
        return array.cast(pa.duration("us"), safe=False).cast(pa.int64())
    return as_text(array) if family in ("nested", "text") else array
