"""Captures: the state, delay and rate of each, in one row."""

from __future__ import annotations

from headwater.console.captures.display import (
    TONES,
    badness,
    delay_tone,
    pending_of,
    runs,
    snapshot_share,
)
from headwater.console.context import Visit, context
from headwater.console.kit.chart import sparkline
from headwater.console.kit.layout import meter
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.table import Column, Row, drawn, link, mark, toned
from headwater.console.kit.words import count, short, span
from headwater.console.pages import path_to, screen
from headwater.services.captures import CaptureStatus


@screen("/captures", title="Captures", group="Data", icon="cable", key="b", order=25)
def captures(visit: Visit) -> None:
    visit.caller.require("read", "*")
    CaptureList(visit).start()


class CaptureList(ListPage[CaptureStatus]):
    """The list of captures; those that need attention come first."""

    title = "Captures"
    under = "Databases whose tables are topics, and how far each is behind."
    why = "capture_delay"
    columns = (
        Column(name="name", label="Capture"),
        Column(name="state", label="State"),
        Column(name="runs", label="Run by"),
        Column(name="history", label="Delay, last minutes", width="120px"),
        Column(name="delay", label="Delay", align="right"),
        Column(name="pending", label="Pending", align="right"),
        Column(name="rate", label="rows/s", align="right"),
        Column(name="rows", label="Rows", align="right"),
        Column(name="snapshot", label="Snapshot", width="110px"),
        Column(name="letters", label="Dead letters", align="right"),
    )
    none = "No capture fits."
    nothing = {
        "title": "No database is captured",
        "hint": "A capture brings every row and every change of a database's tables into topics.",
        "icon": "cable",
        "command": "headwater capture create shop sqlite:///shop.db",
    }
    sort_keys = {
        "name": lambda one: one.name,
        "state": badness,
        "delay": lambda one: one.delay_seconds or 0.0,
        "pending": lambda one: one.pending or 0,
        "rate": lambda one: one.rows_per_second,
        "rows": lambda one: one.rows,
        "letters": lambda one: sum(table.dead_letters for table in one.tables),
    }
    ascending = ("name", "state")
    sort = "state"

    def items(self) -> list[CaptureStatus]:
        context().history.wait()
        return context().history.captures

    def text(self, item: CaptureStatus) -> str:
        return "\n".join((item.name, item.url, *(table.table for table in item.tables)))

    def row(self, item: CaptureStatus) -> Row:
        share = snapshot_share(item)
        letters = sum(table.dead_letters for table in item.tables)
        delay = "–" if item.delay_seconds is None else span(item.delay_seconds)
        complete = toned("complete", "quiet") if share == 1.0 else "–"
        cells = [
            link(item.name, path_to("captures", item.name), under=item.danger or item.error or item.url),
            mark(item.state, TONES[item.state]),
            runs(item) if item.running else toned(runs(item), "quiet"),
            drawn(sparkline(context().history.values("capture", item.name, "delay"))),
            toned(delay, delay_tone(item)) if delay_tone(item) else delay,
            pending_of(item),
            short(item.rows_per_second) if item.running else "–",
            count(item.rows),
            complete if share in (None, 1.0) else drawn(meter(share)),
            toned(count(letters), "warn") if letters else "–",
        ]
        return Row(cells, key=item.name)
