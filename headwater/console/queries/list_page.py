"""Queries: how each of them does, in one row."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from headwater.apps.status import QueryStatus
from headwater.console.context import context
from headwater.console.history import series_names
from headwater.console.kit.layout import block, card, empty, heading, search_box
from headwater.console.kit.live import every
from headwater.console.kit.sparkline import sparkline
from headwater.console.kit.table import Column, Pages, Row, Table, drawn, link, mark, toned
from headwater.console.kit.words import count, short, size, span
from headwater.console.pages import screen
from headwater.console.visit import Visit
from headwater.services.queries import is_open, is_visible

#: Colours of the states of a query.
TONES = {
    "running": "good",
    "caught up": "good",
    "starting": "info",
    "waiting": "",
    "restarting": "warn",
    "failed": "bad",
}
COLUMNS = (
    Column(name="name", label="Query", sortable=True),
    Column(name="state", label="State", sortable=True),
    Column(name="history", label="Last minutes", width="110px"),
    Column(name="rate", label="rows/s", align="right", sortable=True),
    Column(name="lag", label="Lag", align="right", sortable=True),
    Column(name="batch", label="Batch", align="right", sortable=True),
    Column(name="busy", label="Busy", align="right", sortable=True),
    Column(name="watermark", label="Watermark delay", align="right", sortable=True),
    Column(name="kept", label="State kept", align="right", sortable=True),
    Column(name="late", label="Late", align="right", sortable=True),
    Column(name="restarts", label="Restarts", align="right", sortable=True),
)
_ORDER: dict[str, Callable[[QueryStatus], Any]] = {
    "name": lambda one: (one.name, one.version),
    "state": lambda one: one.state,
    "rate": lambda one: one.rows_per_second,
    "lag": lambda one: one.lag_rows or 0,
    "batch": lambda one: one.batch_ms or 0.0,
    "busy": lambda one: one.busy,
    "watermark": lambda one: delay_of(one) or 0.0,
    "kept": lambda one: one.state_rows,
    "late": lambda one: one.late,
    "restarts": lambda one: one.restarts,
}


def delay_of(one: QueryStatus) -> float | None:
    """How far the watermark is behind the clock, in seconds; None where there is none."""
    return None if one.watermark_us is None else max(0.0, time.time() - one.watermark_us / 1e6)


def busy_tone(one: QueryStatus) -> str:
    """The tone of `busy`: a query that is always busy needs attention only while rows wait for it."""
    if not one.lag_rows:
        return ""
    return "bad" if one.busy >= 0.9 else "warn" if one.busy >= 0.7 else ""


def address_of(one: QueryStatus) -> str:
    return f"/console/queries/{quote(one.name, safe='')}" + (f"?app={quote(one.app, safe='')}" if one.app else "")


@screen("/queries", title="Queries", group="Processing", icon="bolt", key="q", order=10)
def queries(visit: Visit) -> None:
    page = QueryList(visit)
    every(2.0, page.look, page.show)


class QueryList:
    """The list, its filter and its order."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._history = context().history
        self._sort, self._down = "name", False
        with heading("Queries", under="What the apps on this log compute, and how well they keep up.", why="busy"):
            self._box = search_box("Filter queries", lambda: self.show())
        self._card = card(flush=True)
        with self._card:
            self._table = Table(COLUMNS, label="Queries", none="No query fits.", sort=self._sort, on_sort=self._order)
            self._pages = Pages(self.show)
        self._nothing = block("")
        with self._nothing:
            empty(
                "No app runs on this log",
                "Queries are shown while an app runs.",
                icon="bolt",
                command="headwater run app.py",
            )
        self._nothing.set_visibility(False)

    def look(self) -> None:
        self._history.wait()

    def show(self, _: object = None) -> None:
        statuses = [one for one in self._history.statuses if is_visible(one, self._visit.caller)]
        self._card.set_visibility(bool(statuses))
        self._nothing.set_visibility(not statuses)
        text = (self._box.value or "").lower()
        fit = [one for one in statuses if text in one.name.lower() or text in one.app.lower()]
        every_one = self._history.statuses
        series = {id(one): name for one, name in zip(every_one, series_names(every_one), strict=True)}
        found = sorted(fit, key=_ORDER[self._sort], reverse=self._down)
        self._table.set_rows([self._row(one, series[id(one)]) for one in self._pages.part(found) if id(one) in series])

    def _order(self, column: str) -> None:
        self._down = not self._down if column == self._sort else column not in ("name", "state")
        self._sort = column
        self._table.set_sort(column, down=self._down)
        self.show()

    def _row(self, one: QueryStatus, series: str) -> Row:
        is_trial = series.endswith(f" v{one.version}") and series != one.name
        under = f"version {one.version}, on trial" if is_trial else f"{one.kind} of {one.app}" if one.app else one.kind
        delay = delay_of(one)
        cells = [
            link(one.name, address_of(one), under=(one.error if is_open(one, self._visit.caller) else None) or under),
            mark(one.state, TONES.get(one.state, "")),
            drawn(sparkline(self._history.values("query", series, "rate"))),
            short(one.rows_per_second),
            "–" if one.lag_rows is None else short(one.lag_rows),
            "–" if one.batch_ms is None else f"{count(one.batch_ms)} ms",
            toned(f"{one.busy:.0%}", busy_tone(one)),
            toned("none", "quiet") if delay is None else span(delay),
            toned(short(one.state_rows), "", under=size(one.state_bytes)) if one.state_rows else toned("none", "quiet"),
            toned(count(one.late), "warn" if one.late else "quiet"),
            toned(count(one.restarts), "bad" if one.restarts else "quiet"),
        ]
        return Row(cells, key=f"{one.app}/{one.name}/{one.version}")
