"""What rows flow through, of all apps together: topics, queries, views, sinks, and groups that read by themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from headwater.apps.status import Graph, QueryStatus
from headwater.log.dead_letters import SUFFIX
from headwater.log.port import Lag

Kind = Literal["topic", "query", "view", "sink", "group"]
Edge = tuple[str, str]
#: Groups are drawn up to this number; a log may have thousands.
GROUPS_MAX = 60
ROOT = "/console"


@dataclass(frozen=True, kw_only=True)
class Station:
    """A node of the drawing. Ids say the kind too, for a query may be called like its topic."""

    id: str
    kind: Kind
    name: str
    app: str = ""
    under: str = ""
    """What is known of it that does not change: the columns of a topic, the guarantee of a sink."""

    @property
    def href(self) -> str:
        """The page of this thing; a sink has none of its own and leads to its query."""
        place = {"topic": "topics", "query": "queries", "view": "views", "group": "groups", "sink": "queries"}[
            self.kind
        ]
        name = self.name.partition(" → ")[0] if self.kind == "sink" else self.name
        return f"{ROOT}/{place}/{quote(name, safe='')}"

    @property
    def title(self) -> str:
        """What it is called in the drawing: a sink by its kind and the last part of its path."""
        if self.kind != "sink":
            return self.name
        kind, colon, place = (self.name.partition(" → ")[2] or self.name).partition(":")
        return f"{kind}{colon}{place.rstrip('/').rpartition('/')[2]}"


@dataclass(frozen=True, kw_only=True)
class Flow:
    """Stations by id, and who hands rows to whom. `asides` are the edges of late and rejected rows."""

    stations: Mapping[str, Station]
    edges: tuple[Edge, ...]
    asides: frozenset[Edge] = frozenset()

    def before(self, id: str) -> list[str]:
        return [first for first, second in self.edges if second == id]

    def after(self, id: str) -> list[str]:
        return [second for first, second in self.edges if first == id]

    def only(self, ids: Iterable[str]) -> Flow:
        """The part with these stations, and what connects them."""
        kept = set(ids)
        edges = tuple(edge for edge in self.edges if edge[0] in kept and edge[1] in kept)
        return Flow(
            stations={id: one for id, one in self.stations.items() if id in kept},
            edges=edges,
            asides=self.asides & set(edges),
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
    asides: set[Edge] = set()
    for graph in graphs:
        _add_app(graph, stations, edges, asides)
    known = set(topics)
    _add_dead_letters(statuses, known, stations, edges, asides)
    _add_groups(lags, stations, edges)
    if not stations:
        for name in sorted(name for name in known if not name.startswith("__")):
            stations[f"topic:{name}"] = Station(id=f"topic:{name}", kind="topic", name=name)
    flow = Flow(stations=stations, edges=tuple(edges), asides=frozenset(asides))
    return flow.only(_visible(flow, sees))


def _visible(flow: Flow, sees: Callable[[str], bool]) -> set[str]:
    """Topics that the caller may see, the queries and groups beside them, and the sinks of those queries."""
    kept = {id for id, one in flow.stations.items() if one.kind in ("topic", "view") and sees(one.name)}
    beside = {other for edge in flow.edges for id, other in (edge, edge[::-1]) if id in kept}
    kept |= {id for id in beside if flow.stations[id].kind in ("query", "group")}
    return kept | {second for first, second in flow.edges if first in kept and flow.stations[second].kind == "sink"}


def _add_app(graph: Graph, stations: dict[str, Station], edges: dict[Edge, None], asides: set[Edge]) -> None:
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
            asides.add(edge)


def _add_dead_letters(
    statuses: Sequence[QueryStatus],
    topics: set[str],
    stations: dict[str, Station],
    edges: dict[Edge, None],
    asides: set[Edge],
) -> None:
    """A query's rejected rows go to the dead letters of its input, or to its own where it has several."""
    for one in statuses:
        letters = (one.inputs[0] if len(one.inputs) == 1 else one.name) + SUFFIX
        query = f"query:{one.app}/{one.name}"
        if (one.rejected or one.dead_letters) and letters in topics and query in stations:
            id = f"topic:{letters}"
            stations.setdefault(id, Station(id=id, kind="topic", name=letters, under="dead letters"))
            edges[(query, id)] = None
            asides.add((query, id))


def _add_groups(lags: Sequence[Lag], stations: dict[str, Station], edges: dict[Edge, None]) -> None:
    groups = list(dict.fromkeys(lag.group for lag in lags))[:GROUPS_MAX]
    for lag in lags:
        if lag.group in groups and not lag.topic.startswith("__"):
            topic, group = f"topic:{lag.topic}", f"group:{lag.group}"
            stations.setdefault(topic, Station(id=topic, kind="topic", name=lag.topic))
            stations.setdefault(group, Station(id=group, kind="group", name=lag.group))
            edges[(topic, group)] = None


def around(flow: Flow, id: str, *, hops: int) -> Flow:
    """The stations that rows reach from one, or reach it from, in so many steps; and what feeds or reads those beside it."""
    near: dict[str, list[str]] = {}
    for first, second in flow.edges:
        near.setdefault(first, []).append(second)
        near.setdefault(second, []).append(first)
    kept, edge_of_kept = {id}, {id}
    for _ in range(hops):
        edge_of_kept = {other for one in edge_of_kept for other in near.get(one, ())} - kept
        kept |= edge_of_kept
    return flow.only(kept & set(flow.stations))
