"""What the PostgreSQL sink asks of the server: connections, the table of commits, deletions, and rows by COPY.

Only who has `psycopg` may import this module.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import LiteralString

import psycopg
import pyarrow as pa
from psycopg import Connection, errors, sql
from psycopg.pq import TransactionStatus

from headwater.errors import SinkRefused
from headwater.sinks.changes import Positions, Refusal
from headwater.sinks.pool import Pool
from headwater.sinks.postgres_binary import binary_of, encoders
from headwater.sinks.postgres_copy import csv_of
from headwater.sinks.postgres_table import COMMITS, Target

#: How long to wait for a row or table that somebody else has locked, before it counts as "not now".
LOCK_MILLISECONDS_MAX = 10_000


def connect(url: str) -> Connection:
    # Statements are not prepared: poolers such as PgBouncer hand each transaction to another connection.
    connection = psycopg.connect(
        url, autocommit=True, connect_timeout=10, application_name="headwater", prepare_threshold=None
    )
    connection.execute(f"SET lock_timeout = {LOCK_MILLISECONDS_MAX}")
    connection.execute("SET client_min_messages = warning")
    return connection


def is_usable(connection: Connection) -> bool:
    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE


pool: Pool[Connection] = Pool(connect, is_usable=is_usable, close=lambda connection: connection.close())


def make_commits(connection: Connection, schema: str, sink: str) -> None:
    if connection.execute(
        "SELECT to_regclass(format('%%I.%%I', %s::text, %s::text))", (schema, COMMITS)
    ).fetchone() != (None,):
        return
    make = sql.SQL(
        "CREATE TABLE IF NOT EXISTS {} (query text, sink text, progress text NOT NULL, "
        "at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (query, sink))"
    ).format(sql.Identifier(schema, COMMITS))
    try:
        with contextlib.suppress(errors.UniqueViolation, errors.DuplicateTable):  # somebody else was quicker
            connection.execute(make)
    except errors.InsufficientPrivilege as error:
        what = f"Let somebody who may run: {make.as_string(connection)}"
        raise SinkRefused(sink=sink, why=words(error), what=what) from error


def delete(connection: Connection, target: Target, gone: pa.Table) -> None:
    if not gone.num_rows:
        return
    staged = _staged(connection, target, "headwater_gone", gone)
    same = sql.SQL(" AND ").join(
        sql.SQL("{} = {}").format(sql.Identifier("old", name), sql.Identifier("gone", name))
        for name in gone.column_names
    )
    statement = sql.SQL("DELETE FROM {} AS old USING {} AS gone WHERE {}")
    connection.execute(statement.format(target.identifier, staged, same))
    connection.execute(sql.SQL("DROP TABLE {}").format(staged))


def placed(
    connection: Connection, target: Target, rows: pa.Table, positions: Positions, *, first: bool
) -> list[Refusal]:
    """Write rows; where the server refuses one, by halves, until the refused stand alone. `first` looks for one only."""
    if not rows.num_rows:
        return []
    try:
        with connection.transaction():
            _put(connection, target, rows)
        return []
    except psycopg.Error as error:
        if (error.sqlstate or "")[:2] not in ("22", "23", "54", "P0"):  # values, constraints, sizes, triggers
            raise
        if rows.num_rows == 1:
            return [Refusal(int(positions[0]), words(error))]
    half = rows.num_rows // 2
    refused = placed(connection, target, rows.slice(0, half), positions[:half], first=first)
    if first and refused:
        return refused
    return refused + placed(connection, target, rows.slice(half), positions[half:], first=first)


def _put(connection: Connection, target: Target, rows: pa.Table) -> None:
    if not target.key:
        _copy(connection, target, target.identifier, rows)
        return
    staged = _staged(connection, target, "headwater_rows", rows)
    columns = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
    others = [name for name in rows.column_names if name not in target.key]
    new = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others)
    act = sql.SQL("UPDATE SET {}").format(new) if others else sql.SQL("NOTHING")
    statement = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} ON CONFLICT ({}) DO {}").format(
        target.identifier, columns, columns, staged, sql.SQL(", ").join(map(sql.Identifier, target.key)), act
    )
    connection.execute(statement)
    connection.execute(sql.SQL("DROP TABLE {}").format(staged))


def _staged(connection: Connection, target: Target, name: str, rows: pa.Table) -> sql.Identifier:
    """The rows in a temporary table with the target's types, but not its constraints."""
    columns = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
    make = sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA")
    staged = sql.Identifier("pg_temp", name)
    connection.execute(make.format(sql.Identifier(name), columns, target.identifier))
    _copy(connection, target, staged, rows)
    return staged


def _copy(connection: Connection, target: Target, into: sql.Identifier, rows: pa.Table) -> None:
    """Rows into a table, as bytes where the types are exactly those of the table, and as text where they are not."""
    encode = encoders(rows.schema, {name: column.type for name, column in target.columns.items()})
    if encode is not None:
        # Where a value is out of range, text lets the server say so of its row.
        with contextlib.suppress(pa.ArrowInvalid), connection.transaction():
            _send(connection, into, rows.column_names, "binary", binary_of(rows, encode))
            return
    _send(connection, into, rows.column_names, "csv", csv_of(rows))


def _send(
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
