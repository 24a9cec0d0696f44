"""One topic: how much it holds and how fast it grows, its partitions, who reads it, its columns and its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from nicegui import ui

from headwater.console.context import context
from headwater.console.kit.chart import LineChart
from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import block, button, card, text_box
from headwater.console.kit.live import attempt, every, tell
from headwater.console.kit.stat import Stat
from headwater.console.kit.table import Column, Row, Table, link, mark, toned
from headwater.console.kit.words import ago, count, moment, short, size, span
from headwater.console.pages import screen
from headwater.console.topics.frame import topic_head
from headwater.console.topics.row_panel import facts_list
from headwater.console.visit import Visit
from headwater.log.port import Description, Lag, PartitionInfo, Topic
from headwater.schema import format_schema

#: From so many rows behind on, a number is marked.
BEHIND_MANY = 10_000


@screen("/topics/{name}", under="/topics")
async def topic(visit: Visit, name: str) -> None:
    about, buttons = await topic_head(visit, name, "Overview")
    page = TopicPage(visit, about)
    with buttons:
        if visit.caller.may("admin", name) and not name.startswith("__"):
            button("Delete", page.ask_to_delete, icon="delete", kind="danger")
    every(2.0, page.look, page.show)


@dataclass(frozen=True, kw_only=True)
class TopicContent:
    """What was found out about the topic."""

    described: Description
    lags: list[Lag]


class TopicPage:
    """The page, and how it is kept up to date."""

    def __init__(self, visit: Visit, about: Topic) -> None:
        self._visit, self._topic = visit, about
        with block("grid tiles"):
            self._rows = Stat("Rows", why="rows")
            self._rate = Stat("Rows in", unit="rows/s")
            self._size = Stat("Size on disk")
            self._lag = Stat("Worst lag", unit="rows", href="/console/groups", why="lag")
            self._last = Stat("Since the last row")
        with block("split"):
            with card("Rows a second"):
                self._chart = LineChart(label="Rows a second", dark=visit.dark, unit="rows/s", height=210)
            with card("Groups", why="lag", flush=True):
                self._readers = ReaderTable()
        with block("split"):
            with card("Partitions", why="partitions", flush=True):
                self._partitions = PartitionTable(about.name)
            with card("Settings"):
                facts_list(settings_of(about))
        with card("Columns" if not about.schemaless else "No schema", flush=not about.schemaless):
            _columns(about)

    def look(self) -> TopicContent:
        name = self._topic.name
        return TopicContent(described=self._visit.services.topics.describe(name), lags=self._visit.lags(name))

    def show(self, now: TopicContent) -> None:
        history, name, described = context().history, self._topic.name, now.described
        seen = history.topics.get(name)
        held = "offsets; compaction leaves fewer rows" if self._topic.compact else _kept(self._topic)
        self._rows.set(short(described.rows), foot=f"{count(described.rows)} {held}")
        line = history.values("topic", name, "rate")
        self._rate.set(short(seen.rate if seen else 0.0), foot="in the last seconds", line=line)
        parts = len(described.partitions)
        self._size.set(size(described.bytes), foot=f"in {parts} partition{'s' if parts != 1 else ''}")
        self._show_lag(now.lags)
        appended = [one.appended_at_us for one in described.partitions if one.appended_at_us is not None]
        self._last.set(
            ago(max(appended, default=None)).removesuffix(" ago"),
            foot=f"{moment(max(appended))} UTC" if appended else "",
        )
        self._chart.set({"rows/s": history.series("topic", name, "rate", points=300)})
        self._partitions.set(described.partitions)
        self._readers.set(now.lags)

    def _show_lag(self, lags: list[Lag]) -> None:
        groups: dict[str, int] = {}
        for lag in lags:
            groups[lag.group] = groups.get(lag.group, 0) + lag.rows
        worst = max(groups, key=lambda group: groups[group], default=None)
        if worst is None:
            self._lag.set("–", foot="no group reads this topic", unit="")
        else:
            seconds = max(lag.seconds for lag in lags if lag.group == worst)
            self._lag.set(short(groups[worst]), foot=f"{worst}, {span(seconds)} behind" if groups[worst] else worst)

    async def ask_to_delete(self) -> None:
        """Delete the topic, after a question that says what goes with it."""
        name = self._topic.name
        described = await attempt(lambda: self._visit.services.topics.describe(name))
        if described is None:
            return
        groups = sorted({lag.group for lag in self._visit.lags(name)})
        queries = sorted(one.name for one in context().history.statuses if name in (*one.inputs, *one.outputs))
        question = Question(f"Delete {name}?", yes="Delete", danger=True)
        with question:
            ui.label(f"{count(described.rows)} rows, {size(described.bytes)}, are gone for good.")
            if groups:
                ui.label(f"Groups that read it: {', '.join(groups[:8])}{' and more' if len(groups) > 8 else ''}.")
            if queries:
                ui.label(f"Queries that use it will fail: {', '.join(queries[:8])}.").classes("tone-text-bad")
            box = text_box(f"Write {name} to confirm")
        if not await question.answered():
            return
        if (box.value or "").strip() != name:
            tell("Nothing was deleted: the name was another one.", good=False)
            return
        await self._delete(name)

    async def _delete(self, name: str) -> None:
        def work() -> bool:
            self._visit.services.topics.delete(name)
            return True

        if await attempt(work):
            ui.navigate.to("/console/topics")


def _kept(topic: Topic) -> str:
    seconds = topic.retention.seconds_max
    return "kept for ever" if seconds is None else f"kept for {span(seconds)}"


def settings_of(topic: Topic) -> list[tuple[str, str]]:
    """The settings of a topic, as a person reads them."""
    kept = [] if topic.retention.seconds_max is None else [span(topic.retention.seconds_max)]
    kept += [] if topic.retention.bytes_max is None else [f"{size(topic.retention.bytes_max)} a partition"]
    durable = {"fsync": "on disk before it is acknowledged", "os": "with the operating system", "memory": "in memory"}
    return [
        ("Key", ", ".join(topic.key) or "none: rows take turns"),
        ("Event time", str(topic.time or "none")),
        ("Kept", " or ".join(kept) or "for ever"),
        ("Compaction", "of each key the last row" if topic.compact else "off"),
        ("Durability", f"{topic.durability}: {durable[topic.durability]}"),
        ("Compression", topic.codec),
        ("File size", f"up to {size(topic.segment_bytes_max)}"),
        ("Archive", "old files are kept apart" if topic.archive else "off"),
        ("Schema", "none" if topic.schemaless else f"version {topic.schema_version}"),
        ("Made", f"{moment(topic.created_us)} UTC" if topic.created_us else "–"),
        ("Id", topic.id),
    ]


def _columns(topic: Topic) -> None:
    if topic.schemaless:
        ui.label("Rows are a key and a value, both bytes. They are shown as text where they are UTF-8.").classes(
            "quiet"
        )
        return
    table = Table(
        [Column(name="Column", mono=True), Column(name="Type", mono=True), Column(name="Null"), Column(name="Use")],
        label="Columns",
    )
    types = dict(_written(topic))
    table.set_rows(
        [
            Row(
                [
                    one.name,
                    types.get(one.name, str(one.type)),
                    "may be null" if one.nullable else "never",
                    _use(topic, one.name),
                ]
            )
            for one in topic.schema
        ]
    )


def _written(topic: Topic) -> list[tuple[str, str]]:
    import pyarrow as pa

    return [(one.name, format_schema(pa.schema([one])).removeprefix(f"{one.name} ")) for one in topic.schema]


def _use(topic: Topic, column: str) -> object:
    if column in topic.key:
        return mark("key", "accent")
    return mark("event time", "info") if column == topic.time_column else ""


class PartitionTable:
    """One line for each partition."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._table = Table(
            [
                Column(name="Partition"),
                Column(name="First offset", align="right"),
                Column(name="Next offset", align="right"),
                Column(name="Rows", align="right"),
                Column(name="Size", align="right"),
                Column(name="Files", align="right"),
                Column(name="Last row", align="right"),
            ],
            label="Partitions",
        )

    def set(self, partitions: Sequence[PartitionInfo]) -> None:
        self._table.set_rows([self._row(one) for one in partitions])

    def _row(self, one: PartitionInfo) -> Row:
        path = f"/console/topics/{quote(self._topic, safe='')}/browse?partition={one.partition}"
        cells = [
            link(f"Partition {one.partition}", path),
            str(one.offset_start),
            str(one.offset_next),
            count(one.rows),
            size(one.bytes),
            count(one.segments),
            ago(one.appended_at_us),
        ]
        return Row(cells, key=one.partition)


class ReaderTable:
    """One line for each group that reads a topic, the one furthest behind first."""

    def __init__(self) -> None:
        self._table = Table(
            [
                Column(name="Group"),
                Column(name="Behind, rows", align="right"),
                Column(name="Behind, time", align="right"),
                Column(name="Members", align="right"),
            ],
            label="Groups that read this topic",
            none="No group reads this topic.",
        )

    def set(self, lags: Sequence[Lag]) -> None:
        groups: dict[str, list[Lag]] = {}
        for lag in lags:
            groups.setdefault(lag.group, []).append(lag)
        worst = sorted(groups.items(), key=lambda item: (-sum(lag.rows for lag in item[1]), item[0]))
        self._table.set_rows([_reader(group, found) for group, found in worst])


def _reader(group: str, lags: Sequence[Lag]) -> Row:
    rows, members = sum(lag.rows for lag in lags), {lag.member for lag in lags if lag.member}
    silent = [lag for lag in lags if lag.committed is None]
    told = "no commit yet" if len(silent) == len(lags) else ""
    cells = [
        link(group, f"/console/groups/{quote(group, safe='')}"),
        toned(count(rows), "warn" if rows > BEHIND_MANY else "", under=told),
        span(max((lag.seconds for lag in lags), default=0.0)) if rows else "–",
        count(len(members)),
    ]
    return Row(cells, key=group)
