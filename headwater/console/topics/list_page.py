"""Topics: how many rows, how fast, who reads them and how far behind. Pages of fifty, also of ten thousand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from headwater.console.context import context
from headwater.console.history import TopicStatus
from headwater.console.kit.layout import button, card, heading, search_box
from headwater.console.kit.live import every
from headwater.console.kit.sparkline import sparkline
from headwater.console.kit.table import Column, Pages, Row, Table, drawn, link
from headwater.console.kit.words import ago, count, short, size
from headwater.console.pages import screen
from headwater.console.topics.create import CreateTopicDialog
from headwater.console.visit import Visit
from headwater.log.port import Lag

COLUMNS = (
    Column(name="name", label="Topic", sortable=True),
    Column(name="partitions", label="Partitions", align="right", sortable=True),
    Column(name="rows", label="Rows", align="right", sortable=True),
    Column(name="bytes", label="Size", align="right", sortable=True),
    Column(name="history", label="Last minutes", width="110px"),
    Column(name="rate", label="rows/s", align="right", sortable=True),
    Column(name="readers", label="Groups, and how many rows behind"),
    Column(name="appended", label="Last row", align="right", sortable=True),
)
_ORDER: dict[str, Callable[[TopicStatus], Any]] = {
    "name": lambda one: one.name,
    "partitions": lambda one: one.partitions,
    "rows": lambda one: one.rows,
    "bytes": lambda one: one.bytes,
    "rate": lambda one: one.rate,
    "appended": lambda one: one.appended_at_us or 0,
}
READERS_MAX = 3


@screen("/topics", title="Topics", group="Data", icon="view_stream", key="t", order=10)
def topics(visit: Visit) -> None:
    page = TopicList(visit)
    every(2.0, page.look, page.show)


class TopicList:
    """The list, its filter and its order."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._history = context().history
        self._sort, self._down = "name", False
        with heading(
            "Topics", under="Logs of rows, kept and read by many. Lag is that of each group in its topic.", why="lag"
        ):
            self._box = search_box("Filter topics", lambda: self.show())
            if any(scope.action == "admin" for scope in visit.caller.scopes):
                button("New topic", CreateTopicDialog(visit).open, icon="add", kind="primary")
        with card(flush=True):
            self._table = Table(
                COLUMNS,
                label="Topics",
                none="No topic fits. `headwater topic create` makes one.",
                sort=self._sort,
                on_sort=self._order,
            )
            self._pages = Pages(self.show)

    def look(self) -> None:
        self._history.wait()

    def show(self, _: object = None) -> None:
        readers: dict[str, dict[str, list[Lag]]] = {}
        for lag in self._visit.lags():
            readers.setdefault(lag.topic, {}).setdefault(lag.group, []).append(lag)
        self._table.set_rows([self._row(one, readers.get(one.name, {})) for one in self._pages.part(self._found())])

    def _found(self) -> list[TopicStatus]:
        text = (self._box.value or "").lower()
        fit = [
            one
            for one in self._visit.topics()
            if text in one.name.lower() and (text.startswith("__") or not one.name.startswith("__"))
        ]
        return sorted(fit, key=_ORDER[self._sort], reverse=self._down)

    def _order(self, column: str) -> None:
        self._down = not self._down if column == self._sort else column != "name"
        self._sort = column
        self._table.set_sort(column, down=self._down)
        self.show()

    def _row(self, one: TopicStatus, readers: dict[str, list[Lag]]) -> Row:
        values = self._history.values("topic", one.name, "rate")
        cells = [
            link(one.name, f"/console/topics/{quote(one.name, safe='')}"),
            count(one.partitions),
            count(one.rows),
            size(one.bytes),
            drawn(sparkline(values)),
            short(one.rate),
            _told(readers),
            ago(one.appended_at_us),
        ]
        return Row(cells, key=one.name)


def _told(readers: dict[str, list[Lag]]) -> str:
    """Groups with their lag, the worst first; one that never committed says so."""
    worst = sorted(readers.items(), key=lambda item: -sum(lag.rows for lag in item[1]))
    told = [
        f"{group} {'no commit' if all(lag.committed is None for lag in lags) else short(sum(lag.rows for lag in lags))}"
        for group, lags in worst[:READERS_MAX]
    ]
    return ", ".join(told) + (f" and {len(worst) - READERS_MAX} more" if len(worst) > READERS_MAX else "")
