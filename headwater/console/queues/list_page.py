"""Queues: each group of each in one row, with what waits, for how long, and who works on it."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.console.context import Visit, context
from headwater.console.kit.chart import sparkline
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.table import Column, Row, drawn, link, mark, toned
from headwater.console.kit.words import count, span
from headwater.console.pages import path_to, screen
from headwater.console.queues.display import TONES, badness, group_path, state_of
from headwater.services.queues import QueueGroup, QueueStatus


@screen("/queues", title="Queues", group="Data", icon="assignment", key="j", order=15)
def queues(visit: Visit) -> None:
    QueueList(visit).start()


@dataclass(frozen=True, kw_only=True)
class GroupRow:
    """One row: a group, and its queue."""

    queue: QueueStatus
    group: QueueGroup


class QueueList(ListPage[GroupRow]):
    """The list of the groups of all queues; those that need attention come first."""

    title = "Queues"
    under = "Messages that each go to one worker of each group."
    why = "queues"
    columns = (
        Column(name="name", label="Queue"),
        Column(name="group", label="Group"),
        Column(name="state", label="State"),
        Column(name="history", label="Depth, last minutes", width="120px"),
        Column(name="depth", label="Depth", align="right"),
        Column(name="oldest", label="Oldest", align="right"),
        Column(name="in_flight", label="In flight", align="right"),
        Column(name="scheduled", label="Scheduled", align="right"),
        Column(name="redelivered", label="Redelivered", align="right"),
        Column(name="consumers", label="Consumers", align="right"),
        Column(name="dead", label="Dead letters", align="right"),
    )
    none = "No queue fits."
    nothing = {
        "title": "There are no queues",
        "hint": "A queue gives each message to one worker, and delivers it again if that worker fails.",
        "icon": "assignment",
        "command": "headwater queue create jobs",
    }
    sort_keys = {
        "name": lambda one: (one.queue.name, one.group.name),
        "group": lambda one: (one.group.name, one.queue.name),
        "state": lambda one: badness(one.group),
        "depth": lambda one: one.group.stats.depth,
        "oldest": lambda one: one.group.stats.oldest_seconds or 0.0,
        "in_flight": lambda one: one.group.stats.in_flight,
        "scheduled": lambda one: one.group.stats.scheduled,
        "redelivered": lambda one: one.group.stats.redelivered,
        "consumers": lambda one: one.group.stats.consumers,
        "dead": lambda one: one.queue.dead_letters,
    }
    ascending = ("name", "group", "state")
    sort = "state"

    def items(self) -> list[GroupRow]:
        context().history.wait()
        may_read = [one for one in context().history.queues if self.visit.caller.may("read", one.name)]
        return [GroupRow(queue=queue, group=group) for queue in may_read for group in queue.groups]

    def text(self, item: GroupRow) -> str:
        return f"{item.queue.name}\n{item.group.name}"

    def row(self, item: GroupRow) -> Row:
        queue, group, stats = item.queue, item.group, item.group.stats
        state = state_of(stats)
        dead = link(count(queue.dead_letters), path_to("dead-letters", queue.dead_letter_topic))
        cells = [
            link(queue.name, group_path(queue.name, group.name)),
            group.name,
            mark(state, TONES[state]),
            drawn(sparkline(context().history.values("queue", f"{queue.name}/{group.name}", "depth"))),
            count(stats.depth),
            "–" if stats.oldest_seconds is None else span(stats.oldest_seconds),
            count(stats.in_flight),
            count(stats.scheduled),
            count(stats.redelivered),
            count(stats.consumers) if stats.consumers else toned("none", "warn" if stats.depth else "quiet"),
            dead if queue.dead_letters else "–",
        ]
        return Row(cells, key=f"{queue.name}/{group.name}")
