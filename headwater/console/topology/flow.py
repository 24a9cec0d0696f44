"""The graph of all apps together: topics, queries, views, sinks, and consumer groups of other programs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.apps.status import Graph, QueryStatus
from headwater.console.pages import path_to
from headwater.log.dead_letters import SUFFIX
from headwater.log.port import Lag

Kind = Literal["topic", "query", "view", "sink", "group"]
Edge = tuple[str, str]
#: Groups are drawn up to this number; a log may have thousands.
GROUPS_MAX = 60
#: The pages of the kinds; a sink leads to its query.
PAGES = {"topic": "topics", "query": "queries", "view": "views", "group": "groups", "sink": "queries"}
#: What the node of a dead-letter topic says of it.
DEAD_LETTERS = "dead letters"


@dataclass(frozen=True, kw_only=True)
class Station:
    """A node of the graph. Its id has the kind too, for a query may have the name of its topic."""

    id: str
    kind: Kind
    name: str
    app: str = ""
    under: str = ""
    """What does not change: the columns of a topic, the guarantee of a sink."""

    @property
    def href(self) -> str:
        """The address of its page."""
        return path_to(PAGES[self.kind], self.name.partition(" → ")[0] if self.kind == "sink" else self.name)

    @property
    def title(self) -> str:
        """Its name in the drawing: of a sink, the kind and the last part of its path."""
        if self.kind != "sink":
            return self.name
        kind, colon, place = (self.name.partition(" → ")[2] or self.name).partition(":")
        return f"{kind}{colon}{place.rstrip('/').rpartition('/')[2]}"


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Stations by id, and the edges between them. `side_outputs` are the edges of late and rejected rows."""

    stations: Mapping[str, Station]
    edges: tuple[Edge, ...]
    side_outputs: frozenset[Edge] = frozenset()

    def before(self, id: str) -> list[str]:
        return [first for first, second in self.edges if second == id]

    def after(self, id: str) -> list[str]:
        return [second for first, second in self.edges if first == id]

    def only(self, ids: Iterable[str]) -> Flow:
        """The part with these stations, and the edges between them."""
        kept = set(ids)
        edges = tuple(edge for edge in self.edges if edge[0] in kept and edge[1] in kept)
        return Flow(
            stations={id: station for id, station in self.stations.items() if id in kept},
            edges=edges,
            side_outputs=self.side_outputs & set(edges),
        )


def flow_of(
    graphs: Iterable[Graph],
    statuses: Sequence[QueryStatus],
    *,
    lags: Sequence[Lag] = (),
    topics: Iterable[str] = (),
    sees: Callable[[str], bool] = lambda _: True,
) -> Flow:
    """The graph of all apps. It leaves out topics that the caller may not see, and topics without a reader or a writer unless
    there is nothing else to show."""
    stations: dict[str, Station] = {}
    edges: dict[Edge, None] = {}
    side_outputs: set[Edge] = set()
    for graph in graphs:
        _add_app(graph, stations, edges, side_outputs)
    known = set(topics)
    _add_dead_letters(statuses, known, stations, edges, side_outputs)
    _add_groups(lags, stations, edges)
    if not stations:
        for name in sorted(name for name in known if not name.startswith("__")):
            stations[f"topic:{name}"] = Station(id=f"topic:{name}", kind="topic", name=name)
    flow = Flow(stations=stations, edges=tuple(edges), side_outputs=frozenset(side_outputs))
    return flow.only(_visible(flow, sees))


def _visible(flow: Flow, sees: Callable[[str], bool]) -> set[str]:
    """Topics that the caller may see, the queries and groups beside them, and the sinks of those queries."""
    kept = {id for id, station in flow.stations.items() if station.kind in ("topic", "view") and sees(station.name)}
    beside = {other for edge in flow.edges for id, other in (edge, edge[::-1]) if id in kept}
    kept |= {id for id in beside if flow.stations[id].kind in ("query", "group")}
    return kept | {second for first, second in flow.edges if first in kept and flow.stations[second].kind == "sink"}


def _add_app(graph: Graph, stations: dict[str, Station], edges: dict[Edge, None], side_outputs: set[Edge]) -> None:
    ids: dict[str, str] = {}
    for node in graph.nodes:
        name = node.name.removesuffix("()") if node.kind == "query" else node.name
        place = "topic" if node.kind in ("topic", "view") else node.kind
        id = f"{place}:{name}" if place == "topic" else f"{place}:{graph.app}/{name}"
        ids[node.name] = id
        before = stations.get(id)
        if before is not None and before.kind == "view":  # another app reads the view of the first as a topic
            continue
        under = "" if node.kind == "query" else node.label
        stations[id] = Station(id=id, kind=node.kind, name=name, app=graph.app, under=under)
    for first, second in graph.edges:
        edge = (ids[first], ids[second])
        edges[edge] = None
        is_own = edge[1].startswith("sink:") or second == first.removesuffix("()")
        if edge[0].startswith("query:") and not is_own:
            side_outputs.add(edge)


def _add_dead_letters(
    statuses: Sequence[QueryStatus],
    topics: set[str],
    stations: dict[str, Station],
    edges: dict[Edge, None],
    side_outputs: set[Edge],
) -> None:
    """A query's rejected rows go to the dead-letter topic of its input, or to its own if it has several inputs."""
    for status in statuses:
        name = (status.inputs[0] if len(status.inputs) == 1 else status.name) + SUFFIX
        query = f"query:{status.app}/{status.name}"
        if (status.rejected or status.dead_letters) and name in topics and query in stations:
            id = f"topic:{name}"
            stations.setdefault(id, Station(id=id, kind="topic", name=name, under=DEAD_LETTERS))
            edges[(query, id)] = None
            side_outputs.add((query, id))


def _add_groups(lags: Sequence[Lag], stations: dict[str, Station], edges: dict[Edge, None]) -> None:
    groups = list(dict.fromkeys(lag.group for lag in lags))[:GROUPS_MAX]
    for lag in lags:
        if lag.group in groups and not lag.topic.startswith("__"):
            topic, group = f"topic:{lag.topic}", f"group:{lag.group}"
            stations.setdefault(topic, Station(id=topic, kind="topic", name=lag.topic))
            stations.setdefault(group, Station(id=group, kind="group", name=lag.group))
            edges[(topic, group)] = None


def around(flow: Flow, id: str, *, hops: int) -> Flow:
    """The part within so many steps around a station, along the edges or against them."""
    near: dict[str, list[str]] = {}
    for first, second in flow.edges:
        near.setdefault(first, []).append(second)
        near.setdefault(second, []).append(first)
    kept, outermost = {id}, {id}
    for _ in range(hops):
        outermost = {other for station in outermost for other in near.get(station, ())} - kept
        kept |= outermost
    return flow.only(kept & set(flow.stations))
