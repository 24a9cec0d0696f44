"""The graph of all apps together: topics, queries, views, sinks and groups of other programs; and its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headwater.apps.status import Graph, QueryStatus
from headwater.console.history import History, TopicStatus, lag_by
from headwater.console.kit.graph import NodeNumbers
from headwater.console.kit.words import short, span
from headwater.console.pages import path_to
from headwater.console.queries.status import by_node, delay_of
from headwater.console.queues.display import group_path, queue_group, state_of
from headwater.log.dead_letters import SUFFIX
from headwater.log.port import Lag
from headwater.services.captures import CaptureStatus
from headwater.services.gateways import GatewayStatus
from headwater.services.queues import QueueGroup, QueueStatus

Kind = Literal["topic", "query", "view", "sink", "group", "capture", "gateway", "queue"]
Edge = tuple[str, str]
#: Groups are drawn up to this number; a log may have thousands.
GROUPS_MAX = 60
#: The pages of the kinds; a sink leads to its query.
PAGES = {
    "topic": "topics",
    "query": "queries",
    "view": "views",
    "group": "groups",
    "sink": "queries",
    "capture": "captures",
    "gateway": "gateways",
    "queue": "queues",
}
#: What the node of a dead-letter topic says of it.
DEAD_LETTERS = "dead letters"
#: How the states of a query are drawn: dashed, pulsing, lit, or in the colour of a warning.
LOOKS = {
    "waiting": "off",
    "stopped": "off",
    "starting": "starting",
    "running": "on",
    "caught up": "on",
    "restarting": "warn",
    "failed": "bad",
}
#: The same of the states of a capture that a process runs.
CAPTURE_LOOKS = {
    "new": "starting",
    "snapshot": "on",
    "streaming": "on",
    "restarting": "warn",
    "at risk": "bad",
    "unreachable": "bad",
}
#: The same of the states of a gateway.
GATEWAY_LOOKS = {"running": "on", "failed": "warn", "stopped": "off", "killed": "bad"}
#: The same of the states of a group of a queue.
QUEUE_LOOKS = {"no consumer": "warn", "paused": "off", "at work": "on", "idle": "on"}
#: The busiest query is marked from this share of the time on; below it there is no bottleneck.
BUSY_MIN = 0.25


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
        if self.kind == "queue":
            return group_path(*self.name.split("/"))
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
    captures: Sequence[CaptureStatus] = (),
    gateways: Sequence[GatewayStatus] = (),
    queues: Sequence[QueueStatus] = (),
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
    _add_captures(captures, stations, edges)
    _add_gateways(gateways, stations, edges)
    _add_queues(queues, known, stations, edges, side_outputs)
    if not stations:
        for name in sorted(name for name in known if not name.startswith("__")):
            stations[f"topic:{name}"] = Station(id=f"topic:{name}", kind="topic", name=name)
    flow = Flow(stations=stations, edges=tuple(edges), side_outputs=frozenset(side_outputs))
    return flow.only(_visible(flow, sees))


def _visible(flow: Flow, sees: Callable[[str], bool]) -> set[str]:
    """Topics that the caller may see, the queries and groups beside them, and the sinks of those queries."""
    kept = {id for id, station in flow.stations.items() if station.kind in ("topic", "view") and sees(station.name)}
    beside = {other for edge in flow.edges for id, other in (edge, edge[::-1]) if id in kept}
    kept |= {id for id in beside if flow.stations[id].kind in ("query", "group", "capture", "gateway", "queue")}
    return kept | {second for first, second in flow.edges if first in kept and flow.stations[second].kind == "sink"}


def _add_app(graph: Graph, stations: dict[str, Station], edges: dict[Edge, None], side_outputs: set[Edge]) -> None:
    ids: dict[str, str] = {}
    for node in graph.nodes:
        if node.kind in ("capture", "gateway"):  # they belong to the log
            continue
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
        if first not in ids or second not in ids:
            continue
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


def _add_captures(captures: Sequence[CaptureStatus], stations: dict[str, Station], edges: dict[Edge, None]) -> None:
    for one in captures:
        id = f"capture:{one.name}"
        stations[id] = Station(id=id, kind="capture", name=one.name, under=one.url)
        for table in one.tables:
            topic = f"topic:{table.topic}"
            stations.setdefault(topic, Station(id=topic, kind="topic", name=table.topic))
            edges[(id, topic)] = None


def _add_gateways(gateways: Sequence[GatewayStatus], stations: dict[str, Station], edges: dict[Edge, None]) -> None:
    for one in gateways:
        id, topic = f"gateway:{one.name}", f"topic:{one.topic}"
        stations[id] = Station(id=id, kind="gateway", name=one.name, under=one.address)
        stations.setdefault(topic, Station(id=topic, kind="topic", name=one.topic))
        edges[(id, topic) if one.direction == "in" else (topic, id)] = None


def _add_queues(
    queues: Sequence[QueueStatus],
    topics: set[str],
    stations: dict[str, Station],
    edges: dict[Edge, None],
    side_outputs: set[Edge],
) -> None:
    """Each queue is its topic, whose messages go to the workers of each group; what these give up goes to its dead letters."""
    for queue in queues:
        topic, dead = f"topic:{queue.name}", f"topic:{queue.dead_letter_topic}"
        stations.setdefault(topic, Station(id=topic, kind="topic", name=queue.name))
        for group in queue.groups:
            id = f"queue:{queue.name}/{group.name}"
            stations[id] = Station(id=id, kind="queue", name=f"{queue.name}/{group.name}")
            edges[(topic, id)] = None
            if group.stats.dead and queue.dead_letter_topic in topics:
                stations.setdefault(
                    dead, Station(id=dead, kind="topic", name=queue.dead_letter_topic, under=DEAD_LETTERS)
                )
                edges[(id, dead)] = None
                side_outputs.add((id, dead))


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


# -- numbers ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GraphNumbers:
    """Numbers by the id of a node, and rows a second by edge, in the order of the edges."""

    nodes: Mapping[str, NodeNumbers]
    rates: Sequence[float]


def numbers_of(shown: Flow, whole: Flow, history: History) -> GraphNumbers:
    """The numbers of the part that is shown."""
    statuses = {id: status for id, (status, _) in by_node(history.statuses).items()}
    topics = history.topics
    rates = rates_of(whole, statuses, topics)
    written: dict[str, float] = {}
    for (_, second), rate in rates.items():
        written[second] = written.get(second, 0.0) + rate
    busy = {id: status.busy for id, status in statuses.items() if status.busy >= BUSY_MIN}
    busiest = max(busy, key=lambda id: busy[id], default=None)
    lags = lag_by(history.lags, "group")
    nodes: dict[str, NodeNumbers] = {}
    for id, station in shown.stations.items():
        rate = written.get(id, 0.0)
        if station.kind == "query":
            nodes[id] = _query(statuses.get(id), out=_written(id, whole, rates), busiest=id == busiest)
        elif station.kind == "group":
            lag = lags.get(station.name, 0)
            state = "warn" if lag > 10_000 else ""
            nodes[id] = NodeNumbers(rate=rate, first="reads by itself", second=f"{short(lag)} behind", state=state)
        elif station.kind == "capture":
            nodes[id] = _capture(next((one for one in history.captures if one.name == station.name), None))
        elif station.kind == "gateway":
            nodes[id] = _gateway(next((one for one in history.gateways if one.name == station.name), None))
        elif station.kind == "queue":
            nodes[id] = _queue(queue_group(history.queues, station.name), rate=rate)
        elif station.kind == "sink":
            nodes[id] = NodeNumbers(rate=rate, first=f"{short(rate)} rows/s", second=station.under)
        else:
            nodes[id] = _topic(topics.get(station.name), station)
    return GraphNumbers(nodes=nodes, rates=[rates[edge] for edge in shown.edges])


def rates_of(flow: Flow, statuses: Mapping[str, QueryStatus], topics: Mapping[str, TopicStatus]) -> dict[Edge, float]:
    """Rows a second on each edge: what a query reads, divided among its inputs by their rates; what is written to topics."""
    inputs: dict[str, list[str]] = {}
    for first, second in flow.edges:
        inputs.setdefault(second, []).append(flow.stations[first].name)

    def rate(first: Station, second: Station) -> float:
        if second.kind == "query":
            return _read(statuses.get(second.id), first.name, inputs[second.id], topics)
        if first.kind == "query" and second.kind == "sink":
            status = statuses.get(first.id)
            return 0.0 if status is None else status.rows_per_second
        name = second.name if first.kind in ("query", "capture", "gateway", "queue") else first.name
        return topics[name].rate if name in topics else 0.0

    return {edge: rate(flow.stations[edge[0]], flow.stations[edge[1]]) for edge in flow.edges}


def _read(status: QueryStatus | None, name: str, inputs: Sequence[str], topics: Mapping[str, TopicStatus]) -> float:
    if status is None or not status.rows_per_second:
        return 0.0
    total = sum(topics[topic].rate for topic in inputs if topic in topics)
    own = topics[name].rate if name in topics else 0.0
    return status.rows_per_second * (own / total if total else 1 / len(inputs))


def _written(id: str, flow: Flow, rates: Mapping[Edge, float]) -> float:
    """What a query writes into topics; sinks get the same rows, and count only if there is no topic."""
    out = {second: rate for (first, second), rate in rates.items() if first == id}
    topics = [rate for second, rate in out.items() if flow.stations[second].kind != "sink"]
    return sum(topics) if topics else max(out.values(), default=0.0)


def _topic(status: TopicStatus | None, station: Station) -> NodeNumbers:
    if status is None:
        return NodeNumbers(first="not there yet", state="off")
    unit = DEAD_LETTERS if station.under == DEAD_LETTERS else "rows"
    return NodeNumbers(rate=status.rate, first=f"{short(status.rate)} rows/s", second=f"{short(status.rows)} {unit}")


def _capture(status: CaptureStatus | None) -> NodeNumbers:
    if status is None:
        return NodeNumbers(first="not there", state="off")
    is_off = (not status.running or status.paused) and status.state != "at risk"
    look = "off" if is_off else CAPTURE_LOOKS[status.state]
    is_named = status.running or status.state == "at risk"
    first = f"{short(status.rows_per_second)} rows/s" if look == "on" else status.state if is_named else "not run"
    delay = "" if status.delay_seconds is None else f"{span(status.delay_seconds)} behind"
    return NodeNumbers(rate=status.rows_per_second, first=first, second=delay, state=look, waits=bool(status.pending))


def _gateway(status: GatewayStatus | None) -> NodeNumbers:
    if status is None:
        return NodeNumbers(first="not there", state="off")
    rate = status.per_second.get("appended", 0.0)
    gone = {"lost": status.lost, "rejected": status.rejected}
    return NodeNumbers(
        rate=rate,
        first=f"{short(rate)} rows/s" if status.state == "running" else status.state,
        second=next((f"{short(number)} {name}" for name, number in gone.items() if number), ""),
        state=GATEWAY_LOOKS[status.state],
    )


def _queue(group: QueueGroup | None, *, rate: float) -> NodeNumbers:
    if group is None:
        return NodeNumbers(first="not there", state="off")
    stats, state = group.stats, state_of(group.stats)
    return NodeNumbers(
        rate=rate,
        first=f"{short(stats.depth)} waiting, {short(stats.in_flight)} in flight" if state == "at work" else state,
        second=f"{short(stats.depth)} waiting" if state in ("no consumer", "paused") else "",
        state=QUEUE_LOOKS[state],
        waits=bool(stats.depth),
    )


def _query(status: QueryStatus | None, *, out: float, busiest: bool) -> NodeNumbers:
    if status is None:
        return NodeNumbers(first="does not run", state="off")
    look = LOOKS.get(status.state, "")
    if look in ("off", "starting", "bad") and status.batch is None:
        return NodeNumbers(first=status.state, second="", state=look)
    # The first two stand in nodes of every size.
    facts: list[tuple[str, str, str]] = [("busy", f"{status.busy:.0%}", "")]
    if (delay := delay_of(status)) is not None:
        facts.append(
            ("watermark", f"-{' '.join(span(delay).split()[:2])}", "")
        )  # its largest unit: there is little room
    if status.late:
        facts.append(("late", short(status.late), "warn"))
    return NodeNumbers(
        rate=status.rows_per_second,
        first=f"{short(status.rows_per_second)} in, {short(out)} out" if look == "on" else status.state,
        second=f"state {short(status.state_rows)}" if status.state_rows else "",
        state=look,
        busy=status.busy,
        busiest=busiest,
        waits=bool(status.lag_rows),
        facts=facts,
    )
