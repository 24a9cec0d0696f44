"""The PostgreSQL sink: rows become rows of a table, exactly once.

The rows of a batch and its number are written in one transaction: COPY into a temporary table, one upsert from there,
and the batch's number in the table `headwater_commits` beside the target. So:

- a batch that Spark repeats after a crash finds its number, and changes nothing;
- a transaction that was cut off has not happened, whichever of its steps were done;
- a run that another has replaced finds its successor in `headwater_commits`, and is refused.

It costs one more copy than a bare COPY where there is a key: from the temporary table into the target.
"""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, LiteralString, NoReturn

import pyarrow as pa

from headwater.engine.micro_batch import MicroBatch
from headwater.errors import ArgumentInvalid, ColumnMisfit
from headwater.faults import reach
from headwater.optional import require
from headwater.postgres.copy import family_of, sql_type
from headwater.sinks.changes import Changes, Positions, Refusal, without_own
from headwater.sinks.driver import DriverSink, Progress, Refusals
from headwater.sinks.errors import SinkRefused
from headwater.sinks.pool import Pool
from headwater.sinks.port import Guarantee
from headwater.sinks.retry import RetryLater
from headwater.spark.changelog import OPERATION

if TYPE_CHECKING:
    from psycopg import Connection, Error, sql

COMMITS = "headwater_commits"
#: How long to wait for a row or table that another connection has locked, before the sink retries.
LOCK_MILLISECONDS_MAX = 10_000

#: What the server says of itself rather than of a row, and what to do about it.
REFUSED_STATES = {
    "28": "Correct the user or the password in `url`",
    "3D": "Create the database, or correct its name in `url`",
    "42501": "Grant the user of `url` what is missing",
    "42P01": "Create the table, or let the sink do it with `create=True`",
    "42703": "Add the column to the table, or leave it out of the query",
    "42": "Change the table or the query so that they fit",
    "25006": "Name the primary server in `url`, not a copy that can only be read",
}
#: Before a connection stands, the server's words are all there is.
REFUSED_WORDS = {
    "password authentication failed": REFUSED_STATES["28"],
    "no password supplied": REFUSED_STATES["28"],
    "no pg_hba.conf entry": REFUSED_STATES["28"],
    'role "': REFUSED_STATES["28"],
    'database "': REFUSED_STATES["3D"],
}


@dataclass(frozen=True, kw_only=True)
class PostgresSink(DriverSink):
    """Rows into a table of PostgreSQL: upserted by `key`, or appended without one; exactly once.

    With a key, the table has a row for each key: rows with `_op` or `_tombstone` change and delete it. The table needs
    a unique index over the key; `create=True` makes the table, with the key as its primary key. Structs, lists and
    maps become `jsonb`. Columns of the table that the query lacks get their defaults.

    >>> PostgresSink(url="postgresql://localhost/shop", table="spend", key="card").name
    'postgres:public.spend'
    """

    url: str
    table: str
    create: bool = False

    guarantee: ClassVar[Guarantee] = "exactly once"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.table or self.table.count(".") > 1:
            raise ArgumentInvalid(name="table", value=self.table, expected="a table's name, or `schema.table`")

    def __repr__(self) -> str:
        # Never the URL: it may hold a password, and values are printed and shown.
        return f"PostgresSink(table={self.table!r}, key={self.keys!r})"

    @property
    def name(self) -> str:
        return f"postgres:{'.'.join(self._place)}"

    @property
    def _place(self) -> tuple[str, str]:
        schema, _, table = self.table.rpartition(".")
        return schema or "public", table

    def examine(self, columns: pa.Schema) -> None:
        """Refuse columns that the table lacks or cannot hold; make the table where that was asked for."""
        super().examine(columns)
        mine = without_own(columns, keep=() if self.keys else (OPERATION,))
        for column in mine:
            _sql_type(self.name, column)
        with self._connected() as connection:
            self._target(connection, mine)

    def begin(self, batch: MicroBatch) -> bool:
        with self._connected() as connection:
            self._make_commits(connection)
            with connection.transaction():
                return self._admit(connection, batch).has(batch)

    def apply(self, changes: Changes, batch: MicroBatch, refusals: Refusals) -> None:
        with self._connected() as connection:
            from headwater.postgres.writer import delete_rows

            some = changes.rows.num_rows or changes.gone.num_rows
            target = self._target(connection, changes.rows.schema) if some else None
            with connection.transaction():
                connection.execute("SET CONSTRAINTS ALL IMMEDIATE")  # a row is refused here, not at the commit
                progress = self._admit(connection, batch)
                if progress.has(batch):  # an earlier attempt was committed, but its answer lost
                    return
                if target is not None:
                    delete_rows(connection, target.identifier, changes.gone, target.types)
                    refusals.add(
                        _placed(connection, target, self.keys, changes.rows, changes.positions, first=refusals.stops)
                    )
                self._remember(connection, batch, progress.after(batch))
                reach("delivery.written")
                refusals.post()

    def _target(self, connection: Connection, columns: pa.Schema) -> Target:
        target = read_target(connection, *self._place)
        if target is None and self.create:
            create_target(connection, *self._place, columns, self.keys, sink=self.name)
            target = read_target(connection, *self._place)
        if target is None:
            why = f"there is no table {'.'.join(self._place)!r}"
            raise SinkRefused(sink=self.name, why=why, what=REFUSED_STATES["42P01"])
        check_target(self.name, target, columns, self.keys)
        return target

    def _make_commits(self, connection: Connection) -> None:
        from psycopg import errors, sql

        from headwater.postgres.writer import words

        schema = self._place[0]
        found = "SELECT to_regclass(format('%%I.%%I', %s::text, %s::text))"
        if connection.execute(found, (schema, COMMITS)).fetchone() != (None,):
            return
        make = sql.SQL(
            "CREATE TABLE IF NOT EXISTS {} (query text, sink text, progress text NOT NULL, "
            "at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (query, sink))"
        ).format(sql.Identifier(schema, COMMITS))
        try:
            with contextlib.suppress(errors.UniqueViolation, errors.DuplicateTable):  # another sink was first
                connection.execute(make)
        except errors.InsufficientPrivilege as error:
            what = f"Let a user who may do so run: {make.as_string(connection)}"
            raise SinkRefused(sink=self.name, why=words(error), what=what) from error

    def _admit(self, connection: Connection, batch: MicroBatch) -> Progress:
        """How far the query is, with this run at work. The row stays locked until the transaction ends."""
        from psycopg import sql

        commits = sql.Identifier(self._place[0], COMMITS)
        who = (batch.query, self.name)
        insert = "INSERT INTO {} (query, sink, progress) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
        connection.execute(sql.SQL(insert).format(commits), (*who, Progress().as_json().decode()))
        select = "SELECT progress FROM {} WHERE query = %s AND sink = %s FOR UPDATE"
        found = connection.execute(sql.SQL(select).format(commits), who).fetchone()
        before = Progress.from_json(None if found is None else found[0])
        progress = before.admit(self.name, batch)
        if progress != before:
            self._remember(connection, batch, progress)
        return progress

    def _remember(self, connection: Connection, batch: MicroBatch, progress: Progress) -> None:
        from psycopg import sql

        update = "UPDATE {} SET progress = %s, at = now() WHERE query = %s AND sink = %s"
        commits = sql.Identifier(self._place[0], COMMITS)
        connection.execute(sql.SQL(update).format(commits), (progress.as_json().decode(), batch.query, self.name))

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Connection]:
        """A connection; whatever goes wrong on it is said as what it means for the query."""
        require("psycopg", extra="postgres")
        import psycopg

        try:
            with _pool.borrowed(self.url) as connection:
                yield connection
        except psycopg.Error as error:
            self._explain(error)

    def _explain(self, error: Error) -> NoReturn:
        from psycopg import ProgrammingError

        from headwater.postgres.writer import words as words_of

        state, words = error.sqlstate or "", words_of(error)
        for known in (state, state[:2]):
            if known and known in REFUSED_STATES:
                raise SinkRefused(sink=self.name, why=words, what=REFUSED_STATES[known]) from error
        if not state:
            if isinstance(error, ProgrammingError):
                raise SinkRefused(sink=self.name, why=words, what="Correct `url`") from error
            for said, what in REFUSED_WORDS.items():
                if said in words:
                    raise SinkRefused(sink=self.name, why=words, what=what) from error
        if not state or state[:2] in ("08", "40", "53", "55", "57", "58"):
            raise RetryLater(words) from error
        raise SinkRefused(sink=self.name, why=words, what="Correct what the server complains of") from error


# -- the table --------------------------------------------------------------------------------------------------------

#: What each kind of column may go into, by the first words of PostgreSQL's own names. Text goes into anything that may
#: read it (`uuid`, `inet`, an enumeration, a domain), so that only the server can say.
_FAMILIES: dict[str, tuple[str, ...]] = {
    "boolean": ("boolean", "text", "character"),
    "number": ("smallint", "integer", "bigint", "numeric", "real", "double", "money", "text", "character", "oid"),
    "bytes": ("bytea",),
    "date": ("date", "timestamp", "text", "character"),
    "timestamp": ("timestamp", "text", "character", "date"),
    "time": ("time", "text", "character", "interval"),
    "duration": ("interval", "text", "character"),
    "nested": ("json", "text", "character"),
}


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table."""

    name: str
    type: str
    needed: bool
    """Whether a row must bring it: not null, without a default."""
    writable: bool = True


@dataclass(frozen=True, kw_only=True)
class Target:
    """A table that exists."""

    schema: str
    table: str
    columns: dict[str, Column]
    uniques: frozenset[frozenset[str]]

    @property
    def identifier(self) -> sql.Identifier:
        from psycopg import sql

        return sql.Identifier(self.schema, self.table)

    @property
    def types(self) -> dict[str, str]:
        """The type of each column, by PostgreSQL's own name of it."""
        return {name: column.type for name, column in self.columns.items()}


def read_target(connection: Connection, schema: str, table: str) -> Target | None:
    """The table as the server has it now; None where there is none."""
    rows = connection.execute(
        "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', "
        "a.attgenerated = '' AND a.attidentity <> 'a' FROM pg_attribute a "
        "WHERE a.attrelid = to_regclass(format('%%I.%%I', %s::text, %s::text)) AND a.attnum > 0 AND NOT a.attisdropped "
        "ORDER BY a.attnum",
        (schema, table),
    ).fetchall()
    if not rows:
        return None
    uniques = connection.execute(
        "SELECT array_agg(a.attname::text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid "
        "AND a.attnum = ANY (i.indkey::int2[]) WHERE i.indrelid = to_regclass(format('%%I.%%I', %s::text, %s::text)) "
        "AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indisvalid GROUP BY i.indexrelid",
        (schema, table),
    ).fetchall()
    columns = {name: Column(name=name, type=kind, needed=needed, writable=able) for name, kind, needed, able in rows}
    return Target(schema=schema, table=table, columns=columns, uniques=frozenset(frozenset(one[0]) for one in uniques))


def check_target(sink: str, target: Target, columns: pa.Schema, key: Sequence[str]) -> None:
    """Refuse columns that no row could bring into the table."""
    for column in columns:
        found = target.columns.get(column.name)
        if found is None:
            near = difflib.get_close_matches(column.name, target.columns, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ColumnMisfit(target=sink, column=column.name, why=f"is not in the table{hint}")
        if not found.writable:
            raise ColumnMisfit(target=sink, column=column.name, why="is made by the server itself")
        families = _FAMILIES.get(family_of(column.type))
        if families is not None and _is_builtin(found.type) and not found.type.startswith(families):
            raise ColumnMisfit(target=sink, column=column.name, why=f"is {column.type}, and the table has {found.type}")
    for missing in target.columns.values():
        if missing.needed and missing.name not in columns.names:
            raise ColumnMisfit(target=sink, column=missing.name, why="is not null in the table, and the query lacks it")
    if key and frozenset(key) not in target.uniques:
        why = f"the table has no unique index over its key ({', '.join(key)})"
        what = f"Run: CREATE UNIQUE INDEX ON {target.schema}.{target.table} ({', '.join(key)})"
        raise SinkRefused(sink=sink, why=why, what=what)


def create_target(
    connection: Connection, schema: str, table: str, columns: pa.Schema, key: Sequence[str], *, sink: str
) -> None:
    """Make the table from the query's columns, with the key as its primary key."""
    from psycopg import errors, sql

    parts = [
        sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(_sql_type(sink, column))) for column in columns
    ]
    if key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, key))))
    make = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
        sql.Identifier(schema, table), sql.SQL(", ").join(parts)
    )
    with contextlib.suppress(errors.UniqueViolation, errors.DuplicateTable):  # another sink was first
        connection.execute(make)


def _sql_type(sink: str, column: pa.Field) -> LiteralString:
    found = sql_type(column.type)
    if found is None:
        raise ColumnMisfit(target=sink, column=column.name, why=f"is {column.type}, for which PostgreSQL has no type")
    return found


def _is_builtin(kind: str) -> bool:
    """Whether we know what a type can hold; of enumerations, domains and extensions only the server knows."""
    return kind.startswith(tuple({name for names in _FAMILIES.values() for name in names} | {"uuid", "inet", "cidr"}))


# -- writing ----------------------------------------------------------------------------------------------------------


def _placed(
    connection: Connection, target: Target, key: Sequence[str], rows: pa.Table, positions: Positions, *, first: bool
) -> list[Refusal]:
    """Write rows; where the server refuses one, by halves, until the refused stand alone. `first` looks for one only."""
    import psycopg

    from headwater.postgres.writer import append_rows, upsert_rows, words

    if not rows.num_rows:
        return []
    try:
        with connection.transaction():
            if key:
                upsert_rows(connection, target.identifier, rows, key, target.types)
            else:
                append_rows(connection, target.identifier, rows, target.types)
        return []
    except psycopg.Error as error:
        if (error.sqlstate or "")[:2] not in ("22", "23", "54", "P0"):  # values, constraints, sizes, triggers
            raise
        if rows.num_rows == 1:
            return [Refusal(int(positions[0]), words(error))]
    half = rows.num_rows // 2
    refused = _placed(connection, target, key, rows.slice(0, half), positions[:half], first=first)
    if first and refused:
        return refused
    return refused + _placed(connection, target, key, rows.slice(half), positions[half:], first=first)


def _connect(url: str) -> Connection:
    from headwater.postgres.writer import connect

    connection = connect(url)
    connection.execute(f"SET lock_timeout = {LOCK_MILLISECONDS_MAX}")
    return connection


def _is_usable(connection: Connection) -> bool:
    from psycopg.pq import TransactionStatus

    return not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE


_pool: Pool[Connection] = Pool(_connect, is_usable=_is_usable, close=lambda connection: connection.close())
