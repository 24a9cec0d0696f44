"""Check an app without running it: its declarations and inputs without Spark, its columns by planning its queries.

Queries are planned on a temporary log that has the topics of the app without rows, so that nothing is written to the
app's own log or to a sink.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.apps.app import App
from headwater.apps.captures import AppCapture, with_captured_inputs
from headwater.apps.declaration import Query
from headwater.apps.errors import DeclarationInvalid, QueryFailed
from headwater.apps.failure import told_of, trouble_of
from headwater.apps.graph import ordered, unknown_inputs
from headwater.apps.home import Version
from headwater.apps.plan import Planner
from headwater.capture import Table
from headwater.capture.connectors import connector, open_source
from headwater.capture.declaration import create_topics
from headwater.errors import HeadwaterError, NotFound
from headwater.log import Log
from headwater.log import open as open_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Why an app cannot run: the query, or the input topic, and what is wrong with it, with its line."""

    name: str
    message: str
    trace: str = ""
    """The complete trace, if Spark or the user's own function raised an error."""


def problems(app: App, *, start_spark: Callable[[], SparkSession] | None) -> list[Problem]:
    """Return what keeps an app from running.

    Spark is started only if nothing else is wrong: with it, queries are planned, which finds unknown columns. Without
    `start_spark`, columns are not checked.
    """
    try:
        tables = {one.name: _tables_of(one) for one in app.captures}
        captured = {one[table.name]: table.name for one in app.captures for table in tables[one.name]}
        queries = with_captured_inputs(app.queries, captured, inputs=[one.name for one in app.inputs])
    except HeadwaterError as error:
        name = error.query if isinstance(error, DeclarationInvalid) else ", ".join(one.name for one in app.captures)
        return [Problem(name=name, message=str(error))]
    with _empty_log(app, queries) as log:
        for one in app.captures:
            create_topics(log, one.config, tables[one.name])
        found = list(_gateway_problems(app, log)) or list(_declaration_problems(app, queries, log))
        if found or start_spark is None:
            return found
        return list(_plan_problems(app, queries, log, start_spark()))


def _tables_of(capture: AppCapture) -> list[Table]:
    """The tables of a capture as they are in its database, which is only read; as they are declared if it cannot be reached."""
    config = capture.config
    try:
        config = replace(config, url=connector(config.url).address(config.url))
        with contextlib.closing(open_source(config)) as source:
            tables = source.tables()
    except HeadwaterError:
        if not capture.declared:
            raise
        return list(capture.declared.values())
    capture.check(tables)
    return tables


@contextlib.contextmanager
def _empty_log(app: App, queries: Sequence[Query]) -> Iterator[Log]:
    """A temporary log with the topics that the app reads and writes, as they are in the app's log."""
    named = {name for query in queries for name in (*query.reads, query.output, *query.side_outputs.values()) if name}
    with (
        tempfile.TemporaryDirectory(prefix="headwater-check-") as folder,
        open_log(Path(folder, "log")) as copy,
    ):
        with contextlib.suppress(NotFound), app.open_log(create=False) as log:
            for name in sorted(named & set(log.topics())):
                topic = log.topic(name)
                copy.create(
                    name,
                    topic.schema,
                    partitions=topic.partitions,
                    key=topic.key,
                    time=topic.time,
                    compact=topic.compact,
                )
        yield copy


def _gateway_problems(app: App, log: Log) -> Iterator[Problem]:
    for one in app.gateways:
        try:
            one.create_topics(log)
        except HeadwaterError as error:
            yield Problem(name=one.name, message=str(error))


def _declaration_problems(app: App, queries: Sequence[Query], log: Log) -> Iterator[Problem]:
    for topic in app.inputs:
        if topic.name not in log.topics():
            try:
                log.create(topic.name, topic.schema, **topic.settings)
            except HeadwaterError as error:
                yield Problem(name=topic.name, message=str(error))
    outputs = [query.output for query in queries if query.output is not None]
    known = [*log.topics(), *outputs, *(topic.name for topic in app.inputs)]
    missing = list(unknown_inputs(queries, known=known, captures=[one.name for one in app.captures]))
    for one in missing:
        yield Problem(name=one.query, message=str(one))
    if not missing:
        try:
            ordered(app.name, queries, topics=known)
        except DeclarationInvalid as error:  # they read each other in a circle
            yield Problem(name=error.query, message=str(error))


def _plan_problems(app: App, queries: Sequence[Query], log: Log, spark: SparkSession) -> Iterator[Problem]:
    views = frozenset(query.name for query in queries if query.kind == "view")
    state = str(Path(log.address).with_name("state"))
    planner = Planner(spark=spark, log=log, views=views, state=state, app=app.name)
    unplanned: set[str | None] = set()
    for query in ordered(app.name, queries, topics=log.topics()):
        if unplanned & set(query.reads):  # its inputs are not known
            unplanned.add(query.output)
            continue
        try:
            planner.plan(_without_sinks(query), Version(number=1, topic=query.output))
        except HeadwaterError as error:
            yield Problem(name=query.name, message=str(error))
        except Exception as error:  # raised by the user's own function
            trouble = trouble_of(error)
            failed = QueryFailed(query=query.name, why=told_of(trouble))
            yield Problem(name=query.name, message=str(failed), trace=trouble.trace)
        else:
            continue
        unplanned.add(query.output)


def _without_sinks(query: Query) -> Query:
    """The query without its sinks: some of them look at the other side when they are checked."""
    return replace(query, sinks=())
