"""`Percolate`: stored queries that look at every document of a stream."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pyarrow as pa

from headwater.clock import SystemClock
from headwater.errors import ArgumentInvalid, ColumnUnknown, StateFolderUnknown
from headwater.operators.finding import Finder, note_finder
from headwater.operators.keyed.plan import STATE_SETTING, default_name, open_log_once
from headwater.operators.percolate.fields import Fields, Kind, fields_of
from headwater.operators.percolate.highlights import Marking
from headwater.operators.percolate.query import Making, Query, parse
from headwater.operators.percolate.stored import METADATA_TYPE, TopicQueries
from headwater.operators.percolate.task import PercolateTask, match_fields
from headwater.units import parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@runtime_checkable
class QueryTable(Protocol):
    """A table whose rows are stored queries: `hw.Table` is one."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> str: ...


#: A query in either language; or, with metadata, `{"query": …, "metadata": {…}}`.
Stored = str | Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Percolate:
    """Match each document against all stored queries, and say which of them it satisfies.

    `queries` is a table of an app, a topic (its name, with `log`), or a fixed set: a mapping from ids to queries. The rows
    of a table have `id` and `query` (a query string, or JSON in Elasticsearch's form), and may have `metadata` and
    `enabled`; a change counts from the next batch on. Queries are indexed, so that a document is tried only with those
    that it may satisfy. Stateless: no shuffle, no key; each worker holds the index of all queries in memory.

    A row for each match: the document, `query_id`, `score`, `highlights`, `metadata`, `queries_version`. With
    `collect=True` a row for each document, with the list of its `matches`. What a query costs: `percolate.costs`.

    >>> Percolate(queries={"cheap": "price:<10", "streams": {"query": "title:stream*"}}).collect
    False
    """

    queries: Mapping[str, Stored] | QueryTable | str = field(repr=False)
    log: str | None = field(default=None, repr=False)
    fields: Mapping[str, Kind] = field(default_factory=dict)
    default_fields: tuple[str, ...] | None = None
    on: str | None = None
    columns: tuple[str, ...] | None = None
    collect: bool = False
    highlight: bool = True
    marking: Marking = field(default_factory=Marking)
    costs_every: str | float = "10 seconds"
    name: str | None = None

    def __post_init__(self) -> None:
        parse_seconds(self.costs_every, name="costs_every")
        for name in ("default_fields", "columns"):
            given: object = getattr(self, name)
            if given is not None and not isinstance(given, tuple):
                raise ArgumentInvalid(name=name, value=given, expected="several names, as a tuple")
        if isinstance(self.queries, str) and self.log is None:
            raise ArgumentInvalid(
                name="log", value=None, expected="the address of the log that has the topic of queries"
            )
        queries: object = self.queries
        if not isinstance(queries, str | Mapping | QueryTable):
            expected = "a table of the app (`hw.Table`), the name of a topic, or a mapping from ids to queries"
            raise ArgumentInvalid(name="queries", value=queries, expected=expected)

    def __call__(self, documents: DataFrame) -> DataFrame:
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        schema = to_arrow_schema(documents.schema, timezone="UTC")
        state = documents.sparkSession.conf.get(STATE_SETTING, None)
        if documents.isStreaming and state is None:
            raise StateFolderUnknown(operator=self._name)
        note_finder(self.finder())
        task = self.task(schema, state=state or "", streaming=documents.isStreaming)
        return documents.mapInArrow(task.run, from_arrow_schema(task.output))

    def finder(self) -> Finder:
        """What it looks for, for whoever shows what it finds."""
        kinds = {name: [type(kind).__name__, asdict(kind)] for name, kind in self.fields.items()}
        defaults = None if self.default_fields is None else list(self.default_fields)
        topic = None if isinstance(self.queries, Mapping) else self._topic.topic
        settings = {"fields": kinds, "default_fields": defaults}
        return Finder(kind="searches", operator=self._name, on=self.on, rules=topic, settings=settings)

    def task(self, schema: pa.Schema, *, state: str = "", streaming: bool = False) -> PercolateTask:
        """What the workers do with documents of a schema."""
        fields = self.check_fields(schema)
        kept = self.columns if self.columns is not None else tuple(schema.names)
        source, metadata_type = self._source(fields)
        about = source.to_pylist() if isinstance(source, pa.Table) else source
        return PercolateTask(
            name=self._name,
            source=source,
            fields=fields,
            on=self.on,
            columns=kept,
            output=match_fields([schema.field(name) for name in kept], metadata_type, collect=self.collect),
            collect=self.collect,
            marking=self.marking if self.highlight else None,
            costs_seconds=parse_seconds(self.costs_every),
            state=state,
            streaming=streaming,
            now_us=SystemClock().now_us(),
            ends=open_log_once(source.log).end_offsets(source.topic) if isinstance(source, TopicQueries) else {},
            mark=hashlib.sha256(repr((about, fields, streaming)).encode()).hexdigest(),
        )

    def check_fields(self, schema: pa.Schema) -> Fields:
        """The fields of documents of a schema; refuses settings that name others."""
        for name in (*(self.columns or ()), *([self.on] if self.on is not None else ())):
            if name not in schema.names:
                raise ColumnUnknown(topic=self._name, column=name, columns=", ".join(schema.names))
        if self.on is not None and not pa.types.is_timestamp(schema.field(self.on).type):
            raise ArgumentInvalid(name="on", value=self.on, expected="a column with a timestamp")
        return fields_of(schema, self.fields, self.default_fields, operator=self._name)

    def check(self, query: Stored, schema: pa.Schema) -> Query:
        """Read a query as it would be read when stored, for documents of a schema; refuses what cannot be used."""
        return parse(query, Making(self.check_fields(schema)))

    @cached_property
    def _name(self) -> str:
        if self.name is not None:
            return self.name
        table = "fixed" if isinstance(self.queries, Mapping) else self._topic.topic
        return f"{default_name(self)}-{table}"

    @property
    def _topic(self) -> TopicQueries:
        if isinstance(self.queries, str):
            return TopicQueries(log=str(self.log), topic=self.queries)
        assert isinstance(self.queries, QueryTable)
        return TopicQueries(log=self.queries.log, topic=self.queries.name)

    def _source(self, fields: Fields) -> tuple[TopicQueries | pa.Table, pa.DataType]:
        """Where the queries come from, and the type of what goes with them. A fixed set is checked at once."""
        if not isinstance(self.queries, Mapping):
            return self._topic, self._topic.check(open_log_once(self._topic.log))
        making, rows = Making(fields), []
        for query_id, stored in self.queries.items():
            query, metadata = _told(stored)
            parse(query, making)
            rows.append({"id": str(query_id), "query": _as_text(query), "metadata": metadata})
        schema = pa.schema({"id": pa.string(), "query": pa.string(), "metadata": METADATA_TYPE})
        return pa.Table.from_pylist(rows, schema=schema), METADATA_TYPE


def _told(stored: Stored) -> tuple[Stored, list[tuple[str, str]] | None]:
    if isinstance(stored, Mapping) and "query" in stored and set(stored) <= {"query", "metadata"}:
        metadata = stored.get("metadata")
        return stored["query"], None if metadata is None else [
            (str(key), str(value)) for key, value in metadata.items()
        ]
    return stored, None


def _as_text(query: Stored) -> str:
    return query if isinstance(query, str) else json.dumps(query)
