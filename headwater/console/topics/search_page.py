"""Search: over keys, values and headers, on the server, a little at a time; it always says how far it has looked."""

from __future__ import annotations

import contextlib
from typing import Literal
from urllib.parse import urlencode

from nicegui import ui

from headwater.console.kit.layout import block, button, card, select
from headwater.console.kit.live import read
from headwater.console.kit.segments import Segments
from headwater.console.kit.why import button as why_button
from headwater.console.kit.words import count, moment
from headwater.console.pages import screen
from headwater.console.topics.frame import topic_head, topic_path
from headwater.console.topics.row_list import RowList
from headwater.console.topics.row_panel import RowPanel
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.log.port import Topic
from headwater.services.row_text import PARTS, Row
from headwater.services.rows import SearchQuery, SearchStep

#: How long one step takes before the page is told, and how many of them are made before the visitor must ask for more.
STEP_SECONDS = 0.25
BUDGET_SECONDS = 10.0
#: Rows found before the visitor must ask for more, and those that the page keeps at all.
FOUND_AT_ONCE = 50
FOUND_MAX = 2_000
Kind = Literal["text", "pattern", "sql"]
WAYS: dict[Kind, str] = {"text": "Text", "pattern": "Pattern", "sql": "SQL"}
HINTS: dict[str, str] = {
    "text": "Any text, as it is shown",
    "pattern": "A regular expression, such as error|fail(ed|ure)",
    "sql": "A condition, such as {example}",
}


@screen("/topics/{name}/search", under="/topics")
async def search(visit: Visit, name: str, q: str = "", how: str = "text", order: str = "newest") -> None:
    topic, _ = await topic_head(visit, name, "Search")
    kind: Kind = next((one for one in WAYS if one == how), "text")
    page = SearchPage(visit, topic, q=q, how=kind, order=order if order == "oldest" else "newest")
    ui.timer(0.05, page.tick)
    if q:
        await page.begin()


class SearchPage:
    """The page: what is sought, how far it has looked, what it has found."""

    def __init__(self, visit: Visit, topic: Topic, *, q: str, how: Kind, order: str) -> None:
        self._rows, self._topic = visit.services.rows, topic
        #: How far the search has come; None where there is none.
        self._step: SearchStep | None = None
        self._newest_first = True
        self._found: list[Row] = []
        self._running = False
        self._spent, self._wanted = 0.0, 0
        with card(flush=True):
            self._controls(q, how, order)
            self._progress()
            with block("with-beside"):
                self._box = block("grow")
                self._beside = RowPanel(visit, topic)
            with self._box:
                self._list = RowList(
                    topic,
                    label=f"Rows of {topic.name} that were found",
                    none="What is found comes here.",
                    on_pick=self._beside.show,
                    on_close=self._beside.close,
                    height="max(320px, calc(100vh - 400px))",
                )
            self._beside.serves(self._list)
        self._paint()
        ui.context.client.on_delete(self._leave)

    def _controls(self, q: str, how: Kind, order: str) -> None:
        with block("toolbar"):
            self._how = Segments(
                list(WAYS.values()), value=WAYS[how], label="How to search", on_change=self._how_changed
            )
            self._box_q = ui.input(value=q, placeholder=self._hint(how)).classes("field grow code-input")
            self._box_q.props('outlined dense clearable data-search aria-label="Search for"')
            self._box_q.style("min-width: 200px").on("keydown.enter", self._submit)
            self._order = select({"newest": "Newest first", "oldest": "Oldest first"}, value=order, label="Order")
            self._go = button("Search", self._submit, icon="search", kind="primary")
            self._cancel = button("Cancel", self.cancel, icon="close")
        with block("toolbar slim") as self._where:
            ui.label("In").classes("quiet small")
            self._parts = {part: ui.checkbox(part.capitalize(), value=True).props("dense") for part in PARTS}
            self._case = ui.checkbox("Match case").props("dense")
        self._where.set_visibility(how != "sql")

    def _progress(self) -> None:
        with block("toolbar slim") as self._status:
            self._meter = ui.html("", sanitize=False).style("width: 120px")
            self._told = ui.label("").classes("small num").props('role="status"')
            why_button("search")
            self._more = button("Continue", self.go_on, icon="play_arrow")
        self._status.set_visibility(False)

    @property
    def _kind(self) -> Kind:
        return next(kind for kind, label in WAYS.items() if label == self._how.value)

    def _hint(self, how: str) -> str:
        column = next((name for name in self._topic.schema.names if name != "key"), "value")
        return HINTS[how].format(example=f"{column} is not null and _offset > 100")

    def _how_changed(self) -> None:
        how = self._kind
        self._where.set_visibility(how != "sql")
        self._box_q.props["placeholder"] = self._hint(how)
        self._box_q.update()

    # -- what the visitor does ----------------------------------------------------------------------------------------

    async def _submit(self) -> None:
        """Put the search into the address, so that it can be sent to others, and begin."""
        words = {"q": self._box_q.value or "", "how": self._kind, "order": self._order.value}
        ui.navigate.history.replace(f"{topic_path(self._topic.name, 'Search')}?{urlencode(words)}")
        await self.begin()

    async def begin(self) -> None:
        """Look from the beginning for what the box says."""
        self._leave()
        self._beside.close()
        self._found, self._step, self._running = [], None, False
        self._list.set_rows([])
        try:
            query = self._query()
            self._newest_first = query.order == "newest"
            self._step = await read(lambda: self._rows.search(self._topic.name, query))
        except HeadwaterError as error:
            self._refuse(error)
            return
        self._list.set_none("Nothing found so far.")
        self.go_on()

    def go_on(self) -> None:
        self._running, self._spent = True, 0.0
        self._wanted = min(len(self._found) + FOUND_AT_ONCE, FOUND_MAX)
        self._paint()

    def cancel(self) -> None:
        self._leave()
        self._paint()

    # -- what happens -------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """One step; the timer ends with the page, and the search with it."""
        last = self._step
        if not self._running or last is None:
            return
        room = self._wanted - len(self._found)
        try:
            step = await read(lambda: self._rows.search_on(self._topic.name, last.id, seconds=STEP_SECONDS, limit=room))
        except HeadwaterError as error:
            if self._running and last is self._step:
                self._refuse(error)
            return
        if last is not self._step:
            return
        self._step = step
        self._spent += STEP_SECONDS
        self._found += step.rows
        if step.is_done or len(self._found) >= self._wanted or self._spent >= BUDGET_SECONDS:
            self._running = False
        if step.rows:
            mark = self._box_q.value if self._kind == "text" else ""
            # Of many partitions rows come nearly in order; shown they are in order.
            rows = sorted(self._found, key=Row.place, reverse=self._newest_first)
            self._list.set_rows(rows, mark=mark or "")
        self._paint()

    def _query(self) -> SearchQuery:
        return SearchQuery(
            text=self._box_q.value or "",
            kind=self._kind,
            parts=tuple(part for part, box in self._parts.items() if box.value),
            match_case=bool(self._case.value),
            order="oldest" if self._order.value == "oldest" else "newest",
        )

    def _refuse(self, error: HeadwaterError) -> None:
        self._running, self._step = False, None
        self._paint()
        self._status.set_visibility(True)
        self._told.set_text(str(error))

    def _leave(self) -> None:
        """Stop what runs for a visitor who has gone, or who looks for something else now."""
        if self._step is not None:
            with contextlib.suppress(HeadwaterError):  # the service has forgotten it
                self._rows.stop_search(self._topic.name, self._step.id)
        self._running = False

    def _paint(self) -> None:
        step = self._step
        self._cancel.set_visibility(self._running)
        self._go.set_visibility(not self._running)
        self._status.set_visibility(step is not None)
        self._more.set_visibility(step is not None and not self._running and not step.is_done)
        share = 1.0 if step is None or not step.total else step.scanned / step.total
        self._meter.set_content(f'<div class="meter"><i style="width: {share * 100:.1f}%"></i></div>')
        if step is not None:
            self._told.set_text(told(step, len(self._found)))


def told(step: SearchStep, found: int) -> str:
    """How far a search has looked, and what it has found; never just "nothing"."""
    text = f"Scanned {count(step.scanned)} of {count(step.total)}"
    if step.from_us is not None:
        text += f" ({moment(step.from_us)} to {moment(step.to_us)})"
    if step.expired:
        text += f", {count(step.expired)} were deleted meanwhile"
    return f"{text}, {count(found)} found" + (". That is all." if step.is_done else "")
