"""Views in PostgreSQL, for readers on many machines: a schema for each app, a table for each version of a view.

The same invariants as in DuckDB: rows and position change in one transaction, one keeper writes, and statements of
readers run in transactions that only read. Rows come by Arrow's own driver: they are copied in binary form into a
temporary table, and go from there into the view's.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, ClassVar

import orjson
import pyarrow as pa

from headwater.errors import (
    FormatUnknown,
    StatementExceeded,
    StoreUnreachable,
    ViewConflict,
    ViewInvalid,
    ViewNotFound,
    ViewRowInvalid,
)
from headwater.schema import schema_from_json, schema_to_json
from headwater.views.bounds import UNBOUNDED, Bounds, Ending, Stoppable, collected
from headwater.views.collapse import Delta
from headwater.views.conditions import check_condition
from headwater.views.packages import required
from headwater.views.postgres_types import quoted, restored, selected, staged, stored_columns
from headwater.views.spec import ViewPosition, ViewSpec
from headwater.views.statements import check_reading, invalid, shortened
from headwater.views.store import Parameters, Snapshot, StoredView, alteration, come_to

FORMAT = 1
_NAME_BYTES_MAX = 63
_CATALOG = (
    "CREATE TABLE IF NOT EXISTS headwater_format (number integer)",
    "CREATE TABLE IF NOT EXISTS headwater_views (name text, version integer, topic text, key_columns text, "
    "columns text, producers text, active boolean, position text, PRIMARY KEY (name, version))",
)
_COLUMNS = "name, version, topic, key_columns, columns, producers, active, position"


class PostgresStore:
    """The views of one app in a schema of a PostgreSQL database: `PostgresStore("postgresql://…", app="fraud")`."""

    holds_readers: ClassVar[bool] = False

    def __init__(self, address: str, *, app: str = "views") -> None:
        self._driver = required("adbc_driver_postgresql.dbapi")
        self._address = address
        self.schema = f"headwater_{app}"
        self._lock = threading.RLock()
        self._local = threading.local()
        self._connections: list[Any] = []
        self._connection: Any = self._connect(create=True)

    def _connect(self, *, create: bool = False) -> Any:
        try:
            connection = self._driver.connect(self._address)
        except self._driver.Error as error:
            raise StoreUnreachable(store="PostgreSQL", why=_reason(error)) from error
        self._connections.append(connection)
        try:
            if create:
                _execute(connection, f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}")
            _execute(connection, f"SET search_path = {quoted(self.schema)}")
            _execute(connection, "SET TimeZone = 'UTC'")
            if create:
                self._make_catalog(connection)
            connection.commit()
        except self._driver.Error as error:
            raise StoreUnreachable(store="PostgreSQL", why=_reason(error)) from error
        return connection

    @staticmethod
    def _make_catalog(connection: Any) -> None:
        for statement in _CATALOG:
            _execute(connection, statement)
        found = _fetch(connection, "SELECT number FROM headwater_format").to_pylist()
        if not found:
            _execute(connection, f"INSERT INTO headwater_format VALUES ({FORMAT})")
        elif found[0]["number"] != FORMAT:
            raise FormatUnknown(path="the view store", found=str(found[0]["number"]), known=str(FORMAT))

    def close(self) -> None:
        with self._lock:
            while self._connections:
                self._connections.pop().close()

    # -- writing ------------------------------------------------------------------------------------------------------

    def declare(self, spec: ViewSpec) -> StoredView:
        """Make room for a version of a view, or change its columns in place; the first version is the active one."""
        columns = stored_columns(spec)
        if len(spec.table.encode()) > _NAME_BYTES_MAX:
            raise ViewInvalid(view=spec.name, why=f"PostgreSQL takes names of at most {_NAME_BYTES_MAX} bytes")
        with self._writing() as connection:
            known = {(one.spec.name, one.spec.version): one for one in self._stored(connection)}
            found = known.get((spec.name, spec.version))
            if found is None:
                parts = [f"{quoted(name)} {how.sql}" for name, how in columns.items()]
                parts.append(f"PRIMARY KEY ({', '.join(map(quoted, spec.key))})")
                _execute(connection, f"CREATE TABLE {quoted(spec.table)} ({', '.join(parts)})")
                first = not any(name == spec.name for name, _ in known)
                self._remember(connection, spec, active=first, position=ViewPosition(version=spec.version))
                if first:
                    self._show(connection, spec)
            elif found.spec != spec:
                self._alter(connection, found, spec)
        return self._find(spec.name, spec.version)

    def _show(self, connection: Any, spec: ViewSpec) -> None:
        _execute(connection, f"DROP VIEW IF EXISTS {quoted(spec.name)}")
        columns = ", ".join(map(quoted, spec.schema.names))
        _execute(connection, f"CREATE VIEW {quoted(spec.name)} AS SELECT {columns} FROM {quoted(spec.table)}")

    def _remember(self, connection: Any, spec: ViewSpec, *, active: bool, position: ViewPosition) -> None:
        _execute(connection, "DELETE FROM headwater_views WHERE name = $1 AND version = $2", [spec.name, spec.version])
        columns = orjson.dumps(schema_to_json(spec.schema)).decode()
        row = [spec.name, spec.version, spec.topic, _json(spec.key), columns, _json(spec.producers), active]
        places = "$1, $2, $3, $4, $5, $6, $7, $8"
        _execute(connection, f"INSERT INTO headwater_views ({_COLUMNS}) VALUES ({places})", [*row, position.to_json()])

    def _alter(self, connection: Any, found: StoredView, spec: ViewSpec) -> None:
        change = alteration(found.spec, spec)
        columns, before = stored_columns(spec), stored_columns(found.spec)
        if found.active and (change.added or change.retyped):
            _execute(connection, f"DROP VIEW IF EXISTS {quoted(spec.name)}")
        table = quoted(spec.table)
        try:
            for column in change.added:
                _execute(connection, f"ALTER TABLE {table} ADD COLUMN {quoted(column.name)} {columns[column.name].sql}")
            for column in change.retyped:
                name, sql = quoted(column.name), columns[column.name].sql
                if sql != before[column.name].sql:
                    _execute(connection, f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {sql} USING {name}::{sql}")
        except self._driver.Error as error:
            why = f"its columns cannot be changed in place ({_reason(error)})"
            raise ViewConflict(view=spec.name, version=spec.version, why=why) from error
        self._remember(connection, spec, active=found.active, position=found.position)
        if found.active:
            self._show(connection, spec)

    def apply(self, spec: ViewSpec, delta: Delta, position: ViewPosition, *, replace: bool = False) -> None:
        """Change rows and position in one transaction; with `replace`, the rows that were there go first."""
        with self._writing() as connection:
            try:
                if replace:
                    _execute(connection, f"DELETE FROM {quoted(spec.table)}")
                elif delta:
                    self._delete(connection, spec, delta.keys)
                come_to("deleted")
                if delta.rows.num_rows:
                    self._insert(connection, spec, delta.rows)
            except (self._driver.DataError, pa.ArrowInvalid) as error:
                why = f"holds a value that PostgreSQL cannot ({_reason(error)})"
                raise ViewRowInvalid(view=spec.name, topic=spec.topic, column="?", why=why) from error
            where = [position.to_json(), spec.name, spec.version]
            _execute(connection, "UPDATE headwater_views SET position = $1 WHERE name = $2 AND version = $3", where)
            come_to("before_commit")
        come_to("committed")

    def _delete(self, connection: Any, spec: ViewSpec, keys: pa.Table) -> None:
        columns = stored_columns(spec)
        with self._staged(connection, "headwater_keys", staged(keys, spec)) as name:
            same = [f"t.{quoted(one)} = {columns[one].into.format('s.' + quoted(one))}" for one in spec.key]
            _execute(connection, f"DELETE FROM {quoted(spec.table)} t USING {name} s WHERE {' AND '.join(same)}")

    def _insert(self, connection: Any, spec: ViewSpec, rows: pa.Table) -> None:
        columns = stored_columns(spec)
        with self._staged(connection, "headwater_rows", staged(rows.select(spec.schema.names), spec)) as name:
            into = ", ".join(map(quoted, columns))
            values = ", ".join(how.into.format(quoted(one)) for one, how in columns.items())
            _execute(connection, f"INSERT INTO {quoted(spec.table)} ({into}) SELECT {values} FROM {name}")

    @contextlib.contextmanager
    def _staged(self, connection: Any, name: str, rows: pa.Table) -> Iterator[str]:
        with connection.cursor() as cursor:
            cursor.adbc_ingest(name, rows, mode="create", temporary=True)
        yield f"pg_temp.{name}"
        _execute(connection, f"DROP TABLE pg_temp.{name}")

    def activate(self, name: str, version: int) -> None:
        """From now on, readers of `name` see this version; one transaction, so nobody sees neither or both."""
        with self._writing() as connection:
            spec = self._find(name, version, connection).spec
            _execute(connection, "UPDATE headwater_views SET active = (version = $1) WHERE name = $2", [version, name])
            self._show(connection, spec)
            come_to("before_switch")

    def drop(self, name: str, version: int | None = None) -> None:
        """Forget a version, or the whole view."""
        with self._writing() as connection:
            found = [one for one in self._stored(connection) if one.spec.name == name]
            gone = [one for one in found if version in (None, one.spec.version)]
            if not gone:
                raise ViewNotFound(view=name)
            if any(one.active for one in gone):
                _execute(connection, f"DROP VIEW IF EXISTS {quoted(name)}")
            for one in gone:
                _execute(connection, f"DROP TABLE IF EXISTS {quoted(one.spec.table)}")
                where = [name, one.spec.version]
                _execute(connection, "DELETE FROM headwater_views WHERE name = $1 AND version = $2", where)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Any]:
        with self._lock:
            if self._connection is None:
                self._connection = self._connect()
            try:
                yield self._connection
                self._connection.commit()
            except BaseException as error:
                if not self._rolled_back(self._connection):
                    self._connection = None
                    if isinstance(error, self._driver.Error):
                        raise StoreUnreachable(store="PostgreSQL", why=_reason(error)) from error
                raise

    def _rolled_back(self, connection: Any) -> bool:
        """End a transaction; False where the connection was lost, which is then forgotten."""
        try:
            connection.rollback()
        except self._driver.Error:
            with contextlib.suppress(self._driver.Error, ValueError):
                self._connections.remove(connection)
                connection.close()
            return False
        return True

    # -- reading ------------------------------------------------------------------------------------------------------

    def stored(self) -> list[StoredView]:
        """All versions of all views."""
        with self._reading() as connection:
            return self._stored(connection)

    def get(self, spec: ViewSpec, key: pa.RecordBatch) -> pa.Table:
        """The row with this key, or none."""
        columns = stored_columns(spec)
        terms = [
            f"{quoted(name)} = {columns[name].into.format(f'${place}::{_bound(columns[name].staged)}')}"
            for place, name in enumerate(spec.key, start=1)
        ]
        statement = f"SELECT {selected(spec)} FROM {quoted(spec.table)} WHERE {' AND '.join(terms)}"
        values = staged(pa.Table.from_batches([key]).select(list(spec.key)), spec).combine_chunks().to_batches()[0]
        with self._reading() as connection:
            return restored(_fetch(connection, statement, values), spec)

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
        connection = self._connect()  # of its own: a slow reader keeps its transaction for long
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
                self._connections.remove(connection)
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
        rows = _fetch(connection, f"SELECT {_COLUMNS} FROM headwater_views ORDER BY name, version").to_pylist()
        return [
            StoredView(
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
            for row in rows
        ]

    def _find(self, name: str, version: int, connection: Any = None) -> StoredView:
        for one in self.stored() if connection is None else self._stored(connection):
            if (one.spec.name, one.spec.version) == (name, version):
                return one
        raise ViewNotFound(view=f"{name}@{version}")

    def _active(self, name: str, connection: Any) -> StoredView:
        for one in self._stored(connection):
            if one.spec.name == name and one.active:
                return one
        raise ViewNotFound(view=name)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Any]:
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._connect()
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


def _bound(kind: pa.DataType) -> str:
    """The SQL type of a bound parameter."""
    names = {
        pa.bool_(): "boolean",
        pa.int16(): "smallint",
        pa.int32(): "integer",
        pa.int64(): "bigint",
        pa.float32(): "real",
        pa.float64(): "double precision",
        pa.string(): "text",
        pa.binary(): "bytea",
        pa.date32(): "date",
        pa.time64("us"): "time",
        pa.timestamp("us"): "timestamp",
    }
    return names.get(kind, "timestamptz")


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
