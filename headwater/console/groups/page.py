"""One group: its lag over time, its partitions and members; it can be reset and deleted."""

from __future__ import annotations

from dataclasses import dataclass

from nicegui import ui

from headwater.console.context import Visit, context
from headwater.console.groups.list_page import EXPIRES_SOON, GroupLag, expires_cell
from headwater.console.groups.reset_dialog import ResetDialog, names_of
from headwater.console.kit.chart import LineChart
from headwater.console.kit.controls import button
from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import Stat, block, card, heading, meter
from headwater.console.kit.live import LivePage, attempt, notify, perform, read
from headwater.console.kit.table import Column, Pages, Row, Table, drawn, link, mark, toned
from headwater.console.kit.words import ago, count, counted, short, span
from headwater.console.pages import path_to, screen
from headwater.log.clients.groups import GroupInfo, MemberInfo
from headwater.log.port import Lag

#: The speed of a group is measured over so many points.
SPEED_POINTS = 15
TOPICS_DRAWN_MAX = 6
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


@screen("/groups/{name}", under="/groups")
async def group(visit: Visit, name: str) -> None:
    await read(
        lambda: visit.services.groups.describe(name)
    )  # a group that does not exist is an error instead of a page
    GroupPage(visit, name).start()


@dataclass(frozen=True, kw_only=True)
class Speed:
    """How fast a group reads, and by how much its lag grows, in rows a second."""

    reads: float
    grows: float

    def text(self, rows: int) -> str:
        if self.grows < -0.5 and rows:
            return f"caught up in {span(rows / -self.grows)}"
        if self.grows > 0.5:
            return f"falls behind by {short(self.grows)} rows/s"
        return "stands still" if rows and self.reads < 0.5 else "keeps up"


def speed_of(name: str, topics: list[str]) -> Speed:
    """The speed over the last half minute: the rows written to the topics, less what the lag has grown by."""
    history = context().history
    points = history.series("group", name, "lag", points=SPEED_POINTS)
    if len(points) < 2 or points[-1][0] <= points[0][0]:
        return Speed(reads=0.0, grows=0.0)
    grows = (points[-1][1] - points[0][1]) / (points[-1][0] - points[0][0])
    written = 0.0
    for topic in topics:
        values = history.values("topic", topic, "rate", points=SPEED_POINTS)
        written += sum(values) / len(values) if values else 0.0
    return Speed(reads=written - grows, grows=grows)


class GroupPage(LivePage[GroupInfo]):
    """The page of a group."""

    def __init__(self, visit: Visit, name: str) -> None:
        self._visit, self._name = visit, name
        self._partitions: list[Lag] = []
        self._reset_dialog = ResetDialog(visit, name, self._after_reset)
        with heading(name, under="A group shares the partitions of its topics among its members."):
            button("Reset", self._reset_dialog.open, icon="restart_alt", kind="primary")
            button("Delete", self._delete, icon="delete", kind="danger")
        with block("grid tiles"):
            self._rows = Stat("Lag", unit="rows", why="lag")
            self._seconds = Stat("Lag in time", why="lag")
            self._speed = Stat("Reads", unit="rows/s", why="group_speed")
            self._alive = Stat("Members alive", why="group_members")
        with block("grid"):
            with card("Lag in rows"):
                self._rows_chart = LineChart(label="Lag in rows over time", dark=visit.dark, height=200)
            with card("Lag in seconds"):
                self._seconds_chart = LineChart(label="Lag in seconds over time", dark=visit.dark, height=200)
        with card("Partitions", flush=True, why="commit"):
            none = "It has neither read nor committed yet."
            self._table = Table(PARTITION_COLUMNS, label="Partitions", none=none)
            self._pages = Pages(self._show_partitions)
        with card("Members", flush=True, why="group_members"):
            none = "No members: no consumer reads for this group now."
            self._members = Table(MEMBER_COLUMNS, label="Members", none=none)

    def load(self) -> GroupInfo:
        return self._visit.services.groups.describe(self._name)

    def show(self, content: GroupInfo) -> None:
        self._partitions = sorted(content.partitions, key=lambda lag: (lag.topic, lag.partition))
        group = GroupLag(name=self._name, lags=tuple(content.partitions))
        self._show_tiles(group, content)
        self._rows_chart.set(self._series(group.topics, "lag"))
        self._seconds_chart.set(self._series(group.topics, "lag_seconds"))
        self._show_partitions()
        self._members.set_rows([_member(member) for member in content.members])

    def _show_tiles(self, group: GroupLag, info: GroupInfo) -> None:
        if group.never_committed:
            self._rows.set("no commit", unit="", foot=f"{count(group.rows)} rows wait")
            self._seconds.set("–", foot="it has not begun")
        else:
            line = context().history.values("group", self._name, "lag")
            self._rows.set(count(group.rows), foot=f"in {counted(len(group.topics), 'topic')}", line=line)
            expires = group.expires
            self._seconds.set(
                span(group.seconds if group.rows else 0.0),
                foot="of its oldest row" if expires is None else f"its next row is kept for {span(expires)}",
                tone="bad" if expires is not None and expires < EXPIRES_SOON else "",
            )
        speed = speed_of(self._name, group.topics)
        tone = "warn" if speed.grows > 0.5 else ""
        self._speed.set(short(max(0.0, speed.reads)), foot=speed.text(group.rows), tone=tone)
        alive, members = sum(member.alive for member in info.members), len(info.members)
        self._alive.set(
            count(alive),
            foot=f"of {members}, generation {info.generation}" if members else "no consumer reads now",
            tone="good" if alive else "warn" if group.rows else "",
        )

    def _show_partitions(self) -> None:
        worst = max((lag.rows for lag in self._partitions), default=0)
        self._table.set_rows([_partition(lag, worst) for lag in self._pages.part(self._partitions)])

    def _series(self, topics: list[str], measure: str) -> dict[str, list[tuple[float, float]]]:
        history = context().history
        if not 1 < len(topics) <= TOPICS_DRAWN_MAX:
            return {"all topics": history.series("group", self._name, measure)}
        return {topic: history.series("group", f"{self._name}/{topic}", measure) for topic in topics}

    # -- actions ------------------------------------------------------------------------------------------------------

    async def _delete(self) -> None:
        info = await attempt(self.load)
        if info is None:
            return
        alive = [member for member in info.members if member.alive]
        with Question(f"Delete group {self._name}?", yes="Delete group", danger=True) as question:
            if alive:
                question.refuse(f"It cannot be deleted while it is read for: {names_of(alive)}.")
            ui.label(
                f"This forgets how far it has come in {count(len(info.partitions))} partitions. No rows are deleted. "
                "The next reader of the group begins from the start."
            )
        if await question.answered() and await perform(lambda: self._visit.services.groups.delete(self._name)):
            ui.navigate.to(path_to("groups"))

    async def _after_reset(self, effect: str) -> None:
        notify(effect)
        await self.refresh()


def _partition(lag: Lag, worst: int) -> Row:
    if lag.committed is None:
        rows: object = toned("–", "quiet", under=f"{count(lag.rows)} wait" if lag.rows else "")
    else:
        rows = count(lag.rows)
    cells = [
        link(lag.topic, path_to("topics", lag.topic)),
        str(lag.partition),
        toned("no commit", "quiet") if lag.committed is None else count(lag.committed),
        count(lag.offset_next),
        rows,
        drawn(meter(lag.rows / worst if worst else 0)),
        "–" if lag.committed is None or not lag.rows else span(lag.seconds),
        expires_cell(lag.expires_in_seconds),
        lag.member or toned("no consumer", "quiet"),
    ]
    return Row(cells, key=f"{lag.topic}/{lag.partition}")


def _member(member: MemberInfo) -> Row:
    reads = ", ".join(f"{topic} {','.join(map(str, numbers))}" for topic, numbers in member.assignment.items())
    cells = [
        member.id,
        mark("alive", "good") if member.alive else mark("gone", "warn"),
        f"{member.pid} on {member.host}",
        reads or toned("nothing yet", "quiet"),
        ago(member.heartbeat_us),
        ago(member.joined_us),
    ]
    return Row(cells, key=member.id)
