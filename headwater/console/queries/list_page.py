"""Queries: the state, rate, lag, watermark and late rows of each, in one row."""

from __future__ import annotations

from headwater.apps.status import QueryStatus
from headwater.console.context import Visit, context
from headwater.console.history import series_names
from headwater.console.kit.chart import sparkline
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.table import Column, Row, drawn, link, mark, toned
from headwater.console.kit.words import count, duration, short, size, span
from headwater.console.pages import screen
from headwater.console.queries.status import TONES, badness, busy_tone, delay_of, query_path
from headwater.services.queries import is_open, is_visible


@screen("/queries", title="Queries", group="Processing", icon="bolt", key="q", order=10)
def queries(visit: Visit) -> None:
    QueryList(visit).start()


class QueryList(ListPage[tuple[QueryStatus, str]]):
    """Queries with the names of their series."""

    title = "Queries"
    under = "What the apps on this log compute, and how well they keep up."
    why = "busy"
    columns = (
        Column(name="name", label="Query"),
        Column(name="state", label="State"),
        Column(name="history", label="Last minutes", width="110px"),
        Column(name="rate", label="rows/s", align="right"),
        Column(name="lag", label="Lag", align="right"),
        Column(name="batch", label="Batch", align="right"),
        Column(name="busy", label="Busy", align="right"),
        Column(name="watermark", label="Watermark delay", align="right"),
        Column(name="kept", label="State kept", align="right"),
        Column(name="late", label="Late", align="right"),
        Column(name="restarts", label="Restarts", align="right"),
    )
    none = "No query fits."
    nothing = {
        "title": "No app has run on this log",
        "hint": "Its queries are shown here from then on, also while it is stopped.",
        "icon": "bolt",
        "command": "headwater run app.py",
    }
    sort_keys = {
        "name": lambda item: (item[0].name, item[0].version),
        "state": lambda item: badness(item[0]),
        "rate": lambda item: item[0].rows_per_second,
        "lag": lambda item: item[0].lag_rows or 0,
        "batch": lambda item: item[0].batch_ms or 0.0,
        "busy": lambda item: item[0].busy,
        "watermark": lambda item: delay_of(item[0]) or 0.0,
        "kept": lambda item: item[0].state_rows,
        "late": lambda item: item[0].late,
        "restarts": lambda item: item[0].restarts,
    }
    ascending = ("name", "state")
    sort = "state"

    def items(self) -> list[tuple[QueryStatus, str]]:
        context().history.wait()
        statuses = context().history.statuses
        named = zip(statuses, series_names(statuses), strict=True)
        return [(status, series) for status, series in named if is_visible(status, self.visit.caller)]

    def text(self, item: tuple[QueryStatus, str]) -> str:
        return f"{item[0].name}\n{item[0].app}"

    def row(self, item: tuple[QueryStatus, str]) -> Row:
        status, series = item
        is_trial = series.endswith(f" v{status.version}") and series != status.name
        under = f"{status.kind} of {status.app}" if status.app else status.kind
        if is_trial:
            under = f"version {status.version}, on trial"
        if status.error and is_open(status, self.visit.caller):
            under = status.error
        delay = delay_of(status)
        state = toned(short(status.state_rows), "", under=size(status.state_bytes))
        cells = [
            link(status.name, query_path(status), under=under),
            mark(status.state, TONES.get(status.state, "")),
            drawn(sparkline(context().history.values("query", series, "rate"))),
            short(status.rows_per_second),
            "–" if status.lag_rows is None else short(status.lag_rows),
            "–" if status.batch_ms is None else duration(status.batch_ms / 1000),
            toned(f"{status.busy:.0%}", busy_tone(status)),
            toned("none", "quiet") if delay is None else span(delay),
            state if status.state_rows else toned("none", "quiet"),
            toned(count(status.late), "warn" if status.late else "quiet"),
            toned(count(status.restarts), "bad" if status.restarts else "quiet"),
        ]
        return Row(cells, key=f"{status.app}/{status.name}/{status.version}")
