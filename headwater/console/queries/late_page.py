"""Late rows: the queries that had some, how late the rows were, what becomes of them, and samples of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from nicegui import ui

from headwater.apps.status import QueryStatus
from headwater.console.context import Visit, context
from headwater.console.kit.chart import BarChart, LineChart, sparkline
from headwater.console.kit.layout import Stat, block, card, empty, heading, subtitle
from headwater.console.kit.live import LivePage
from headwater.console.kit.table import Column, Pages, Row, Table, drawn, link, mark, toned
from headwater.console.kit.values import cells_of, columns_of, rows_of
from headwater.console.kit.words import count, span
from headwater.console.pages import path_to, screen
from headwater.console.queries.late_rows import CLASSES, LATE_BY, SHOWN_MAX, Samples, samples_of
from headwater.console.queries.status import delay_of, query_path
from headwater.services.queries import is_open

COLUMNS = (
    Column(name="query", label="Query"),
    Column(name="late", label="Late rows", align="right"),
    Column(name="history", label="Last minutes", width="120px"),
    Column(name="fate", label="What becomes of them"),
    Column(name="evicted", label="State let go", align="right"),
    Column(name="delay", label="Watermark delay", align="right"),
)
LINES_MAX = 6
KEEP = (
    'These rows are dropped. To keep them, say late="side_output" in the operator and name a topic for them in the query: '
    '@app.topic(late="orders.late"), or the same for @app.view.'
)


@screen("/late", title="Late rows", group="Attention", icon="running_with_errors", key="l", order=20)
def late(visit: Visit, query: str = "") -> None:
    LatePage(visit, query).start()


@dataclass(frozen=True, kw_only=True)
class LateContent:
    """The queries, and the late rows of the one that was picked."""

    statuses: list[QueryStatus]
    picked: QueryStatus | None
    samples: Samples
    is_open: bool
    """Whether the caller may read the rows of the query that was picked."""


class LatePage(LivePage[LateContent]):
    """The page of late rows."""

    def __init__(self, visit: Visit, query: str) -> None:
        self._visit, self._picked = visit, query
        self._history = context().history
        heading("Late rows", under="Rows that came when the watermark had already passed their event time.", why="late")
        with block("grid tiles"):
            self._late = Stat("Behind the watermark", unit="rows", why="late")
            self._evicted = Stat("State let go", unit="rows", why="evicted")
            self._median = Stat("Half are late by at most", why="lateness")
            self._delay = Stat("Watermark delay", why="watermark")
        with block("grid"):
            with card("New late rows, over time"):
                self._lines = LineChart(label="New late rows over time, by query", dark=visit.dark, height=200)
            with card("How late, at most", why="lateness"):
                self._bars = BarChart(label="Late rows by how late they were", dark=visit.dark, height=200)
        with card("Queries", flush=True):
            self._table = Table(COLUMNS, label="Queries", none="No query runs.", on_row=self._pick)
            self._pages = Pages(self.refresh)
        with card(flush=True):
            with block("toolbar"):
                subtitle("Some of them")
                self._about = ui.label("").classes("quiet small grow").props('role="status"')
            self._samples_box = block("")
        self._samples_table: Table | None = None
        self._schema: pa.Schema | None = None

    def load(self) -> LateContent:
        self._history.wait()
        statuses = sorted(self._visit.queries(), key=lambda status: (-status.late, status.name))
        named = (status for status in statuses if status.name == self._picked)
        picked = next(named, statuses[0] if statuses else None)
        may_open = picked is not None and is_open(picked, self._visit.caller)
        samples = samples_of(context().log, picked) if picked is not None and may_open else Samples()
        return LateContent(statuses=statuses, picked=picked, samples=samples, is_open=may_open)

    def show(self, content: LateContent) -> None:
        self._show_numbers(content)
        worst = [status for status in content.statuses if status.late][:LINES_MAX] or content.statuses[:1]
        self._lines.set({status.name: self._new_rows(status.name) for status in worst})
        self._bars.set([name for _, name in CLASSES], {"rows": content.samples.counts})
        self._table.set_rows(
            [self._row(status, picked=status is content.picked) for status in self._pages.part(content.statuses)]
        )
        self._show_samples(content)

    def _show_numbers(self, content: LateContent) -> None:
        late = sum(status.late for status in content.statuses)
        self._late.set(count(late), foot="dropped, or kept as a side output", tone="warn" if late else "good")
        evicted = sum(status.evicted for status in content.statuses)
        self._evicted.set(count(evicted), foot="had its time; nothing is lost")
        median, picked = content.samples.median_us, content.picked
        if median is None or picked is None:
            self._median.set("–", foot="none seen")
        else:
            self._median.set(span(median / 1e6), foot=f"of {count(content.samples.total)} late rows of {picked.name}")
        delays = [delay for status in content.statuses if (delay := delay_of(status)) is not None]
        self._delay.set(
            span(max(delays)) if delays else "–", foot="the slowest query" if delays else "no watermark yet"
        )

    def _new_rows(self, query: str) -> list[tuple[float, float]]:
        """How many late rows came between two measurements."""
        points = self._history.series("query", query, "late")
        return [(at, max(0.0, value - before)) for (_, before), (at, value) in pairwise(points)]

    def _row(self, status: QueryStatus, *, picked: bool) -> Row:
        delay = delay_of(status)
        cells = [
            link(status.name, query_path(status)),
            toned(count(status.late), "warn" if status.late else "quiet"),
            drawn(sparkline([value for _, value in self._new_rows(status.name)[-40:]])),
            _fate(status),
            count(status.evicted),
            "–" if delay is None else span(delay),
        ]
        return Row(cells, key=status.name, picked=picked)

    # -- samples ------------------------------------------------------------------------------------------------------

    def _show_samples(self, content: LateContent) -> None:
        rows = content.samples.rows
        self._about.set_text(_about(content))
        schema = rows.schema if rows.num_rows else None
        if schema != self._schema or self._samples_table is None:
            self._schema = schema
            self._samples_box.clear()
            with self._samples_box:
                self._samples_table = None if schema is None else _samples_table(schema)
                if schema is None:
                    _nothing(content)
        if self._samples_table is not None:
            late = [None if us is None else us / 1e6 for us in rows.column(LATE_BY).to_pylist()]
            others = rows_of(rows.drop_columns([LATE_BY]))
            self._samples_table.set_rows(
                [
                    Row([toned(span(seconds), "warn"), *cells_of(texts)], key=number)
                    for number, (seconds, texts) in enumerate(zip(late, others, strict=True))
                ]
            )

    async def _pick(self, name: str) -> None:
        self._picked, self._schema, self._samples_table = name, None, None
        await self.refresh()


# Any: a cell.
def _fate(status: QueryStatus) -> Any:
    topic = status.side_outputs.get("late")
    if topic:
        return link(f"kept in {topic}", path_to("topics", topic))
    if status.watermark_us is None and not status.late:
        return toned("no watermark, so none is late", "quiet")
    return mark("dropped", "warn") if status.late else toned("would be dropped", "quiet")


def _about(content: LateContent) -> str:
    if content.picked is None:
        return ""
    name, samples = content.picked.name, content.samples
    if not content.is_open:
        return f"To see rows of {name}, one needs read rights on what it reads."
    if samples.source == "topic":
        return f"{name} keeps its late rows in {samples.topic}; the newest {SHOWN_MAX} are here."
    if samples.source == "kept":
        return f"{name} drops its late rows, and keeps a few of each batch to look at. {KEEP}"
    return f"{name} has kept none. {KEEP if content.picked.late else ''}"


def _nothing(content: LateContent) -> None:
    if content.picked is None:
        hint = "Late rows are met by queries."
        empty("No app has run on this log", hint, command="headwater run app.py", icon="schedule")
    elif content.picked.late:
        empty("Counted, not kept", "An operator of Spark's own dropped them, and keeps none.", icon="visibility_off")
    else:
        empty("Nothing was late", "Every row came before the watermark had passed it.", icon="schedule")


def _samples_table(schema: pa.Schema) -> Table:
    columns = columns_of(column for column in schema if column.name != LATE_BY)
    return Table([Column(name="late", label="Late by", align="right"), *columns], label="Late rows", none="None.")
