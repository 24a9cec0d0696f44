"""Produce: rows written by hand, from a template or from an existing row, checked before they are appended."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import Any

import orjson
import pyarrow as pa
from nicegui import ui

from headwater.console.context import Visit
from headwater.console.kit.controls import button, select, text_box
from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import block, card, code, html
from headwater.console.kit.live import attempt, notify, read
from headwater.console.kit.values import pretty
from headwater.console.kit.words import counted
from headwater.console.pages import screen
from headwater.console.topics.frame import row_path, topic_head
from headwater.console.topics.row_list import place_of
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.log.topic import Topic
from headwater.schema import format_schema
from headwater.services.rows import Draft

PREVIEW_CHARACTERS_MAX = 1_200


@screen("/topics/{name}/produce", under="/topics")
async def produce(visit: Visit, name: str, row: str = "") -> None:
    """`row` is the place of a row to start from, such as 0/1200."""
    topic, _ = await topic_head(visit, name, "Produce")
    page = ProducePage(visit, topic)
    partition, slash, offset = row.partition("/")
    if slash and partition.isdecimal() and offset.isdecimal():
        await page.fill_from(*place_of(row))


class ProducePage:
    """The form."""

    def __init__(self, visit: Visit, topic: Topic) -> None:
        self._visit, self._topic = visit, topic
        with block("split"):
            with card("Rows" if not topic.schemaless else "One row"):
                self._build_form()
            with card("What fits"):
                self._build_help()
        self._fill_from_schema()

    def _build_form(self) -> None:
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
        self._result = block("").props('role="alert"')
        with block("row-flex"):
            button("Append", self._append, icon="add", kind="primary")

    def _build_help(self) -> None:
        topic = self._topic
        if topic.schemaless:
            ui.label("This topic has no schema: a key and a value, any text. An empty key is none.").classes("quiet")
            return
        columns = format_schema(topic.schema).replace(", ", ",\n")
        code(columns, label="Schema")
        ui.label(
            "Columns may be left out where null is allowed. Times are ISO 8601. Whole numbers keep all digits."
        ).classes("quiet small")

    # -- templates ----------------------------------------------------------------------------------------------------

    def _fill_from_schema(self) -> None:
        if not self._topic.schemaless:
            self._value.set_value(template_of(self._topic.schema, now=datetime.now(UTC)))

    async def _fill_from_newest(self) -> None:
        page = await attempt(lambda: self._visit.services.rows.page(self._topic.name, limit=1))
        if page is None:
            return
        if not page.rows:
            notify("This topic has no rows yet.", good=False)
            return
        await self.fill_from(page.rows[0].partition, page.rows[0].offset)

    async def fill_from(self, partition: int, offset: int) -> None:
        """Fill the form from an existing row."""
        if not self._visit.caller.may("read", self._topic.name):
            return
        result = await attempt(lambda: self._visit.services.rows.row(self._topic.name, partition, offset))
        if result is None or result.row is None:
            return
        row = result.row
        value = row.value or ""
        self._key.set_value(row.key or "" if self._topic.schemaless else "")
        self._value.set_value(pretty(value) if row.form == "json" else value)
        self._headers.set_value("\n".join(f"{name}: {value}" for name, value in row.headers))

    # -- the append ---------------------------------------------------------------------------------------------------

    async def _append(self) -> None:
        """Check the rows, ask for confirmation, and append them."""
        self._result.clear()
        name, service = self._topic.name, self._visit.services.rows
        try:
            draft = self._draft()
            checked = await read(lambda: service.produce(name, draft, dry_run=True))
            rows = counted(checked.count, "row")
            if not await self._is_confirmed(rows):
                return
            produced = await read(lambda: service.produce(name, draft))
        except HeadwaterError as error:
            self._show_result(escape(str(error)), "bad")
            return
        links = [
            f'<a href="{row_path(name, number, start)}">partition {number}, offset {start}</a>'
            for number, (start, _) in sorted(produced.ranges.items())
        ]
        self._show_result(f"Appended {rows}: {', '.join(links)}.", "good")

    async def _is_confirmed(self, rows: str) -> bool:
        with Question(f"Append {rows} to {self._topic.name}?", yes=f"Append {rows}") as question:
            ui.label("A log is append-only: a row that was appended cannot be removed.").classes("quiet")
            code((self._value.value or "")[:PREVIEW_CHARACTERS_MAX], label="What is appended")
        return await question.answered()

    def _draft(self) -> Draft:
        return Draft(
            value=self._value.value or "",
            key=self._key.value or "",
            headers=headers_in(self._headers.value or ""),
            partition=None if self._partition.value == -1 else int(self._partition.value),
        )

    def _show_result(self, markup: str, tone: str) -> None:
        with self._result:
            html(f'<div class="note {tone}"><div class="grow wrap-anywhere">{markup}</div></div>')


def headers_in(text: str) -> dict[str, str]:
    """Lines of `name: value`.

    >>> headers_in("trace: 4f2a\\n\\nsource:web")
    {'trace': '4f2a', 'source': 'web'}
    """
    headers: dict[str, str] = {}
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        if not line.strip():
            continue
        if not colon or not name.strip():
            raise ArgumentInvalid(name="headers", value=line, expected="one header a line, such as trace: 4f2a")
        headers[name.strip()] = value.strip()
    return headers


def template_of(schema: pa.Schema, *, now: datetime) -> str:
    """A row with a value of the right type in each column.

    >>> from datetime import UTC
    >>> print(template_of(pa.schema([("id", pa.int64()), ("name", pa.string())]), now=datetime(2026, 1, 1, tzinfo=UTC)))
    {
      "id": 0,
      "name": ""
    }
    """
    row = {column.name: _example(column.type, now) for column in schema}
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
