"""Late rows: which queries met some, how late they were, what became of them, and a few of them to look at."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from nicegui import ui

from headwater.apps.status import QueryStatus
from headwater.console.context import context
from headwater.console.kit.cells import columns_of, rows_of, shown
from headwater.console.kit.chart import BarChart, LineChart
from headwater.console.kit.layout import block, card, empty, heading
from headwater.console.kit.live import attempt, every
from headwater.console.kit.sparkline import sparkline
from headwater.console.kit.stat import Stat
from headwater.console.kit.table import Column, Pages, Row, Table, drawn, link, mark, toned
from headwater.console.kit.words import count, span
from headwater.console.pages import screen
from headwater.console.queries.late_rows import CLASSES, SHOWN_MAX, Samples, samples_of
from headwater.console.visit import Visit

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
    page = LatePage(visit, query)
    every(2.0, page.look, page.show)


@dataclass(frozen=True, kw_only=True)
class LateContent:
    """The queries, and what is known of the one that was picked."""

    statuses: list[QueryStatus]
    picked: QueryStatus | None
    samples: Samples
    allowed: bool


class LatePage:
    """The page."""

    def __init__(self, visit: Visit, query: str) -> None:
        self._visit, self._picked = visit, query
        self._history = context().history
        with heading(
            "Late rows", under="Rows that came when the watermark had already passed their event time.", why="late"
        ):
            pass
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
            self._pages = Pages(self._again)
        with card(flush=True):
            with block("toolbar"):
                self._title = ui.html("<h2>Some of them</h2>", sanitize=False)
                self._about = ui.label("").classes("quiet small grow").props('role="status"')
            self._samples_box = block("")
        self._samples_table: Table | None = None
        self._schema: pa.Schema | None = None

    def look(self) -> LateContent:
        self._history.wait()
        caller = self._visit.caller
        statuses = sorted(self._history.statuses, key=lambda one: (-one.late, one.name))
        statuses = [one for one in statuses if not one.inputs or any(caller.sees(name) for name in one.inputs)]
        named = [one for one in statuses if one.name == self._picked]
        picked = named[0] if named else statuses[0] if statuses else None
        allowed = picked is not None and all(caller.may("read", name) for name in picked.inputs)
        samples = samples_of(context().log, picked) if picked is not None and allowed else Samples()
        return LateContent(statuses=statuses, picked=picked, samples=samples, allowed=allowed)

    def show(self, found: LateContent) -> None:
        self._show_numbers(found)
        worst = [one for one in found.statuses if one.late][:LINES_MAX] or found.statuses[:1]
        self._lines.set({one.name: self._fresh(one.name) for one in worst})
        self._bars.set([name for _, name in CLASSES], {"rows": found.samples.counts})
        name = found.picked.name if found.picked is not None else ""
        self._table.set_rows([self._row(one, picked=one.name == name) for one in self._pages.part(found.statuses)])
        self._show_samples(found)

    def _show_numbers(self, found: LateContent) -> None:
        late = sum(one.late for one in found.statuses)
        self._late.set(count(late), foot="dropped, or kept as a side output", tone="warn" if late else "good")
        self._evicted.set(count(sum(one.evicted for one in found.statuses)), foot="had its time; nothing is lost")
        median = found.samples.median_us
        told = f"of {count(found.samples.total)} late rows of {found.picked.name}" if found.picked else ""
        self._median.set(
            "–" if median is None else span(median / 1e6), foot=told if median is not None else "none seen"
        )
        delays = [delay for one in found.statuses if (delay := _delay(one)) is not None]
        self._delay.set(
            span(max(delays)) if delays else "–", foot="the slowest query" if delays else "no watermark yet"
        )

    def _fresh(self, query: str) -> list[tuple[float, float]]:
        """How many late rows each look has found that the one before had not."""
        points = self._history.series("query", query, "late")
        return [(at, max(0.0, value - before)) for (_, before), (at, value) in pairwise(points)]

    def _row(self, one: QueryStatus, *, picked: bool) -> Row:
        delay = _delay(one)
        # Any: see `Row`.
        cells: list[Any] = [
            link(one.name, f"/console/queries/{quote(one.name, safe='')}"),
            toned(count(one.late), "warn" if one.late else "quiet"),
            drawn(sparkline([value for _, value in self._fresh(one.name)[-40:]])),
            _fate(one),
            count(one.evicted),
            "–" if delay is None else span(delay),
        ]
        return Row(cells, key=one.name, picked=picked)

    # -- samples ------------------------------------------------------------------------------------------------------

    def _show_samples(self, found: LateContent) -> None:
        self._about.set_text(_about(found))
        schema = found.samples.rows.schema if found.samples.rows.num_rows else None
        if schema != self._schema or self._samples_table is None:
            self._schema = schema
            self._samples_box.clear()
            with self._samples_box:
                self._samples_table = None if schema is None else _table_for(schema)
                if schema is None:
                    _nothing(found)
        if self._samples_table is not None:
            self._samples_table.set_rows(_sample_rows(found.samples.rows))

    async def _pick(self, name: str) -> None:
        self._picked, self._schema, self._samples_table = name, None, None
        await self._again()

    async def _again(self) -> None:
        found = await attempt(self.look)
        if found is not None:
            self.show(found)


def _delay(one: QueryStatus) -> float | None:
    return None if one.watermark_us is None else max(0.0, time.time() - one.watermark_us / 1e6)


# Any: a cell.
def _fate(one: QueryStatus) -> Any:
    topic = one.side_outputs.get("late")
    if topic:
        return link(f"kept in {topic}", f"/console/topics/{quote(topic, safe='')}")
    if one.watermark_us is None and not one.late:
        return toned("no watermark, so none is late", "quiet")
    return mark("dropped", "warn") if one.late else toned("would be dropped", "quiet")


def _about(found: LateContent) -> str:
    if found.picked is None:
        return ""
    name, samples = found.picked.name, found.samples
    if not found.allowed:
        return f"To see rows of {name}, one needs read rights on what it reads."
    if samples.source == "topic":
        return f"{name} keeps its late rows in {samples.topic}; the newest {SHOWN_MAX} are here."
    if samples.source == "kept":
        return f"{name} drops its late rows, and keeps a few of each batch to look at. {KEEP}"
    return f"{name} has kept none. {KEEP if found.picked.late else ''}"


def _nothing(found: LateContent) -> None:
    if found.picked is None:
        empty(
            "No app runs on this log", "Late rows are met by queries.", command="headwater run app.py", icon="schedule"
        )
    elif found.picked.late:
        empty("Counted, not kept", "An operator of Spark's own dropped them, and keeps none.", icon="visibility_off")
    else:
        empty("Nothing was late", "Every row came before the watermark had passed it.", icon="schedule")


def _table_for(schema: pa.Schema) -> Table:
    names = [name for name in schema.names if name != "late_by_us"]
    columns = [Column(name="late", label="Late by", align="right"), *columns_of(schema.field(name) for name in names)]
    return Table(columns, label="Late rows", none="None.")


def _sample_rows(rows: pa.Table) -> list[Row]:
    late = [None if us is None else us / 1e6 for us in rows.column("late_by_us").to_pylist()]
    others = rows_of(rows.select([name for name in rows.column_names if name != "late_by_us"]))
    return [
        Row([toned(span(seconds), "warn"), *shown(texts)], key=number)
        for number, (seconds, texts) in enumerate(zip(late, others, strict=True))
    ]
