"""One group: its lag over time, each partition, its members; and the two things that may be done to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from nicegui import ui

from headwater.console.context import context
from headwater.console.groups.list_page import EXPIRES_SOON, GroupLag
from headwater.console.groups.reset_dialog import ResetDialog, names_of
from headwater.console.history import Kind
from headwater.console.kit.chart import LineChart
from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import block, button, card, heading
from headwater.console.kit.live import attempt, every, read, tell
from headwater.console.kit.stat import Stat
from headwater.console.kit.table import Column, Pages, Row, Table, drawn, link, mark, toned
from headwater.console.kit.words import ago, count, short, span
from headwater.console.pages import screen
from headwater.console.visit import Visit
from headwater.log.clients.groups import GroupInfo, MemberInfo
from headwater.log.port import Lag

#: The speed of a group is taken over so many looks.
SPEED_LOOKS = 15
TOPICS_DRAWN_MAX = 6


@screen("/groups/{name}", under="/groups")
async def group(visit: Visit, name: str) -> None:
    page = GroupPage(visit, name)
    await read(page.look)  # a group that does not exist is an error at once
    page.build()
    every(2.0, page.look, page.show)


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast a group reads, and by how much its lag grows, in rows a second."""

    reads: float
    grows: float

    def told(self, rows: int) -> str:
        if self.grows < -0.5 and rows:
            return f"caught up in {span(rows / -self.grows)}"
        if self.grows > 0.5:
            return f"falls behind by {short(self.grows)} rows/s"
        return "stands still" if rows and self.reads < 0.5 else "keeps up"


class GroupPage:
    """The page of a group."""

    def __init__(self, visit: Visit, name: str) -> None:
        self._visit, self._name = visit, name

    def build(self) -> None:
        with heading(self._name, under="A group shares the partitions of its topics among its members."):
            button("Reset", self._reset, icon="restart_alt", kind="primary")
            button("Delete", self._delete, icon="delete", kind="danger")
        self._reset_dialog = ResetDialog(self._visit, self._name, self._after)
        with block("grid tiles"):
            self._rows = Stat("Lag", unit="rows", why="lag")
            self._seconds = Stat("Lag in time", why="lag")
            self._speed = Stat("Reads", unit="rows/s", why="group_speed")
            self._alive = Stat("Members alive", why="group_members")
        with block("grid"):
            with card("Lag in rows"):
                self._rows_chart = LineChart(label="Lag in rows over time", dark=self._visit.dark, height=200)
            with card("Lag in seconds"):
                self._seconds_chart = LineChart(label="Lag in seconds over time", dark=self._visit.dark, height=200)
        with card("Partitions", flush=True, why="commit"):
            self._table = Table(PARTITION_COLUMNS, label="Partitions", none="It has neither read nor committed yet.")
            self._pages = Pages(self._show_partitions)
        with card("Members", flush=True, why="group_members"):
            self._members = Table(
                MEMBER_COLUMNS, label="Members", none="No members: no consumer reads for this group now."
            )

    def look(self) -> GroupInfo:
        return self._visit.services.groups.describe(self._name)

    def show(self, found: GroupInfo) -> None:
        self._found = found
        summed = GroupLag(name=self._name, lags=tuple(found.partitions))
        self._show_numbers(summed, found)
        self._rows_chart.set(self._lines(summed.topics, "lag"))
        self._seconds_chart.set(self._lines(summed.topics, "lag_seconds"))
        self._show_partitions()
        self._members.set_rows([_member(one) for one in found.members])

    def _show_numbers(self, summed: GroupLag, found: GroupInfo) -> None:
        values = context().history.values("group", self._name, "lag")
        topics = f"{len(summed.topics)} topic{'' if len(summed.topics) == 1 else 's'}"
        if summed.never:
            self._rows.set("no commit", unit="", foot=f"{count(summed.rows)} rows wait")
            self._seconds.set("–", foot="it has not begun")
        else:
            self._rows.set(count(summed.rows), foot=f"in {topics}", line=values)
            soon = summed.expires is not None and summed.expires < EXPIRES_SOON
            foot = (
                f"its next row is kept for {span(summed.expires)}"
                if summed.expires is not None
                else "of its oldest row"
            )
            self._seconds.set(span(summed.seconds if summed.rows else 0.0), foot=foot, tone="bad" if soon else "")
        speed = speed_of(self._name, summed.topics)
        self._speed.set(
            short(max(0.0, speed.reads)),
            foot=speed.told(summed.rows),
            tone="warn" if speed.grows > 0.5 else "",
        )
        alive = sum(one.alive for one in found.members)
        self._alive.set(
            count(alive),
            foot=f"of {len(found.members)}, generation {found.generation}"
            if found.members
            else "no consumer reads now",
            tone="good" if alive else "warn" if summed.rows else "",
        )

    def _show_partitions(self) -> None:
        worst = max((lag.rows for lag in self._found.partitions), default=0)
        lags = sorted(self._found.partitions, key=lambda lag: (lag.topic, lag.partition))
        self._table.set_rows([_partition(lag, worst) for lag in self._pages.part(lags)])

    def _lines(self, topics: list[str], measure: str) -> dict[str, list[tuple[float, float]]]:
        kind: Kind = "group"
        history = context().history
        if not 1 < len(topics) <= TOPICS_DRAWN_MAX:
            return {"all topics": history.series(kind, self._name, measure)}
        return {topic: history.series(kind, f"{self._name}/{topic}", measure) for topic in topics}

    # -- what may be done ---------------------------------------------------------------------------------------------

    async def _reset(self) -> None:
        await self._reset_dialog.open()

    async def _delete(self) -> None:
        found = await attempt(self.look)
        if found is None:
            return
        alive = [one for one in found.members if one.alive]
        with Question(f"Delete group {self._name}?", yes="Delete group", danger=True) as question:
            if alive:
                question.refuse(f"It cannot be deleted while it is read for: {names_of(alive)}.")
            ui.label(
                f"This forgets how far it has come in {count(len(found.partitions))} partitions. No rows are deleted. "
                "The next reader of the group begins from the start."
            )
        if await question.answered() and await attempt(self._delete_now):
            ui.navigate.to("/console/groups")

    def _delete_now(self) -> bool:
        self._visit.services.groups.delete(self._name)
        return True

    async def _after(self, sentence: str) -> None:
        tell(sentence)
        self.show(await read(self.look))


def speed_of(name: str, topics: list[str]) -> Speed:
    """What was written in the last half minute, less what the lag has grown by."""
    history = context().history
    points = history.series("group", name, "lag", points=SPEED_LOOKS)
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return Speed(reads=0.0, grows=0.0)
    grows = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
    written = 0.0
    for topic in topics:
        values = history.values("topic", topic, "rate", points=SPEED_LOOKS)
        written += sum(values) / len(values) if values else 0.0
    return Speed(reads=written - grows, grows=grows)


PARTITION_COLUMNS = (
    Column(name="topic", label="Topic"),
    Column(name="partition", label="Partition", align="right"),
    Column(name="committed", label="Committed", align="right"),
    Column(name="end", label="End", align="right"),
    Column(name="lag", label="Lag in rows", align="right"),
    Column(name="share", label=" ", width="90px"),
    Column(name="seconds", label="Lag in time", align="right"),
    Column(name="expires", label="Next row is kept for", align="right"),
    Column(name="member", label="Read by"),
)
MEMBER_COLUMNS = (
    Column(name="member", label="Member"),
    Column(name="alive", label="State"),
    Column(name="process", label="Process"),
    Column(name="reads", label="Reads"),
    Column(name="heartbeat", label="Last heard of", align="right"),
    Column(name="joined", label="Joined", align="right"),
)


def _partition(lag: Lag, worst: int) -> Row:
    soon = lag.expires_in_seconds is not None and lag.expires_in_seconds < EXPIRES_SOON
    # Any: see `Row`.
    cells: list[Any] = [
        link(lag.topic, f"/console/topics/{quote(lag.topic, safe='')}"),
        str(lag.partition),
        toned("no commit", "quiet") if lag.committed is None else count(lag.committed),
        count(lag.offset_next),
        _rows(lag),
        drawn(f'<div class="meter"><i style="width: {100 * lag.rows / worst if worst else 0:.0f}%"></i></div>'),
        "–" if lag.committed is None or not lag.rows else span(lag.seconds),
        toned(span(lag.expires_in_seconds), "bad" if soon else ""),
        lag.member or toned("no consumer", "quiet"),
    ]
    return Row(cells, key=f"{lag.topic}/{lag.partition}")


# Any: see `Row`.
def _rows(lag: Lag) -> Any:
    if lag.committed is not None:
        return count(lag.rows)
    return toned("–", "quiet", under=f"{count(lag.rows)} wait" if lag.rows else "")


def _member(one: MemberInfo) -> Row:
    reads = ", ".join(f"{topic} {','.join(map(str, numbers))}" for topic, numbers in one.assignment.items())
    cells = [
        one.id,
        mark("alive", "good") if one.alive else mark("gone", "warn"),
        f"{one.pid} on {one.host}",
        reads or toned("nothing yet", "quiet"),
        ago(one.heartbeat_us),
        ago(one.joined_us),
    ]
    return Row(cells, key=one.id)
