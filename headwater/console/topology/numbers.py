"""The numbers of the topology as they are now: of each node, and on each edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.apps.status import QueryStatus
from headwater.console.history import History, TopicStatus, lag_by
from headwater.console.kit.graph import NodeNumbers
from headwater.console.kit.words import short, span
from headwater.console.queries.status import by_node, delay_of
from headwater.console.topology.flow import DEAD_LETTERS, Flow, Station

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
#: The busiest query is marked from this share of the time on; below it there is no bottleneck.
BUSY_MIN = 0.25


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
        elif station.kind == "sink":
            nodes[id] = NodeNumbers(rate=rate, first=f"{short(rate)} rows/s", second=station.under)
        else:
            nodes[id] = _topic(topics.get(station.name), station)
    return GraphNumbers(nodes=nodes, rates=[rates[edge] for edge in shown.edges])


def rates_of(
    flow: Flow, statuses: Mapping[str, QueryStatus], topics: Mapping[str, TopicStatus]
) -> dict[tuple[str, str], float]:
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
        name = second.name if first.kind == "query" else first.name
        return topics[name].rate if name in topics else 0.0

    return {edge: rate(flow.stations[edge[0]], flow.stations[edge[1]]) for edge in flow.edges}


def _read(status: QueryStatus | None, name: str, inputs: Sequence[str], topics: Mapping[str, TopicStatus]) -> float:
    if status is None or not status.rows_per_second:
        return 0.0
    total = sum(topics[topic].rate for topic in inputs if topic in topics)
    own = topics[name].rate if name in topics else 0.0
    return status.rows_per_second * (own / total if total else 1 / len(inputs))


def _written(id: str, flow: Flow, rates: Mapping[tuple[str, str], float]) -> float:
    """What a query writes into topics; sinks get the same rows, and count only if there is no topic."""
    out = {second: rate for (first, second), rate in rates.items() if first == id}
    topics = [rate for second, rate in out.items() if flow.stations[second].kind != "sink"]
    return sum(topics) if topics else max(out.values(), default=0.0)


def _topic(status: TopicStatus | None, station: Station) -> NodeNumbers:
    if status is None:
        return NodeNumbers(first="not there yet", state="off")
    unit = DEAD_LETTERS if station.under == DEAD_LETTERS else "rows"
    return NodeNumbers(rate=status.rate, first=f"{short(status.rate)} rows/s", second=f"{short(status.rows)} {unit}")


def _query(status: QueryStatus | None, *, out: float, busiest: bool) -> NodeNumbers:
    if status is None:
        return NodeNumbers(first="does not run", state="off")
    look = LOOKS.get(status.state, "")
    if look in ("off", "starting", "bad") and status.batch is None:
        return NodeNumbers(first=status.state, second="", state=look)
    facts: list[tuple[str, str, str]] = []
    if status.state_rows:
        facts.append(("state", short(status.state_rows), ""))
    if status.late:
        facts.append(("late", short(status.late), "warn"))
    if (delay := delay_of(status)) is not None:
        facts.append(
            ("watermark", f"-{' '.join(span(delay).split()[:2])}", "")
        )  # its largest unit: there is little room
    return NodeNumbers(
        rate=status.rows_per_second,
        first=f"{short(status.rows_per_second)} in, {short(out)} out" if look == "on" else status.state,
        second=f"{status.busy:.0%} busy",
        state=look,
        busy=status.busy,
        busiest=busiest,
        waits=bool(status.lag_rows),
        facts=facts,
    )
