"""Views in PostgreSQL, for readers on many machines: a schema for each app, a table for each version of a view.

The same invariants as in DuckDB: rows and position change in one transaction, one keeper writes, and statements of
readers run in transactions that only read. Rows go in by COPY (`headwater.postgres`, with psycopg), and results come
out as Arrow (ADBC).
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, LiteralString

import orjson
import pyarrow as pa

from headwater.errors import NotFound
from headwater.log.errors import FormatUnknown
from headwater.optional import require
from headwater.schema import schema_from_json, schema_to_json
from headwater.views.conditions import check_condition
from headwater.views.errors import StatementExceeded, StoreUnreachable, ViewConflict, ViewInvalid, ViewRowInvalid
from headwater.views.postgres_types import bound_key, quoted, restored, selected, stored_columns
from headwater.views.spec import ViewPosition, ViewSpec
from headwater.views.statement import UNBOUNDED, Bounds, Ending, Stoppable, check_reading, collected, invalid, shortened
from headwater.views.store import Delta, Parameters, Snapshot, StoredView, alteration, come_to

if TYPE_CHECKING:
    from psycopg import Connection

FORMAT = 1
_NAME_BYTES_MAX = 63
_CATALOG = (
    "CREATE TABLE IF NOT EXISTS headwater_format (number integer)",
    "CREATE TABLE IF NOT EXISTS headwater_views (name text, version integer, topic text, key_columns text, "
    "columns text, producers text, active boolean, position text, PRIMARY KEY (name, version))",
)
_COLUMNS = "name, version, topic, key_columns, columns, producers, active, position"
_SELECT: LiteralString = f"SELECT {_COLUMNS} FROM headwater_views ORDER BY name, version"


class PostgresStore:
    """The views of one app in a schema of a PostgreSQL database: `PostgresStore("postgresql://…", app="fraud")`."""

    holds_readers: ClassVar[bool] = False

    def __init__(self, address: str, *, app: str = "views") -> None:
        self._driver = require("adbc_driver_postgresql.dbapi", extra="postgres")
        self._psycopg = require("psycopg", extra="postgres")
        self._address = address
        self.schema = f"headwater_{app}"
        self._lock = threading.RLock()
        self._local = threading.local()
        self._readers: list[Any] = []
        self._writer: Connection | None = None
        with self._writing() as connection:
            self._make_catalog(connection)

    def _connect_reader(self) -> Any:
        try:
            connection = self._driver.connect(self._address)
            self._readers.append(connection)
            _execute(connection, f"SET search_path = {quoted(self.schema)}")
            _execute(connection, "SET TimeZone = 'UTC'")
            connection.commit()
        except self._driver.Error as error:
            raise StoreUnreachable(store="PostgreSQL", why=_reason(error)) from error
        return connection

    def _make_catalog(self, connection: Connection) -> None:
        _run(connection, f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}")
        for statement in _CATALOG:
            connection.execute(statement)
        found = connection.execute("SELECT number FROM headwater_format").fetchone()
        if found is None:
            connection.execute("INSERT INTO headwater_format VALUES (%s)", [FORMAT])
        elif found[0] != FORMAT:
            raise FormatUnknown(path="the view store", found=str(found[0]), known=str(FORMAT))

    def close(self) -> None:
        with self._lock:
            while self._readers:
                self._readers.pop().close()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    # -- writing ------------------------------------------------------------------------------------------------------

    def declare(self, spec: ViewSpec) -> StoredView:
        """Make room for a version of a view, or change its columns in place; the first version is the active one."""
        columns = stored_columns(spec)
        if len(spec.table.encode()) > _NAME_BYTES_MAX:
            raise ViewInvalid(view=spec.name, why=f"PostgreSQL takes names of at most {_NAME_BYTES_MAX} bytes")
        with self._writing() as connection:
            known = {(one.spec.name, one.spec.version): one for one in self._stored_by_writer(connection)}
            found = known.get((spec.name, spec.version))
            if found is None:
                parts = [f"{quoted(name)} {how.sql}" for name, how in columns.items()]
                parts.append(f"PRIMARY KEY ({', '.join(map(quoted, spec.key))})")
                _run(connection, f"CREATE TABLE {quoted(spec.table)} ({', '.join(parts)})")
                first = not any(name == spec.name for name, _ in known)
                self._remember(connection, spec, active=first, position=ViewPosition(version=spec.version))
                if first:
                    self._show(connection, spec)
            elif found.spec != spec:
                self._alter(connection, found, spec)
        return self._find(self.stored(), spec.name, spec.version)

    def _show(self, connection: Connection, spec: ViewSpec) -> None:
        _run(connection, f"DROP VIEW IF EXISTS {quoted(spec.name)}")
        columns = ", ".join(map(quoted, spec.schema.names))
        _run(connection, f"CREATE VIEW {quoted(spec.name)} AS SELECT {columns} FROM {quoted(spec.table)}")

    def _remember(self, connection: Connection, spec: ViewSpec, *, active: bool, position: ViewPosition) -> None:
        where = [spec.name, spec.version]
        _run(connection, "DELETE FROM headwater_views WHERE name = %s AND version = %s", where)
        columns = orjson.dumps(schema_to_json(spec.schema)).decode()
        row = [*where, spec.topic, _json(spec.key), columns, _json(spec.producers), active, position.to_json()]
        _run(connection, f"INSERT INTO headwater_views ({_COLUMNS}) VALUES ({', '.join(['%s'] * len(row))})", row)

    def _alter(self, connection: Connection, found: StoredView, spec: ViewSpec) -> None:
        change = alteration(found.spec, spec)
        columns, before = stored_columns(spec), stored_columns(found.spec)
        if found.active and (change.added or change.retyped):
            _run(connection, f"DROP VIEW IF EXISTS {quoted(spec.name)}")
        table = quoted(spec.table)
        try:
            for column in change.added:
                _run(connection, f"ALTER TABLE {table} ADD COLUMN {quoted(column.name)} {columns[column.name].sql}")
            for column in change.retyped:
                name, sql = quoted(column.name), columns[column.name].sql
                if sql != before[column.name].sql:
                    _run(connection, f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {sql} USING {name}::{sql}")
        except self._psycopg.Error as error:
            if connection.closed:
                raise
            why = f"its columns cannot be changed in place ({_reason(error)})"
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
        from psycopg.sql import Identifier

        from headwater.postgres.writer import append_rows, delete_rows

        table = Identifier(self.schema, spec.table)
        types = {name: how.sql for name, how in stored_columns(spec).items()}
        with self._writing() as connection:
            try:
                if replace:
                    _run(connection, f"DELETE FROM {quoted(spec.table)}")
                elif delta:
                    delete_rows(connection, table, delta.keys, types)
                come_to("deleted")
                if delta.rows.num_rows:
                    append_rows(connection, table, delta.rows.select(spec.schema.names), types)
            except (self._psycopg.DataError, pa.ArrowInvalid) as error:
                why = f"holds a value that PostgreSQL cannot ({_reason(error)})"
                raise ViewRowInvalid(view=spec.name, topic=spec.topic, column="?", why=why) from error
            where = [position.to_json(), spec.name, spec.version]
            _run(connection, "UPDATE headwater_views SET position = %s WHERE name = %s AND version = %s", where)
            before_commit()
            come_to("before_commit")
        come_to("committed")

    def activate(self, name: str, version: int) -> None:
        """From now on, readers of `name` see this version; one transaction, so no reader sees neither or both."""
        with self._writing() as connection:
            spec = self._find(self._stored_by_writer(connection), name, version).spec
            _run(connection, "UPDATE headwater_views SET active = (version = %s) WHERE name = %s", [version, name])
            self._show(connection, spec)
            come_to("before_switch")

    def drop(self, name: str, version: int | None = None) -> None:
        """Forget a version, or the whole view."""
        with self._writing() as connection:
            found = [one for one in self._stored_by_writer(connection) if one.spec.name == name]
            gone = [one for one in found if version in (None, one.spec.version)]
            if not gone:
                raise NotFound(kind="view", name=name)
            if any(one.active for one in gone):
                _run(connection, f"DROP VIEW IF EXISTS {quoted(name)}")
            for one in gone:
                _run(connection, f"DROP TABLE IF EXISTS {quoted(one.spec.table)}")
                where = [name, one.spec.version]
                _run(connection, "DELETE FROM headwater_views WHERE name = %s AND version = %s", where)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Connection]:
        """A transaction on the one connection that writes."""
        from headwater.postgres.writer import connect

        with self._lock:
            try:
                if self._writer is None:
                    self._writer = connect(self._address)
                    _run(self._writer, f"SET search_path = {quoted(self.schema)}")
                with self._writer.transaction():
                    yield self._writer
            except self._psycopg.Error as error:
                if self._writer is None or self._writer.closed:
                    self._writer = None
                    raise StoreUnreachable(store="PostgreSQL", why=_reason(error)) from error
                raise

    def _stored_by_writer(self, connection: Connection) -> list[StoredView]:
        from psycopg.rows import dict_row

        with connection.cursor(row_factory=dict_row) as cursor:
            return [_stored_view(row) for row in cursor.execute(_SELECT).fetchall()]

    # -- reading ------------------------------------------------------------------------------------------------------

    def stored(self) -> list[StoredView]:
        """All versions of all views."""
        with self._reading() as connection:
            return self._stored(connection)

    def get(self, spec: ViewSpec, key: pa.RecordBatch) -> pa.Table:
        """The row with this key, or none."""
        columns = stored_columns(spec)
        terms = [
            f"{quoted(name)} = {columns[name].into.format(f'${place}')}" for place, name in enumerate(spec.key, start=1)
        ]
        statement = f"SELECT {selected(spec)} FROM {quoted(spec.table)} WHERE {' AND '.join(terms)}"
        with self._reading() as connection:
            return restored(_fetch(connection, statement, bound_key(key, spec)), spec)

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
        statement = f"SELECT {selected(spec)} FROM {quoted(spec.table)} AS {quoted(spec.name)}"
        if where:
            statement += f" WHERE {check_condition(spec.name, where, plain=True)}"
        statement += f" LIMIT {limit}" if limit is not None else ""
        return restored(self._query(statement, parameters, bounds), spec)

    def query(
        self,
        statement: str,
        parameters: Parameters = None,
        *,
        bounds: Bounds = UNBOUNDED,
        stoppable: Stoppable | None = None,
    ) -> pa.Table:
        """The result of one statement that only reads; every view has its name."""
        return _plain(self._query(statement, parameters, bounds, stoppable))

    def _query(
        self, statement: str, parameters: Parameters, bounds: Bounds, stoppable: Stoppable | None = None
    ) -> pa.Table:
        check_reading(statement)
        text, values = _positional(statement, parameters)
        with self._reading() as connection, Ending(connection.adbc_cancel, statement) as ending:
            if stoppable is not None:
                stoppable(ending.stoppable())
            try:
                if bounds.seconds_max is not None:
                    _execute(connection, f"SET LOCAL statement_timeout = {max(1, round(bounds.seconds_max * 1_000))}")
                with connection.cursor() as cursor:
                    cursor.execute(text, values)
                    return collected(cursor.fetch_record_batch(), statement, bounds)
            except (self._driver.Error, pa.ArrowException, OSError) as error:  # the latter two among its rows
                ending.check()
                if "statement timeout" in str(error):
                    bound = f"{bounds.seconds_max:g} seconds"
                    raise StatementExceeded(statement=shortened(statement), bound=bound) from error
                raise invalid(statement, RuntimeError(_reason(error))) from error

    @contextlib.contextmanager
    def snapshot(self, name: str) -> Iterator[Snapshot]:
        """The active version's rows and position at one moment."""
        connection = self._connect_reader()  # of its own: a slow reader keeps its transaction for long
        cursor = connection.cursor()
        try:
            _execute(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            found = self._active(name, connection)
            cursor.execute(f"SELECT {selected(found.spec)} FROM {quoted(found.spec.table)}")
            reader = cursor.fetch_record_batch()
            batches = (
                batch for part in reader for batch in restored(pa.Table.from_batches([part]), found.spec).to_batches()
            )
            yield Snapshot(spec=found.spec, position=found.position, batches=batches)
        finally:
            cursor.close()
            with self._lock, contextlib.suppress(ValueError):
                self._readers.remove(connection)
            connection.close()

    def bytes(self) -> int | None:
        """How much room the tables take."""
        with self._reading() as connection:
            statement = (
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint AS size FROM pg_class c "
                "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'"
            )
            return int(_fetch(connection, statement, [self.schema]).column("size")[0].as_py())

    def _stored(self, connection: Any) -> list[StoredView]:
        return [_stored_view(row) for row in _fetch(connection, _SELECT).to_pylist()]

    @staticmethod
    def _find(stored: list[StoredView], name: str, version: int) -> StoredView:
        for one in stored:
            if (one.spec.name, one.spec.version) == (name, version):
                return one
        raise NotFound(kind="view", name=f"{name}@{version}")

    def _active(self, name: str, connection: Any) -> StoredView:
        for one in self._stored(connection):
            if one.spec.name == name and one.active:
                return one
        raise NotFound(kind="view", name=name)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Any]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect_reader()
        try:
            _execute(connection, "SET TRANSACTION READ ONLY")
            yield connection
        except self._driver.Error as error:
            if not self._rolled_back(connection):
                self._local.connection = None
                raise StoreUnreachable(store="PostgreSQL", why=_reason(error)) from error
            raise
        finally:
            if self._local.connection is not None:
                self._rolled_back(connection)

    def _rolled_back(self, connection: Any) -> bool:
        """End a transaction; False where the connection was lost, which is then forgotten."""
        try:
            connection.rollback()
        except self._driver.Error:
            with contextlib.suppress(self._driver.Error, ValueError):
                self._readers.remove(connection)
                connection.close()
            return False
        return True


def _stored_view(row: Mapping[str, Any]) -> StoredView:
    return StoredView(
        spec=ViewSpec(
            name=row["name"],
            version=row["version"],
            topic=row["topic"],
            key=tuple(orjson.loads(row["key_columns"])),
            schema=schema_from_json(orjson.loads(row["columns"])),
            producers=tuple(orjson.loads(row["producers"])),
        ),
        active=row["active"],
        position=ViewPosition.from_json(row["position"]),
    )


def _run(connection: Connection, statement: str, parameters: Sequence[Any] = ()) -> None:
    """Execute a statement on the connection that writes; names in it are quoted by us."""
    connection.execute(statement.encode(), parameters or None)


# Any: the driver has no types, and a parameter is any value.
def _execute(connection: Any, statement: str, parameters: Any = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def _fetch(connection: Any, statement: str, parameters: Any = None) -> pa.Table:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return cursor.fetch_arrow_table()


def _json(values: tuple[str, ...]) -> str:
    return orjson.dumps(list(values)).decode()


def _reason(error: Exception) -> str:
    """What the server said, without what was asked."""
    text = re.sub(r"^\w+: \[libpq\] ", "", str(error)).split("\n\nQuery was:")[0]
    found = re.search(r"ERROR:\s+(.*)", text)
    return " ".join((found[1] if found else text).split()).rstrip(".")


def _positional(statement: str, parameters: Parameters) -> tuple[str, list[Any] | None]:
    """Parameters by name as parameters by number, which is all that the server knows."""
    if not isinstance(parameters, Mapping):
        return statement, list(parameters) if parameters else None
    names = list(parameters)

    def number(found: re.Match[str]) -> str:
        if found[1] not in names:
            raise invalid(shortened(statement), RuntimeError(f"there is no value for ${found[1]}"))
        return f"${names.index(found[1]) + 1}"

    return re.sub(r"\$([A-Za-z_]\w*)", number, statement), list(parameters.values()) or None


def _plain(table: pa.Table) -> pa.Table:
    """A result without the driver's own types: a number of any length is a decimal, JSON is text."""
    arrays = []
    for array in table.columns:
        kind = array.type
        if isinstance(kind, pa.BaseExtensionType):
            array = pa.chunked_array([chunk.storage for chunk in array.chunks], kind.storage_type)
            if getattr(kind, "type_name", "") == "numeric":
                array = pa.chunked_array([_decimals(array.to_pylist())])
        arrays.append(array)
    return pa.table(arrays, names=table.column_names)


def _decimals(texts: list[str | None]) -> pa.Array:
    values = [None if text is None else Decimal(text) for text in texts]
    if any(value is not None and not value.is_finite() for value in values):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array(values) if any(value is not None for value in values) else pa.array(values, pa.decimal128(38, 0))
