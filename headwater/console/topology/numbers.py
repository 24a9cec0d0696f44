"""The numbers of the topology: of each node and on each line, as they are now."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.apps.status import QueryStatus
from headwater.console.history import History, TopicStatus, lag_by, series_names
from headwater.console.kit.graph import NodeNumbers
from headwater.console.kit.words import short, size, span
from headwater.console.topology.flow import Flow, Station

#: How the states of a query are drawn: dashed, pulsing, lit, or in the colour of trouble.
LOOKS = {
    "waiting": "off",
    "stopped": "off",
    "starting": "starting",
    "running": "on",
    "caught up": "on",
    "restarting": "warn",
    "failed": "bad",
}
#: The busiest query stands out from this share of the time on; below it nothing is a bottleneck.
BUSY_MIN = 0.25


def series_by_query(statuses: Sequence[QueryStatus]) -> dict[str, str]:
    """Under which name the history keeps the series of each query, by the id of its node."""
    found: dict[str, str] = {}
    for one, name in zip(statuses, series_names(statuses), strict=True):
        found.setdefault(f"query:{one.app}/{one.name}", name)
    return found


@dataclass(frozen=True, kw_only=True)
class GraphNumbers:
    """Numbers by the id of a node, and rows a second by edge, in the order of the edges."""

    nodes: Mapping[str, NodeNumbers]
    rates: Sequence[float]


def by_query(statuses: Sequence[QueryStatus]) -> dict[str, QueryStatus]:
    """Statuses by the id of their node; that of a version on trial comes after the one in use and is left out."""
    found: dict[str, QueryStatus] = {}
    for one in statuses:
        found.setdefault(f"query:{one.app}/{one.name}", one)
    return found


def measured(shown: Flow, whole: Flow, history: History) -> GraphNumbers:
    """What is known now of the part that is shown."""
    statuses, topics = by_query(history.statuses), history.topics
    rates = rates_of(whole, statuses, topics)
    written: dict[str, float] = {}
    for (_, second), rate in rates.items():
        written[second] = written.get(second, 0.0) + rate
    busiest = _busiest(statuses)
    lags = lag_by(history.lags, "group")
    nodes: dict[str, NodeNumbers] = {}
    for id, one in shown.stations.items():
        if one.kind == "query":
            nodes[id] = _query(statuses.get(id), out=_written(id, whole, rates), busiest=id == busiest)
        elif one.kind == "group":
            nodes[id] = _group(lags.get(one.name, 0), written.get(id, 0.0))
        elif one.kind == "sink":
            nodes[id] = NodeNumbers(
                rate=written.get(id, 0.0), first=f"{short(written.get(id, 0.0))} rows/s", second=one.under
            )
        else:
            nodes[id] = _topic(topics.get(one.name), one)
    return GraphNumbers(nodes=nodes, rates=[rates[edge] for edge in shown.edges])


def rates_of(
    flow: Flow, statuses: Mapping[str, QueryStatus], topics: Mapping[str, TopicStatus]
) -> dict[tuple[str, str], float]:
    """Rows a second on each line: what a query reads, shared among its inputs as they grow; what its topics get."""
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
    total = sum(topics[one].rate for one in inputs if one in topics)
    own = topics[name].rate if name in topics else 0.0
    return status.rows_per_second * (own / total if total else 1 / len(inputs))


def _written(id: str, flow: Flow, rates: Mapping[tuple[str, str], float]) -> float:
    """What a query writes into topics; sinks get the same rows, so they count only where there is no topic."""
    out = {second: rate for (first, second), rate in rates.items() if first == id}
    topics = [rate for second, rate in out.items() if flow.stations[second].kind != "sink"]
    return sum(topics) if topics else max(out.values(), default=0.0)


def _busiest(statuses: Mapping[str, QueryStatus]) -> str | None:
    at_work = {id: one.busy for id, one in statuses.items() if one.busy >= BUSY_MIN}
    return max(at_work, key=lambda id: at_work[id], default=None)


def _topic(now: TopicStatus | None, station: Station) -> NodeNumbers:
    if now is None:
        return NodeNumbers(first="not there yet", state="off")
    return NodeNumbers(
        rate=now.rate,
        first=f"{short(now.rate)} rows/s",
        second=f"{short(now.rows)} {'dead letters' if station.under == 'dead letters' else 'rows'}",
    )


def _group(lag: int, rate: float) -> NodeNumbers:
    return NodeNumbers(
        rate=rate, first="reads by itself", second=f"{short(lag)} behind", state="warn" if lag > 10_000 else ""
    )


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
    if status.watermark_us is not None:
        delay = span(max(0.0, time.time() - status.watermark_us / 1e6))
        facts.append(("watermark", f"-{' '.join(delay.split()[:2])}", ""))  # its largest unit: there is little room
    first = f"{short(status.rows_per_second)} in, {short(out)} out" if look == "on" else status.state
    return NodeNumbers(
        rate=status.rows_per_second,
        first=first,
        second=f"{status.busy:.0%} busy",
        state=look,
        busy=status.busy,
        busiest=busiest,
        waits=bool(status.lag_rows),
        facts=facts,
    )


def state_told(status: QueryStatus) -> str:
    """What a query keeps, in words."""
    return f"{short(status.state_rows)} rows, {size(status.state_bytes)}" if status.state_rows else "none"
