"""A table of PostgreSQL as a sink sees it: its columns and keys, and whether a query's columns fit."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from headwater.errors import SinkMisfit, SinkRefused
from headwater.sinks.postgres_copy import family_of, sql_type

if TYPE_CHECKING:
    from psycopg import Connection, sql

COMMITS = "headwater_commits"

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
    key: tuple[str, ...] = ()
    written: tuple[str, ...] = field(default=())

    @property
    def identifier(self) -> sql.Identifier:
        from psycopg import sql

        return sql.Identifier(self.schema, self.table)

    def over(self, written: Sequence[str], key: Sequence[str]) -> Self:
        """The same table, for these columns and this key."""
        return replace(self, written=tuple(written), key=tuple(key))


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
            raise SinkMisfit(sink=sink, column=column.name, why=f"is not in the table{hint}")
        if not found.writable:
            raise SinkMisfit(sink=sink, column=column.name, why="is made by the server itself")
        families = _FAMILIES.get(family_of(column.type))
        if families is not None and _is_builtin(found.type) and not found.type.startswith(families):
            raise SinkMisfit(sink=sink, column=column.name, why=f"is {column.type}, and the table has {found.type}")
    for missing in target.columns.values():
        if missing.needed and missing.name not in columns.names:
            raise SinkMisfit(sink=sink, column=missing.name, why="is not null in the table, and the query lacks it")
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
        sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(sql_type(sink, column))) for column in columns
    ]
    if key:
        parts.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, key))))
    make = sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
        sql.Identifier(schema, table), sql.SQL(", ").join(parts)
    )
    with contextlib.suppress(errors.UniqueViolation, errors.DuplicateTable):  # somebody else was quicker
        connection.execute(make)


def _is_builtin(kind: str) -> bool:
    """Whether we know what a type can hold; of enumerations, domains and extensions only the server knows."""
    return kind.startswith(tuple({name for names in _FAMILIES.values() for name in names} | {"uuid", "inet", "cidr"}))
