"""Search: over keys, values and headers, on the server, a little at a time; it always says how far it has looked."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from nicegui import ui

from headwater.console.context import context
from headwater.console.matching import PARTS, ConditionMatcher, Matcher, TextMatcher
from headwater.console.parts.layout import block, button, card, select
from headwater.console.parts.live import read
from headwater.console.parts.rows import RowList
from headwater.console.parts.segments import Segments
from headwater.console.parts.topic import Beside, topic_head, topic_path
from headwater.console.parts.why import button as why_button
from headwater.console.parts.words import count, moment
from headwater.console.records import Record
from headwater.console.scanning import Scan
from headwater.console.screen import screen
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.log.port import Topic

#: How long one step takes before the page is told, and how many of them are made before somebody must want more.
STEP_SECONDS = 0.25
BUDGET_SECONDS = 10.0
#: Rows found before somebody must want more, and those that the page keeps at all.
FOUND_AT_ONCE = 50
FOUND_MAX = 2_000
WAYS = {"text": "Text", "pattern": "Pattern", "sql": "SQL"}
HINTS = {
    "text": "Any text, as it is shown",
    "pattern": "A regular expression, such as error|fail(ed|ure)",
    "sql": "A condition, such as {example}",
}


@screen("/topics/{name}/search", under="/topics")
async def search(visit: Visit, name: str, q: str = "", how: str = "text", order: str = "newest") -> None:
    topic, _ = await topic_head(visit, name, "Search")
    page = Search(topic, q=q, how=how if how in WAYS else "text", order=order if order == "oldest" else "newest")
    ui.timer(0.05, page.tick)
    if q:
        await page.begin()


class Search:
    """The page: what is sought, how far it has looked, what it has found."""

    def __init__(self, topic: Topic, *, q: str, how: str, order: str) -> None:
        self._topic = topic
        self._scan: Scan | None = None
        self._matcher: Matcher | None = None
        self._found: list[Record] = []
        self._running = False
        self._spent, self._wanted = 0.0, 0
        with card(flush=True):
            self._controls(q, how, order)
            self._progress()
            with block("with-beside"):
                self._box = block("grow")
                self._beside = Beside(topic)
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

    def _controls(self, q: str, how: str, order: str) -> None:
        with block("toolbar"):
            names = {label: name for name, label in WAYS.items()}
            self._names: Mapping[str, str] = names
            self._how = Segments(list(names), value=WAYS[how], label="How to search", on_change=self._how_changed)
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

    def _hint(self, how: str) -> str:
        column = next((name for name in self._topic.schema.names if name != "key"), "value")
        return HINTS[how].format(example=f"{column} is not null and _offset > 100")

    def _how_changed(self) -> None:
        how = self._names[self._how.value]
        self._where.set_visibility(how != "sql")
        self._box_q.props["placeholder"] = self._hint(how)
        self._box_q.update()

    # -- what somebody does -------------------------------------------------------------------------------------------

    async def _submit(self) -> None:
        """Put the search into the address, so that it can be sent to others, and begin."""
        words = {"q": self._box_q.value or "", "how": self._names[self._how.value], "order": self._order.value}
        ui.navigate.history.replace(f"{topic_path(self._topic.name, 'Search')}?{urlencode(words)}")
        await self.begin()

    async def begin(self) -> None:
        """Look from the beginning for what the box says."""
        self._leave()
        self._beside.close()
        self._found, self._scan, self._running = [], None, False
        self._list.set_records([])
        try:
            self._matcher, self._scan = await read(self._made)
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
        self._running = False
        if self._scan is not None:
            self._scan.cancel()
        self._paint()

    # -- what happens -------------------------------------------------------------------------------------------------

    async def tick(self) -> None:
        """One step; the timer ends with the page, and the search with it."""
        scan = self._scan
        if not self._running or scan is None:
            return
        room = self._wanted - len(self._found)
        try:
            found = await read(lambda: scan.step(seconds=STEP_SECONDS, found_max=room))
        except HeadwaterError as error:
            if self._running and scan is self._scan:
                self._refuse(error)
            return
        if scan is not self._scan:
            return
        self._spent += STEP_SECONDS
        self._found += found
        if scan.is_done or len(self._found) >= self._wanted or self._spent >= BUDGET_SECONDS:
            self._running = False
        if found:
            mark = self._box_q.value if self._names[self._how.value] == "text" else ""
            # Of many partitions rows come nearly in order; shown they are in order.
            rows = sorted(self._found, key=lambda one: one.place, reverse=scan.newest_first)
            self._list.set_records(rows, mark=mark or "")
        self._paint()

    def _made(self) -> tuple[Matcher, Scan]:
        text, how = self._box_q.value or "", self._names[self._how.value]
        matcher: Matcher
        if how == "sql":
            matcher = ConditionMatcher(self._topic, text, statements=context().service.statements)
        else:
            parts = [part for part, box in self._parts.items() if box.value]
            matcher = TextMatcher(text, is_pattern=how == "pattern", match_case=bool(self._case.value), parts=parts)
        newest_first = self._order.value == "newest"
        return matcher, Scan(context().log, self._topic.name, matcher, newest_first=newest_first)

    def _refuse(self, error: HeadwaterError) -> None:
        self._running, self._scan = False, None
        self._paint()
        self._status.set_visibility(True)
        self._told.set_text(str(error))

    def _leave(self) -> None:
        """Stop what runs for somebody who has gone, or who looks for something else now."""
        if self._scan is not None:
            self._scan.cancel()
        self._running = False

    def _paint(self) -> None:
        scan = self._scan
        self._cancel.set_visibility(self._running)
        self._go.set_visibility(not self._running)
        self._status.set_visibility(scan is not None)
        self._more.set_visibility(scan is not None and not self._running and not scan.is_done)
        share = 1.0 if scan is None or not scan.total else scan.scanned / scan.total
        self._meter.set_content(f'<div class="meter"><i style="width: {share * 100:.1f}%"></i></div>')
        if scan is not None:
            self._told.set_text(told(scan, len(self._found)))


def told(scan: Scan, found: int) -> str:
    """How far a search has looked, and what it has found; never just "nothing"."""
    text = f"Scanned {count(scan.scanned)} of {count(scan.total)}"
    if scan.from_us is not None:
        text += f" ({moment(scan.from_us)} to {moment(scan.to_us)})"
    if scan.expired:
        text += f", {count(scan.expired)} were deleted meanwhile"
    return f"{text}, {count(found)} found" + (". That is all." if scan.is_done else "")
