"""Produce: rows written by hand, begun from the schema or from a row that is there, checked before they are appended."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import Any

import orjson
import pyarrow as pa
from nicegui import ui

from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import block, button, card, select, text_box
from headwater.console.kit.live import attempt, read, tell
from headwater.console.kit.pretty import pretty
from headwater.console.kit.words import count
from headwater.console.pages import screen
from headwater.console.topics.frame import topic_head
from headwater.console.topics.row_list import place_of, row_path
from headwater.console.visit import Visit
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.log.port import Topic
from headwater.schema import format_schema
from headwater.services.row_text import Row
from headwater.services.rows import Draft, Produced

PREVIEW_CHARACTERS_MAX = 1_200


@screen("/topics/{name}/produce", under="/topics")
async def produce(visit: Visit, name: str, row: str = "") -> None:
    """`row` is the place of a row to begin from, such as 0/1200."""
    topic, _ = await topic_head(visit, name, "Produce")
    page = ProducePage(visit, topic)
    partition, slash, offset = row.partition("/")
    if slash and partition.isdecimal() and offset.isdecimal():
        await page.begin_like(*place_of(row))


class ProducePage:
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
        page = await attempt(lambda: self._visit.services.rows.page(self._topic.name, limit=1))
        if page is None:
            return
        if not page.rows:
            tell("This topic has no rows yet.", good=False)
            return
        await self.begin_like(page.rows[0].partition, page.rows[0].offset)

    async def begin_like(self, partition: int, offset: int) -> None:
        """Begin with the row at a place."""
        if not self._visit.caller.may("read", self._topic.name):
            return
        found = await attempt(lambda: self._visit.services.rows.row(self._topic.name, partition, offset))
        if found is not None and found.row is not None:
            self._fill(found.row)

    def _fill(self, row: Row) -> None:
        value = row.value or ""
        self._key.set_value(row.key or "" if self._topic.schemaless else "")
        self._value.set_value(pretty(value) if row.form == "json" else value)
        self._headers.set_value("\n".join(f"{name}: {value}" for name, value in row.headers))

    # -- the append ---------------------------------------------------------------------------------------------------

    async def _ask(self) -> None:
        """Check, show what would be appended, and append it if the visitor says so."""
        self._told.clear()
        try:
            draft = self._draft()
            checked = await read(lambda: self._visit.services.rows.produce(self._topic.name, draft, dry_run=True))
        except HeadwaterError as error:
            self._tell(escape(str(error)), "bad")
            return
        rows = f"{count(checked.count)} row{'s' if checked.count != 1 else ''}"
        question = Question(f"Append {rows} to {self._topic.name}?", yes=f"Append {rows}")
        with question:
            ui.label("A log is append-only: a row that was appended cannot be removed.").classes("quiet")
            preview = (self._value.value or "")[:PREVIEW_CHARACTERS_MAX]
            ui.html(
                f'<pre class="code" tabindex="0" aria-label="What is appended">{escape(preview)}</pre>', sanitize=False
            )
        if await question.answered():
            await self._append(draft, rows)

    def _draft(self) -> Draft:
        return Draft(
            value=self._value.value or "",
            key=self._key.value or "",
            headers=headers_in(self._headers.value or ""),
            partition=None if self._partition.value == -1 else int(self._partition.value),
        )

    async def _append(self, draft: Draft, rows: str) -> None:
        name = self._topic.name
        try:
            done: Produced = await read(lambda: self._visit.services.rows.produce(name, draft))
        except HeadwaterError as error:
            self._tell(escape(str(error)), "bad")
            return
        links = [
            f'<a href="{row_path(name, number, start)}">partition {number}, offset {start}</a>'
            for number, (start, _) in sorted(done.ranges.items())
        ]
        self._tell(f"Appended {rows}: {', '.join(links)}.", "good")

    def _tell(self, html: str, tone: str) -> None:
        """Our own HTML; what comes from elsewhere is escaped before."""
        self._told.clear()
        with self._told:
            ui.html(f'<div class="note {tone}"><div class="grow wrap-anywhere">{html}</div></div>', sanitize=False)


def headers_in(text: str) -> dict[str, str]:
    """Lines of `name: value`.

    >>> headers_in("trace: 4f2a\\n\\nsource:web")
    {'trace': '4f2a', 'source': 'web'}
    """
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip():
            raise ArgumentInvalid(name="headers", value=line, expected="one header a line, such as trace: 4f2a")
        found[name.strip()] = value.strip()
    return found


def template_of(schema: pa.Schema, *, now: datetime) -> str:
    """A row with a value of the right kind in each column.

    >>> from datetime import UTC
    >>> print(template_of(pa.schema([("id", pa.int64()), ("name", pa.string())]), now=datetime(2026, 1, 1, tzinfo=UTC)))
    {
      "id": 0,
      "name": ""
    }
    """
    row = {one.name: _example(one.type, now) for one in schema}
    return pretty(orjson.dumps(row).decode())


# Any: values of JSON.
def _example(kind: pa.DataType, now: datetime) -> Any:
    types = pa.types
    if types.is_struct(kind):
        return {part.name: _example(part.type, now) for part in kind}
    if types.is_list(kind) or types.is_large_list(kind):
        return [_example(kind.value_type, now)]
    if types.is_map(kind):
        return {"name": _example(kind.item_type, now)} if types.is_string(kind.key_type) else []
    if types.is_boolean(kind):
        return False
    if types.is_integer(kind):
        return 0
    if types.is_floating(kind):
        return 0.0
    return _example_text(kind, now)


def _example_text(kind: pa.DataType, now: datetime) -> str:
    types = pa.types
    if types.is_decimal(kind):
        return "0"
    if types.is_timestamp(kind):
        plain = now.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return f"{plain}Z" if kind.tz else plain
    if types.is_date(kind):
        return now.date().isoformat()
    if types.is_time(kind):
        return "12:00:00"
    return "PT0S" if types.is_duration(kind) else ""
