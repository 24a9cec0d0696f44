"""Topics: how many rows, how fast they grow, the groups that read them and their lag. A dialog creates a topic."""

from __future__ import annotations

import shlex
from html import escape

from nicegui import ui

from headwater.apps.status import QueryStatus
from headwater.console.context import Visit, context
from headwater.console.history import TopicStatus
from headwater.console.kit.chart import sparkline
from headwater.console.kit.controls import button, text_box
from headwater.console.kit.layout import block, html, note, subtitle
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.live import read
from headwater.console.kit.table import Column, Row, drawn, link
from headwater.console.kit.words import ago, count, short, size
from headwater.console.pages import path_to, screen
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.log.port import Lag
from headwater.schema import parse_schema
from headwater.services.topics import TopicSettings

READERS_MAX = 3


@screen("/topics", title="Topics", group="Data", icon="view_stream", key="t", order=10)
def topics(visit: Visit) -> None:
    TopicList(visit).start()


class TopicList(ListPage[TopicStatus]):
    """The list of topics; internal ones only if the filter begins with `__`."""

    title = "Topics"
    under = "Logs of rows, kept and read by many: by groups of other programs, and by queries."
    why = "lag"
    columns = (
        Column(name="name", label="Topic"),
        Column(name="kind", label="Kind"),
        Column(name="partitions", label="Partitions", align="right"),
        Column(name="rows", label="Rows", align="right"),
        Column(name="bytes", label="Size", align="right"),
        Column(name="history", label="Last minutes", width="110px"),
        Column(name="rate", label="rows/s", align="right"),
        Column(name="readers", label="Read by, and how many rows behind"),
        Column(name="appended", label="Last row", align="right"),
    )
    none = "No topic fits. `headwater topic create` makes one."
    sort_keys = {
        "name": lambda topic: topic.name,
        "kind": lambda topic: context().history.kind(topic.name),
        "partitions": lambda topic: topic.partitions,
        "rows": lambda topic: topic.rows,
        "bytes": lambda topic: topic.bytes,
        "rate": lambda topic: topic.rate,
        "appended": lambda topic: topic.appended_at_us or 0,
    }
    sort = "name"

    def __init__(self, visit: Visit) -> None:
        super().__init__(visit)
        self._lags: dict[str, dict[str, list[Lag]]] = {}
        self._queries: dict[str, list[QueryStatus]] = {}
        if any(scope.action == "admin" for scope in visit.caller.scopes):
            with self.buttons:
                button("New topic", CreateTopicDialog(visit).open, icon="add", kind="primary")

    def items(self) -> list[TopicStatus]:
        context().history.wait()
        self._lags, self._queries = {}, {}
        for lag in self.visit.lags():
            self._lags.setdefault(lag.topic, {}).setdefault(lag.group, []).append(lag)
        for status in self.visit.queries():
            for name in status.inputs:
                self._queries.setdefault(name, []).append(status)
        with_internal = str(self.filter.value or "").startswith("__")
        return [topic for topic in self.visit.topics() if with_internal or not topic.name.startswith("__")]

    def row(self, item: TopicStatus) -> Row:
        cells = [
            link(item.name, path_to("topics", item.name)),
            context().history.kind(item.name),
            count(item.partitions),
            count(item.rows),
            size(item.bytes),
            drawn(sparkline(context().history.values("topic", item.name, "rate"))),
            short(item.rate),
            readers(self._lags.get(item.name, {}), self._queries.get(item.name, [])),
            ago(item.appended_at_us),
        ]
        return Row(cells, key=item.name)


def readers(lags: dict[str, list[Lag]], queries: list[QueryStatus]) -> str:
    """Groups and queries with their lag, the largest first. A group that never committed has none."""
    behind = {group: sum(lag.rows for lag in partitions) for group, partitions in lags.items()}
    texts = {
        group: "no commit" if all(lag.committed is None for lag in lags[group]) else short(rows)
        for group, rows in behind.items()
    }
    for status in queries:
        # A query with several inputs is behind by its lag in all of them together.
        behind[status.name] = max(status.lag_rows or 0, behind.get(status.name, 0))
        texts[status.name] = "–" if status.lag_rows is None else short(status.lag_rows)
    largest = sorted(behind, key=lambda name: -behind[name])
    shown = ", ".join(f"{name} {texts[name]}" for name in largest[:READERS_MAX])
    return shown + (f" and {len(largest) - READERS_MAX} more" if len(largest) > READERS_MAX else "")


class CreateTopicDialog:
    """A form for a new topic, with the command that does the same. It stays open until the topic is created or cancelled."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        with ui.dialog().props('aria-label="New topic"') as self._dialog, block("card stack"):
            subtitle("New topic")
            with block("grid tiles"):
                self._name = text_box("Name", placeholder="orders")
                self._partitions = text_box("Partitions", value="1")
            self._schema = text_box(
                "Columns", placeholder="customer string, amount double, at timestamp", lines=3, code=True
            )
            with block("grid tiles"):
                self._key = text_box("Key columns", placeholder="customer: its rows stay in order")
                self._time = text_box("Event time column", placeholder="at")
                self._keep = text_box("Keep for", placeholder="7 days; empty is for ever")
            for box in (self._name, self._partitions, self._schema, self._key, self._time, self._keep):
                box.on_value_change(self._show_command)
            self._compact = ui.checkbox("Compact: of each key, keep the last row", on_change=self._show_command)
            self._command = html("")
            self._problem = block("").props('role="alert"')
            with block("row-flex end"):
                button("Cancel", self._dialog.close, kind="ghost")
                button("Create", self._create, kind="primary")

    def open(self) -> None:
        self._visit.caller.require_somewhere("admin")
        self._show_command()
        self._dialog.open()

    def _show_command(self) -> None:
        """Show the command that does the same. A problem that was shown may be corrected by now."""
        self._problem.clear()
        words = ["headwater", "topic", "create", _text(self._name) or "NAME"]
        options = {
            "--schema": _text(self._schema),
            "--key": _text(self._key),
            "--time": _text(self._time),
            "--partitions": "" if _text(self._partitions) == "1" else _text(self._partitions),
            "--retention": _text(self._keep),
        }
        for option, value in options.items():
            words += [option, value] if value else []
        words += ["--compact"] if self._compact.value else []
        command = escape(shlex.join(words))
        self._command.set_content(f'<pre class="code" aria-label="The same in a terminal">{command}</pre>')

    async def _create(self) -> None:
        self._problem.clear()
        try:
            await read(self._create_now)
        except HeadwaterError as error:
            with self._problem:
                note(str(error), "bad")
            return
        ui.navigate.to(path_to("topics", _text(self._name)))

    def _create_now(self) -> None:
        partitions, columns = _text(self._partitions), _text(self._schema)
        if not partitions.isascii() or not partitions.isdecimal():
            raise ArgumentInvalid(name="partitions", value=partitions, expected="a whole number, from 1 on")
        settings = TopicSettings(
            partitions=int(partitions),
            key=[part.strip() for part in _text(self._key).split(",") if part.strip()] or None,
            time=_text(self._time) or None,
            retention=_text(self._keep) or None,
            compact=bool(self._compact.value),
        )
        schema = parse_schema(columns) if columns else None
        self._visit.services.topics.create(_text(self._name), schema, settings)


def _text(box: ui.input | ui.textarea) -> str:
    return str(box.value or "").strip()
