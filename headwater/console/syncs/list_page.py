"""Syncs: the state, delay and rate of each, in one row."""

from __future__ import annotations

from headwater.console.context import Visit, context
from headwater.console.kit.chart import sparkline
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.table import Column, Row, drawn, link, mark, toned
from headwater.console.kit.words import count, short, span
from headwater.console.pages import path_to, screen
from headwater.console.syncs.display import TONES, badness, comparison_cell, delay_tone
from headwater.services.syncs import SyncStatus


@screen("/syncs", title="Syncs", group="Data", icon="sync_alt", key="n", order=26)
def syncs(visit: Visit) -> None:
    visit.caller.require("read", "*")
    SyncList(visit).start()


class SyncList(ListPage[SyncStatus]):
    """The list of syncs; those that need attention come first."""

    title = "Syncs"
    under = "Databases, caches, indexes and lakes that are kept in step with topics."
    why = "sync_delay"
    columns = (
        Column(name="name", label="Sync"),
        Column(name="state", label="State"),
        Column(name="runs", label="Run by"),
        Column(name="history", label="Delay, last minutes", width="120px"),
        Column(name="delay", label="Delay", align="right"),
        Column(name="pending", label="Pending", align="right"),
        Column(name="rate", label="rows/s", align="right"),
        Column(name="tables", label="Tables", align="right"),
        Column(name="compared", label="Last comparison"),
    )
    none = "No sync fits."
    nothing = {
        "title": "Nothing is kept in sync",
        "hint": "A sync applies the tables that topics hold to a database, a cache, a search index or a lake.",
        "icon": "sync_alt",
        "command": "headwater sync create copy sqlite:///copy.db --topics 'shop.*'",
    }
    sort_keys = {
        "name": lambda one: one.name,
        "state": badness,
        "delay": lambda one: one.delay_seconds or 0.0,
        "pending": lambda one: one.pending or 0,
        "rate": lambda one: one.rows_per_second,
        "tables": lambda one: len(one.tables),
        "compared": lambda one: 0 if one.compared is None else one.compared.at_us,
    }
    ascending = ("name", "state")
    sort = "state"

    def items(self) -> list[SyncStatus]:
        context().history.wait()
        return context().history.syncs

    def text(self, item: SyncStatus) -> str:
        return "\n".join((item.name, item.url, *(table.topic for table in item.tables)))

    def row(self, item: SyncStatus) -> Row:
        delay = "–" if item.delay_seconds is None else span(item.delay_seconds)
        cells = [
            link(item.name, path_to("syncs", item.name), under=item.error or item.url),
            mark(item.state, TONES[item.state]),
            f"process {item.pid}" if item.running else toned("no process", "quiet"),
            drawn(sparkline(context().history.values("sync", item.name, "delay"))),
            toned(delay, delay_tone(item)) if delay_tone(item) else delay,
            "–" if item.pending is None else count(item.pending),
            short(item.rows_per_second) if item.running else "–",
            count(len(item.tables)),
            comparison_cell(item),
        ]
        return Row(cells, key=item.name)
