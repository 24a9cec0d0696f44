"""What all pages of one topic have in common: its name, what it is, the tabs, and the row that is looked at beside a list."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from nicegui import ui

from headwater.console.context import context
from headwater.console.paging import neighbour, record_at
from headwater.console.parts.layout import block, button, heading, tabs
from headwater.console.parts.live import attempt, read
from headwater.console.parts.record import RecordView
from headwater.console.parts.rows import record_path
from headwater.console.parts.words import counted
from headwater.console.visit import Visit
from headwater.log.port import Topic

if TYPE_CHECKING:
    from headwater.console.parts.rows import RowList

PAGES = {"Overview": "", "Browse": "/browse", "Live tail": "/tail", "Search": "/search", "Produce": "/produce"}


def topic_path(name: str, page: str = "") -> str:
    """The address of a page of a topic."""
    return f"/console/topics/{quote(name, safe='')}{PAGES.get(page, page)}"


async def topic_head(visit: Visit, name: str, page: str) -> tuple[Topic, ui.element]:
    """The head of a page of a topic; gives the topic, and the place for the page's buttons."""
    visit.caller.require_sight(name)
    if page != "Overview":
        visit.caller.require("write" if page == "Produce" else "read", name)
    topic = await read(lambda: context().log.topic(name))
    buttons = heading(name, under=about(topic))
    topic_tabs(visit, name, page)
    return topic, buttons


def topic_tabs(visit: Visit, name: str, page: str) -> None:
    """The pages of a topic that the visitor may open."""
    shown = [one for one in PAGES if one != "Produce" or visit.caller.may("write", name)]
    tabs({one: topic_path(name, one) for one in shown}, current=page)


def about(topic: Topic) -> str:
    """What a topic is, in one line."""
    words = [counted(topic.partitions, "partition")]
    words.append("bytes without a schema" if topic.schemaless else counted(len(topic.schema.names), "column"))
    if topic.key:
        words.append(f"keyed by {', '.join(f'`{name}`' for name in topic.key)}")
    if topic.time:
        words.append(f"event time in `{topic.time}`")
    if topic.compact:
        words.append("compacted: of each key the last row stays")
    return " · ".join(words)


class Beside:
    """A row that was picked in a list, whole, in a panel beside it."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._list: RowList | None = None
        self._place = (0, 0)
        self._box = ui.element("aside").classes("card beside").props('aria-label="Row" tabindex="-1"')
        with self._box:
            with block("row-flex nowrap-row"):
                self._title = ui.html("", sanitize=False).classes("grow")
                button("", lambda: self._go(forwards=False), icon="expand_less", kind="ghost", label="The row before")
                button("", lambda: self._go(forwards=True), icon="expand_more", kind="ghost", label="The row behind")
                button("", self.close, icon="close", kind="ghost", label="Close")
            self._told = ui.label("").classes("quiet")
            self._view = RecordView(topic)
        self._box.set_visibility(False)
        self._box.on("keydown.escape", self.close)

    def serves(self, listed: RowList) -> None:
        self._list = listed

    async def show(self, partition: int, offset: int) -> None:
        """Read a row and show it; say so where it is gone."""
        self._place = (partition, offset)
        found = await attempt(lambda: record_at(context().log, self._topic.name, partition, offset))
        path = record_path(self._topic.name, partition, offset)
        self._title.set_content(
            f'<h2><a href="{path}" title="The address of this row">Partition {partition}, offset {offset}</a></h2>'
        )
        self._told.set_text("" if found else "This row is no longer there: it was deleted or compacted away.")
        self._told.set_visibility(found is None)
        if found is None:
            self._view.hide()
        else:
            self._view.show(found)
        self._box.set_visibility(True)

    def close(self) -> None:
        self._box.set_visibility(False)
        if self._list is not None:
            self._list.unpick()

    async def _go(self, *, forwards: bool) -> None:
        partition, offset = self._place
        found = await attempt(lambda: neighbour(context().log, self._topic.name, partition, offset, forwards=forwards))
        if found is not None:
            await self.show(partition, found)
