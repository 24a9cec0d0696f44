"""The panel beside the topology: the node that was picked, its charts, and where to go from it."""

from __future__ import annotations

import time
from collections.abc import Callable
from html import escape
from typing import Any

from nicegui import ui

from headwater.console.context import context
from headwater.console.kit.chart import LineChart
from headwater.console.kit.layout import block, button, pill
from headwater.console.kit.words import ago, count, short, size, span
from headwater.console.topology.flow import Flow, Station
from headwater.console.topology.numbers import by_query, series_by_query, state_told
from headwater.console.visit import Visit

#: Colours of the states of a query.
TONES = {
    "running": "good", "caught up": "good", "starting": "info", "restarting": "warn", "failed": "bad"
}  # fmt: skip
#: What the page of each kind of thing is called.
PAGES = {"topic": "Open the topic", "query": "Open the query", "view": "Open the view", "group": "Open the group", "sink": "Open its query"}  # fmt: skip
SHOWN_MAX = 12


class NodePanel:
    """Out of sight until a node is picked; then kept up to date like the rest of the page."""

    # Any: what is called gives nothing back.
    def __init__(self, visit: Visit, *, on_close: Callable[[], Any], on_centre: Callable[[str], Any]) -> None:
        self._visit = visit
        self._on_close, self._on_centre = on_close, on_centre
        self._history = context().history
        self._station: Station | None = None
        self._charts: dict[str, tuple[LineChart, str]] = {}
        self._told: tuple[str, str | None] | None = None
        self._box = ui.element("aside").classes("card flow-side").props('aria-label="The node that was picked"')
        self._box.set_visibility(False)

    def open(self, station: Station, flow: Flow) -> None:
        self._station = station
        self._told = None
        self._charts = {}
        self._box.set_visibility(True)
        self._box.clear()
        with self._box:
            with block("row-flex between top"):
                with block("stack tight grow"):
                    ui.label(station.kind).classes("quiet small")
                    ui.html(f"<h2>{escape(station.title)}</h2>", sanitize=False).classes("wrap-anywhere")
                button("", self._on_close, icon="close", kind="ghost", label="Close the panel")
            self._pill = block("row-flex")
            with block("row-flex"):
                ui.html(f'<a href="{escape(station.href)}">{PAGES[station.kind]}</a>', sanitize=False)
                around = button("Around it", lambda: self._on_centre(station.id), icon="filter_center_focus")
                around.tooltip("Draw only what this is connected with")
            self._facts = ui.html("", sanitize=False)
            self._make_charts(station)
            self._neighbours("Reads from" if station.kind == "query" else "Written by", flow.before(station.id), flow)
            self._neighbours("Writes" if station.kind == "query" else "Read by", flow.after(station.id), flow)
        self.show(flow)

    def close(self) -> None:
        self._station = None
        self._box.set_visibility(False)

    def show(self, flow: Flow) -> None:
        """New numbers. A node that has gone meanwhile is told so."""
        station = self._station
        if station is None:
            return
        facts = self._facts_of(station) if station.id in flow.stations else {"": "It is not there any more."}
        rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts.items())
        self._facts.set_content(f'<dl class="facts">{rows}</dl>')
        series = series_by_query(self._history.statuses).get(station.id, station.name)
        for measure, (chart, label) in self._charts.items():
            kind = "topic" if station.kind in ("topic", "view") else station.kind
            points = self._history.series(kind, series, measure, points=300)  # type: ignore[arg-type]  # a sink has no chart
            chart.set({label: [(at, value * 100 if measure == "busy" else value) for at, value in points]})
        self._show_state(station)

    # -- parts --------------------------------------------------------------------------------------------------------

    def _make_charts(self, station: Station) -> None:
        wanted = {
            "topic": [("rate", "Rows a second")],
            "view": [("rate", "Changes a second")],
            "query": [("rate", "Rows a second"), ("busy", "Busy, in percent"), ("lag", "Lag in rows")],
            "group": [("lag", "Lag in rows")],
            "sink": [],
        }[station.kind]
        for measure, label in wanted:
            with block("stack tight"):
                ui.html(f"<h3>{label}</h3>", sanitize=False)
                self._charts[measure] = (LineChart(label=label, dark=self._visit.dark, height=110), label)

    def _show_state(self, station: Station) -> None:
        status = by_query(self._history.statuses).get(station.id) if station.kind == "query" else None
        told = None if status is None else (status.state, status.error)
        if told == self._told:
            return
        self._told = told
        self._pill.clear()
        if status is not None:
            with self._pill:
                pill(status.state, TONES.get(status.state, ""))
                if status.error:
                    ui.label(status.error).classes("small tone-text-bad wrap-anywhere")

    def _facts_of(self, station: Station) -> dict[str, str]:
        if station.kind == "query":
            return self._of_query(station)
        if station.kind in ("topic", "view"):
            now = self._history.topics.get(station.name)
            if now is None:
                return {"State": "not there yet"}
            return {
                "Rows": count(now.rows),
                "Size": size(now.bytes),
                "Partitions": count(now.partitions),
                "Rows a second": short(now.rate),
                "Last row": ago(now.appended_at_us),
                **({"Columns": station.under} if station.under else {}),
            }
        if station.kind == "sink":
            return {"Guarantee": station.under or "–"}
        lags = [lag for lag in self._history.lags if lag.group == station.name]
        return {
            "Lag": f"{count(sum(lag.rows for lag in lags))} rows",
            "Topics": count(len({lag.topic for lag in lags})),
        }

    def _of_query(self, station: Station) -> dict[str, str]:
        status = by_query(self._history.statuses).get(station.id)
        if status is None:
            return {"State": "does not run"}
        delay = None if status.watermark_us is None else max(0.0, time.time() - status.watermark_us / 1e6)
        return {
            "App": status.app or "–",
            "Rows read": count(status.rows_total),
            "Rows a second": short(status.rows_per_second),
            "Busy": f"{status.busy:.0%}",
            "Lag": "–" if status.lag_rows is None else f"{count(status.lag_rows)} rows",
            "Last batch": "–" if status.batch_ms is None else f"{count(status.batch_ms)} ms",
            "Watermark delay": "no watermark" if delay is None else span(delay),
            "State": state_told(status),
            "Late": count(status.late),
            "Restarts": count(status.restarts),
        }

    def _neighbours(self, title: str, ids: list[str], flow: Flow) -> None:
        if not ids:
            return
        with block("stack tight"):
            ui.html(f"<h3>{title}</h3>", sanitize=False)
            for id in ids[:SHOWN_MAX]:
                one = flow.stations[id]
                ui.html(
                    f'<a href="{escape(one.href)}">{escape(one.title)}</a> <span class="quiet small">{one.kind}</span>',
                    sanitize=False,
                ).classes("wrap-anywhere")
            if len(ids) > SHOWN_MAX:
                ui.label(f"and {len(ids) - SHOWN_MAX} more").classes("quiet small")
