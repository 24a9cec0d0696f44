"""One row at an address of its own, which can be sent to others; with the rows before and after it."""

from __future__ import annotations

from nicegui import ui

from headwater.console.kit.layout import button, card, empty, heading
from headwater.console.kit.live import read
from headwater.console.pages import screen
from headwater.console.topics.frame import topic_path, topic_tabs
from headwater.console.topics.row_list import row_path
from headwater.console.topics.row_panel import RowView
from headwater.console.visit import Visit
from headwater.errors import ArgumentInvalid
from headwater.services.rows import RowAt

DIGITS_MAX = 18


@screen("/topics/{name}/{partition}/{offset}", under="/topics")
async def row(visit: Visit, name: str, partition: str, offset: str) -> None:
    number, at = _number("partition", partition), _number("offset", offset)
    found = await read(lambda: visit.services.rows.row(name, number, at))
    with heading(f"Offset {at}", under=f"Partition {number} of `{name}`"):
        _leads(name, number, "The row before", "chevron_left", found.before)
        _leads(name, number, "The row after", "chevron_right", found.after)
        button("Copy the address", lambda: ui.run_javascript(_COPY), icon="link")
        if visit.caller.may("write", name) and found.row is not None:
            again = f"{topic_path(name, 'Produce')}?row={number}/{at}"
            button("Produce one like it", lambda: ui.navigate.to(again), icon="add")
        around = f"{topic_path(name, 'Browse')}?from=offset&at={at}&partition={number}"
        button("Browse from here", lambda: ui.navigate.to(around), icon="view_stream")
    topic_tabs(visit, name, "")
    with card():
        if found.row is None:
            empty("No row at this offset", why_missing(found, at), icon="search_off")
        else:
            RowView().show(found.row)


def why_missing(found: RowAt, offset: int) -> str:
    """One sentence about an offset that has no row."""
    if offset >= found.offset_next:
        return f"The next row of this partition will get offset {found.offset_next}."
    if offset < found.offset_start:
        return f"Retention has deleted it: this partition now begins at offset {found.offset_start}."
    return "Compaction has removed it: a later row with the same key has taken its place."


def _leads(topic: str, partition: int, label: str, icon: str, offset: int | None) -> None:
    path = row_path(topic, partition, offset or 0)
    made = button("", lambda: ui.navigate.to(path), icon=icon, label=label)
    made.set_enabled(offset is not None)


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > DIGITS_MAX:
        raise ArgumentInvalid(name=name, value=text, expected="a whole number, such as 1200")
    return int(text)


_COPY = "navigator.clipboard?.writeText(location.href)"
