"""One row, whole: its place, its times, its key and headers, where it came from, and its value in three ways."""

from __future__ import annotations

from html import escape
from typing import Any

import orjson
from nicegui import ui

from headwater.console.parts.layout import block, button
from headwater.console.parts.pretty import coloured, dump, is_json, pretty
from headwater.console.parts.rows import record_path
from headwater.console.parts.segments import Segments
from headwater.console.parts.words import count, moment, size
from headwater.console.records import Record
from headwater.log.deadletters import ATTEMPT_HEADER, DEAD_LETTER_SCHEMA, LETTER_HEADER
from headwater.log.port import Topic

#: Longer values are cut until somebody wants all of them.
SHOWN_LETTERS_MAX = 16_000
#: Colours are left out of what is longer: each of them costs the browser an element.
COLOURED_LETTERS_MAX = 200_000
HEX_BYTES_MAX = 4_096
WAYS = ("Pretty", "Raw", "Hex")


class RecordView:
    """Shows one row after the other in the same place."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._all = False
        self._record: Record | None = None
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

    def show(self, record: Record) -> None:
        self._record, self._all = record, False
        self._box.set_visibility(True)
        self._about.clear()
        with self._about:
            _origin(self._topic, record)
            _facts(record)
            if record.headers:
                _headers(record)
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
        if self._record is not None:
            ui.clipboard.write(self._record.value or "")
            ui.notify("Copied", position="bottom-right", timeout=1500)

    def _show_value(self) -> None:
        record = self._record
        self._value.clear()
        if record is None:
            return
        with self._value:
            if record.value is None:
                ui.label("null").classes("quiet mono")
                return
            html, rest = written(record, self._way.value, whole=self._all)
            ui.html(f'<pre class="code json" tabindex="0" aria-label="Value">{html}</pre>', sanitize=False)
            if rest:
                with block("row-flex"):
                    ui.label(rest).classes("quiet small")
                    button("Show all", self._show_all)


def bytes_of(record: Record) -> bytes:
    """The value as it was given, or its JSON."""
    value = record.value or ""
    return bytes.fromhex(value) if record.form == "hex" else value.encode("utf-8", "surrogatepass")


def written(record: Record, way: str, *, whole: bool) -> tuple[str, str]:
    """A value as HTML in one of three ways, and what is said of the part that is left out."""
    value = record.value or ""
    if way == "Hex" or record.form == "hex":
        data = bytes_of(record)
        shown = data if whole else data[:HEX_BYTES_MAX]
        return escape(dump(shown)), _left(len(shown), len(data), "bytes")
    laid_out = record.form == "json" or is_json(value)
    text = pretty(value) if way == "Pretty" and laid_out else value
    part = text if whole else text[:SHOWN_LETTERS_MAX]
    html = coloured(part) if laid_out and len(part) <= COLOURED_LETTERS_MAX else escape(part)
    return html, _left(len(part), len(text), "letters")


def _left(shown: int, total: int, unit: str) -> str:
    return f"{count(shown)} of {count(total)} {unit} are shown." if shown < total else ""


def _facts(record: Record) -> None:
    facts = [("Appended", f"{moment(record.appended_us)} UTC")]
    if record.event_us is not None:
        facts.append(("Event time", f"{moment(record.event_us)} UTC"))
    if record.sent_us is not None and record.sent_us != record.appended_us:
        facts.append(("Sent", f"{moment(record.sent_us)} UTC"))
    if record.key is not None:
        facts.append(("Key", record.key))
    facts.append(("Size", "a tombstone: the key is deleted" if record.is_tombstone else _size(record)))
    facts_list(facts)


def _size(record: Record) -> str:
    kind = {"json": "as JSON", "text": "of text", "hex": "bytes that are no text", "none": "no value"}[record.form]
    return kind if record.form == "none" else f"{size(len(bytes_of(record)))} {kind}"


def facts_list(facts: list[tuple[str, str]]) -> ui.html:
    """Names and what they are, in two columns."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return ui.html(f'<dl class="facts">{rows}</dl>', sanitize=False)


def _headers(record: Record) -> None:
    ui.html("<h3>Headers</h3>", sanitize=False)
    rows = "".join(
        f'<dt class="mono">{escape(name)}</dt><dd class="mono">{escape(value)}</dd>' for name, value in record.headers
    )
    ui.html(f'<dl class="facts boxed" aria-label="Headers">{rows}</dl>', sanitize=False)


def _origin(topic: Topic, record: Record) -> None:
    """Where a dead letter, or a row that was redriven, came from."""
    if set(DEAD_LETTER_SCHEMA.names) <= set(topic.schema.names) and record.value is not None:
        # Any: the row of a dead letter.
        letter: dict[str, Any] = orjson.loads(record.value)
        place = record_path(letter["topic"], letter["partition"], letter["offset"])
        told = f"{letter['error']}: {letter['message']}"
        where = f"{letter['topic']}, partition {letter['partition']}, offset {letter['offset']}"
        _note_with_link("A dead letter. It comes from", where, place, told, tone="warn")
        return
    headers = dict(record.headers)
    parts = headers.get(LETTER_HEADER, "").rsplit("/", 2)
    if len(parts) == 3 and parts[1].isdecimal() and parts[2].isdecimal():
        where = f"{parts[0]}, partition {parts[1]}, offset {parts[2]}"
        told = f"Attempt {headers[ATTEMPT_HEADER]}." if ATTEMPT_HEADER in headers else ""
        _note_with_link(
            "Redriven from the dead letter", where, record_path(parts[0], int(parts[1]), int(parts[2])), told
        )


def _note_with_link(text: str, where: str, path: str, told: str, *, tone: str = "info") -> None:
    after = f'<div class="quiet wrap-anywhere">{escape(told)}</div>' if told else ""
    ui.html(
        f'<div class="note {tone}"><div class="grow">{escape(text)} <a href="{escape(path)}">{escape(where)}</a>{after}</div></div>',
        sanitize=False,
    )
