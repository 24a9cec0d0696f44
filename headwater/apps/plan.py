"""Plan a declared query: its DataFrame and its output topic. Nothing runs yet."""

from __future__ import annotations

import contextlib
import difflib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater.apps.declaration import Input, Query, Table, changes_of
from headwater.apps.errors import DeclarationInvalid, OutputChanged
from headwater.apps.home import Version
from headwater.apps.interactive_query import prepare_topics, questions_topic
from headwater.engine.columns import PROCESSING_TIMER, TIMERS
from headwater.engine.contract import Contract
from headwater.engine.finder import Finder, applied_finders
from headwater.engine.operator import wanted_side_outputs
from headwater.engine.side_outputs import side_output_schema
from headwater.engine.spark_plan import applied_operators, state_partitions
from headwater.engine.table_read import table_output
from headwater.errors import ArgumentInvalid, NotFound, SchemaConflict
from headwater.log import Log, Topic
from headwater.spark.session import STATE
from headwater.spark.source.columns import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: How often a query with timers has a batch while no rows come.
TICK = "1 second"
#: Held while the session's setting names the state folder of one app.
_STATE_LOCK = threading.Lock()


@dataclass(frozen=True, kw_only=True)
class QueryPlan:
    """A version of a query, ready to start."""

    query: Query
    version: Version
    rows: DataFrame = field(repr=False)
    operators: tuple[Contract, ...] = field(repr=False, default=())
    schemas: Mapping[str, int] = field(repr=False, default_factory=dict)
    """The version of the schema under which each input is read."""
    finders: tuple[Finder, ...] = field(repr=False, default=())
    """Its operators that find matches."""
    partitions: int | None = None
    """Into how many partitions the state of its operators is cut, unless they say so; None for as many as a shuffle has."""

    def operator_of(self, side: str) -> Contract | None:
        """The first operator that puts rows into this side; late ones are those of the first that looks at the time."""
        if side == "late":
            return next((one for one in self.operators if one.time is not None), None)
        return next((one for one in self.operators if side in one.side_outputs), None)


@dataclass(frozen=True, kw_only=True)
class Planner:
    """Plans the queries of one app on one log."""

    spark: SparkSession
    log: Log
    views: frozenset[str]
    state: str
    clock: str = "system"
    topics: Mapping[str, str] = field(default_factory=dict)
    """Topics of outputs that are not written to the topic of their name."""
    app: str | None = None
    """The name of the app; it is part of the name of the topic of questions."""
    bounded: frozenset[str] = frozenset()
    """Topics to which nothing is appended any more when the query has caught up."""
    end_of_input: bool = False
    """Whether all of them are such topics."""

    def plan(
        self, query: Query, version: Version, *, stop: str | None = None, partitions: int | None = None
    ) -> QueryPlan:
        """Call the function with its inputs, and create or check its output topic.

        With `stop`, offsets as JSON, the inputs are read up to there and no further.
        """
        options = {"start": version.start, "clock": self.clock, "state": self.state}
        if stop is not None:
            options["stop"] = stop
        if query.rows_max is not None:
            options["rows_max"] = str(query.rows_max)
        if query.tick is not None:
            options["tick"] = query.tick
        if query.ask and version.topic == query.output and self.app is not None:
            prepare_topics(self.log, self.app)
            options["asks"] = f"{questions_topic(self.app)}/{query.name}"
        schemas = self.schemas_of(query)
        with applied_finders() as finders:
            rows, operators = self._called(query, options, partitions)
        if query.ask and not operators:
            raise _invalid(query, "it is to answer questions, but has no operator that keeps state of its own")
        ticks = _ticks(operators) if query.tick is None else {}
        if ticks:
            rows, operators = self._called(query, options | ticks, partitions)
        planned = QueryPlan(
            query=query,
            version=version,
            rows=rows,
            operators=operators,
            schemas=schemas,
            finders=tuple(finders),
            partitions=partitions,
        )
        columns = arrow_schema(rows.schema)
        if version.topic is not None:
            self._prepare_output(planned, columns)
        for side, topic in query.side_outputs.items():
            self._prepare_side(planned, side, topic)
        for sink in query.sinks:
            sink.for_query(query.name, log=self.log.address, state=self.state).check(columns)
        return planned

    def schemas_of(self, query: Query) -> dict[str, int]:
        """Return the current schema versions of a query's inputs."""
        return schemas_of(self.log, [self.topics.get(name, name) for name in query.reads])

    def _called(
        self, query: Query, options: dict[str, str], partitions: int | None
    ) -> tuple[DataFrame, tuple[Contract, ...]]:
        from pyspark.sql import DataFrame

        # One source reads the questions: that is enough for a batch to begin.
        others = {name: value for name, value in options.items() if name != "asks"}
        arguments = {
            each.parameter: self._argument(each, options if number == 0 else others)
            for number, each in enumerate(query.inputs)
        }
        with (
            keeping_state_in(self.spark, self.state),
            wanted_side_outputs(query.side_outputs),
            state_partitions(partitions),
            applied_operators() as operators,
        ):
            rows = query.function(**arguments)
        if not isinstance(rows, DataFrame):
            raise _invalid(query, f"it returned {type(rows).__name__}, not a DataFrame")
        if not rows.isStreaming:
            raise _invalid(query, "the DataFrame that it returned reads no stream")
        rows = table_output(rows, output_key(query), query=query.name)
        names = [one.name for one in operators]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise _invalid(query, f"two of its operators are called {twice!r}; tell them apart by `name=`")
        return rows, tuple(operators)

    # Any: a DataFrame or a Table.
    def _argument(self, wanted: Input, options: dict[str, str]) -> Any:
        name = self.topics.get(wanted.name, wanted.name)
        topic = self.log.topic(name)
        address = self.log.address
        if self.end_of_input or wanted.name in self.bounded:
            options = options | {"end_of_input": "true"}
        if wanted.kind == "table" and not topic.key:
            expected = f"a topic with a key for {wanted.parameter!r}: the rows of a table replace one another"
            raise ArgumentInvalid(name="hw.Table", value=name, expected=expected)
        if wanted.kind == "table" or wanted.name in self.views or topic.compact:
            changes = changes_of(self.spark, log=address, topic=name, options=options)
            if wanted.kind == "rows":
                return changes
            return Table(
                name=name,
                key=topic.key,
                log=address,
                state=self.state,
                changes=changes,
                time=topic.time_column,
            )
        return self.spark.readStream.format("headwater").option("log", address).options(**options).load(name)

    # -- the topic of the output --------------------------------------------------------------------------------------

    def _prepare_output(self, planned: QueryPlan, columns: pa.Schema) -> None:
        query, name = planned.query, str(planned.version.topic)
        own = [column for column in columns if not column.name.startswith("_")]
        schema = pa.schema([column.with_nullable(True) for column in own])  # that a value is constant is no promise
        for column in query.key:
            if column not in schema.names:
                near = difflib.get_close_matches(column, schema.names, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f", which are {', '.join(schema.names)}"
                raise _invalid(query, f"its key {column!r} is not among the columns of its result{hint}")
        try:
            topic = self.log.topic(name)
        except NotFound:
            self._create(query, name, schema)
            return
        self._check_topic(query, topic, schema)

    def _create(self, query: Query, name: str, schema: pa.Schema) -> None:
        settings = dict(query.topic)
        if query.kind == "view":
            settings["compact"] = True
        if settings.get("partitions") is None:
            read = [self.log.topic(self.topics.get(each, each)).partitions for each in query.reads]
            settings["partitions"] = max(read)
        self.log.create(name, schema, key=query.key or None, **settings)

    def _check_topic(self, query: Query, topic: Topic, schema: pa.Schema) -> None:
        if topic.key != query.key:
            before, now = ", ".join(topic.key) or "no key", ", ".join(query.key) or "no key"
            raise OutputChanged(query=query.name, topic=topic.name, why=f"its key was {before}, and now it is {now}")
        if query.kind == "view" and not topic.compact:
            why = "it exists, and is not compacted: it was not made for a view"
            raise OutputChanged(query=query.name, topic=topic.name, why=why)
        kept = [column for column in topic.schema if column.name not in schema.names]
        wanted = pa.schema([*(self._widest(topic, column) for column in schema), *kept])
        if set(wanted) == set(topic.schema):
            return
        order = [name for name in topic.schema.names if name in wanted.names]
        order += [name for name in wanted.names if name not in order]
        try:
            self.log.alter(topic.name, schema=pa.schema([wanted.field(name) for name in order]))
        except SchemaConflict as error:
            why = f"column {error.column!r} {error.why}"
            raise OutputChanged(query=query.name, topic=topic.name, why=why) from error

    def _widest(self, topic: Topic, column: pa.Field) -> pa.Field:
        """Return the column of the topic, unless its type has changed."""
        if column.name not in topic.schema.names:
            return column
        known = topic.schema.field(column.name)
        return known if known.type == column.type else column

    def _prepare_side(self, planned: QueryPlan, side: str, name: str) -> None:
        operator = planned.operator_of(side)
        if operator is None and side == "late":
            raise _invalid(planned.query, "it has a topic for late rows, but no operator that tells which are late")
        if operator is None:
            sides = sorted({one for each in planned.operators for one in each.side_outputs})
            there = f"they have {', '.join(sides)}" if sides else "they have none"
            raise _invalid(
                planned.query, f"it has a topic for a side output {side!r} that none of its operators has; {there}"
            )
        schema = side_output_schema(operator, side)
        try:
            known = self.log.topic(name).schema
        except NotFound:
            self.log.create(name, schema)
            return
        if known.names != schema.names:
            raise OutputChanged(
                query=planned.query.name, topic=name, why=f"rows of the side output {side!r} have other columns now"
            )


@contextlib.contextmanager
def keeping_state_in(spark: SparkSession, folder: str) -> Iterator[None]:
    """Keep the state of operators that are applied inside of the block in this folder.

    An operator reads its folder from a setting of the session when it is applied. A lock lets only one app at a time
    change the setting, and the setting is restored.
    """
    with _STATE_LOCK:
        before = spark.conf.get(STATE, None)
        spark.conf.set(STATE, folder)
        try:
            yield
        finally:
            if before is None:
                spark.conf.unset(STATE)
            else:
                spark.conf.set(STATE, before)


def output_key(query: Query) -> tuple[str, ...]:
    """The key by which the rows of a query replace one another: that of its topic, or of the first sink that has one."""
    keys = [query.key, *(getattr(sink, "keys", ()) for sink in query.sinks)]
    return next((key for key in keys if key), ())


def schemas_of(log: Log, topics: Iterable[str]) -> dict[str, int]:
    """Return the current schema versions of topics; a deleted topic has none."""
    found = {}
    for name in topics:
        with contextlib.suppress(NotFound):
            found[name] = log.topic(name).schema_version
    return found


def _ticks(operators: Sequence[Contract]) -> dict[str, str]:
    """Return the ticks of a query: how often it has a batch without rows, and for how long if all its timers are in event time.

    A watermark that the source records moves with its batch. Where the rows decide, it follows them a batch later, and behind
    another such operator one batch later still. It also moves when a partition has been silent for as long as its idle timeout.
    """
    timed = [one for one in operators if set(TIMERS) & set(one.state.names)]
    if any(PROCESSING_TIMER in one.state.names for one in timed):
        return {"tick": TICK}
    by_rows = [one for one in operators if not one.origins]
    rest_us = max((one.event_time.idle_us or 0 for one in operators), default=0)
    if not timed or (not by_rows and not rest_us):
        return {}
    return {"tick": TICK, "ticks_max": str(len(by_rows) + 1), "tick_rest": f"{rest_us} us"}


def _invalid(query: Query, why: str) -> DeclarationInvalid:
    return DeclarationInvalid(query=query.name, where=query.where, why=why)
