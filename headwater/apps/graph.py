"""The queries of an app as a graph, checked before anything starts and sorted in the order of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from headwater.apps.declaration import Query
from headwater.apps.errors import DeclarationInvalid
from headwater.apps.status import Graph, Node, QueryStatus
from headwater.errors import did_you_mean


def ordered(app: str, queries: Sequence[Query], *, topics: Iterable[str]) -> list[Query]:
    """Sort the queries so that each comes after those it reads from; raise if that is impossible.

    `topics` are those that exist, or will when the app starts.
    """
    outputs = {query.output: query for query in queries if query.output is not None}
    _check_inputs(queries, known=[*topics, *outputs])
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


def _check_inputs(queries: Sequence[Query], *, known: Sequence[str]) -> None:
    for query in queries:
        for name in query.reads:
            if name in known:
                continue
            why = (
                f"it reads {name!r}, which is no topic of the log and no output of the app.{did_you_mean(name, known)} "
                f"Create it with `headwater topic create {name}`, or declare it with `app.input`"
            )
            raise DeclarationInvalid(query=query.name, where=query.where, why=why)


# Any: what a graph is as JSON.
def picture_from(body: dict[str, Any]) -> Graph:
    """Read a graph from the JSON of another process."""
    nodes = tuple(Node(**node) for node in body["nodes"])
    return Graph(app=body["app"], nodes=nodes, edges=tuple((first, second) for first, second in body["edges"]))


def picture(
    app: str, queries: Sequence[Query], *, statuses: Mapping[str, QueryStatus] | None = None, labels: Mapping[str, str]
) -> Graph:
    """Return the app as nodes and edges to draw; `labels` are second lines by the name of a topic."""
    statuses = statuses or {}
    views = {query.name for query in queries if query.kind == "view"}
    nodes: dict[str, Node] = {}
    edges: list[tuple[str, str]] = []

    def topic(name: str) -> str:
        kind = "view" if name in views else "topic"
        nodes.setdefault(name, Node(name=name, kind="view" if kind == "view" else "topic", label=labels.get(name, "")))
        return name

    for query in queries:
        status = statuses.get(query.name)
        node = f"{query.name}()"
        label = query.where if status is None else f"{status.rows_per_second:,.0f} rows/s"
        nodes[node] = Node(name=node, kind="query", label=label, state=None if status is None else status.state)
        edges += [(topic(name), node) for name in query.reads]
        if query.output is not None:
            edges.append((node, topic(query.output)))
        edges += [(node, topic(name)) for name in query.side_outputs.values()]
        for sink in query.sinks:
            name = f"{query.name} → {sink.name}"
            nodes[name] = Node(name=name, kind="sink", label=sink.guarantee)
            edges.append((node, name))
    return Graph(app=app, nodes=tuple(nodes.values()), edges=tuple(edges))
