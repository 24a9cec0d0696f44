"""Search: over keys, values and headers, on the server, step by step; the page always says how far it has come."""

from __future__ import annotations

import contextlib
from typing import Literal
from urllib.parse import urlencode

from nicegui import ui

from headwater.console.context import Visit
from headwater.console.kit.controls import Segments, button, select
from headwater.console.kit.layout import block, card, html, meter, why_button
from headwater.console.kit.live import read
from headwater.console.kit.words import count, moment
from headwater.console.pages import screen
from headwater.console.topics.frame import topic_head, topic_path
from headwater.console.topics.row_list import RowBrowser
from headwater.errors import HeadwaterError
from headwater.log.topic import Topic
from headwater.services.row_text import PARTS, Row
from headwater.services.rows import SearchQuery, SearchStep

#: How long one step takes, and how long all steps together take before the user must ask for more.
STEP_SECONDS = 0.25
BUDGET_SECONDS = 10.0
#: Matching rows before the user must ask for more, and those that the page keeps at all.
MATCHES_AT_ONCE = 50
MATCHES_MAX = 2_000
Kind = Literal["text", "pattern", "sql"]
KINDS: dict[Kind, str] = {"text": "Text", "pattern": "Pattern", "sql": "SQL"}
HINTS: dict[str, str] = {
    "text": "Any text, as it is shown",
    "pattern": "A regular expression, such as error|fail(ed|ure)",
    "sql": "A condition, such as {example}",
}


@screen("/topics/{name}/search", under="/topics")
async def search(visit: Visit, name: str, q: str = "", how: str = "text", order: str = "newest") -> None:
    topic, _ = await topic_head(visit, name, "Search")
    kind: Kind = next((known for known in KINDS if known == how), "text")
    page = SearchPage(visit, topic, q=q, kind=kind, order=order if order == "oldest" else "newest")
    ui.timer(0.05, page.step)
    if q:
        await page.begin()


class SearchPage:
    """The page: what to search for, the progress, and the matching rows."""

    def __init__(self, visit: Visit, topic: Topic, *, q: str, kind: Kind, order: str) -> None:
        self._rows, self._topic = visit.services.rows, topic
        #: The last step of the search; None before the first.
        self._step: SearchStep | None = None
        self._newest_first = True
        self._matches: list[Row] = []
        self._running = False
        self._spent, self._wanted = 0.0, 0
        with card(flush=True):
            self._build_toolbar(q, kind, order)
            with block("toolbar slim") as self._status:
                self._meter = html("").style("width: 120px")
                self._progress = ui.label("").classes("small num").props('role="status"')
                why_button("search")
                self._more = button("Continue", self.go_on, icon="play_arrow")
            self._browser = RowBrowser(
                visit,
                topic,
                label=f"Rows of {topic.name} that were found",
                none="What is found comes here.",
                height="max(320px, calc(100vh - 400px))",
            )
        self._show()
        ui.context.client.on_delete(self._stop)

    def _build_toolbar(self, q: str, kind: Kind, order: str) -> None:
        with block("toolbar"):
            self._how = Segments(
                list(KINDS.values()), value=KINDS[kind], label="How to search", on_change=self._choose_kind
            )
            self._text = ui.input(value=q, placeholder=self._hint(kind)).classes("field grow code-input")
            self._text.props('outlined dense clearable data-search aria-label="Search for"')
            self._text.style("min-width: 200px").on("keydown.enter", self._submit)
            self._order = select({"newest": "Newest first", "oldest": "Oldest first"}, value=order, label="Order")
            self._go = button("Search", self._submit, icon="search", kind="primary")
            self._cancel = button("Cancel", self.cancel, icon="close")
        with block("toolbar slim") as self._where:
            ui.label("In").classes("quiet small")
            self._parts = {part: ui.checkbox(part.capitalize(), value=True).props("dense") for part in PARTS}
            self._case = ui.checkbox("Match case").props("dense")
        self._where.set_visibility(kind != "sql")

    @property
    def _kind(self) -> Kind:
        return next(kind for kind, label in KINDS.items() if label == self._how.value)

    def _hint(self, kind: str) -> str:
        column = next((name for name in self._topic.schema.names if name != "key"), "value")
        return HINTS[kind].format(example=f"{column} is not null and _offset > 100")

    def _choose_kind(self) -> None:
        self._where.set_visibility(self._kind != "sql")
        self._text.props["placeholder"] = self._hint(self._kind)
        self._text.update()

    # -- actions ------------------------------------------------------------------------------------------------------

    async def _submit(self) -> None:
        """Put the search into the address, so that it can be sent to others, and start it."""
        words = {"q": self._text.value or "", "how": self._kind, "order": self._order.value}
        ui.navigate.history.replace(f"{topic_path(self._topic.name, 'Search')}?{urlencode(words)}")
        await self.begin()

    async def begin(self) -> None:
        """Start the search that the form describes."""
        self._stop()
        self._browser.close()
        self._matches, self._step = [], None
        self._browser.list.set_rows([])
        try:
            query = self._query()
            self._newest_first = query.order == "newest"
            self._step = await read(lambda: self._rows.search(self._topic.name, query))
        except HeadwaterError as error:
            self._show_error(error)
            return
        self._browser.list.set_none("Nothing found so far.")
        self.go_on()

    def go_on(self) -> None:
        self._running, self._spent = True, 0.0
        self._wanted = min(len(self._matches) + MATCHES_AT_ONCE, MATCHES_MAX)
        self._show()

    def cancel(self) -> None:
        self._stop()
        self._show()

    # -- steps --------------------------------------------------------------------------------------------------------

    async def step(self) -> None:
        """Do one step. The timer ends with the page, and the search with it."""
        last = self._step
        if not self._running or last is None:
            return
        limit = self._wanted - len(self._matches)
        try:
            step = await read(
                lambda: self._rows.search_on(self._topic.name, last.id, seconds=STEP_SECONDS, limit=limit)
            )
        except HeadwaterError as error:
            if self._running and last is self._step:
                self._show_error(error)
            return
        if last is not self._step:
            return
        self._step = step
        self._spent += STEP_SECONDS
        self._matches += step.rows
        if step.is_done or len(self._matches) >= self._wanted or self._spent >= BUDGET_SECONDS:
            self._running = False
        if step.rows:
            mark = self._text.value if self._kind == "text" else ""
            # Of several partitions rows come only nearly in order.
            rows = sorted(self._matches, key=Row.place, reverse=self._newest_first)
            self._browser.list.set_rows(rows, mark=mark or "")
        self._show()

    def _query(self) -> SearchQuery:
        return SearchQuery(
            text=self._text.value or "",
            kind=self._kind,
            parts=tuple(part for part, box in self._parts.items() if box.value),
            match_case=bool(self._case.value),
            order="oldest" if self._order.value == "oldest" else "newest",
        )

    def _show_error(self, error: HeadwaterError) -> None:
        self._running, self._step = False, None
        self._show()
        self._status.set_visibility(True)
        self._progress.set_text(str(error))

    def _stop(self) -> None:
        """Stop the search: the page is closed, or the user has cancelled it or starts another."""
        if self._step is not None:
            with contextlib.suppress(HeadwaterError):  # the service no longer knows it
                self._rows.stop_search(self._topic.name, self._step.id)
        self._running = False

    def _show(self) -> None:
        step = self._step
        self._cancel.set_visibility(self._running)
        self._go.set_visibility(not self._running)
        self._status.set_visibility(step is not None)
        self._more.set_visibility(step is not None and not self._running and not step.is_done)
        share = 1.0 if step is None or not step.total else step.scanned / step.total
        self._meter.set_content(meter(share, decimals=1))
        if step is not None:
            self._progress.set_text(progress(step, len(self._matches)))


def progress(step: SearchStep, matches: int) -> str:
    """How far a search has come, and how many rows match; never just "nothing"."""
    text = f"Scanned {count(step.scanned)} of {count(step.total)}"
    if step.from_us is not None:
        text += f" ({moment(step.from_us)} to {moment(step.to_us)})"
    if step.expired:
        text += f", {count(step.expired)} were deleted meanwhile"
    return f"{text}, {count(matches)} found" + (". That is all." if step.is_done else "")
