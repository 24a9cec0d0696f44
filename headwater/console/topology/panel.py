"""The panel beside the topology: the node that was picked, its numbers and charts, its neighbours and links."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any

from nicegui import ui

from headwater.apps.status import QueryStatus
from headwater.console.captures.display import pending_of, runs
from headwater.console.context import Visit, context
from headwater.console.history import Kind as SeriesKind
from headwater.console.kit.chart import LineChart
from headwater.console.kit.controls import button
from headwater.console.kit.layout import block, facts_markup, html, pill, subtitle
from headwater.console.kit.words import ago, count, duration, short, size, span
from headwater.console.queries.status import TONES, by_node, delay_of, state_size
from headwater.console.queues.display import queue_group, state_of
from headwater.console.topology.flow import Flow, Kind, Station
from headwater.services.captures import CaptureStatus
from headwater.services.gateways import GatewayStatus
from headwater.services.queues import QueueGroup

#: The names of the links to the pages of the kinds.
PAGES: dict[Kind, str] = {
    "topic": "Open the topic",
    "query": "Open the query",
    "view": "Open the view",
    "group": "Open the group",
    "sink": "Open its query",
    "capture": "Open the capture",
    "gateway": "Open the gateway",
    "queue": "Open the queue",
}
#: The charts of each kind: the measure, and its label.
CHARTS: dict[Kind, dict[str, str]] = {
    "topic": {"rate": "Rows a second"},
    "view": {"rate": "Changes a second"},
    "query": {"rate": "Rows a second", "busy": "Busy, in percent", "lag": "Lag in rows"},
    "group": {"lag": "Lag in rows"},
    "sink": {},
    "capture": {"rate": "Rows a second", "delay": "Delay in seconds"},
    "gateway": {"appended": "Rows a second"},
    "queue": {"depth": "Messages that wait", "acknowledged": "Acknowledged a second"},
}
#: What the history measures of each kind; a view is a topic to it.
MEASURED: dict[Kind, SeriesKind] = {
    "topic": "topic",
    "view": "topic",
    "query": "query",
    "group": "group",
    "capture": "capture",
    "gateway": "gateway",
    "queue": "queue",
}
SHOWN_MAX = 12


class NodePanel:
    """Hidden until a node is picked; then kept current like the rest of the page."""

    # Any: NiceGUI takes plain and asynchronous functions.
    def __init__(self, visit: Visit, *, on_close: Callable[[], Any], on_centre: Callable[[str], Any]) -> None:
        self._visit = visit
        self._on_close, self._on_centre = on_close, on_centre
        self._history = context().history
        self._station: Station | None = None
        self._charts: dict[str, LineChart] = {}
        self._shown: object = None
        self._box = ui.element("aside").classes("card flow-side").props('aria-label="The node that was picked"')
        self._box.set_visibility(False)

    def open(self, station: Station, flow: Flow) -> None:
        self._station, self._shown, self._charts = station, None, {}
        self._box.set_visibility(True)
        self._box.clear()
        with self._box:
            with block("row-flex between top"):
                with block("stack tight grow"):
                    ui.label(station.kind).classes("quiet small")
                    subtitle(station.title).classes("wrap-anywhere")
                button("", self._on_close, icon="close", kind="ghost", label="Close the panel")
            self._state = block("row-flex")
            with block("row-flex"):
                html(f'<a href="{escape(station.href)}">{PAGES[station.kind]}</a>')
                around = button("Around it", lambda: self._on_centre(station.id), icon="filter_center_focus")
                around.tooltip("Draw only what this is connected with")
            self._facts = html("")
            for measure, label in CHARTS[station.kind].items():
                with block("stack tight"):
                    subtitle(label, level=3)
                    self._charts[measure] = LineChart(label=label, dark=self._visit.dark, height=110)
            is_query = station.kind in ("query", "capture", "gateway", "queue")
            if station.kind != "capture":
                _neighbours("Reads from" if is_query else "Written by", flow.before(station.id), flow)
            _neighbours("Writes" if is_query else "Read by", flow.after(station.id), flow)
        self.show(flow)

    def close(self) -> None:
        self._station = None
        self._box.set_visibility(False)

    def show(self, flow: Flow) -> None:
        """Show the numbers of now; of a node that no longer exists, that it does not."""
        station = self._station
        if station is None:
            return
        status, series = by_node(self._history.statuses).get(station.id, (None, station.name))
        facts = self._facts_of(station, status) if station.id in flow.stations else {"": "It is not there any more."}
        self._facts.set_content(facts_markup(facts.items()))
        labels = CHARTS[station.kind]
        for measure, chart in self._charts.items():
            points = self._history.series(MEASURED[station.kind], series, measure, points=300)
            factor = 100 if measure == "busy" else 1
            chart.set({labels[measure]: [(at, value * factor) for at, value in points]})
        shown = None if status is None else (status.state, status.error)
        if shown != self._shown:
            self._shown = shown
            self._state.clear()
            if status is not None:
                with self._state:
                    pill(status.state, TONES.get(status.state, ""))
                    if status.error:
                        ui.label(status.error).classes("small tone-text-bad wrap-anywhere")

    def _facts_of(self, station: Station, status: QueryStatus | None) -> dict[str, str]:
        if station.kind == "query":
            return _query_facts(status)
        if station.kind == "sink":
            return {"Guarantee": station.under or "–"}
        if station.kind == "capture":
            return _capture_facts(next((one for one in self._history.captures if one.name == station.name), None))
        if station.kind == "queue":
            return _queue_facts(queue_group(self._history.queues, station.name))
        if station.kind == "gateway":
            return _gateway_facts(next((one for one in self._history.gateways if one.name == station.name), None))
        if station.kind == "group":
            lags = [lag for lag in self._history.lags if lag.group == station.name]
            return {
                "Lag": f"{count(sum(lag.rows for lag in lags))} rows",
                "Topics": count(len({lag.topic for lag in lags})),
            }
        topic = self._history.topics.get(station.name)
        if topic is None:
            return {"State": "not there yet"}
        return {
            "Rows": count(topic.rows),
            "Size": size(topic.bytes),
            "Partitions": count(topic.partitions),
            "Rows a second": short(topic.rate),
            "Last row": ago(topic.appended_at_us),
            **({"Columns": station.under} if station.under else {}),
        }


def _capture_facts(status: CaptureStatus | None) -> dict[str, str]:
    if status is None:
        return {"": "It is not there any more."}
    return {
        "State": status.state,
        "Run by": runs(status),
        "Delay": span(status.delay_seconds),
        "Pending": pending_of(status),
        "Rows": count(status.rows),
        "Database": status.url,
    }


def _gateway_facts(status: GatewayStatus | None) -> dict[str, str]:
    if status is None:
        return {"": "It is not there any more."}
    return {
        "State": status.state,
        "Address": status.address,
        "Received": count(status.received),
        "Appended": count(status.appended),
        "Rejected": count(status.rejected),
        "Lost": count(status.lost),
    }


def _queue_facts(group: QueueGroup | None) -> dict[str, str]:
    if group is None:
        return {"": "It is not there any more."}
    stats = group.stats
    return {
        "State": state_of(stats),
        "Depth": count(stats.depth),
        "Oldest message": span(stats.oldest_seconds),
        "In flight": count(stats.in_flight),
        "Scheduled": count(stats.scheduled),
        "Consumers": count(stats.consumers),
        "Redelivered": count(stats.redelivered),
        "Given up": count(stats.dead),
    }


def _query_facts(status: QueryStatus | None) -> dict[str, str]:
    if status is None:
        return {"State": "does not run"}
    delay = delay_of(status)
    return {
        "App": status.app or "–",
        "Rows read": count(status.rows_total),
        "Rows a second": short(status.rows_per_second),
        "Busy": f"{status.busy:.0%}",
        "Lag": "–" if status.lag_rows is None else f"{count(status.lag_rows)} rows",
        "Last batch": "–" if status.batch_ms is None else duration(status.batch_ms / 1000),
        "Watermark delay": "no watermark" if delay is None else span(delay),
        "State": state_size(status),
        "Late": count(status.late),
        "Restarts": count(status.restarts),
    }


def _neighbours(title: str, ids: list[str], flow: Flow) -> None:
    if not ids:
        return
    with block("stack tight"):
        subtitle(title, level=3)
        for station in (flow.stations[id] for id in ids[:SHOWN_MAX]):
            link = f'<a href="{escape(station.href)}">{escape(station.title)}</a>'
            html(f'{link} <span class="quiet small">{station.kind}</span>').classes("wrap-anywhere")
        if len(ids) > SHOWN_MAX:
            ui.label(f"and {len(ids) - SHOWN_MAX} more").classes("quiet small")
