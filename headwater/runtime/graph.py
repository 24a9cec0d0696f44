"""The queries of an app as a graph: checked before anything starts, and put in the order of the rows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any

from headwater.errors import GraphCyclic, InputUnknown
from headwater.runtime.declared import Query
from headwater.runtime.status import Graph, Node, QueryStatus


def ordered(app: str, queries: Sequence[Query], *, topics: Iterable[str]) -> list[Query]:
    """The queries so that each comes after those it reads from, or one clear error.

    `topics` are those that exist, or will when the app starts.
    """
    outputs = {query.output: query for query in queries if query.output is not None}
    _check_inputs(queries, known=[*topics, *outputs])
    by_name = {query.name: query for query in queries}
    needs = {query.name: [outputs[name].name for name in query.reads if name in outputs] for query in queries}
    try:
        return [by_name[name] for name in TopologicalSorter(needs).static_order()]
    except CycleError as error:
        raise GraphCyclic(app=app, cycle=" → ".join(reversed(error.args[1]))) from None


def _check_inputs(queries: Sequence[Query], *, known: Sequence[str]) -> None:
    for query in queries:
        for name in query.reads:
            if name in known:
                continue
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InputUnknown(query=query.name, where=query.where, input=name, near=hint)


# Any: what a graph is as JSON.
def picture_from(body: dict[str, Any]) -> Graph:
    """A graph that another process has told of."""
    nodes = tuple(Node(**node) for node in body["nodes"])
    return Graph(app=body["app"], nodes=nodes, edges=tuple((first, second) for first, second in body["edges"]))


def picture(
    app: str, queries: Sequence[Query], *, statuses: Mapping[str, QueryStatus] | None = None, labels: Mapping[str, str]
) -> Graph:
    """The app as nodes and edges, for whoever draws it; `labels` are second lines by the name of a topic."""
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
        edges += [(node, topic(name)) for name in query.aside.values()]
        for sink in query.sinks:
            name = f"{query.name} → {sink.name}"
            nodes[name] = Node(name=name, kind="sink", label=sink.guarantee)
            edges.append((node, name))
    return Graph(app=app, nodes=tuple(nodes.values()), edges=tuple(edges))
