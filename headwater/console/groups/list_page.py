"""Groups: who reads, and the lag in rows and in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.console.context import Visit, context
from headwater.console.kit.chart import sparkline
from headwater.console.kit.list_page import ListPage
from headwater.console.kit.table import Column, Row, drawn, link, mark, toned
from headwater.console.kit.words import count, span
from headwater.console.pages import path_to, screen
from headwater.log.port import Lag

#: Rows that retention deletes sooner than this are shown in red.
EXPIRES_SOON = 3_600.0
TOPICS_MAX = 3


@dataclass(frozen=True, kw_only=True)
class GroupLag:
    """A group with the lag of its partitions, and what that is together."""

    name: str
    lags: tuple[Lag, ...] = ()

    @property
    def rows(self) -> int:
        return sum(lag.rows for lag in self.lags)

    @property
    def seconds(self) -> float:
        return max((lag.seconds for lag in self.lags), default=0.0)

    @property
    def topics(self) -> list[str]:
        return sorted({lag.topic for lag in self.lags})

    @property
    def never_committed(self) -> bool:
        """Whether the group has committed nowhere: then its lag is not known."""
        return all(lag.committed is None for lag in self.lags)

    @property
    def expires(self) -> float | None:
        return min((lag.expires_in_seconds for lag in self.lags if lag.expires_in_seconds is not None), default=None)


@screen("/groups", title="Groups", group="Data", icon="groups", key="g", order=20)
def groups(visit: Visit) -> None:
    GroupList(visit).start()


class GroupList(ListPage[GroupLag]):
    """The list of groups; the one with the largest lag comes first."""

    title = "Groups"
    under = "Readers that share the work, and how far each is behind."
    why = "lag"
    columns = (
        Column(name="name", label="Group"),
        Column(name="topics", label="Topics", clip=True),
        Column(name="members", label="Members", align="right"),
        Column(name="history", label="Lag, last minutes", width="120px"),
        Column(name="rows", label="Lag in rows", align="right"),
        Column(name="seconds", label="Lag in time", align="right"),
        Column(name="expires", label="Next row is kept for", align="right"),
    )
    none = "No group reads yet. One begins with its first reader: `headwater consume TOPIC --group NAME`."
    sort_keys = {
        "name": lambda group: group.name,
        "rows": lambda group: group.rows,
        "seconds": lambda group: group.seconds,
        "expires": lambda group: -(group.expires if group.expires is not None else float("inf")),
    }
    sort = "rows"

    def items(self) -> list[GroupLag]:
        """Groups by name, with the last measured lag in the topics that the caller sees."""
        context().history.wait()
        lags: dict[str, list[Lag]] = {}
        seen = set()
        for group in self.visit.services.groups.list_groups():
            lags[group.group] = []
            seen |= {(group.group, topic) for topic in group.topics}
        for lag in context().history.lags:
            if (lag.group, lag.topic) in seen:
                lags[lag.group].append(lag)
        return [GroupLag(name=name, lags=tuple(lags[name])) for name in sorted(lags)]

    def text(self, item: GroupLag) -> str:
        return "\n".join((item.name, *item.topics))

    def row(self, item: GroupLag) -> Row:
        members = self.visit.services.groups.describe(item.name).members
        alive = sum(member.alive for member in members)
        state = mark(f"{len(members)} gone", "warn") if members else toned("no consumer", "quiet")
        more = len(item.topics) - TOPICS_MAX
        waiting = toned("no commit", "quiet", under=f"{count(item.rows)} rows wait")
        cells = [
            link(item.name, path_to("groups", item.name)),
            ", ".join(item.topics[:TOPICS_MAX]) + (f" and {more} more" if more > 0 else ""),
            mark(f"{alive} alive", "good") if alive else state,
            drawn(sparkline(context().history.values("group", item.name, "lag"))),
            waiting if item.never_committed else count(item.rows),
            "–" if item.never_committed or not item.rows else span(item.seconds),
            expires_cell(item.expires),
        ]
        return Row(cells, key=item.name)


# Any: a cell.
def expires_cell(seconds: float | None) -> Any:
    """How long retention keeps the next row that a group would read."""
    if seconds is None:
        return "–"
    return toned(span(max(0.0, seconds)), "bad" if seconds < EXPIRES_SOON else "")
