"""The captured tables as the server describes them now, and parts of their snapshots.

A part of a snapshot is read in a transaction with a consistent snapshot, for which MariaDB tells the place in the binary
log: no lock is taken. The part is appended when the capture has read the changes up to that place, so that its rows are newer than all
changes before it and older than all behind it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import pyarrow as pa
import pymysql

from headwater.capture.errors import SourceInvalid
from headwater.capture.mariadb import values
from headwater.capture.mariadb.server import Session
from headwater.capture.port import SnapshotProgress, Table
from headwater.errors import did_you_mean

#: Another transaction has changed the table's definition: the consistent snapshot has to be opened again.
_DEFINITION_CHANGED = (1412, 1054, 1146)
_TRIES_MAX = 20
_INTEGERS = {"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}
_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_GEOMETRY = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
)


@dataclass(frozen=True, kw_only=True)
class SourceTable:
    """A table, with the declared types of its columns."""

    table: Table
    kinds: dict[str, str]

    @property
    def version(self) -> int:
        """A number that changes with columns and key: a table with other ones is read by a new snapshot."""
        shape = [self.table.name, *self.table.key, *(f"{one.name} {one.type}" for one in self.table.columns)]
        return zlib.crc32("\n".join(shape).encode())


@dataclass(frozen=True, kw_only=True)
class SnapshotPart:
    """Rows of a snapshot, the place in the binary log that they belong to, and the progress behind them."""

    table: Table
    batches: Sequence[pa.RecordBatch]
    gtid: str
    progress: SnapshotProgress


def describe(session: Session, wanted: Sequence[str]) -> list[SourceTable]:
    """The tables that the capture names, by name or pattern."""
    database = session.server.database
    every = [
        name
        for (name,) in session.rows(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s AND table_type IN "
            "('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY table_name",
            (database,),
        )
    ]
    names = []
    for pattern in wanted:
        found = [name for name in every if fnmatchcase(name, pattern)]
        if not found and not set(pattern) & set("*?["):
            raise SourceInvalid(
                source=f"Table {pattern!r} of {session.server}",
                why="there is no such table, or the user may not read it." + did_you_mean(pattern, every).rstrip("."),
                instead=f"Name one of {', '.join(every)}"
                if every
                else f"Create it, or allow it: {session.server.grants}",
            )
        names += found
    return _described(session, list(dict.fromkeys(names)))


def _described(session: Session, names: Sequence[str]) -> list[SourceTable]:
    database = session.server.database
    columns: dict[str, list[tuple[Any, ...]]] = {name: [] for name in names}
    for name, *column in session.rows(
        "SELECT table_name, column_name, data_type, column_type, numeric_precision, numeric_scale "
        "FROM information_schema.columns WHERE table_schema = %s ORDER BY table_name, ordinal_position",
        (database,),
    ):
        if name in columns:
            columns[name].append(tuple(column))
    keys: dict[str, list[str]] = {}
    for name, column in session.rows(
        "SELECT table_name, column_name FROM information_schema.statistics "
        "WHERE table_schema = %s AND index_name = 'PRIMARY' ORDER BY table_name, seq_in_index",
        (database,),
    ):
        keys.setdefault(name, []).append(column)
    return [
        SourceTable(
            table=Table(
                name=name,
                columns=pa.schema([pa.field(one[0], arrow_type(*one[1:])) for one in some]),
                key=tuple(keys.get(name, ())),
            ),
            kinds={one[0]: one[1] for one in some},
        )
        for name, some in columns.items()
        if some
    ]


def arrow_type(kind: str, declared: str, precision: str | None = None, scale: str | None = None) -> pa.DataType:
    """The Arrow type of a column that is declared so.

    >>> declared = ["int(11)", "int(10) unsigned", "bigint(20) unsigned", "bit(1)", "datetime(6)", "json", "year(4)"]
    >>> [str(arrow_type(one.partition("(")[0], one)) for one in declared]
    ['int32', 'int64', 'decimal128(20, 0)', 'bool', 'timestamp[us]', 'string', 'int16']
    """
    if kind in _INTEGERS:
        is_unsigned = "unsigned" in declared
        return values.integer_type(_INTEGERS[kind], is_unsigned=is_unsigned)
    if kind == "decimal":
        return values.decimal_type(int(precision or 10), int(scale or 0))
    if kind == "bit":
        return values.bit_type(int(declared.partition("(")[2].rstrip(")") or 1))
    if kind in _BINARY or kind in _GEOMETRY:
        return pa.binary()
    plain = {
        "float": pa.float32(),
        "double": pa.float64(),
        "date": pa.date32(),
        "datetime": values.DATETIME,
        "timestamp": values.TIMESTAMP,
        "year": pa.int16(),
    }
    return plain.get(kind, pa.string())


def read_part(
    session: Session, source: SourceTable, progress: SnapshotProgress | None, *, rows_max: int
) -> SnapshotPart:
    """Read the next rows of a table's snapshot in the order of its key; a table without a key is read as a whole."""
    for attempt in range(_TRIES_MAX):
        try:
            return _part(session, source, progress, rows_max=rows_max)
        except pymysql.err.MySQLError as error:
            session.close()
            if error.args[0] not in _DEFINITION_CHANGED or attempt == _TRIES_MAX - 1:
                with session.server.explained():
                    raise
        described = _described(session, [source.table.name])
        if not described:
            raise SourceInvalid(
                source=f"Table {source.table.name!r} of {session.server}",
                why="it was dropped or renamed before its snapshot was complete",
                instead="Drop the capture, and create it again without the table",
            )
        source = described[0]
    raise AssertionError


def _part(session: Session, source: SourceTable, progress: SnapshotProgress | None, *, rows_max: int) -> SnapshotPart:
    table, key = source.table, source.table.key
    before = progress
    if before is None or (key and before.version != source.version):
        before = SnapshotProgress(version=source.version, rows_expected=_rows_expected(session, table))
    selected = ", ".join(_selected(name, source.kinds[name]) for name in table.columns.names)
    statement = f"SELECT {selected} FROM {quoted(table.name)}"
    if key:
        ordered = [_ordered(name, source.kinds[name]) for name in key]
        cursors = ", ".join(ordered)
        condition = _after(session, ordered, [table.columns.field(name).type for name in key], before.cursor)
        statement = (
            f"SELECT {selected}, {cursors} FROM {quoted(table.name)} {condition} ORDER BY {cursors} LIMIT {rows_max}"
        )
    batches = []
    count, cursor = 0, before.cursor
    with session.connection.cursor(pymysql.cursors.SSCursor) as answer:
        answer.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        place = _binlog_place(answer)
        answer.execute(statement)
        while rows := answer.fetchmany(rows_max):
            count += len(rows)
            columns = list(zip(*rows, strict=True))
            arrays = [values.from_texts(some, one.type) for some, one in zip(columns, table.columns, strict=False)]
            batches.append(pa.RecordBatch.from_arrays(arrays, schema=table.columns))
            if key:
                cursor = [_as_json(value) for value in rows[-1][len(table.columns) :]]
        answer.execute("ROLLBACK")
        answer.execute("SELECT BINLOG_GTID_POS(%s, %s)", place)
        gtid = answer.fetchall()[0][0]
    done = replace(before, rows=before.rows + count, cursor=cursor, complete=not key or count < rows_max)
    return SnapshotPart(table=table, batches=batches, gtid=gtid or "", progress=done)


# Any: PyMySQL has no types.
def _binlog_place(answer: Any) -> tuple[str, int]:
    answer.execute("SHOW STATUS LIKE 'binlog_snapshot_%'")
    status = {name.lower(): value for name, value in answer.fetchall()}
    return status["binlog_snapshot_file"], int(status["binlog_snapshot_position"])


def _rows_expected(session: Session, table: Table) -> int | None:
    """How many rows the server believes the table has."""
    found = session.rows(
        "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s",
        (session.server.database, table.name),
    )
    return int(found[0][0]) if found and found[0][0] is not None else None


def _selected(name: str, kind: str) -> str:
    """How a column is selected, so that its text is exact."""
    if kind == "float":
        return f"{quoted(name)} + 0e0"  # by itself it would have six digits
    if kind == "bit":
        return f"{quoted(name)} + 0"
    if kind in _GEOMETRY:
        return f"CAST({quoted(name)} AS BINARY)"
    return quoted(name)


def _ordered(name: str, kind: str) -> str:
    """How a column of a key is ordered and compared: an ENUM by its number, not by its text."""
    return f"{quoted(name)} + 0" if kind in ("enum", "set", "bit") else quoted(name)


# Any: a cursor, as JSON.
def _after(session: Session, ordered: Sequence[str], types: Sequence[pa.DataType], cursor: Any) -> str:
    """The condition for keys behind a cursor. It is written so that MariaDB finds them by the index."""
    if cursor is None:
        return ""
    literals = [_literal(session, value, kind, name) for value, kind, name in zip(cursor, types, ordered, strict=True)]
    steps = []
    for place in range(len(ordered)):
        equal = [f"{name} = {value}" for name, value in zip(ordered[:place], literals, strict=False)]
        steps.append("(" + " AND ".join([*equal, f"{ordered[place]} > {literals[place]}"]) + ")")
    return f"WHERE {ordered[0]} >= {literals[0]} AND ({' OR '.join(steps)})"


# Any: a value of a cursor.
def _literal(session: Session, value: Any, kind: pa.DataType, ordered: str) -> str:
    if isinstance(value, dict):
        return f"x'{value['hex']}'"
    is_number = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind)
    if is_number or ordered.endswith(" + 0"):
        return str(value)
    return str(session.connection.escape(value))


def _as_json(value: object) -> object:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
