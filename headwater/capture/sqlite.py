"""SQLite as a source: triggers write each change into a changelog table, in the transaction that makes the change.

Every process that writes to the database writes the changelog, too; none of them has to know. SQLite has one writer at a
time, so the changelog is in commit order. A part of a snapshot is read in the same read transaction as the changes before
it: its rows are newer than all of them, and replace them by their key; of a table without a key, changes of rows that the
snapshot has still to read are left out. A table with a key that gets another column is read by a new snapshot: changes between the
`ALTER TABLE` and the next read lack the column.

    _headwater_NAME          id, tbl, at, op, place, v0 … vN: one row for each change; v0 … have no type, so that values stay as they are;
                             place is the row id, in tables without a key
    _headwater_NAME_tables   number, name, columns: which columns v0 … are, for each shape that a table has had

The newest row of the changelog is never deleted: SQLite would otherwise use its id again.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from headwater.capture.config import CaptureConfig
from headwater.capture.errors import SourceInvalid, SourceReplaced
from headwater.capture.port import Changes, Misfit, Piece, Position, SnapshotProgress, SourceHealth, Table
from headwater.errors import ArgumentInvalid, did_you_mean

#: How long a statement waits for another writer.
BUSY_SECONDS_MAX = 30.0
#: The rows of a table that are read at once.
ROWS_MAX = 16_384
#: How often a waiting capture looks whether the database file has changed.
POLL_SECONDS = 0.02
#: Milliseconds since 1970, in SQL that every version of SQLite knows.
_NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_PREFIX = "_headwater_"
_SCHEME = "sqlite:///"
# Any: a value of SQLite's.
Row = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class _Shape:
    """A table as it was when its triggers were made: its number in the changelog stands for it."""

    number: int
    table: Table


class SqliteConnector:
    """Databases in files: sqlite:///path/to/file.db."""

    @classmethod
    def address(cls, url: str) -> str:
        """The address with a whole path, so that processes in other folders find the file."""
        path = url.removeprefix(_SCHEME)
        if path == url or not path:
            raise ArgumentInvalid(name="url", value=url, expected="sqlite:///path/to/file.db")
        return _SCHEME + str(Path(path).absolute())

    @classmethod
    def open(cls, config: CaptureConfig) -> SqliteSource:
        if config.transactions:
            raise ArgumentInvalid(
                name="transactions",
                value=True,
                expected="False for SQLite, whose triggers do not know the transaction that they run in",
            )
        return SqliteSource(config.url.removeprefix(_SCHEME), capture=config.name, tables=config.tables)


class SqliteSource:
    """The tables of a SQLite database that one capture reads."""

    def __init__(self, path: str | Path, *, capture: str, tables: Sequence[str]) -> None:
        self._path = Path(path)
        self._capture = capture
        self._wanted = tuple(tables)
        if not self._path.is_file():
            raise SourceInvalid(
                source=str(self._path),
                why="there is no such file",
                instead="Correct the path; a new database must exist before it is captured",
            )
        self._log = _quoted(f"{_PREFIX}{capture}")
        self._shapes_table = _quoted(f"{_PREFIX}{capture}_tables")
        self._connection = sqlite3.connect(
            self._path, timeout=BUSY_SECONDS_MAX, isolation_level=None, check_same_thread=False
        )
        self._shapes: dict[int, _Shape] = {}
        self._present: set[str] = set()
        self._schema_version = -1
        self._changed_ns = 0

    # -- set-up -------------------------------------------------------------------------------------------------------

    def tables(self) -> list[Table]:
        with self._explained(), self._reading():
            return [self._table(name) for name in self._names()]

    def prepare(self) -> list[Table]:
        """Create changelog and triggers, or renew those of tables whose columns have changed."""
        with self._explained():
            return self._prepared()

    def _prepared(self) -> list[Table]:
        with self._reading():
            tables = [self._table(name) for name in self._names()]
            is_ready = self._has(self._log) and not self._unready(tables)
        if not is_ready:  # only then a writer has to be waited for
            with self._writing():
                self._make_changelog()
                self._add_columns(max((len(table.columns) for table in tables), default=0))
                for table in self._unready(tables):
                    self._make_triggers(table)
        self._shapes = self._read_shapes()
        self._present = {table.name for table in tables}
        self._schema_version = self._current_schema_version()
        return tables

    def _make_changelog(self) -> None:
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {self._log} (id INTEGER PRIMARY KEY, tbl INTEGER NOT NULL, at INTEGER NOT NULL, op TEXT NOT NULL, place INTEGER)"
        )
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {self._shapes_table} (number INTEGER PRIMARY KEY, name TEXT NOT NULL, shape TEXT NOT NULL)"
        )

    def _unready(self, tables: Sequence[Table]) -> list[Table]:
        """The tables whose triggers are missing, or were made for other columns."""
        newest = {shape.table.name: shape.table for shape in self._newest(self._read_shapes())}
        return [table for table in tables if newest.get(table.name) != table or not self._has_triggers(table)]

    def _has(self, table: str) -> bool:
        return bool(list(self._execute(f"PRAGMA table_info({table})")))

    def _names(self) -> list[str]:
        """The tables that the capture names, by name or pattern."""
        every = [
            name
            for (name,) in self._execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
            if not name.startswith(("sqlite_", _PREFIX))
        ]
        names = []
        for wanted in self._wanted:
            found = [name for name in every if fnmatch(name, wanted)]
            if not found:
                raise SourceInvalid(
                    source=f"Table {wanted!r} of {self._path}",
                    why="there is no such table." + did_you_mean(wanted, every).rstrip("."),
                    instead=f"Name one of {', '.join(every) or 'its tables, of which there are none yet'}",
                )
            names += found
        return list(dict.fromkeys(names))

    def _table(self, name: str) -> Table:
        columns = list(self._execute(f"PRAGMA table_xinfo({_quoted(name)})"))
        fields, key = [], []
        for _, column, declared, _, _, place, hidden in columns:
            if hidden == 1:  # of a virtual table
                continue
            fields.append(pa.field(column, arrow_type(declared)))
            if place:
                key.append((place, column))
        return Table(name=name, columns=pa.schema(fields), key=tuple(column for _, column in sorted(key)))

    def _add_columns(self, count: int) -> None:
        have = len(list(self._execute(f"PRAGMA table_info({self._log})"))) - 5
        for number in range(have, count):
            self._execute(f"ALTER TABLE {self._log} ADD COLUMN v{number}")

    def _read_shapes(self) -> dict[int, _Shape]:
        shapes = {}
        for number, name, text in self._execute(f"SELECT number, name, shape FROM {self._shapes_table}"):
            shape = orjson.loads(text)
            fields = [pa.field(column, _TYPES[kind]) for column, kind in shape["columns"]]
            table = Table(name=name, columns=pa.schema(fields), key=tuple(shape["key"]))
            shapes[number] = _Shape(number=number, table=table)
        return shapes

    def _has_triggers(self, table: Table) -> bool:
        count = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? AND name GLOB ?"
        pattern = f"{_PREFIX}{self._capture}_*_[cudk]"
        return bool(self._execute(count, (table.name, pattern)).fetchone()[0] == len(_EVENTS))

    def _make_triggers(self, table: Table) -> None:
        shape = {"columns": [(one.name, _NAMES[one.type]) for one in table.columns], "key": table.key}
        number = self._execute(
            f"INSERT INTO {self._shapes_table} (name, shape) VALUES (?, ?) RETURNING number",
            (table.name, orjson.dumps(shape).decode()),
        ).fetchone()[0]
        values = ", ".join(f"v{place}" for place in range(len(table.columns)))

        def record(op: str, row: str) -> str:
            columns = ", ".join(f"{row}.{_quoted(one.name)}" for one in table.columns)
            place = "NULL" if table.key else f"{row}.rowid"
            return f"INSERT INTO {self._log} (tbl, at, op, place, {values}) VALUES ({number}, {_NOW_MS}, '{op}', {place}, {columns});"

        identity = [_quoted(name) for name in table.key] or ["rowid"]
        moved = " OR ".join(f"old.{name} IS NOT new.{name}" for name in identity)
        bodies = {
            "c": record("c", "new"),
            "u": record("u", "new"),
            "k": record("d", "old") + " " + record("c", "new"),  # an update of the key is a deletion and an insertion
            "d": record("d", "old"),
        }
        conditions = {"u": f"WHEN NOT ({moved})", "k": f"WHEN {moved}"}
        old = self._execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? AND name GLOB ?",
            (table.name, f"{_PREFIX}{self._capture}_*_[cudk]"),
        )
        for (name,) in old.fetchall():  # a table that was renamed still has those of its old name
            self._execute(f"DROP TRIGGER {_quoted(name)}")
        for letter, event in _EVENTS.items():
            trigger = _quoted(f"{_PREFIX}{self._capture}_{table.name}_{letter}")
            self._execute(f"DROP TRIGGER IF EXISTS {trigger}")
            self._execute(
                f"CREATE TRIGGER {trigger} AFTER {event} ON {_quoted(table.name)} {conditions.get(letter, '')} BEGIN {bodies[letter]} END"
            )

    def drop(self) -> None:
        """Remove triggers and changelog."""
        with self._writing():
            pattern = f"{_PREFIX}{self._capture}_*_[cudk]"
            triggers = self._execute(
                "SELECT name FROM sqlite_master WHERE type = 'trigger' AND name GLOB ?", (pattern,)
            )
            for (name,) in triggers.fetchall():
                self._execute(f"DROP TRIGGER {_quoted(name)}")
            self._execute(f"DROP TABLE IF EXISTS {self._log}")
            self._execute(f"DROP TABLE IF EXISTS {self._shapes_table}")

    # -- reading ------------------------------------------------------------------------------------------------------

    def first_position(self) -> Position:
        return {"id": 0}

    def read(self, position: Position, snapshot: Mapping[str, SnapshotProgress], *, rows_max: int) -> Piece:
        with self._explained():
            if self._current_schema_version() != self._schema_version:
                self._prepared()
            return self._piece(position, snapshot, rows_max=rows_max)

    def _piece(self, position: Position, snapshot: Mapping[str, SnapshotProgress], *, rows_max: int) -> Piece:
        with self._reading():
            end = self._execute(f"SELECT coalesce(max(id), 0) FROM {self._log}").fetchone()[0]
            if end < position["id"]:
                why = f"its changelog ends at {end}, and the capture has read up to {position['id']}"
                raise SourceReplaced(source=str(self._path), capture=self._capture, why=why)
            width = max((len(one.table.columns) for one in self._shapes.values()), default=0)
            values = "".join(f", v{place}" for place in range(width))
            rows = self._execute(
                f"SELECT id, tbl, at, op, place{values} FROM {self._log} WHERE id > ? ORDER BY id LIMIT ?",
                (position["id"], rows_max),
            ).fetchall()
            changes, misfits = self._changes(rows, snapshot)
            reached = rows[-1][0] if rows else position["id"]
            progress: dict[str, SnapshotProgress] = {}
            if reached == end:  # rows of a snapshot are appended behind all changes that they contain
                shape = next((one for one in self._present_shapes() if not _is_complete(snapshot, one)), None)
                if shape is not None:
                    name = shape.table.name
                    some, progress[name], more_misfits = self._chunk(
                        shape, snapshot.get(name), rows_max=rows_max - len(rows), order=reached
                    )
                    changes += [some] if some is not None else []
                    misfits += more_misfits
        whole = {**snapshot, **progress}
        waiting = any(not _is_complete(whole, one) for one in self._present_shapes())
        return Piece(
            position={"id": reached}, changes=changes, misfits=misfits, snapshot=progress, more=waiting or reached < end
        )

    def _present_shapes(self) -> list[_Shape]:
        """The newest shapes of the tables that the database still has: of a dropped one, only changes are left to read."""
        return [one for one in self._newest(self._shapes) if one.table.name in self._present]

    def _newest(self, shapes: Mapping[int, _Shape]) -> list[_Shape]:
        """The newest shape of each table."""
        newest = {shapes[number].table.name: shapes[number] for number in sorted(shapes)}
        return list(newest.values())

    def _changes(
        self, rows: Sequence[Row], snapshot: Mapping[str, SnapshotProgress]
    ) -> tuple[list[Changes], list[Misfit]]:
        by_shape: dict[int, list[Row]] = {}
        for row in rows:
            by_shape.setdefault(row[1], []).append(row)
        for number, some in by_shape.items():
            if not self._shapes[number].table.key:
                by_shape[number] = _not_in_snapshot(some, snapshot.get(self._shapes[number].table.name))
        changes, misfits = [], list[Misfit]()
        for number, some in by_shape.items():
            one, bad = _made(self._shapes[number].table, [(row[3], row[2], row[0], row[5:]) for row in some])
            changes += [one] if one is not None else []
            misfits += bad
        return changes, misfits

    def _chunk(
        self, shape: _Shape, progress: SnapshotProgress | None, *, rows_max: int, order: int
    ) -> tuple[Changes | None, SnapshotProgress, list[Misfit]]:
        """Read the next rows of a table's snapshot, in the order of its row id or its key."""
        table = shape.table
        before = progress
        if before is None or (table.key and before.version != shape.number):
            before = SnapshotProgress(version=shape.number, rows_expected=self._count(table))
        if rows_max < 1:
            return None, before, []
        ordered = self._order_of(table)
        after = f"WHERE ({ordered}) > ({', '.join('?' * len(before.cursor))})" if before.cursor is not None else ""
        columns = ", ".join(_quoted(one.name) for one in table.columns)
        rows = self._execute(
            f"SELECT {ordered}, {columns} FROM {_quoted(table.name)} {after} ORDER BY {ordered} LIMIT ?",
            (*(_from_json(before.cursor) if before.cursor is not None else ()), rows_max),
        ).fetchall()
        places = ordered.count(",") + 1
        now_ms = round(time.time() * 1000)
        some, misfits = _made(table, [("r", now_ms, order, row[places:]) for row in rows])
        after_rows = replace(
            before,
            rows=before.rows + len(rows),
            cursor=_as_json(rows[-1][:places]) if rows else before.cursor,
            complete=len(rows) < rows_max,
        )
        return some, after_rows, misfits

    def _order_of(self, table: Table) -> str:
        """A unique order of a table's rows: the row id, or the key of a table without one."""
        try:
            self._execute(f"SELECT rowid FROM {_quoted(table.name)} LIMIT 0")
            return "rowid"
        except sqlite3.OperationalError:
            return ", ".join(map(_quoted, table.key))

    def _count(self, table: Table) -> int:
        return int(self._execute(f"SELECT count(*) FROM {_quoted(table.name)}").fetchone()[0])

    # -- the rest of the port -----------------------------------------------------------------------------------------

    def rows(self, table: Table) -> Iterator[pa.RecordBatch]:
        columns = ", ".join(_quoted(one.name) for one in table.columns)
        with self._explained(), self._reading():
            found = self._execute(f"SELECT {columns} FROM {_quoted(table.name)}")
            while some := found.fetchmany(ROWS_MAX):
                changes, _ = _made(table, [("r", 0, 0, row) for row in some])
                if changes is not None:
                    yield changes.rows

    def acknowledge(self, position: Position) -> None:
        """Delete changes that are durable in the log, all but the newest of the changelog.

        If another connection is writing, the next call deletes them.
        """
        self._execute("PRAGMA busy_timeout = 0")
        try:
            with contextlib.suppress(sqlite3.OperationalError), self._writing():
                self._execute(
                    f"DELETE FROM {self._log} WHERE id <= ? AND id < (SELECT max(id) FROM {self._log})",
                    (position["id"],),
                )
        finally:
            self._execute(f"PRAGMA busy_timeout = {round(BUSY_SECONDS_MAX * 1000)}")

    def wait(self, seconds: float) -> None:
        """Wait until the database file or its write-ahead log is written, or the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if (changed_ns := self._last_write_ns()) != self._changed_ns:
                self._changed_ns = changed_ns
                return
            time.sleep(POLL_SECONDS)

    def health(self, position: Position) -> SourceHealth:
        with self._explained():
            pending, oldest = self._execute(
                f"SELECT count(*), min(at) FROM {self._log} WHERE id > ?", (position["id"],)
            ).fetchone()
        delay = max(0.0, time.time() - oldest / 1000) if oldest is not None else 0.0
        return SourceHealth(pending=pending, delay_seconds=delay)

    def close(self) -> None:
        self._connection.close()

    def _last_write_ns(self) -> int:
        latest = 0
        for path in (self._path, self._path.with_name(self._path.name + "-wal")):
            with contextlib.suppress(FileNotFoundError):
                latest = max(latest, os.stat(path).st_mtime_ns)
        return latest

    def _current_schema_version(self) -> int:
        return int(self._execute("PRAGMA schema_version").fetchone()[0])

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            raise SourceInvalid(
                source=str(self._path),
                why=f"SQLite says: {error}",
                instead="Check that it is a SQLite database that this user may write, that no program holds it locked, and that it has the tables of the capture",
            ) from error

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        self._execute("BEGIN")
        try:
            yield
        finally:
            self._execute("ROLLBACK")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._execute("ROLLBACK")
            raise
        self._execute("COMMIT")


_EVENTS = {"c": "INSERT", "u": "UPDATE", "k": "UPDATE", "d": "DELETE"}


# -- values -----------------------------------------------------------------------------------------------------------

_TYPES = {
    "int64": pa.int64(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "bool": pa.bool_(),
}
_NAMES = {kind: name for name, kind in _TYPES.items()}


def arrow_type(declared: str) -> pa.DataType:
    """The Arrow type of a column that is declared so, by SQLite's rules of affinity.

    Dates and times are text, as SQLite stores them; a column without a type is text, too.

    >>> [str(arrow_type(declared)) for declared in ("BIGINT", "varchar(20)", "BOOLEAN", "NUMERIC(10, 2)", "BLOB", "DATETIME")]
    ['int64', 'string', 'bool', 'double', 'binary', 'string']
    """
    name = declared.upper()
    if "BOOL" in name:
        return pa.bool_()
    if "INT" in name:
        return pa.int64()
    if "BLOB" in name:
        return pa.binary()
    if any(part in name for part in ("REAL", "FLOA", "DOUB", "NUMERIC", "DECIMAL")):
        return pa.float64()
    return pa.string()


def _made(table: Table, rows: Sequence[tuple[str, int, int, Row]]) -> tuple[Changes | None, list[Misfit]]:
    """Build the changes of one table from (operation, milliseconds, order, values); rows that do not fit are left out."""
    fitting, misfits = [], list[Misfit]()
    width = len(table.columns)
    columns = _columns(table, [row[3][:width] for row in rows])
    if columns is None:  # SQLite lets any value into any column: find the rows that do not fit
        for row in rows:
            why = _misfit(table, row[3])
            if why is None:
                fitting.append(row)
            else:
                values = dict(zip(table.columns.names, map(_shown, row[3]), strict=False))
                misfits.append(Misfit(table=table.name, row=orjson.dumps(values).decode(), why=why))
        rows = fitting
        columns = _columns(table, [row[3][:width] for row in rows])
    if not rows or columns is None:
        return None, misfits
    return (
        Changes(
            table=table,
            operations=pa.array([row[0] for row in rows], pa.string()),
            rows=pa.RecordBatch.from_arrays(columns, schema=table.columns),
            at_us=pa.array([row[1] * 1000 for row in rows], pa.int64()),
            order=pa.array([row[2] for row in rows], pa.int64()),
        ),
        misfits,
    )


def _columns(table: Table, rows: Sequence[Row]) -> list[pa.Array] | None:
    """The values of rows as Arrow columns; None if one does not fit."""
    values = list(zip(*rows, strict=True)) if rows else [()] * len(table.columns)
    try:
        return [_array(column, field.type) for column, field in zip(values, table.columns, strict=True)]
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError):
        return None


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    convert = _CONVERTERS.get(kind)
    return pa.array(map(convert, values) if convert is not None else values, kind, size=len(values))


def _misfit(table: Table, row: Row) -> str | None:
    for value, field in zip(row, table.columns, strict=False):
        try:
            _array([value], field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError):
            return f"column {field.name!r} is {_NAMES[field.type]}, and its value is {_shown(value)!r}"
    return None


def _bool(value: object) -> bool | None:
    if value not in (None, 0, 1):
        raise ValueError(value)
    return None if value is None else bool(value)


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


_CONVERTERS: dict[pa.DataType, Callable[[Any], Any]] = {pa.bool_(): _bool, pa.string(): _text}


def _shown(value: object) -> object:
    return value.hex() if isinstance(value, bytes) else value


def _as_json(values: Row) -> list[Any]:
    return [{"hex": value.hex()} if isinstance(value, bytes) else value for value in values]


def _from_json(values: Sequence[Any]) -> Row:
    return tuple(bytes.fromhex(value["hex"]) if isinstance(value, dict) else value for value in values)


def _is_complete(snapshot: Mapping[str, SnapshotProgress], shape: _Shape) -> bool:
    progress = snapshot.get(shape.table.name)
    # A table without a key is read once: a second snapshot would repeat its rows.
    is_current = progress is not None and (progress.version == shape.number or not shape.table.key)
    return progress is not None and progress.complete and is_current


def _not_in_snapshot(rows: Sequence[Row], progress: SnapshotProgress | None) -> list[Row]:
    """Leave out changes of rows that the snapshot of a table without a key has still to read: it will read them as they are then."""
    if progress is not None and progress.complete:
        return list(rows)
    cursor = progress.cursor[0] if progress is not None and progress.cursor is not None else None
    return [row for row in rows if cursor is not None and row[4] <= cursor]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
