"""One row, whole: its place, its times, its key and headers, where it came from, and its value in three forms."""

from __future__ import annotations

from html import escape
from typing import Any

import orjson
from nicegui import ui

from headwater.console.kit.layout import block, button
from headwater.console.kit.live import attempt
from headwater.console.kit.pretty import coloured, dump, is_json, pretty
from headwater.console.kit.segments import Segments
from headwater.console.kit.words import count, moment, size
from headwater.console.topics.row_list import RowList, row_path
from headwater.console.visit import Visit
from headwater.log.dead_letters import ATTEMPT_HEADER, DEAD_LETTER_SCHEMA, LETTER_HEADER
from headwater.log.port import Topic
from headwater.services.row_text import Row

#: Longer values are cut until the user asks for all of the value.
SHOWN_CHARACTERS_MAX = 16_000
#: Colours are left out of what is longer: each of them costs the browser an element.
COLOURED_CHARACTERS_MAX = 200_000
HEX_BYTES_MAX = 4_096
WAYS = ("Pretty", "Raw", "Hex")


class RowView:
    """Shows one row after the other in the same place."""

    def __init__(self) -> None:
        self._all = False
        self._row: Row | None = None
        self._box = block("stack")
        with self._box:
            self._about = block("stack")
            with block("row-flex between"):
                ui.html("<h3>Value</h3>", sanitize=False)
                with block("row-flex"):
                    self._way = Segments(WAYS, value="Pretty", label="How to show the value", on_change=self._turn)
                    button("", self._copy, icon="content_copy", kind="ghost", label="Copy the value")
            self._value = block("stack tight")
        self._box.set_visibility(False)

    def show(self, row: Row) -> None:
        self._row, self._all = row, False
        self._box.set_visibility(True)
        self._about.clear()
        with self._about:
            _origin(row)
            _facts(row)
            if row.headers:
                _headers(row)
        self._show_value()

    def hide(self) -> None:
        self._box.set_visibility(False)

    def _turn(self) -> None:
        self._all = False
        self._show_value()

    def _show_all(self) -> None:
        self._all = True
        self._show_value()

    def _copy(self) -> None:
        if self._row is not None:
            ui.clipboard.write(self._row.value or "")
            ui.notify("Copied", position="bottom-right", timeout=1500)

    def _show_value(self) -> None:
        row = self._row
        self._value.clear()
        if row is None:
            return
        with self._value:
            if row.value is None:
                ui.label("null").classes("quiet mono")
                return
            html, rest = written(row, self._way.value, whole=self._all)
            ui.html(f'<pre class="code json" tabindex="0" aria-label="Value">{html}</pre>', sanitize=False)
            if rest:
                with block("row-flex"):
                    ui.label(rest).classes("quiet small")
                    button("Show all", self._show_all)


class RowPanel:
    """A row that was picked in a list, whole, in a panel beside it."""

    def __init__(self, visit: Visit, topic: Topic) -> None:
        self._visit, self._topic = visit, topic
        self._list: RowList | None = None
        self._place = (0, 0)
        self._box = ui.element("aside").classes("card beside").props('aria-label="Row" tabindex="-1"')
        with self._box:
            with block("row-flex nowrap-row"):
                self._title = ui.html("", sanitize=False).classes("grow")
                button("", lambda: self._go(forwards=False), icon="expand_less", kind="ghost", label="The row before")
                button("", lambda: self._go(forwards=True), icon="expand_more", kind="ghost", label="The row after")
                button("", self.close, icon="close", kind="ghost", label="Close")
            self._told = ui.label("").classes("quiet")
            self._view = RowView()
        self._box.set_visibility(False)
        self._box.on("keydown.escape", self.close)

    def serves(self, listed: RowList) -> None:
        self._list = listed

    async def show(self, partition: int, offset: int) -> None:
        """Read a row and show it; say so where it is gone."""
        self._place = (partition, offset)
        found = await attempt(lambda: self._visit.services.rows.row(self._topic.name, partition, offset))
        row = None if found is None else found.row
        path = row_path(self._topic.name, partition, offset)
        self._title.set_content(
            f'<h2><a href="{path}" title="The address of this row">Partition {partition}, offset {offset}</a></h2>'
        )
        self._told.set_text("" if row else "This row is no longer there: it was deleted or compacted away.")
        self._told.set_visibility(row is None)
        if row is None:
            self._view.hide()
        else:
            self._view.show(row)
        self._box.set_visibility(True)

    def close(self) -> None:
        self._box.set_visibility(False)
        if self._list is not None:
            self._list.unpick()

    async def _go(self, *, forwards: bool) -> None:
        partition, offset = self._place
        found = await attempt(lambda: self._visit.services.rows.row(self._topic.name, partition, offset))
        place = None if found is None else found.after if forwards else found.before
        if place is not None:
            await self.show(partition, place)


def bytes_of(row: Row) -> bytes:
    """The value as it was given, or its JSON."""
    value = row.value or ""
    return bytes.fromhex(value) if row.form == "hex" else value.encode("utf-8", "surrogatepass")


def written(row: Row, way: str, *, whole: bool) -> tuple[str, str]:
    """A value as HTML in one of three ways, and what is said of the part that is left out."""
    value = row.value or ""
    if way == "Hex" or row.form == "hex":
        data = bytes_of(row)
        shown = data if whole else data[:HEX_BYTES_MAX]
        return escape(dump(shown)), _left(len(shown), len(data), "bytes")
    laid_out = row.form == "json" or is_json(value)
    text = pretty(value) if way == "Pretty" and laid_out else value
    part = text if whole else text[:SHOWN_CHARACTERS_MAX]
    html = coloured(part) if laid_out and len(part) <= COLOURED_CHARACTERS_MAX else escape(part)
    return html, _left(len(part), len(text), "characters")


def _left(shown: int, total: int, unit: str) -> str:
    return f"{count(shown)} of {count(total)} {unit} are shown." if shown < total else ""


def _facts(row: Row) -> None:
    facts = [("Appended", f"{moment(row.appended_us)} UTC")]
    if row.event_us is not None:
        facts.append(("Event time", f"{moment(row.event_us)} UTC"))
    if row.sent_us is not None and row.sent_us != row.appended_us:
        facts.append(("Sent", f"{moment(row.sent_us)} UTC"))
    if row.key is not None:
        facts.append(("Key", row.key))
    facts.append(("Size", "a tombstone: the key is deleted" if row.is_tombstone else _size(row)))
    facts_list(facts)


def _size(row: Row) -> str:
    kind = {"json": "as JSON", "text": "of text", "hex": "bytes that are no text", "none": "no value"}[row.form]
    return kind if row.form == "none" else f"{size(len(bytes_of(row)))} {kind}"


def facts_list(facts: list[tuple[str, str]]) -> ui.html:
    """Names and what they are, in two columns."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return ui.html(f'<dl class="facts">{rows}</dl>', sanitize=False)


def _headers(row: Row) -> None:
    ui.html("<h3>Headers</h3>", sanitize=False)
    rows = "".join(
        f'<dt class="mono">{escape(name)}</dt><dd class="mono">{escape(value)}</dd>' for name, value in row.headers
    )
    ui.html(f'<dl class="facts boxed" aria-label="Headers">{rows}</dl>', sanitize=False)


def _origin(row: Row) -> None:
    """Where a dead letter, or a row that was redriven, came from."""
    # Any: the columns of a row.
    letter: dict[str, Any] = orjson.loads(row.value) if row.form == "json" and row.value else {}
    if set(DEAD_LETTER_SCHEMA.names) <= letter.keys():
        place = row_path(letter["topic"], letter["partition"], letter["offset"])
        told = f"{letter['error']}: {letter['message']}"
        where = f"{letter['topic']}, partition {letter['partition']}, offset {letter['offset']}"
        _note_with_link("A dead letter. It comes from", where, place, told, tone="warn")
        return
    headers = dict(row.headers)
    parts = headers.get(LETTER_HEADER, "").rsplit("/", 2)
    if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():
        where = f"{parts[0]}, partition {parts[1]}, offset {parts[2]}"
        told = f"Attempt {headers[ATTEMPT_HEADER]}." if ATTEMPT_HEADER in headers else ""
        _note_with_link("Redriven from the dead letter", where, row_path(parts[0], int(parts[1]), int(parts[2])), told)


def _note_with_link(text: str, where: str, path: str, told: str, *, tone: str = "info") -> None:
    after = f'<div class="quiet wrap-anywhere">{escape(told)}</div>' if told else ""
    ui.html(
        f'<div class="note {tone}"><div class="grow">{escape(text)} <a href="{escape(path)}">{escape(where)}</a>{after}</div></div>',
        sanitize=False,
    )
