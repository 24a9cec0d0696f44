"""One row, whole: its times, key, headers, origin and value; at an address of its own, with the rows before and after it."""

from __future__ import annotations

from html import escape
from typing import Any

import orjson
from nicegui import ui

from headwater.console.context import Visit
from headwater.console.kit.controls import Segments, button
from headwater.console.kit.layout import block, card, empty, facts, heading, html, json_code, subtitle
from headwater.console.kit.live import read
from headwater.console.kit.values import coloured, dump, is_json, pretty
from headwater.console.kit.words import count, moment, offset_number, size
from headwater.console.pages import screen
from headwater.console.topics.frame import row_path, topic_path, topic_tabs
from headwater.log.dead_letters import ATTEMPT_HEADER, DEAD_LETTER_SCHEMA, LETTER_HEADER
from headwater.services.row_text import Row
from headwater.services.rows import RowAt

#: Longer values are cut until the user asks for all of the value.
SHOWN_CHARACTERS_MAX = 16_000
#: Longer values are not coloured: each colour costs the browser an element.
COLOURED_CHARACTERS_MAX = 200_000
HEX_BYTES_MAX = 4_096
FORMS = ("Pretty", "Raw", "Hex")


@screen("/topics/{name}/{partition}/{offset}", under="/topics")
async def row(visit: Visit, name: str, partition: str, offset: str) -> None:
    number, at = offset_number(partition, name="partition"), offset_number(offset)
    result = await read(lambda: visit.services.rows.row(name, number, at))

    def neighbour(label: str, icon: str, other: int | None) -> None:
        path = row_path(name, number, other or 0)
        button("", lambda: ui.navigate.to(path), icon=icon, label=label).set_enabled(other is not None)

    with heading(f"Offset {at}", under=f"Partition {number} of `{name}`"):
        neighbour("The row before", "chevron_left", result.before)
        neighbour("The row after", "chevron_right", result.after)
        copy = "navigator.clipboard?.writeText(location.href)"
        button("Copy the address", lambda: ui.run_javascript(copy), icon="link")
        if visit.caller.may("write", name) and result.row is not None:
            produce = f"{topic_path(name, 'Produce')}?row={number}/{at}"
            button("Produce one like it", lambda: ui.navigate.to(produce), icon="add")
        browse = f"{topic_path(name, 'Browse')}?from=offset&at={at}&partition={number}"
        button("Browse from here", lambda: ui.navigate.to(browse), icon="view_stream")
    topic_tabs(visit, name, "")
    with card():
        if result.row is None:
            empty("No row at this offset", why_missing(result, at), icon="search_off")
        else:
            RowView().show(result.row)


def why_missing(result: RowAt, offset: int) -> str:
    """Why an offset has no row."""
    if offset >= result.offset_next:
        return f"The next row of this partition will get offset {result.offset_next}."
    if offset < result.offset_start:
        return f"Retention has deleted it: this partition now begins at offset {result.offset_start}."
    return "Compaction has removed it: a later row with the same key has taken its place."


class RowView:
    """Shows one row after the other in the same place."""

    def __init__(self) -> None:
        self._row: Row | None = None
        self._box = block("stack")
        with self._box:
            self._about = block("stack")
            with block("row-flex between"):
                subtitle("Value", level=3)
                with block("row-flex"):
                    self._form = Segments(
                        FORMS, value="Pretty", label="How to show the value", on_change=self._show_value
                    )
                    button("", self._copy, icon="content_copy", kind="ghost", label="Copy the value")
            self._value = block("stack tight")
        self._box.set_visibility(False)

    def show(self, row: Row) -> None:
        self._row = row
        self._box.set_visibility(True)
        self._about.clear()
        with self._about:
            _origin(row)
            facts(_facts(row))
            if row.headers:
                subtitle("Headers", level=3)
                rows = "".join(
                    f'<dt class="mono">{escape(name)}</dt><dd class="mono">{escape(value)}</dd>'
                    for name, value in row.headers
                )
                html(f'<dl class="facts boxed" aria-label="Headers">{rows}</dl>')
        self._show_value()

    def hide(self) -> None:
        self._box.set_visibility(False)

    def _copy(self) -> None:
        if self._row is not None:
            ui.clipboard.write(self._row.value or "")
            ui.notify("Copied", position="bottom-right", timeout=1500)

    def _show_value(self, *, whole: bool = False) -> None:
        row = self._row
        self._value.clear()
        if row is None:
            return
        with self._value:
            if row.value is None:
                ui.label("null").classes("quiet mono")
                return
            markup, rest = value_markup(row, self._form.value, whole=whole)
            json_code(markup, label="Value")
            if rest:
                with block("row-flex"):
                    ui.label(rest).classes("quiet small")
                    button("Show all", lambda: self._show_value(whole=True))


def value_markup(row: Row, form: str, *, whole: bool) -> tuple[str, str]:
    """A value as HTML in one of three forms, and a sentence if a part of it is left out."""
    value = row.value or ""
    if form == "Hex" or row.form == "hex":
        data = _bytes_of(row)
        shown = data if whole else data[:HEX_BYTES_MAX]
        return escape(dump(shown)), _left_out(len(shown), len(data), "bytes")
    has_layout = row.form == "json" or is_json(value)
    text = pretty(value) if form == "Pretty" and has_layout else value
    part = text if whole else text[:SHOWN_CHARACTERS_MAX]
    markup = coloured(part) if has_layout and len(part) <= COLOURED_CHARACTERS_MAX else escape(part)
    return markup, _left_out(len(part), len(text), "characters")


def _bytes_of(row: Row) -> bytes:
    """The value as it was given, or its JSON."""
    value = row.value or ""
    return bytes.fromhex(value) if row.form == "hex" else value.encode("utf-8", "surrogatepass")


def _left_out(shown: int, total: int, unit: str) -> str:
    return f"{count(shown)} of {count(total)} {unit} are shown." if shown < total else ""


def _facts(row: Row) -> list[tuple[str, str]]:
    values = [("Appended", f"{moment(row.appended_us)} UTC")]
    if row.event_us is not None:
        values.append(("Event time", f"{moment(row.event_us)} UTC"))
    if row.sent_us is not None and row.sent_us != row.appended_us:
        values.append(("Sent", f"{moment(row.sent_us)} UTC"))
    if row.key is not None:
        values.append(("Key", row.key))
    form = {"json": "as JSON", "text": "of text", "hex": "bytes that are no text", "none": "no value"}[row.form]
    length = form if row.form == "none" else f"{size(len(_bytes_of(row)))} {form}"
    return [*values, ("Size", "a tombstone: the key is deleted" if row.is_tombstone else length)]


def _origin(row: Row) -> None:
    """Link to the row that became a dead letter, or to the dead letter that was redriven."""
    # Any: the columns of a row.
    columns: dict[str, Any] = orjson.loads(row.value) if row.form == "json" and row.value else {}
    headers = dict(row.headers)
    redriven = headers.get(LETTER_HEADER, "").rsplit("/", 2)
    if set(DEAD_LETTER_SCHEMA.names) <= columns.keys():
        text, tone, about = "A dead letter. It comes from", "warn", f"{columns['error']}: {columns['message']}"
        topic, partition, offset = columns["topic"], columns["partition"], columns["offset"]
    elif len(redriven) == 3 and redriven[1].isdecimal() and redriven[2].isdecimal():
        about = f"Attempt {headers[ATTEMPT_HEADER]}." if ATTEMPT_HEADER in headers else ""
        text, tone = "Redriven from the dead letter", "info"
        topic, partition, offset = redriven[0], int(redriven[1]), int(redriven[2])
    else:
        return
    path, place = row_path(topic, partition, offset), f"{topic}, partition {partition}, offset {offset}"
    under = f'<div class="quiet wrap-anywhere">{escape(about)}</div>' if about else ""
    link = f'{text} <a href="{escape(path)}">{escape(place)}</a>'
    html(f'<div class="note {tone}"><div class="grow">{link}{under}</div></div>')
