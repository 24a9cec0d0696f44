"""Browse: a topic's rows from the newest, the oldest, an offset or a time on; a panel shows one of them whole."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from fastapi import Query
from nicegui import ui

from headwater.console.context import Visit
from headwater.console.kit.controls import button, select
from headwater.console.kit.layout import block, card
from headwater.console.kit.live import LivePage, attempt
from headwater.console.kit.words import count, counted, offset_number
from headwater.console.pages import screen
from headwater.console.topics.frame import topic_head, topic_path
from headwater.console.topics.row_list import RowBrowser
from headwater.errors import ArgumentInvalid
from headwater.log.errors import partition_not_found
from headwater.log.port import Offsets
from headwater.log.remote.wire import offsets_to_text
from headwater.log.topic import Topic
from headwater.services.rows import RowPage

ROWS = 50
STARTS = {"newest": "Newest", "oldest": "Oldest", "offset": "From an offset", "time": "From a time"}
PLACES = {"offset": "Offset, such as 1200", "time": "Time in UTC, such as 2026-11-15 23:30"}


@screen("/topics/{name}/browse", under="/topics")
async def browse(
    visit: Visit, name: str, begin: str = Query("newest", alias="from"), at: str = "", partition: str = ""
) -> None:
    topic, buttons = await topic_head(visit, name, "Browse")
    page = BrowsePage(visit, topic, StartPosition.parse(topic, begin, at, partition))
    with buttons:
        button("Refresh", page.open_first, icon="refresh")
    await page.open_first()
    page.start()


@dataclass(frozen=True, kw_only=True)
class StartPosition:
    """The first row to show, as the address says it."""

    kind: str
    at: str = ""
    partition: int | None = None

    @staticmethod
    def parse(topic: Topic, kind: str, at: str, partition: str) -> StartPosition:
        if kind not in STARTS:
            raise ArgumentInvalid(name="from", value=kind, expected="newest, oldest, offset or time")
        number = int(partition) if partition.isdecimal() and partition.isascii() else None
        if partition and (number is None or number >= topic.partitions):
            raise partition_not_found(topic=topic.name, partition=number or -1, partitions=topic.partitions)
        return StartPosition(kind=kind, at=at.strip(), partition=number)

    @property
    def is_backwards(self) -> bool:
        return self.kind == "newest"

    def text(self) -> str:
        """The position as the service of rows takes it."""
        if self.kind == "offset":
            return str(offset_number(self.at))
        if self.kind == "time":
            try:
                moment = datetime.fromisoformat(self.at)
            except ValueError:
                expected = "a time such as 2026-11-15 23:30:00, in UTC"
                raise ArgumentInvalid(name="time", value=self.at, expected=expected) from None
            return f"@{(moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()}"
        return "end" if self.kind == "newest" else "start"


class BrowsePage(LivePage[int]):
    """Pages of rows; it loads how many rows have come since the first page was opened."""

    def __init__(self, visit: Visit, topic: Topic, start: StartPosition) -> None:
        self._rows, self._topic, self._start = visit.services.rows, topic, start
        #: The positions of the pages before this one, and of this one.
        self._before: list[str] = []
        self._here = ""
        self._page: RowPage | None = None
        #: Where the topic ended when the first page was opened.
        self._end: Offsets = {}
        with card(flush=True):
            self._build_toolbar()
            self._browser = RowBrowser(visit, topic, label=f"Rows of {topic.name}", none="No rows here.", fit=True)
            with block("pager"):
                self._summary = ui.label("").props('role="status"')
                block("grow")
                self._back = button("Back", self._go_back, icon="chevron_left", kind="ghost")
                forward = "Older" if start.is_backwards else "Newer"
                self._forward = button(forward, self._go_on, icon="chevron_right", kind="ghost")

    def _build_toolbar(self) -> None:
        start, partitions = self._start, self._topic.partitions
        with block("toolbar"):
            self._kind = select(STARTS, value=start.kind, label="Begin at", on_change=self._choose_kind)
            self._at = ui.input(value=start.at, placeholder=PLACES.get(start.kind, "")).classes("field")
            self._at.props('outlined dense aria-label="Place"').on("keydown.enter", self._go)
            self._at.style("width: 260px").set_visibility(start.kind in PLACES)
            options = {"": "All partitions", **{str(n): f"Partition {n}" for n in range(partitions)}}
            chosen = "" if start.partition is None else str(start.partition)
            if partitions > 1:
                self._partition = select(options, value=chosen, label="Partition", on_change=self._go)
            self._show = button("Show", self._go)
            self._show.set_visibility(start.kind in PLACES)
            block("grow")
            self._newer = button("", self.open_first, icon="arrow_upward")
            self._newer.classes(remove="icon").set_visibility(False)

    def _choose_kind(self) -> None:
        kind = self._kind.value
        self._at.set_visibility(kind in PLACES)
        self._show.set_visibility(kind in PLACES)
        self._at.props(f'placeholder="{PLACES.get(kind, "")}"')
        if kind not in PLACES:
            self._go()

    def _go(self) -> None:
        """Begin elsewhere: the address says where, so that it can be sent to others."""
        words = {"from": self._kind.value}
        if self._kind.value in PLACES:
            words["at"] = self._at.value or ""
        if self._topic.partitions > 1 and self._partition.value:
            words["partition"] = self._partition.value
        ui.navigate.to(f"{topic_path(self._topic.name, 'Browse')}?{urlencode(words)}")

    async def open_first(self) -> None:
        """Open the first page, as it is now."""
        self._before = []
        end = await attempt(lambda: self._rows.follow(self._topic.name))
        position = await attempt(self._start.text)
        if end is not None and position is not None:
            self._end = end.next
            self._newer.set_visibility(False)
            await self._open(position)

    async def _go_on(self) -> None:
        if self._page is not None:
            self._before.append(self._here)
            await self._open(offsets_to_text(self._page.next))

    async def _go_back(self) -> None:
        if self._before:
            await self._open(self._before.pop())

    async def _open(self, position: str) -> None:
        start, name = self._start, self._topic.name
        page = await attempt(
            lambda: self._rows.page(
                name, start=position, backwards=start.is_backwards, partition=start.partition, limit=ROWS
            )
        )
        if page is None:
            return
        self._here, self._page = position, page
        self._browser.list.set_rows(page.rows)
        order, end = ("newest first", "oldest") if start.is_backwards else ("oldest first", "newest")
        last = f", that is the {end}" if page.is_last else ""
        self._summary.set_text(f"{counted(len(page.rows), 'row')}, {order}{last}" if page.rows else "No rows here.")
        self._back.set_enabled(bool(self._before))
        self._forward.set_enabled(not page.is_last)

    def load(self) -> int:
        if not self._end:
            return 0
        return self._rows.follow(self._topic.name, after=offsets_to_text(self._end), limit=0).waiting

    def show(self, content: int) -> None:
        """Count the rows that have come since; they do not push away what is read."""
        self._newer.set_visibility(content > 0 and self._start.is_backwards)
        self._newer.set_text(f"{count(content)} newer")
