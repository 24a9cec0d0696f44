"""Write Arrow rows to a table of PostgreSQL by COPY: appended, upserted by key, or deleted by key.

Import this module only where `psycopg` is installed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import LiteralString

import psycopg
import pyarrow as pa
from psycopg import Connection, sql

from headwater.postgres.copy import binary_of, csv_of, encoders

#: The types of a table's columns, by PostgreSQL's own names of them.
Types = Mapping[str, str]


def connect(url: str) -> Connection:
    """Open a connection that commits by itself outside of `transaction()`."""
    # Statements are not prepared: poolers such as PgBouncer hand each transaction to another connection.
    connection = psycopg.connect(
        url, autocommit=True, connect_timeout=10, application_name="headwater", prepare_threshold=None
    )
    connection.execute("SET client_min_messages = warning")
    return connection


def delete_rows(connection: Connection, table: sql.Identifier, keys: pa.Table, types: Types) -> None:
    """Delete the rows with these keys."""
    if not keys.num_rows:
        return
    staged = _staged(connection, table, "headwater_gone", keys, types)
    same = sql.SQL(" AND ").join(
        sql.SQL("{} = {}").format(sql.Identifier("old", name), sql.Identifier("gone", name))
        for name in keys.column_names
    )
    statement = sql.SQL("DELETE FROM {} AS old USING {} AS gone WHERE {}")
    connection.execute(statement.format(table, staged, same))
    connection.execute(sql.SQL("DROP TABLE {}").format(staged))


def upsert_rows(
    connection: Connection, table: sql.Identifier, rows: pa.Table, key: Sequence[str], types: Types
) -> None:
    """Insert rows, and replace those of the same key."""
    staged = _staged(connection, table, "headwater_rows", rows, types)
    columns = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
    others = [name for name in rows.column_names if name not in key]
    new = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
    act = sql.SQL("UPDATE SET {}").format(new) if others else sql.SQL("NOTHING")
    statement = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
        table, columns, columns, staged, sql.SQL(", ").join(map(sql.Identifier, key)), act
    )
    connection.execute(statement)
    connection.execute(sql.SQL("DROP TABLE {}").format(staged))


def append_rows(connection: Connection, table: sql.Identifier, rows: pa.Table, types: Types) -> None:
    """Append rows: as bytes where their types are exactly those of the table, as text where they are not."""
    encode = encoders(rows.schema, types)
    if encode is not None:
        # Where a value is out of range, text lets the server say so of its row.
        with contextlib.suppress(pa.ArrowInvalid), connection.transaction():
            _copy(connection, table, rows.column_names, "binary", binary_of(rows, encode))
            return
    _copy(connection, table, rows.column_names, "csv", csv_of(rows))


def _staged(connection: Connection, table: sql.Identifier, name: str, rows: pa.Table, types: Types) -> sql.Identifier:
    """The rows in a temporary table with the types of the table, but not its constraints."""
    columns = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
    make = sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
    staged = sql.Identifier("pg_temp", name)
    connection.execute(make.format(sql.Identifier(name), columns, table))
    append_rows(connection, staged, rows, types)
    return staged


def _copy(
    connection: Connection, into: sql.Identifier, names: Sequence[str], form: LiteralString, pieces: Iterable[bytes]
) -> None:
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT {})").format(into, columns, sql.SQL(form))
    with connection.cursor() as cursor, cursor.copy(statement) as copy:
        for piece in pieces:
            copy.write(piece)


def words(error: Exception) -> str:
    """What the server said, in a line."""
    diagnosis = getattr(error, "diag", None)
    primary = getattr(diagnosis, "message_primary", None)
    detail = getattr(diagnosis, "message_detail", None)
    text = ": ".join(filter(None, [primary, detail])) if primary else str(error)
    return " ".join(text.split()).rstrip(".") or type(error).__name__
