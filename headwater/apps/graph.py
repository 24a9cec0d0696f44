"""The queries of an app as a graph, checked before anything starts and sorted in the order of the rows."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from headwater.apps.declaration import Query
from headwater.apps.errors import DeclarationInvalid
from headwater.apps.home import DeclaredQuery, Home
from headwater.apps.status import Graph, Node, QueryStatus
from headwater.capture import CaptureStore
from headwater.errors import NotFound, did_you_mean
from headwater.gateways import Gateway
from headwater.gateways.report import GatewayReport, reports
from headwater.log import Log


def ordered(app: str, queries: Sequence[Query], *, topics: Iterable[str], captures: Sequence[str] = ()) -> list[Query]:
    """Sort the queries so that each comes after those it reads from; raise if that is impossible.

    `topics` are those that exist, or will when the app starts.
    """
    outputs = {query.output: query for query in queries if query.output is not None}
    for error in unknown_inputs(queries, known=[*topics, *outputs], captures=captures):
        raise error
    by_name = {query.name: query for query in queries}
    needs = {query.name: [outputs[name].name for name in query.reads if name in outputs] for query in queries}
    try:
        return [by_name[name] for name in TopologicalSorter(needs).static_order()]
    except CycleError as error:
        first = by_name[error.args[1][0]]
        cycle = " → ".join(reversed(error.args[1]))
        why = (
            f"queries of app {app!r} read each other in a circle, {cycle}; a loop needs a topic from outside of the app"
        )
        raise DeclarationInvalid(query=first.name, where=first.where, why=why) from None


def unknown_inputs(
    queries: Sequence[Query], *, known: Sequence[str], captures: Sequence[str] = ()
) -> Iterator[DeclarationInvalid]:
    """Yield an error for each input that is neither a topic nor an output, nor a table of one of the app's captures."""
    tables = f"; of a table of capture {captures[0]!r}, declare the columns with `capture.table`" if captures else ""
    for query in queries:
        for name in query.reads:
            if name in known:
                continue
            why = (
                f"it reads {name!r}, which is no topic of the log and no output of the app.{did_you_mean(name, known)} "
                f"Create it with `headwater topic create {name}`, or declare it with `app.input`{tables}"
            )
            yield DeclarationInvalid(query=query.name, where=query.where, why=why)


# Any: what a graph is as JSON.
def picture_from(body: dict[str, Any]) -> Graph:
    """Read a graph from the JSON of another process."""
    nodes = tuple(Node(**node) for node in body["nodes"])
    return Graph(app=body["app"], nodes=nodes, edges=tuple((first, second) for first, second in body["edges"]))


def picture(
    app: str,
    queries: Sequence[DeclaredQuery],
    *,
    statuses: Mapping[str, QueryStatus] | None = None,
    labels: Mapping[str, str],
    captures: Mapping[str, Collection[str]] | None = None,
    gateways: Iterable[Gateway | GatewayReport] = (),
) -> Graph:
    """Return the app as nodes and edges to draw; `labels` are second lines by the name of a topic, `captures` have the topics that
    each capture writes: one is drawn if a query reads such a topic. A gateway is drawn if its topic is."""
    statuses = statuses or {}
    views = {query.name for query in queries if query.kind == "view"}
    nodes: dict[str, Node] = {}
    edges: list[tuple[str, str]] = []

    def topic(name: str) -> str:
        kind = "view" if name in views else "topic"
        nodes.setdefault(name, Node(name=name, kind="view" if kind == "view" else "topic", label=labels.get(name, "")))
        return name

    read = {name for query in queries for name in query.inputs}
    for capture, topics in (captures or {}).items():
        if read & set(topics):
            node = f"capture {capture}"
            nodes[node] = Node(name=node, kind="capture", label="database")
            edges += [(node, topic(name)) for name in topics if name in read]
    for query in queries:
        status = statuses.get(query.name)
        node = f"{query.name}()"
        label = query.where if status is None else f"{status.rows_per_second:,.0f} rows/s"
        nodes[node] = Node(name=node, kind="query", label=label, state=None if status is None else status.state)
        edges += [(topic(name), node) for name in query.inputs]
        if query.output is not None:
            edges.append((node, topic(query.output)))
        edges += [(node, topic(name)) for name in query.side_outputs.values()]
        for sink, guarantee in query.sinks.items():
            name = f"{query.name} → {sink}"
            nodes[name] = Node(name=name, kind="sink", label=guarantee)
            edges.append((node, name))
    for gateway in gateways:
        if gateway.topic in nodes:
            node = f"gateway {gateway.name}"
            nodes[node] = Node(name=node, kind="gateway", label=f"events {gateway.direction}")
            edges.append((node, gateway.topic) if gateway.direction == "in" else (gateway.topic, node))
    return Graph(app=app, nodes=tuple(nodes.values()), edges=tuple(edges))


def picture_of(home: Home, log: Log, statuses: Sequence[QueryStatus]) -> Graph:
    """Return the graph of an app as its home declares it, with the columns of its topics and the states of its queries."""
    queries = home.queries()
    names = {name for query in queries for name in (*query.inputs, query.output, *query.side_outputs.values())}
    labels = {}
    for name in sorted(name for name in names if name is not None):
        with contextlib.suppress(NotFound):
            labels[name] = ", ".join(log.topic(name).schema.names)
    by_name = {one.name: one for one in reversed(statuses)}  # a version on trial comes after the active one
    return picture(
        home.path.name,
        queries,
        statuses=by_name,
        labels=labels,
        captures=captured_topics(log),
        gateways=reports(log),
    )


def captured_topics(log: Log) -> dict[str, list[str]]:
    """The topics of each capture of a log, as far as it has come to their tables."""
    store = CaptureStore(log)
    return {
        name: [config.topic_of(table) for table in store.progress(name).snapshot]
        for name, config in store.configs().items()
    }
