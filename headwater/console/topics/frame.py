"""What all pages of one topic have in common: its name, what it is, and the tabs."""

from __future__ import annotations

from urllib.parse import quote

from nicegui import ui

from headwater.console.kit.layout import heading, tabs
from headwater.console.kit.live import read
from headwater.console.kit.words import counted
from headwater.console.visit import Visit
from headwater.log.port import Topic

PAGES = {"Overview": "", "Browse": "/browse", "Live tail": "/tail", "Search": "/search", "Produce": "/produce"}


def topic_path(name: str, page: str = "") -> str:
    """The address of a page of a topic."""
    return f"/console/topics/{quote(name, safe='')}{PAGES.get(page, page)}"


async def topic_head(visit: Visit, name: str, page: str) -> tuple[Topic, ui.element]:
    """The head of a page of a topic; gives the topic, and the place for the page's buttons."""
    topic = await read(lambda: visit.services.topics.get(name))
    if page != "Overview":
        visit.caller.require("write" if page == "Produce" else "read", name)
    buttons = heading(name, under=about(topic))
    topic_tabs(visit, name, page)
    return topic, buttons


def topic_tabs(visit: Visit, name: str, page: str) -> None:
    """The pages of a topic that the visitor may open."""
    shown = [one for one in PAGES if one != "Produce" or visit.caller.may("write", name)]
    tabs({one: topic_path(name, one) for one in shown}, current=page)


def about(topic: Topic) -> str:
    """What a topic is, in one line."""
    words = [counted(topic.partitions, "partition")]
    words.append("bytes without a schema" if topic.schemaless else counted(len(topic.schema.names), "column"))
    if topic.key:
        words.append(f"keyed by {', '.join(f'`{name}`' for name in topic.key)}")
    if topic.time:
        words.append(f"event time in `{topic.time_column}`")
    if topic.compact:
        words.append("compacted: of each key the last row stays")
    return " · ".join(words)
