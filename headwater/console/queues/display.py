"""Queues as pages show them: the state of a group in a word and a colour, settings as facts, and bodies as text."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import orjson

from headwater.console.kit.words import clipped, count, counted, span
from headwater.console.pages import path_to
from headwater.queues import QueueConfig, QueueStats
from headwater.services.queues import QueueGroup, QueueStatus

#: Bodies are cut in tables; the row of the queue's topic shows all of it.
BODY_CHARACTERS_MAX = 160
#: States from the worst to the best.
_WORST_FIRST = ("no consumer", "paused", "at work", "idle")
TONES = {"no consumer": "warn", "paused": "info", "at work": "good", "idle": ""}


def state_of(stats: QueueStats) -> str:
    """What a group does, in a word.

    >>> from dataclasses import replace
    >>> counts = dict.fromkeys(("scheduled", "in_flight", "blocked", "delivered", "redelivered", "acknowledged", "dead", "expired"), 0)
    >>> stats = QueueStats(queue="jobs", group="g", waiting=1, consumers=0, oldest_seconds=2.0, paused=False, **counts)
    >>> state_of(stats), state_of(replace(stats, consumers=1)), state_of(replace(stats, waiting=0))
    ('no consumer', 'at work', 'idle')
    """
    if stats.paused:
        return "paused"
    if stats.depth and not stats.consumers:
        return "no consumer"
    return "at work" if stats.depth or stats.in_flight else "idle"


def badness(group: QueueGroup) -> tuple[int, int, str]:
    """The order of groups, those that need attention first."""
    stats = group.stats
    return _WORST_FIRST.index(state_of(stats)), -stats.depth, stats.queue


def group_of(status: QueueStatus, name: str) -> QueueGroup | None:
    """The group of a name; without one, the `default`, or the first."""
    by_name = {group.name: group for group in status.groups}
    return by_name.get(name) if name else by_name.get("default", next(iter(status.groups), None))


def queue_group(queues: Iterable[QueueStatus], name: str) -> QueueGroup | None:
    """The group of a name such as `jobs/default`."""
    queue, _, group = name.partition("/")
    return next((each for one in queues if one.name == queue for each in one.groups if each.name == group), None)


def group_path(queue: str, group: str) -> str:
    """The address of the page of a queue as one of its groups.

    >>> group_path("jobs", "default")
    '/console/queues/jobs?group=default'
    """
    return f"{path_to('queues', queue)}?group={quote(group, safe='')}"


# Any: JSON.
def body_text(body: Any) -> str:
    """A body on one line.

    >>> body_text({"picture": 7}), body_text("text")
    ('{"picture":7}', '"text"')
    """
    return clipped(orjson.dumps(body).decode(), BODY_CHARACTERS_MAX)


def settings_of(config: QueueConfig) -> list[tuple[str, str]]:
    """The settings of a queue in words; those that are not used are left out."""
    attempts = "no limit" if config.attempts_max is None else count(config.attempts_max)
    rule = "each delivery counts" if config.count == "acquisitions" else "failures count"
    length = config.length_max
    facts = [
        ("Body", config.body),
        ("Lease", _span(config.lease)),
        ("Attempts", f"{attempts}; {rule}"),
        ("Order", "kept for each key" if config.ordered else "not kept through redelivery"),
    ]
    facts += [("Consumers", "one at a time")] if config.single_active else []
    facts += [("Priorities", count(config.priorities))] if config.priorities > 1 else []
    facts += [("Prefetch", f"{counted(config.prefetch, 'message')} for each consumer")] if config.prefetch else []
    facts += [("Length", f"at most {count(length)}, then {config.overflow.replace('_', ' ')}")] if length else []
    facts += [("Time to live", f"{_span(config.ttl)}, then {config.expired.replace('_', ' ')}")] if config.ttl else []
    facts += [("Acknowledged messages", "are deleted")] if config.delete_acknowledged else []
    facts += [("Deduplication", f"an id once in {_span(config.deduplicate)}")] if config.deduplicate else []
    return facts


# Any: a duration; settings keep it as seconds.
def _span(seconds: Any) -> str:
    return span(float(seconds)).replace(".0 s", " s")
