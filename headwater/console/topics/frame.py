"""What all pages of a topic share: their addresses, the heading, and the tabs."""

from __future__ import annotations

from nicegui import ui

from headwater.apps.status import QueryStatus
from headwater.console.context import Visit, context
from headwater.console.kit.layout import heading, tabs
from headwater.console.kit.live import read
from headwater.console.kit.words import counted
from headwater.console.pages import path_to
from headwater.console.topics.use import writers_of
from headwater.log.dead_letters import SUFFIX
from headwater.log.topic import Topic

PAGES = {"Overview": "", "Browse": "browse", "Live tail": "tail", "Search": "search", "Produce": "produce"}


def topic_path(topic: str, page: str = "Overview") -> str:
    """The address of a page of a topic."""
    return path_to("topics", topic, *([PAGES[page]] if PAGES[page] else []))


def row_path(topic: str, partition: int, offset: int) -> str:
    """The address of one row."""
    return path_to("topics", topic, partition, offset)


async def topic_head(visit: Visit, name: str, page: str) -> tuple[Topic, ui.element]:
    """The heading of a page of a topic; returns the topic, and the place for the page's buttons."""
    topic = await read(lambda: visit.services.topics.get(name))
    if page != "Overview":
        visit.caller.require("write" if page == "Produce" else "read", name)
    buttons = heading(name, under=_description(topic, visit.queries()))
    topic_tabs(visit, name, page)
    return topic, buttons


def topic_tabs(visit: Visit, name: str, current: str) -> None:
    """The pages of a topic that the caller may open."""
    shown = [page for page in PAGES if page != "Produce" or visit.caller.may("write", name)]
    tabs({page: topic_path(name, page) for page in shown}, current=current)


def _description(topic: Topic, statuses: list[QueryStatus]) -> str:
    words = [_kind(topic.name, statuses), counted(topic.partitions, "partition")]
    words.append("bytes without a schema" if topic.schemaless else counted(len(topic.schema.names), "column"))
    if topic.key:
        words.append(f"keyed by {', '.join(f'`{name}`' for name in topic.key)}")
    if topic.time:
        words.append(f"event time in `{topic.time_column}`")
    if topic.compact:
        words.append("compacted: of each key the last row stays")
    return " · ".join(words)


def _kind(name: str, statuses: list[QueryStatus]) -> str:
    """What kind a topic is, in words."""
    kind, about = context().history.kind(name), f"`{name.removesuffix(SUFFIX)}`"
    writers = ", ".join(f"`{status.name}`" for status in writers_of(name, statuses))
    words = {
        "input": "input",
        "internal": "internal: written by Headwater itself",
        "dead letters": f"dead letters of {about}",
        "view": f"changelog of view {about}",
        "derived": f"derived, written by {writers}",
    }
    return words[kind]
