"""Produce: rows written by hand, begun from the schema or from a row that is there, checked before they are appended."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape

from nicegui import ui

from headwater.console.context import context
from headwater.console.paging import page_before, record_at
from headwater.console.parts.layout import block, button, card, select, text_box
from headwater.console.parts.live import attempt, read, tell
from headwater.console.parts.question import Question
from headwater.console.parts.rows import place_of, record_path
from headwater.console.parts.topic import topic_head
from headwater.console.parts.words import count
from headwater.console.producing import Draft, draft_of, like, template_of
from headwater.console.records import Record
from headwater.console.screen import screen
from headwater.console.visit import Visit
from headwater.errors import HeadwaterError
from headwater.log.port import Appended, Topic
from headwater.schema import format_schema

PREVIEW_LETTERS_MAX = 1_200


@screen("/topics/{name}/produce", under="/topics")
async def produce(visit: Visit, name: str, row: str = "") -> None:
    """`row` is the place of a row to begin from, such as 0/1200."""
    topic, _ = await topic_head(visit, name, "Produce")
    page = Produce(visit, topic)
    partition, slash, offset = row.partition("/")
    if slash and partition.isdecimal() and offset.isdecimal():
        await page.begin_like(*place_of(row))


class Produce:
    """The form."""

    def __init__(self, visit: Visit, topic: Topic) -> None:
        self._visit, self._topic = visit, topic
        with block("split"):
            with card("Rows" if not topic.schemaless else "One row"):
                self._form()
            with card("What fits"):
                self._help()
        self._fill_from_schema()

    def _form(self) -> None:
        topic = self._topic
        with block("row-flex"):
            if not topic.schemaless:
                button("From the schema", self._fill_from_schema, icon="schema")
            button("From the newest row", self._fill_from_newest, icon="content_copy")
        self._key = text_box("Key", code=True)
        self._key.set_visibility(topic.schemaless)
        label = "Value" if topic.schemaless else "JSON: one object, an array of them, or one a line"
        self._value = text_box(label, lines=14, code=True)
        with block("grid"):
            self._headers = text_box("Headers, one a line", placeholder="name: value", lines=2, code=True)
            parts = {
                -1: "By the key" if topic.key else "In turn",
                **{n: f"Partition {n}" for n in range(topic.partitions)},
            }
            self._partition = select(parts, value=-1, label="Partition", named=True)
        self._told = block("").props('role="alert"')
        with block("row-flex"):
            button("Append", self._ask, icon="add", kind="primary")

    def _help(self) -> None:
        topic = self._topic
        if topic.schemaless:
            ui.label("This topic has no schema: a key and a value, any text. An empty key is none.").classes("quiet")
            return
        columns = format_schema(topic.schema).replace(", ", ",\n")
        ui.html(f'<pre class="code" tabindex="0" aria-label="Schema">{escape(columns)}</pre>', sanitize=False)
        ui.label(
            "Columns may be left out where null is allowed. Times are ISO 8601. Whole numbers keep all digits."
        ).classes("quiet small")

    # -- beginnings ---------------------------------------------------------------------------------------------------

    def _fill_from_schema(self) -> None:
        if not self._topic.schemaless:
            self._value.set_value(template_of(self._topic.schema, now=datetime.now(UTC)))

    async def _fill_from_newest(self) -> None:
        log, name = context().log, self._topic.name
        leaf = await attempt(lambda: page_before(log, name, log.end_offsets(name), rows=1))
        if leaf is None:
            return
        if not leaf.records:
            tell("This topic has no rows yet.", good=False)
            return
        await self.begin_like(leaf.records[0].partition, leaf.records[0].offset)

    async def begin_like(self, partition: int, offset: int) -> None:
        """Begin with the row at a place."""
        if not self._visit.caller.may("read", self._topic.name):
            return
        found = await attempt(lambda: record_at(context().log, self._topic.name, partition, offset))
        if found is not None:
            self._fill(found)

    def _fill(self, record: Record) -> None:
        self._key.set_value(record.key or "" if self._topic.schemaless else "")
        self._value.set_value(like(record))
        self._headers.set_value("\n".join(f"{name}: {value}" for name, value in record.headers))

    # -- the append ---------------------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        """Check, show what would be appended, and append it if somebody says so."""
        self._visit.caller.require("write", self._topic.name)
        self._told.clear()
        try:
            draft = await read(self._checked)
        except HeadwaterError as error:
            self._tell(escape(str(error)), "bad")
            return
        rows = f"{count(len(draft.rows))} row{'s' if len(draft.rows) != 1 else ''}"
        question = Question(f"Append {rows} to {self._topic.name}?", yes=f"Append {rows}")
        with question:
            ui.label("A log keeps what it is given: a row cannot be taken back.").classes("quiet")
            preview = (self._value.value or "")[:PREVIEW_LETTERS_MAX]
            ui.html(
                f'<pre class="code" tabindex="0" aria-label="What is appended">{escape(preview)}</pre>', sanitize=False
            )
        if await question.answered():
            await self._append(draft, rows)

    def _checked(self) -> Draft:
        return draft_of(
            self._topic,
            value=self._value.value or "",
            key=self._key.value or "",
            headers=self._headers.value or "",
            partition=None if self._partition.value == -1 else int(self._partition.value),
        )

    async def _append(self, draft: Draft, rows: str) -> None:
        name = self._topic.name

        def work() -> Appended:
            done = context().log.append(name, draft.rows, partition=draft.partition, headers=draft.headers)
            context().note(self._visit.caller, "append", f"{name}: {rows}")
            return done

        try:
            done = await read(work)
        except HeadwaterError as error:
            self._tell(escape(str(error)), "bad")
            return
        links = [
            f'<a href="{record_path(name, number, start)}">partition {number}, offset {start}</a>'
            for number, (start, _) in sorted(done.ranges.items())
        ]
        self._tell(f"Appended {rows}: {', '.join(links)}.", "good")

    def _tell(self, html: str, tone: str) -> None:
        """Our own HTML; what comes from elsewhere is escaped before."""
        self._told.clear()
        with self._told:
            ui.html(f'<div class="note {tone}"><div class="grow wrap-anywhere">{html}</div></div>', sanitize=False)
