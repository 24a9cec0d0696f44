"""Browse: a topic's rows from its newest, its oldest, an offset or a time on; each one whole beside the list."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import urlencode

from fastapi import Query
from nicegui import ui

from headwater.console.kit.layout import block, button, card, select
from headwater.console.kit.live import attempt, every
from headwater.console.kit.words import count
from headwater.console.pages import screen
from headwater.console.topics.frame import topic_head, topic_path
from headwater.console.topics.row_list import RowList
from headwater.console.topics.row_panel import RowPanel
from headwater.console.visit import Visit
from headwater.errors import ArgumentInvalid
from headwater.log.errors import partition_not_found
from headwater.log.port import Offsets, Topic
from headwater.log.remote.wire import offsets_to_text
from headwater.services.rows import RowPage

ROWS = 50
BEGINNINGS = {"newest": "Newest", "oldest": "Oldest", "offset": "From an offset", "time": "From a time"}
PLACES = {"offset": "Offset, such as 1200", "time": "Time in UTC, such as 2026-11-15 23:30"}


@screen("/topics/{name}/browse", under="/topics")
async def browse(
    visit: Visit, name: str, begin: str = Query("newest", alias="from"), at: str = "", partition: str = ""
) -> None:
    topic, buttons = await topic_head(visit, name, "Browse")
    page = BrowsePage(visit, topic, StartPosition.parse(topic, begin, at, partition))
    with buttons:
        button("Refresh", page.first, icon="refresh")
    await page.first()
    every(2.0, page.look, page.tell_newer)


@dataclass(frozen=True, kw_only=True)
class StartPosition:
    """Where a visitor wants to begin."""

    kind: str
    at: str = ""
    partition: int | None = None

    @staticmethod
    def parse(topic: Topic, kind: str, at: str, partition: str) -> StartPosition:
        """What an address says; refused where it cannot be meant."""
        if kind not in BEGINNINGS:
            raise ArgumentInvalid(name="from", value=kind, expected="newest, oldest, offset or time")
        number = int(partition) if partition.isdecimal() and partition.isascii() else None
        if partition and (number is None or number >= topic.partitions):
            raise partition_not_found(topic=topic.name, partition=number or -1, partitions=topic.partitions)
        return StartPosition(kind=kind, at=at.strip(), partition=number)

    @property
    def is_backwards(self) -> bool:
        return self.kind == "newest"

    def start(self) -> str:
        """The place as the service takes it: the first row to show, or the one behind the last."""
        if self.kind == "offset":
            digits = self.at.replace(",", "").replace(" ", "")
            if not digits.isdecimal() or not digits.isascii() or len(digits) > 18:
                raise ArgumentInvalid(name="offset", value=self.at, expected="a whole number, such as 1200")
            return digits
        if self.kind == "time":
            try:
                moment = datetime.fromisoformat(self.at)
            except ValueError:
                expected = "a time such as 2026-11-15 23:30:00, in UTC"
                raise ArgumentInvalid(name="time", value=self.at, expected=expected) from None
            return f"@{(moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()}"
        return "end" if self.kind == "newest" else "start"


class BrowsePage:
    """The list, and where it goes on."""

    def __init__(self, visit: Visit, topic: Topic, beginning: StartPosition) -> None:
        self._rows, self._topic, self._beginning = visit.services.rows, topic, beginning
        self._before: list[str] = []
        self._here = ""
        self._page: RowPage | None = None
        #: Where the topic ended when the first page was read.
        self._end: Offsets = {}
        with card(flush=True):
            self._controls()
            with block("with-beside"):
                self._box = block("grow")
                self._beside = RowPanel(visit, topic)
            with self._box:
                self._list = RowList(
                    topic,
                    label=f"Rows of {topic.name}",
                    none="No rows here.",
                    on_pick=self._beside.show,
                    on_close=self._beside.close,
                    fit=True,
                )
            self._beside.serves(self._list)
            self._pager()

    def _controls(self) -> None:
        one = self._beginning
        with block("toolbar"):
            self._kind = select(BEGINNINGS, value=one.kind, label="Begin at", on_change=self._kind_changed)
            self._at = ui.input(value=one.at, placeholder=PLACES.get(one.kind, "")).classes("field")
            self._at.props('outlined dense aria-label="Place"').on("keydown.enter", self._go)
            self._at.style("width: 260px").set_visibility(one.kind in PLACES)
            parts = {"": "All partitions", **{str(n): f"Partition {n}" for n in range(self._topic.partitions)}}
            chosen = "" if one.partition is None else str(one.partition)
            if self._topic.partitions > 1:
                self._partition = select(parts, value=chosen, label="Partition", on_change=self._go)
            self._show = button("Show", self._go)
            self._show.set_visibility(one.kind in PLACES)
            block("grow")
            self._newer = button("", self.first, icon="arrow_upward")
            self._newer.classes(remove="icon").set_visibility(False)

    def _pager(self) -> None:
        with block("pager"):
            self._told = ui.label("").props('role="status"')
            block("grow")
            older = "Older" if self._beginning.is_backwards else "Newer"
            self._back = button("Back", self._go_back, icon="chevron_left", kind="ghost")
            self._on = button(older, self._go_on, icon="chevron_right", kind="ghost")

    def _kind_changed(self) -> None:
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

    async def first(self) -> None:
        """The first page, as it is now."""
        self._before = []
        end = await attempt(lambda: self._rows.follow(self._topic.name))
        start = await attempt(self._beginning.start)
        if end is not None and start is not None:
            self._end = end.next
            self._newer.set_visibility(False)
            await self._open(start)

    async def _go_on(self) -> None:
        if self._page is not None:
            self._before.append(self._here)
            await self._open(offsets_to_text(self._page.next))

    async def _go_back(self) -> None:
        if self._before:
            await self._open(self._before.pop())

    async def _open(self, start: str) -> None:
        one = self._beginning
        page = await attempt(
            lambda: self._rows.page(
                self._topic.name, start=start, backwards=one.is_backwards, partition=one.partition, limit=ROWS
            )
        )
        if page is None:
            return
        self._here, self._page = start, page
        self._list.set_rows(page.rows)
        self._told.set_text(_told(page, backwards=one.is_backwards))
        self._back.set_enabled(bool(self._before))
        self._on.set_enabled(not page.is_last)

    def look(self) -> int:
        if not self._end:
            return 0
        return self._rows.follow(self._topic.name, after=offsets_to_text(self._end), limit=0).waiting

    def tell_newer(self, came: int) -> None:
        """Rows that have come since do not push away what is read; they are counted."""
        self._newer.set_visibility(came > 0 and self._beginning.is_backwards)
        self._newer.set_text(f"{count(came)} newer")


def _told(page: RowPage, *, backwards: bool) -> str:
    if not page.rows:
        return "No rows here."
    order = "newest first" if backwards else "oldest first"
    end = "" if not page.is_last else ", that is the oldest" if backwards else ", that is the newest"
    return f"{count(len(page.rows))} row{'s' if len(page.rows) != 1 else ''}, {order}{end}"
