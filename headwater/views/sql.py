"""SQL over topics and views without Spark: DuckDB over the log's Arrow batches.

What a name means:

- `spend`: the view of this name, if there is one; otherwise the rows of the topic;
- `log.spend`: the rows of the topic, each with `_partition`, `_offset` and `_appended_at`;
- `current.spend`: of each key of the topic only the last row, and none where that is a tombstone;
- `view.spend`: the view.

A topic that is read once is streamed: only the columns that the statement names are looked at, and only the offsets
and append times that its WHERE leaves over. One that is read several times, as in a join with itself, is mapped into
memory as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from headwater.errors import NotAllowed
from headwater.log import Log, Offsets, Reader, Topic
from headwater.optional import require
from headwater.schema.notation import nearest
from headwater.views.duckdb_types import ingestible, quoted
from headwater.views.errors import StatementInvalid
from headwater.views.sql_parser import Bound, Parsed, TableName, parse
from headwater.views.statement import SERVED, UNBOUNDED, Bounds, Ending, Stoppable, check_single, run_duckdb, shortened
from headwater.views.store import Parameters

if TYPE_CHECKING:
    import duckdb

SCHEMAS = ("log", "current", "view")
_OWN = ("_partition", "_offset", "_appended_at")
_MORE = ("_sent_at", "_headers", "_tombstone")
_FILES = (".csv", ".parquet", ".json", ".jsonl", ".arrow")


class ViewTables(Protocol):
    """Where the rows of views come from: a running app, or the store that it left."""

    def names(self) -> list[str]: ...
    def table(self, name: str) -> pa.Table: ...
    def query(
        self, statement: str, parameters: Parameters = None, *, over: Sequence[str], stoppable: Stoppable | None = None
    ) -> pa.Table | None:
        """The result of a statement over these views, run where they are; None where no place has them all."""


class NoViews:
    """A log without views."""

    def names(self) -> list[str]:
        return []

    def table(self, name: str) -> pa.Table:
        raise LookupError(name)

    def query(
        self, statement: str, parameters: Parameters = None, *, over: Sequence[str], stoppable: Stoppable | None = None
    ) -> pa.Table | None:
        raise LookupError(statement, parameters, over, stoppable)


class Sql:
    """Runs statements over the topics of a log, and over views.

    >>> import tempfile, headwater.log
    >>> with tempfile.TemporaryDirectory() as folder, headwater.log.open(folder) as log:
    ...     _ = log.create("payments", {"card": "int64", "amount": "float64"})
    ...     _ = log.append("payments", [{"card": 1, "amount": 2.5}, {"card": 1, "amount": 4.0}])
    ...     Sql(log).query("SELECT card, sum(amount) AS total FROM payments GROUP BY card").to_pylist()
    [{'card': 1, 'total': 6.5}]
    """

    def __init__(
        self,
        log: Log,
        views: ViewTables | None = None,
        *,
        files: bool = True,
        bounds: Bounds | None = None,
        check: Callable[[str], None] | None = None,
    ) -> None:
        """With `files=False` no file of this machine can be read: for statements that come from elsewhere.

        Those may also take only so much memory, unless `bounds` say more. `check` gets the name of each topic and view
        that a statement reads, and raises where that is not allowed.
        """
        self._check = check
        elsewhere = Bounds(memory_max=SERVED.memory_max, threads_max=SERVED.threads_max)
        self._log = log
        self._files = files
        self._bounds = bounds or (UNBOUNDED if files else elsewhere)
        self._views: ViewTables = views or NoViews()
        self._duckdb = require("duckdb", extra="views")

    def query(
        self,
        statement: str,
        parameters: Parameters = None,
        *,
        limit: int | None = None,
        stoppable: Stoppable | None = None,
    ) -> pa.Table:
        """The result of one SELECT, or its first `limit` rows; `stoppable` is handed what ends it from another thread."""
        with self._duckdb.connect(":memory:") as connection, self._ending(connection, statement) as ending:
            if stoppable is not None:
                stoppable(ending.stoppable())
            self._set_up(connection)
            check_single(connection, statement)
            parsed = parse(connection, statement)
            meant = {name: self._meaning(name) for name in parsed.tables}
            if self._check is not None:
                for read in sorted({found for _, found in meant.values()}):
                    self._check(read)
            # A statement over views alone is best run where they are.
            if meant and limit is None and all(kind == "view" for kind, _ in meant.values()) and _bare(parsed):
                over = sorted({found for _, found in meant.values()})
                answer = self._views.query(statement, parameters, over=over, stoppable=stoppable)
                if answer is not None:
                    return answer
            for name, (kind, found) in meant.items():
                ending.check()  # DuckDB forgets an interruption that comes while tables are brought
                self._bring(connection, name, kind, found, parsed)
            ending.check()
            return self._run(connection, statement, parameters, limit, ending)

    def _ending(self, connection: duckdb.DuckDBPyConnection, statement: str) -> Ending:
        return Ending(connection.interrupt, statement, seconds_max=self._bounds.seconds_max)

    def _set_up(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET python_enable_replacements = false")
        for setting in self._bounds.settings():
            connection.execute(setting)
        if not self._files:
            connection.execute("SET enable_external_access = false")

    def topics(self, statement: str) -> list[str]:
        """The topics that a statement reads, by which it can be seen whether its result may have changed."""
        known = set(self._log.topics())
        return [name for name in self.names(statement) if name in known]

    def names(self, statement: str) -> list[str]:
        """The topics and views that a statement reads."""
        with self._duckdb.connect(":memory:") as connection:
            check_single(connection, statement)
            return sorted({self._meaning(name)[1] for name in parse(connection, statement).tables})

    def _run(
        self,
        connection: duckdb.DuckDBPyConnection,
        statement: str,
        parameters: Parameters,
        limit: int | None,
        ending: Ending,
    ) -> pa.Table:
        def relation() -> duckdb.DuckDBPyRelation:
            found = connection.sql(statement) if not parameters else connection.sql(statement, params=parameters)
            return found if limit is None else found.limit(limit)

        return run_duckdb(relation, statement, self._bounds, ending)

    def _meaning(self, table: TableName) -> tuple[str, str]:
        """Whether a name means a log, a current state, a view or a file, and of which name."""
        topics, views = self._log.topics(), self._views.names()
        name, schema = table.name, table.schema.lower()
        if schema == "view" or (not schema and name in views):
            if name in views:
                return "view", name
            raise self._unknown(table, views)
        if schema in ("", "log", "current") and name in topics:
            return ("current" if schema == "current" else "log"), name
        if str(table) in topics:  # a topic's name may have a dot in it
            return "log", str(table)
        if self._files and not schema and name.lower().endswith(_FILES):
            return "file", name
        raise self._unknown(table, [*topics, *views])

    def _unknown(self, table: TableName, names: list[str]) -> StatementInvalid:
        near = nearest(table.name, [name for name in names if self._may_read(name)])
        why = f"there is no topic or view {str(table)!r}{near}"
        return StatementInvalid(statement=shortened(str(table)), why=why)

    def _may_read(self, name: str) -> bool:
        try:
            if self._check is not None:
                self._check(name)
        except NotAllowed:
            return False
        return True

    def _bring(
        self, connection: duckdb.DuckDBPyConnection, table: TableName, kind: str, found: str, parsed: Parsed
    ) -> None:
        """Make a table known to DuckDB under the name that the statement has for it."""
        if kind == "file":
            return
        if kind == "view":
            rows: Any = ingestible(self._views.table(found))
        else:
            rows = self._rows(found, kind, parsed, once=parsed.tables[table] == 1)
        if not table.schema and kind != "current":
            connection.register(table.name, rows)
            return
        own = f"headwater {table}"
        connection.register(own, rows)
        if table.schema:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(table.schema)}")
        text = self._current(self._log.topic(found), own, parsed) if kind == "current" else f"FROM {quoted(own)}"
        connection.execute(f"CREATE VIEW {quoted(table.schema)}.{quoted(table.name)} AS {text}")

    def _rows(self, topic: str, kind: str, parsed: Parsed, *, once: bool) -> Any:
        found = self._log.topic(topic)
        columns = _columns(found, parsed)
        if kind == "current":
            columns = list(dict.fromkeys([*columns, *found.key, "_tombstone", *_OWN]))
        reader = self._read(topic, columns, parsed.bounds if kind == "log" else ())
        if kind == "log" and once:
            return pa.RecordBatchReader.from_batches(_ingestible_schema(reader.schema), _batches(reader))
        return ingestible(reader.table())

    def _read(self, topic: str, columns: Sequence[str], bounds: Iterable[Bound]) -> Reader:
        starts, ends = self._log.start_offsets(topic), self._log.end_offsets(topic)
        for bound in bounds:
            starts, ends = self._narrowed(topic, bound, starts, ends)
        partitions = [number for number in ends if starts.get(number, 0) < ends[number]]
        kept = {number: starts[number] for number in partitions}
        return self._log.read(topic, start=kept, stop=ends, partitions=partitions, columns=columns)

    def _narrowed(self, topic: str, bound: Bound, starts: Offsets, ends: Offsets) -> tuple[Offsets, Offsets]:
        """The range that remains under a condition; it may be too wide, for DuckDB filters again."""
        low, high = _range(bound)
        if bound.column == "_partition" and isinstance(bound.value, int):
            ends = {number: end if low <= number < high else starts[number] for number, end in ends.items()}
        elif bound.column == "_offset" and isinstance(bound.value, int):
            starts = {number: max(start, min(low, ends[number])) for number, start in starts.items()}
            ends = {number: max(starts[number], min(end, high)) for number, end in ends.items()}
        elif bound.column == "_appended_at" and (moment := _micros(bound.value)) is not None:
            if bound.comparison in (">", ">=", "="):
                first = self._log.offset_at(topic, moment)
                starts = {number: max(start, first[number]) for number, start in starts.items()}
            if bound.comparison in ("<", "<=", "="):
                behind = self._log.offset_at(topic, moment + (bound.comparison != "<"))
                ends = {number: max(starts[number], min(end, behind[number])) for number, end in ends.items()}
        return starts, ends

    @staticmethod
    def _current(topic: Topic, table: str, parsed: Parsed) -> str:
        if not topic.key:
            raise StatementInvalid(statement=f"current.{topic.name}", why=f"topic {topic.name!r} has no key")
        keys = ", ".join(map(quoted, topic.key))
        shown = ", ".join(quoted(name) for name in _columns(topic, parsed) if name != "_tombstone")
        last = "max_by({'p': _partition, 'o': _offset}, {'at': _appended_at, 'o': _offset})"
        return (
            f"SELECT {shown} FROM {quoted(table)} SEMI JOIN (SELECT x.p AS _partition, x.o AS _offset FROM "
            f"(SELECT {last} AS x FROM {quoted(table)} GROUP BY {keys})) USING (_partition, _offset) "
            "WHERE NOT _tombstone"
        )


def _bare(parsed: Parsed) -> bool:
    """Whether a statement means the same where the views are, and reads nothing there that it does not name."""
    return not parsed.reads_more and all(not table.schema for table in parsed.tables)


def _columns(topic: Topic, parsed: Parsed) -> list[str]:
    """The columns to read: those that are named, and at least one, by which rows can be counted."""
    shown = [*topic.schema.names, *_OWN, *(["_tombstone"] if topic.compact else [])]
    columns = [name for name in shown if parsed.needs(name)]
    columns += [name for name in _MORE if name not in shown and name in parsed.words]
    return columns or ["_partition"]


def _range(bound: Bound) -> tuple[int, int]:
    """The whole numbers that meet a condition, from the first to the first that does not any more."""
    value = bound.value if isinstance(bound.value, int) else 0
    least, most = -(2**62), 2**62
    return {
        "=": (value, value + 1),
        ">": (value + 1, most),
        ">=": (value, most),
        "<": (least, value),
        "<=": (least, value + 1),
    }[bound.comparison]


def _micros(value: int | str) -> int | None:
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    whole = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (whole.days * 86_400 + whole.seconds) * 1_000_000 + whole.microseconds


def _batches(reader: Reader) -> Iterator[pa.RecordBatch]:
    schema = _ingestible_schema(reader.schema)
    for batch in reader:
        yield batch if batch.schema.equals(schema) else batch.cast(schema)


def _ingestible_schema(schema: pa.Schema) -> pa.Schema:
    return ingestible(schema.empty_table()).schema
