"""What a topic is to the apps of a log: what kind it is, and which queries and views read and write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from headwater.apps.status import QueryStatus
from headwater.log.dead_letters import SUFFIX

TopicKind = Literal["input", "derived", "view", "dead letters", "internal"]


def written_topics(statuses: Iterable[QueryStatus]) -> dict[str, TopicKind]:
    """The topics that queries write: changelogs of views, derived topics and side outputs."""
    found: dict[str, TopicKind] = {}
    for status in statuses:
        for name in (*status.outputs, *status.side_outputs.values()):
            is_view = status.kind == "view" and name in status.outputs[:1]
            found[name] = "view" if is_view or found.get(name) == "view" else "derived"
    return found


def kind_of(name: str, written: Mapping[str, TopicKind]) -> TopicKind:
    """The kind of a topic; one that no query writes is an input.

    >>> kind_of("orders", {}), kind_of("orders.dlq", {}), kind_of("spend", {"spend": "view"}), kind_of("__audit", {})
    ('input', 'dead letters', 'view', 'internal')
    """
    if name.startswith("__"):
        return "internal"
    return "dead letters" if name.endswith(SUFFIX) else written.get(name, "input")


def readers_of(name: str, statuses: Iterable[QueryStatus]) -> list[QueryStatus]:
    """The queries that read a topic."""
    return [status for status in statuses if name in status.inputs]


def writers_of(name: str, statuses: Iterable[QueryStatus]) -> list[QueryStatus]:
    """The queries that write a topic; to the dead letters of a topic, those that read it."""
    if name.endswith(SUFFIX):
        about = name.removesuffix(SUFFIX)
        return [status for status in statuses if about in (*status.inputs, status.name)]
    return [status for status in statuses if name in (*status.outputs, *status.side_outputs.values())]
