"""Views in one DuckDB file: a table for each version, and an SQL view of the view's name on the active one.

Invariants:

- rows and position change in one transaction, so a process that is killed goes on exactly where it was;
- one connection writes, under a lock; each thread that reads has a cursor of its own, and sees a consistent state;
- statements of readers run in transactions that only read, and cannot reach files.

Rows are replaced by deleting and inserting. It is several times faster here than an upsert: the deletion is one hash
join, and the insertion one append. The index on the key is not unique, for only the keeper writes, and each key once.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from headwater.errors import Closed, Locked, NotFound
from headwater.log.errors import FormatUnknown
from headwater.optional import require
from headwater.schema import schema_from_json, schema_to_json
from headwater.views.conditions import check_condition
from headwater.views.duckdb_types import column_types, ingestible, quoted, restored, selected
from headwater.views.errors import ViewConflict, ViewInvalid, ViewRowInvalid
from headwater.views.spec import ViewPosition, ViewSpec
from headwater.views.statement import UNBOUNDED, Bounds, Ending, Stoppable, check_single, run_duckdb
from headwater.views.store import Delta, Parameters, Snapshot, StoredView, alteration, come_to

if TYPE_CHECKING:
    import duckdb

FORMAT = 1
_BATCH_ROWS = 65_536
_CATALOG = """
CREATE SCHEMA IF NOT EXISTS headwater;
CREATE TABLE IF NOT EXISTS headwater.format (number INTEGER);
CREATE TABLE IF NOT EXISTS headwater.views (
    name VARCHAR, version INTEGER, topic VARCHAR, key_columns VARCHAR[], columns VARCHAR,
    producers VARCHAR[], active BOOLEAN
);
CREATE TABLE IF NOT EXISTS headwater.positions (name VARCHAR, version INTEGER, position VARCHAR);
"""


class DuckStore:
    """The views of one app in one file. One process may write it; `read_only` opens it while no process writes."""

    holds_readers: ClassVar[bool] = True

    def __init__(
        self, path: Path | str, *, read_only: bool = False, memory_limit: str | None = None, threads: int | None = None
    ) -> None:
        self.path = Path(path)
        self.read_only = read_only
        self._duckdb = require("duckdb", extra="views")
        self._lock = threading.RLock()
        self._local = threading.local()
        settings: dict[str, Any] = {"preserve_insertion_order": False}
        if memory_limit is not None:
            settings["memory_limit"] = memory_limit
        if threads is not None:
            settings["threads"] = threads
        self._open: duckdb.DuckDBPyConnection | None = self._connect(settings)
        self._connection.execute("SET GLOBAL TimeZone = 'UTC'")
        if not read_only:
            self._make_catalog()
        # Readers' statements must not reach the disk; the file itself, its log and its spill folder stay open to it.
        self._connection.execute("SET enable_external_access = false")

    def _connect(self, settings: dict[str, Any]) -> duckdb.DuckDBPyConnection:
        if not self.read_only:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            connection: duckdb.DuckDBPyConnection = self._duckdb.connect(
                str(self.path), read_only=self.read_only, config=settings
            )
            return connection
        except self._duckdb.IOException as error:
            if "lock" in str(error).lower():
                raise Locked(what=f"The view store {self.path}", waited=0.0) from error
            raise

    def _make_catalog(self) -> None:
        self._connection.execute(_CATALOG)
        found = self._connection.execute("SELECT number FROM headwater.format").fetchall()
        if not found:
            self._connection.execute("INSERT INTO headwater.format VALUES (?)", [FORMAT])
        elif found[0][0] != FORMAT:
            raise FormatUnknown(path=str(self.path), found=str(found[0][0]), known=str(FORMAT))

    @property
    def _connection(self) -> duckdb.DuckDBPyConnection:
        if self._open is None:
            raise Closed(what="view store")
        return self._open

    def close(self) -> None:
        """Close the file and drop the connection and all cursors; a thread that reads keeps its own to the end.

        Where the store itself lives on in a cache, DuckDB's binding would report what is left when the process ends.
        """
        with self._lock:
            if self._open is not None:
                self._open.close()
            self._local, self._open = threading.local(), None

    # -- writing ------------------------------------------------------------------------------------------------------

    def declare(self, spec: ViewSpec) -> StoredView:
        """Make room for a version of a view, or change its columns in place; the first version is the active one."""
        types = column_types(spec)
        self._free_columns(spec)
        with self._writing() as connection:
            known = {(one.spec.name, one.spec.version): one for one in self._stored(connection)}
            self._check_name(spec, {name for name, _ in known})
            found = known.get((spec.name, spec.version))
            if found is None:
                columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in types.items())
                connection.execute(f"CREATE TABLE {quoted(spec.table)} ({columns})")
                first = not any(name == spec.name for name, _ in known)
                self._remember(connection, spec, active=first, position=ViewPosition(version=spec.version))
                if first:
                    self._show(connection, spec)
            elif found.spec != spec:
                self._alter(connection, found, spec, types)
        with self._writing() as connection:  # also where a process was killed between the two
            self._index(connection, spec)
        return self._find(spec.name, spec.version)

    def _free_columns(self, spec: ViewSpec) -> None:
        """Drop the index of a table whose columns will change: DuckDB lets go of them only after a commit."""
        found = [one for one in self.stored() if (one.spec.name, one.spec.version) == (spec.name, spec.version)]
        if found and found[0].spec.schema != spec.schema:
            alteration(found[0].spec, spec)
            with self._writing() as connection:
                connection.execute(f"DROP INDEX IF EXISTS {quoted(spec.table + ' key')}")

    @staticmethod
    def _check_name(spec: ViewSpec, names: set[str]) -> None:
        for other in names:
            if other != spec.name and other.lower() == spec.name.lower():
                raise ViewInvalid(view=spec.name, why=f"SQL cannot tell its name from that of view {other!r}")

    def _index(self, connection: duckdb.DuckDBPyConnection, spec: ViewSpec) -> None:
        # DuckDB indexes no intervals; a view keyed by them is scanned.
        if not any(pa.types.is_duration(column.type) for column in spec.key_schema):
            columns = ", ".join(map(quoted, spec.key))
            connection.execute(
                f"CREATE INDEX IF NOT EXISTS {quoted(spec.table + ' key')} ON {quoted(spec.table)} ({columns})"
            )

    def _show(self, connection: duckdb.DuckDBPyConnection, spec: ViewSpec) -> None:
        connection.execute(
            f"CREATE OR REPLACE VIEW {quoted(spec.name)} AS SELECT {', '.join(map(quoted, spec.schema.names))} "
            f"FROM {quoted(spec.table)}"
        )

    def _remember(
        self, connection: duckdb.DuckDBPyConnection, spec: ViewSpec, *, active: bool, position: ViewPosition
    ) -> None:
        import orjson

        where = [spec.name, spec.version]
        connection.execute("DELETE FROM headwater.views WHERE name = ? AND version = ?", where)
        columns = orjson.dumps(schema_to_json(spec.schema)).decode()
        row = [*where, spec.topic, list(spec.key), columns, list(spec.producers), active]
        connection.execute("INSERT INTO headwater.views VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self._remember_position(connection, spec, position)

    @staticmethod
    def _remember_position(connection: duckdb.DuckDBPyConnection, spec: ViewSpec, position: ViewPosition) -> None:
        where = [spec.name, spec.version]
        connection.execute("DELETE FROM headwater.positions WHERE name = ? AND version = ?", where)
        connection.execute("INSERT INTO headwater.positions VALUES (?, ?, ?)", [*where, position.to_json()])

    def _alter(
        self, connection: duckdb.DuckDBPyConnection, found: StoredView, spec: ViewSpec, types: dict[str, str]
    ) -> None:
        change = alteration(found.spec, spec)
        if change.added or change.retyped:
            table = quoted(spec.table)
            try:
                for column in change.added:
                    connection.execute(f"ALTER TABLE {table} ADD COLUMN {quoted(column.name)} {types[column.name]}")
                for column in change.retyped:
                    name = quoted(column.name)
                    connection.execute(f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {types[column.name]}")
            except self._duckdb.Error as error:
                why = f"its columns cannot be changed in place ({str(error).splitlines()[0]})"
                raise ViewConflict(view=spec.name, version=spec.version, why=why) from error
        self._remember(connection, spec, active=found.active, position=found.position)
        if found.active:
            self._show(connection, spec)

    def apply(
        self,
        spec: ViewSpec,
        delta: Delta,
        position: ViewPosition,
        *,
        replace: bool = False,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        """Change rows and position in one transaction; with `replace`, the rows that were there go first."""
        table = quoted(spec.table)
        with self._writing() as connection:
            try:
                if replace:
                    connection.execute(f"DELETE FROM {table}")
                elif delta:
                    self._delete(connection, spec, delta.keys)
                come_to("deleted")
                if delta.rows.num_rows:
                    self._insert(connection, spec, delta.rows)
            except (self._duckdb.DataError, pa.ArrowInvalid) as error:
                why = f"holds a value that DuckDB cannot ({str(error).splitlines()[0]})"
                raise ViewRowInvalid(view=spec.name, topic=spec.topic, column="?", why=why) from error
            where = [position.to_json(), spec.name, spec.version]
            connection.execute("UPDATE headwater.positions SET position = ? WHERE name = ? AND version = ?", where)
            before_commit()
            come_to("before_commit")
        come_to("committed")

    @staticmethod
    def _delete(connection: duckdb.DuckDBPyConnection, spec: ViewSpec, keys: pa.Table) -> None:
        same = " AND ".join(f"t.{quoted(name)} = k.{quoted(name)}" for name in spec.key)
        # Not taken away after an error: the next registration of the name does that, outside of the failed transaction.
        connection.register("headwater_keys", ingestible(keys))
        connection.execute(f"DELETE FROM {quoted(spec.table)} AS t USING headwater_keys AS k WHERE {same}")
        connection.unregister("headwater_keys")

    @staticmethod
    def _insert(connection: duckdb.DuckDBPyConnection, spec: ViewSpec, rows: pa.Table) -> None:
        columns = ", ".join(map(quoted, spec.schema.names))
        connection.register("headwater_rows", ingestible(rows))
        connection.execute(f"INSERT INTO {quoted(spec.table)} ({columns}) SELECT {columns} FROM headwater_rows")
        connection.unregister("headwater_rows")

    def activate(self, name: str, version: int) -> None:
        """From now on, readers of `name` see this version; one transaction, so no reader sees neither or both."""
        with self._writing() as connection:
            spec = self._find(name, version, connection).spec
            connection.execute("UPDATE headwater.views SET active = (version = ?) WHERE name = ?", [version, name])
            self._show(connection, spec)
            come_to("before_switch")

    def drop(self, name: str, version: int | None = None) -> None:
        """Forget a version, or the whole view."""
        with self._writing() as connection:
            found = [one for one in self._stored(connection) if one.spec.name == name]
            gone = [one for one in found if version in (None, one.spec.version)]
            if not gone:
                raise NotFound(kind="view", name=name)
            if any(one.active for one in gone):
                connection.execute(f"DROP VIEW IF EXISTS {quoted(name)}")
            for one in gone:
                where = [name, one.spec.version]
                connection.execute(f"DROP TABLE IF EXISTS {quoted(one.spec.table)}")
                connection.execute("DELETE FROM headwater.views WHERE name = ? AND version = ?", where)
                connection.execute("DELETE FROM headwater.positions WHERE name = ? AND version = ?", where)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with self._lock:
            self._connection.execute("BEGIN")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                with contextlib.suppress(self._duckdb.Error):  # a failed commit has ended the transaction already
                    self._connection.execute("ROLLBACK")
                raise

    # -- reading ------------------------------------------------------------------------------------------------------

    def stored(self) -> list[StoredView]:
        """All versions of all views."""
        with self._reading() as connection:
            return self._stored(connection)

    def get(self, spec: ViewSpec, key: pa.RecordBatch) -> pa.Table:
        """The row with this key, or none."""
        cursor = self._cursor()
        where = " AND ".join(f"{quoted(name)} = ${place}" for place, name in enumerate(spec.key, start=1))
        statement = f"SELECT {selected(list(spec.schema))} FROM {quoted(spec.table)} WHERE {where}"
        values = [ingestible(pa.Table.from_batches([key])).column(name)[0].as_py() for name in spec.key]
        return restored(cursor.sql(statement, params=values).to_arrow_table(), spec.schema)

    def scan(
        self,
        spec: ViewSpec,
        *,
        where: str | None,
        parameters: Parameters,
        limit: int | None,
        bounds: Bounds = UNBOUNDED,
    ) -> pa.Table:
        """Rows of one version."""
        statement = f"SELECT {selected(list(spec.schema))} FROM {quoted(spec.table)} AS {quoted(spec.name)}"
        if where:
            statement += f" WHERE {check_condition(spec.name, where, parsed_by=self._cursor)}"
        statement += f" LIMIT {limit}" if limit is not None else ""
        return restored(self.query(statement, parameters, bounds=bounds), spec.schema)

    def query(
        self,
        statement: str,
        parameters: Parameters = None,
        *,
        bounds: Bounds = UNBOUNDED,
        stoppable: Stoppable | None = None,
    ) -> pa.Table:
        """The result of one statement that only reads; every view has its name."""
        with (
            self._reading() as connection,
            Ending(connection.interrupt, statement, seconds_max=bounds.seconds_max) as ending,
        ):
            if stoppable is not None:
                stoppable(ending.stoppable())
            check_single(connection, statement)

            def relation() -> duckdb.DuckDBPyRelation:
                return connection.sql(statement) if parameters is None else connection.sql(statement, params=parameters)

            return run_duckdb(relation, statement, bounds, ending)

    @contextlib.contextmanager
    def snapshot(self, name: str) -> Iterator[Snapshot]:
        """The active version's rows and position at one moment."""
        cursor = self._connection.cursor()  # of its own: a slow reader keeps its transaction for long
        try:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            found = self._active(name, cursor)
            statement = f"SELECT {selected(list(found.spec.schema))} FROM {quoted(found.spec.table)}"
            reader = cursor.sql(statement).to_arrow_reader(_BATCH_ROWS)
            schema = found.spec.schema
            batches = (
                batch for part in reader for batch in restored(pa.Table.from_batches([part]), schema).to_batches()
            )
            yield Snapshot(spec=found.spec, position=found.position, batches=batches)
        finally:
            cursor.close()

    def bytes(self) -> int | None:
        """How large the file is, with what is not yet merged into it."""
        paths = [self.path, self.path.with_name(self.path.name + ".wal")]
        return sum(path.stat().st_size for path in paths if path.exists())

    def _stored(self, connection: duckdb.DuckDBPyConnection) -> list[StoredView]:
        import orjson

        rows = connection.execute(
            "SELECT v.name, v.version, v.topic, v.key_columns, v.columns, v.producers, v.active, p.position "
            "FROM headwater.views v JOIN headwater.positions p USING (name, version) ORDER BY v.name, v.version"
        ).fetchall()
        return [
            StoredView(
                spec=ViewSpec(
                    name=name,
                    version=version,
                    topic=topic,
                    key=tuple(key),
                    schema=schema_from_json(orjson.loads(columns)),
                    producers=tuple(producers),
                ),
                active=active,
                position=ViewPosition.from_json(position),
            )
            for name, version, topic, key, columns, producers, active, position in rows
        ]

    def _find(self, name: str, version: int, connection: duckdb.DuckDBPyConnection | None = None) -> StoredView:
        found = self.stored() if connection is None else self._stored(connection)
        for one in found:
            if (one.spec.name, one.spec.version) == (name, version):
                return one
        raise NotFound(kind="view", name=f"{name}@{version}")

    def _active(self, name: str, connection: duckdb.DuckDBPyConnection) -> StoredView:
        for one in self._stored(connection):
            if one.spec.name == name and one.active:
                return one
        raise NotFound(kind="view", name=name)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        cursor = self._cursor()
        cursor.execute("BEGIN TRANSACTION READ ONLY")
        try:
            yield cursor
        finally:
            cursor.execute("ROLLBACK")

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        cursor: duckdb.DuckDBPyConnection | None = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._local.cursor = self._connection.cursor()
            cursor.execute("SET python_enable_replacements = false")
        return cursor
