"""One row at an address of its own, which can be sent to others; with the rows before and behind it."""

from __future__ import annotations

from dataclasses import dataclass

from nicegui import ui

from headwater.console.context import context
from headwater.console.paging import neighbour, record_at
from headwater.console.parts.layout import button, card, empty, heading
from headwater.console.parts.live import read
from headwater.console.parts.record import RecordView
from headwater.console.parts.rows import record_path
from headwater.console.parts.topic import topic_path, topic_tabs
from headwater.console.records import Record
from headwater.console.screen import screen
from headwater.console.visit import Visit
from headwater.errors import ArgumentInvalid, PartitionNotFound
from headwater.log.port import Topic

DIGITS_MAX = 18


@screen("/topics/{name}/{partition}/{offset}", under="/topics")
async def record(visit: Visit, name: str, partition: str, offset: str) -> None:
    visit.caller.require("read", name)
    number, at = _number("partition", partition), _number("offset", offset)
    found = await read(lambda: find(name, number, at))
    with heading(f"Offset {at}", under=f"Partition {number} of `{name}`"):
        _leads(found, "The row before", "chevron_left", found.before)
        _leads(found, "The row behind", "chevron_right", found.behind)
        button("Copy the address", lambda: ui.run_javascript(_COPY), icon="link")
        if visit.caller.may("write", name) and found.record is not None:
            again = f"{topic_path(name, 'Produce')}?row={number}/{at}"
            button("Produce one like it", lambda: ui.navigate.to(again), icon="add")
        around = f"{topic_path(name, 'Browse')}?from=offset&at={at}&partition={number}"
        button("Browse from here", lambda: ui.navigate.to(around), icon="view_stream")
    topic_tabs(visit, name, "")
    if found.record is None:
        _missing(found)
        return
    with card():
        RecordView(found.topic).show(found.record)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A row with its neighbours; and what the partition holds, to say why there is none."""

    topic: Topic
    partition: int
    offset: int
    record: Record | None
    before: int | None
    behind: int | None
    start: int
    end: int


def find(topic: str, partition: int, offset: int) -> Found:
    """Look a row up."""
    log = context().log
    about = log.topic(topic)
    if partition >= about.partitions:
        raise PartitionNotFound(topic=topic, partition=partition, partitions=about.partitions)
    return Found(
        topic=about,
        partition=partition,
        offset=offset,
        record=record_at(log, topic, partition, offset),
        before=neighbour(log, topic, partition, offset, forwards=False),
        behind=neighbour(log, topic, partition, offset, forwards=True),
        start=log.start_offsets(topic)[partition],
        end=log.end_offsets(topic)[partition],
    )


def why_missing(found: Found) -> str:
    """One sentence about an offset that has no row."""
    if found.offset >= found.end:
        return f"The next row of this partition will get offset {found.end}."
    if found.offset < found.start:
        return f"Retention has deleted it: this partition now begins at offset {found.start}."
    return "Compaction has removed it: a later row with the same key has taken its place."


def _missing(found: Found) -> None:
    with card():
        empty("No row at this offset", why_missing(found), icon="search_off")


def _leads(found: Found, label: str, icon: str, offset: int | None) -> None:
    path = record_path(found.topic.name, found.partition, offset or 0)
    made = button("", lambda: ui.navigate.to(path), icon=icon, label=label)
    made.set_enabled(offset is not None)


def _number(name: str, text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > DIGITS_MAX:
        raise ArgumentInvalid(name=name, value=text, expected="a whole number, such as 1200")
    return int(text)


_COPY = "navigator.clipboard?.writeText(location.href)"
