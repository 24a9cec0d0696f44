"""Groups: who reads, and how far behind, in rows and in seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from headwater.console.context import context
from headwater.console.kit.layout import card, heading, search_box
from headwater.console.kit.live import every, read
from headwater.console.kit.sparkline import sparkline
from headwater.console.kit.table import Column, Pages, Row, Table, drawn, link, mark, toned
from headwater.console.kit.words import count, span
from headwater.console.pages import screen
from headwater.console.visit import Visit
from headwater.errors import NotFound
from headwater.log.port import Lag
from headwater.services.groups import GroupTopics

COLUMNS = (
    Column(name="name", label="Group", sortable=True),
    Column(name="topics", label="Topics", clip=True),
    Column(name="members", label="Members", align="right"),
    Column(name="history", label="Lag, last minutes", width="120px"),
    Column(name="rows", label="Lag in rows", align="right", sortable=True),
    Column(name="seconds", label="Lag in time", align="right", sortable=True),
    Column(name="expires", label="Next row is kept for", align="right", sortable=True),
)
#: Rows that retention deletes sooner than this are shown in red.
EXPIRES_SOON = 3_600.0
TOPICS_MAX = 3


@dataclass(frozen=True, kw_only=True)
class GroupLag:
    """A group with its lag summed up."""

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
    def never(self) -> bool:
        """Whether the group has committed nowhere: then its lag is not known."""
        return all(lag.committed is None for lag in self.lags)

    @property
    def expires(self) -> float | None:
        return min((lag.expires_in_seconds for lag in self.lags if lag.expires_in_seconds is not None), default=None)


_ORDER: dict[str, Callable[[GroupLag], Any]] = {
    "name": lambda one: one.name,
    "rows": lambda one: one.rows,
    "seconds": lambda one: one.seconds,
    "expires": lambda one: -(one.expires if one.expires is not None else float("inf")),
}


def group_path(name: str) -> str:
    return f"/console/groups/{quote(name, safe='')}"


@screen("/groups", title="Groups", group="Data", icon="groups", key="g", order=20)
def groups(visit: Visit) -> None:
    page = GroupList(visit)
    every(2.0, page.look, page.show)


class GroupList:
    """The list, its filter and its order; the worst comes first."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._sort, self._down = "rows", True
        self._found: list[GroupLag] = []
        self._alive: dict[str, tuple[int, int]] = {}
        with heading("Groups", under="Readers that share the work, and how far each is behind.", why="lag"):
            self._box = search_box("Filter groups", self._again)
        with card(flush=True):
            self._table = Table(
                COLUMNS,
                label="Groups",
                none="No group reads yet. One begins with its first reader: `headwater consume TOPIC --group NAME`.",
                sort=self._sort,
                down=self._down,
                on_sort=self._order,
            )
            self._pages = Pages(self._again)

    def look(self) -> list[GroupLag]:
        """All groups; members only of those that the page shows, since each is asked for by itself."""
        history, service = context().history, self._visit.services.groups
        history.wait()
        found = groups_now(history.lags, service.list_groups())
        text = (self._box.value or "").lower()
        found = [one for one in found if text in one.name.lower() or any(text in topic for topic in one.topics)]
        found.sort(key=lambda one: one.name)
        found.sort(key=_ORDER[self._sort], reverse=self._down)
        alive = {}
        for one in found[self._pages.first : self._pages.first + self._pages.size]:
            try:
                members = service.describe(one.name).members
            except NotFound:  # deleted while we looked
                continue
            alive[one.name] = (sum(member.alive for member in members), len(members))
        self._alive = alive
        return found

    def show(self, found: list[GroupLag]) -> None:
        self._table.set_rows([self._row(one) for one in self._pages.part(found)])

    async def _again(self, _: object = None) -> None:
        self.show(await read(self.look))

    async def _order(self, column: str) -> None:
        self._down = not self._down if column == self._sort else column != "name"
        self._sort = column
        self._table.set_sort(column, down=self._down)
        await self._again()

    def _row(self, one: GroupLag) -> Row:
        alive, members = self._alive.get(one.name, (0, 0))
        more = len(one.topics) - TOPICS_MAX
        cells = [
            link(one.name, group_path(one.name)),
            ", ".join(one.topics[:TOPICS_MAX]) + (f" and {more} more" if more > 0 else ""),
            mark(f"{alive} alive", "good")
            if alive
            else toned("no consumer", "quiet")
            if not members
            else _gone(members),
            drawn(sparkline(context().history.values("group", one.name, "lag"))),
            toned("no commit", "quiet", under=f"{count(one.rows)} rows wait") if one.never else count(one.rows),
            "–" if one.never or not one.rows else span(one.seconds),
            _kept(one.expires),
        ]
        return Row(cells, key=one.name)


def groups_now(lags: list[Lag], groups: list[GroupTopics]) -> list[GroupLag]:
    """Groups with the last measured lag in the topics that the caller sees."""
    by_group: dict[str, list[Lag]] = {one.group: [] for one in groups}
    seen = {(one.group, topic) for one in groups for topic in one.topics}
    for lag in lags:
        if (lag.group, lag.topic) in seen:
            by_group[lag.group].append(lag)
    return [GroupLag(name=name, lags=tuple(found)) for name, found in by_group.items()]


def _gone(members: int) -> dict[str, str]:
    return mark(f"{members} gone", "warn")


def _kept(seconds: float | None) -> Any:
    """How long the next row that the group would read is still there."""
    if seconds is None:
        return "–"
    return toned(span(max(0.0, seconds)), "bad" if seconds < EXPIRES_SOON else "")
