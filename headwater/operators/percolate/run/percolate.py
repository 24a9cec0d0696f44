"""`Percolate`: stored queries that every document of a stream is matched against.

Each worker catches up with the stored queries, matches the documents of its task, and appends invalid queries to the
dead-letter topic.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import SystemClock
from headwater.engine.errors import StateFolderUnknown
from headwater.engine.finder import Finder, note_finder
from headwater.engine.micro_batch import (
    MicroBatch,
    batch_time_us,
    current_batch,
    record_of_batch,
    recorded,
    time_folder,
)
from headwater.engine.open_logs import shared_log
from headwater.engine.spark_plan import STATE_SETTING, default_name
from headwater.engine.state_folder import Folder, open_folder
from headwater.engine.time_metadata import carried_times
from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.log import Log
from headwater.log.dead_letters import DeadLetter, append_dead_letters
from headwater.operators.percolate.index.documents import Documents, Floats
from headwater.operators.percolate.index.query_index import Matches
from headwater.operators.percolate.query import Query, QueryBuilder, parse
from headwater.operators.percolate.query.fields import Fields, Kind, fields_of
from headwater.operators.percolate.run.highlights import HIGHLIGHT_TYPE, Highlighter, Marking
from headwater.operators.percolate.run.stored_queries import (
    METADATA_TYPE,
    InvalidQuery,
    StoredQueries,
    TopicQueries,
    without_pauses,
    write_costs,
)
from headwater.schema.event_time import EventTime
from headwater.units import Duration, parse_seconds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: A query in either language; or, with metadata, `{"query": …, "metadata": {…}}`.
Stored = str | Mapping[str, Any]
#: Documents that are matched together.
DOCUMENTS_MAX = 1_000
#: Indexes that a worker keeps.
HELD_MAX = 4
#: So many dead letters are appended at once, and so many appends has a batch at most.
DEAD_LETTERS_MAX, APPENDS_MAX = 1_000, 10_000
_kept: OrderedDict[str, WorkerIndex] = OrderedDict()
_numbers = iter(range(1 << 62))


@runtime_checkable
class QueryTable(Protocol):
    """A table whose rows are stored queries: `hw.Table` is one."""

    @property
    def name(self) -> str: ...
    @property
    def log(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Percolate:
    """Match each document against all stored queries, and say which of them it satisfies.

    `queries` is a table of an app, a topic (its name, with `log`), or a fixed set: a mapping from ids to queries. The rows
    of a table have `id` and `query` (a query string, or JSON in Elasticsearch's form), and may have `metadata` and
    `enabled`; a change counts from the next batch on. Queries are indexed, so that a document is tried only with those
    that it may satisfy. `now` in a query is the event time of the document, or where it has none the processing time of
    its batch. Stateless: no shuffle, no key; each worker holds the index of all queries in memory.

    A row for each match: the document, `query_id`, `score`, `highlights`, `metadata`, `queries_version`. With
    `collect=True` a row for each document, with the list of its `matches`. What a query costs: `percolate.costs`.

    >>> Percolate(queries={"cheap": "price:<10", "streams": {"query": "title:stream*"}}).collect
    False
    """

    queries: Mapping[str, Stored] | QueryTable | str = field(repr=False)
    log: str | None = field(default=None, repr=False)
    fields: Mapping[str, Kind] = field(default_factory=dict)
    default_fields: tuple[str, ...] | None = None
    time: EventTime | str | None = None
    columns: tuple[str, ...] | None = None
    collect: bool = False
    highlight: bool = True
    marking: Marking = field(default_factory=Marking)
    costs_every: Duration = "10 seconds"
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
        carried = list(carried_times(documents.schema).values())
        percolate = replace(self, time=carried[0], name=self._name) if self.time is None and len(carried) == 1 else self
        note_finder(percolate.finder())
        task = percolate.task(schema, state=state or "", streaming=documents.isStreaming)
        return documents.mapInArrow(task.run, from_arrow_schema(task.output))

    @property
    def time_column(self) -> str | None:
        """The column that says what "now" is to a document."""
        return self.time.column if isinstance(self.time, EventTime) else self.time

    def finder(self) -> Finder:
        """Describe the queries, for the console and notebooks that show their matches."""
        kinds = {name: [type(kind).__name__, asdict(kind)] for name, kind in self.fields.items()}
        defaults = None if self.default_fields is None else list(self.default_fields)
        topic = None if isinstance(self.queries, Mapping) else self._topic.topic
        settings = {"fields": kinds, "default_fields": defaults}
        return Finder(kind="searches", operator=self._name, time=self.time_column, rules=topic, settings=settings)

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
            time_column=self.time_column,
            columns=kept,
            output=match_fields([schema.field(name) for name in kept], metadata_type, collect=self.collect),
            collect=self.collect,
            marking=self.marking if self.highlight else None,
            costs_seconds=parse_seconds(self.costs_every),
            state=state,
            streaming=streaming,
            now_us=SystemClock().now_us(),
            ends=shared_log(source.log).end_offsets(source.topic) if isinstance(source, TopicQueries) else {},
            mark=hashlib.sha256(repr((about, fields, streaming)).encode()).hexdigest(),
        )

    def check_fields(self, schema: pa.Schema) -> Fields:
        """The fields of documents of a schema; raises on settings that name others."""
        for name in (*(self.columns or ()), *([self.time_column] if self.time_column is not None else ())):
            if name not in schema.names:
                raise ColumnUnknown(topic=self._name, column=name, columns=", ".join(schema.names))
        if self.time_column is not None and not pa.types.is_timestamp(schema.field(self.time_column).type):
            raise ArgumentInvalid(name="time", value=self.time_column, expected="a timestamp column")
        return fields_of(schema, self.fields, self.default_fields, operator=self._name)

    def check(self, query: Stored, schema: pa.Schema) -> Query:
        """Read a query as it would be read when stored, for documents of a schema; raises on what cannot be used."""
        return parse(query, QueryBuilder(self.check_fields(schema)))

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
            return self._topic, self._topic.check(shared_log(self._topic.log))
        builder, rows = QueryBuilder(fields), []
        for query_id, stored in self.queries.items():
            query, metadata = _told(stored)
            parse(query, builder)
            rows.append(
                {
                    "id": str(query_id),
                    "query": query if isinstance(query, str) else json.dumps(query),
                    "metadata": metadata,
                }
            )
        schema = pa.schema({"id": pa.string(), "query": pa.string(), "metadata": METADATA_TYPE})
        return pa.Table.from_pylist(rows, schema=schema), METADATA_TYPE


def _told(stored: Stored) -> tuple[Stored, list[tuple[str, str]] | None]:
    if isinstance(stored, Mapping) and "query" in stored and set(stored) <= {"query", "metadata"}:
        metadata = stored.get("metadata")
        return stored["query"], None if metadata is None else [
            (str(key), str(value)) for key, value in metadata.items()
        ]
    return stored, None


@dataclass
class WorkerIndex:
    """An index that stays in a worker, and when its costs were last written."""

    held: StoredQueries
    number: int
    costs_at: float = float("-inf")


def match_fields(columns: Sequence[pa.Field], metadata_type: pa.DataType, *, collect: bool) -> pa.Schema:
    """The columns of the result."""
    match = [
        pa.field("query_id", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("highlights", HIGHLIGHT_TYPE),
        pa.field("metadata", metadata_type),
    ]
    own = [pa.field("matches", pa.list_(pa.struct(match)))] if collect else match
    own = [*own, pa.field("queries_version", pa.int64())]
    taken = {one.name for one in columns} & {one.name for one in own}
    if taken:
        expected = "columns of the documents that are not called as those of the result"
        raise ArgumentInvalid(name="columns", value=", ".join(sorted(taken)), expected=expected)
    return pa.schema([*columns, *own])


@dataclass(frozen=True, kw_only=True)
class PercolateTask:
    """Travels to the workers."""

    name: str
    source: TopicQueries | pa.Table
    fields: Fields
    time_column: str | None
    columns: tuple[str, ...]
    output: pa.Schema
    collect: bool
    marking: Marking | None
    costs_seconds: float
    state: str
    streaming: bool
    #: Of bounded documents: the time, and up to where the queries count, for all tasks alike.
    now_us: int
    ends: Mapping[int, int]
    #: Tells this operator's queries and fields from those of others.
    mark: str

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        batch = current_batch() if self.streaming else None
        kept = self._kept(batch)
        now_us = self._now_us(batch)
        for rows in batches:
            for start in range(0, rows.num_rows, DOCUMENTS_MAX):
                with without_pauses():
                    result = self.matched(rows.slice(start, DOCUMENTS_MAX), kept.held, now_us)
                yield result
        self._write_costs(kept, batch)

    def matched(self, rows: pa.RecordBatch, held: StoredQueries, now_us: int) -> pa.RecordBatch:
        """The result for some documents."""
        matches, documents = held.index.match(rows, self._times(rows, now_us))
        found = self._of_matches(matches, documents, held)
        shown = rows.select(list(self.columns))
        if not self.collect:
            columns = [*shown.take(pa.array(matches.documents)).columns, *found]
            version = np.full(len(matches.slots), held.version)
            return pa.RecordBatch.from_arrays([*columns, pa.array(version)], schema=self.output)
        structs = pa.StructArray.from_arrays(found, fields=list(self.output.field("matches").type.value_type))
        starts = np.searchsorted(matches.documents, np.arange(rows.num_rows + 1)).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(starts), structs).cast(self.output.field("matches").type)
        version = np.full(rows.num_rows, held.version)
        return pa.RecordBatch.from_arrays([*shown.columns, lists, pa.array(version)], schema=self.output)

    def _of_matches(self, matches: Matches, documents: Documents, held: StoredQueries) -> list[pa.Array]:
        slots = matches.slots.tolist()
        ids = pa.array([held.index.ids[slot] for slot in slots], pa.string())
        highlights: pa.Array = pa.nulls(len(slots), HIGHLIGHT_TYPE)
        if self.marking is not None:
            asked = [held.index.asked_by(slot) for slot in slots]
            pairs = list(zip(matches.documents.tolist(), asked, strict=True))
            highlights = Highlighter(documents, self.marking).column(pairs)
        return [ids, pa.array(matches.scores), highlights, held.metadata(pa.array(matches.slots))]

    # -- time ---------------------------------------------------------------------------------------------------------

    def _now_us(self, batch: MicroBatch | None) -> int:
        """The processing time: of a batch that is done again, the same."""
        if batch is None:
            return self.now_us
        known = batch_time_us(self.state, batch)
        if known is not None:
            return known
        folder = time_folder(self.state, batch.query)
        found = record_of_batch(folder, "percolate", batch.number, self.name, {"at_us": SystemClock().now_us()})
        return int(found["at_us"])

    def _times(self, rows: pa.RecordBatch, now_us: int) -> Floats:
        """What "now" is to each document: its event time where it has one."""
        if self.time_column is None:
            return np.full(rows.num_rows, float(now_us))
        times = rows.column(self.time_column)
        micros = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
        return np.asarray(pc.fill_null(micros, now_us)).astype(np.float64)

    # -- stored queries -----------------------------------------------------------------------------------------------

    def _kept(self, batch: MicroBatch | None) -> WorkerIndex:
        """The index of this worker, at the version that this batch uses."""
        key = f"{batch.query if batch is not None else ''}/{self.name}/{self.mark}"
        before = _kept.pop(key, None)
        if isinstance(self.source, TopicQueries):
            held = self._caught_up(self.source, before.held if before is not None else None, batch)
        elif before is not None:
            held = before.held
        else:
            held = StoredQueries(self.fields)
            held.store(self.source)
        kept = before if before is not None and before.held is held else WorkerIndex(held, next(_numbers))
        _kept[key] = kept
        while len(_kept) > HELD_MAX:
            _kept.popitem(last=False)
        return kept

    def _caught_up(self, source: TopicQueries, before: StoredQueries | None, batch: MicroBatch | None) -> StoredQueries:
        log = shared_log(source.log)
        stop, since = self._offsets(log, source, batch)
        held = source.caught_up(before, self.fields, log, stop)
        invalid = [one for one in held.invalid if one.offset >= since.get(one.partition, 0)]
        held.invalid.clear()
        if invalid:
            self._post(log, source, invalid, batch, stop)
        return held

    def _offsets(
        self, log: Log, source: TopicQueries, batch: MicroBatch | None
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Up to where the queries count in this batch, and from where on they are new to it."""
        if batch is None:
            return dict(self.ends), {}
        ends = {str(number): offset for number, offset in log.end_offsets(source.topic).items()}
        folder = time_folder(self.state, batch.query)
        name = f"table-{batch.number}-{self.name}-queries"
        found = recorded(folder, name)
        if found is None:
            body = {"ends": ends, "before": self._before(folder, batch.number)}
            found = record_of_batch(folder, "table", batch.number, f"{self.name}-queries", body)
        return _by_number(found["ends"]), _by_number(found["before"])

    def _before(self, folder: Folder, number: int) -> dict[str, int]:
        """The ends that the batch before has recorded."""
        found = recorded(folder, f"table-{number - 1}-{self.name}-queries")
        if found is None:
            ending = f"-{self.name}-queries.json"
            earlier = [int(name.split("-")[1]) for name in folder.names("table-") if name.endswith(ending)]
            newest = max((one for one in earlier if one < number), default=None)
            found = recorded(folder, f"table-{newest}-{self.name}-queries") if newest is not None else None
        return dict(found["ends"]) if found is not None else {}

    def _post(
        self,
        log: Log,
        source: TopicQueries,
        invalid: list[InvalidQuery],
        batch: MicroBatch | None,
        stop: dict[int, int],
    ) -> None:
        """Invalid queries become dead letters of their topic. All tasks find the same ones, and the log takes them once."""
        run = batch.query if batch is not None else hashlib.sha256(repr(sorted(stop.items())).encode()).hexdigest()[:16]
        first = (batch.number if batch is not None else 0) * APPENDS_MAX
        at_us = SystemClock().now_us()
        ordered = sorted(invalid, key=lambda one: (one.partition, one.offset))
        for number, start in enumerate(range(0, len(ordered), DEAD_LETTERS_MAX)):
            dead_letters = [
                _dead_letter(source.topic, one, self.name, at_us) for one in ordered[start : start + DEAD_LETTERS_MAX]
            ]
            append_dead_letters(
                log, source.topic, dead_letters, producer=f"{run}.{self.name}.refused", sequence=first + number
            )

    # -- costs --------------------------------------------------------------------------------------------------------

    def _write_costs(self, kept: WorkerIndex, batch: MicroBatch | None) -> None:
        now = time.monotonic()
        if batch is None or now - kept.costs_at < self.costs_seconds:
            return
        kept.costs_at = now
        folder = open_folder(self.state).within(batch.query).within(self.name)
        write_costs(folder, kept.held.index, number=kept.number)


def _by_number(offsets: dict[str, Any]) -> dict[int, int]:
    return {int(number): int(offset) for number, offset in offsets.items()}


def _dead_letter(topic: str, invalid: InvalidQuery, operator: str, at_us: int) -> DeadLetter:
    return DeadLetter(
        topic=topic,
        partition=invalid.partition,
        offset=invalid.offset,
        row=json.dumps({"id": invalid.id, "query": invalid.query}),
        query=operator,
        error="QueryInvalid",
        message=invalid.why,
        at_us=at_us,
    )
