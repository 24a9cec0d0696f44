"""One topic: how much it holds and how fast it grows, its partitions, its groups, its columns and its settings."""

from __future__ import annotations

import pyarrow as pa
from nicegui import ui

from headwater.apps.status import QueryStatus
from headwater.console.context import Visit, context
from headwater.console.history import lag_by
from headwater.console.kit.chart import LineChart
from headwater.console.kit.controls import button, text_box
from headwater.console.kit.dialog import Question
from headwater.console.kit.layout import Stat, block, card, facts
from headwater.console.kit.live import LivePage, attempt, notify, perform
from headwater.console.kit.table import Column, Row, Table, link, mark, toned
from headwater.console.kit.words import ago, count, counted, moment, short, size, span
from headwater.console.pages import path_to, screen
from headwater.console.queries.status import TONES, badness, query_path
from headwater.console.topics.frame import topic_head, topic_path
from headwater.console.topics.use import readers_of, writers_of
from headwater.log.port import Description, Lag, PartitionInfo
from headwater.log.topic import Topic
from headwater.schema import format_schema

#: From this lag on, a number is marked.
LAG_ROWS_WARN = 10_000
PARTITION_COLUMNS = (
    Column(name="Partition"),
    Column(name="First offset", align="right"),
    Column(name="Next offset", align="right"),
    Column(name="Rows", align="right"),
    Column(name="Size", align="right"),
    Column(name="Files", align="right"),
    Column(name="Last row", align="right"),
)
GROUP_COLUMNS = (
    Column(name="Group"),
    Column(name="Behind, rows", align="right"),
    Column(name="Behind, time", align="right"),
    Column(name="Members", align="right"),
)
QUERY_COLUMNS = (
    Column(name="Query"),
    Column(name="Does"),
    Column(name="State"),
    Column(name="Behind, rows", align="right"),
    Column(name="Behind, time", align="right"),
)
SCHEMA_COLUMNS = (
    Column(name="Column", mono=True),
    Column(name="Type", mono=True),
    Column(name="Null"),
    Column(name="Use"),
)


@screen("/topics/{name}", under="/topics")
async def topic(visit: Visit, name: str) -> None:
    topic, buttons = await topic_head(visit, name, "Overview")
    page = TopicPage(visit, topic)
    with buttons:
        if visit.caller.may("admin", name) and not name.startswith("__"):
            button("Delete", page.delete, icon="delete", kind="danger")
    page.start()


class TopicPage(LivePage[tuple[Description, list[Lag]]]):
    """The overview of a topic: it loads the description and the lag of its groups."""

    def __init__(self, visit: Visit, topic: Topic) -> None:
        self._visit, self._topic = visit, topic
        with block("grid tiles"):
            self._rows = Stat("Rows", why="rows")
            self._rate = Stat("Rows in", unit="rows/s")
            self._size = Stat("Size on disk")
            self._lag = Stat("Worst lag", unit="rows", href=path_to("groups"), why="lag")
            self._last = Stat("Since the last row")
        with block("split"):
            with card("Rows a second"):
                self._chart = LineChart(label="Rows a second", dark=visit.dark, height=210)
            with block("stack"):
                with card("Queries and views", why="lag", flush=True):
                    none = "No query of an app reads or writes this topic."
                    self._queries = Table(QUERY_COLUMNS, label="Queries and views of this topic", none=none)
                with card("Groups", why="lag", flush=True):
                    none = "No group reads this topic."
                    self._groups = Table(GROUP_COLUMNS, label="Groups that read this topic", none=none)
        with block("split"):
            with card("Partitions", why="partitions", flush=True):
                self._partitions = Table(PARTITION_COLUMNS, label="Partitions")
            with card("Settings"):
                facts(settings_of(topic))
        with card("Columns" if not topic.schemaless else "No schema", flush=not topic.schemaless):
            if topic.schemaless:
                text = "Rows are a key and a value, both bytes. They are shown as text where they are UTF-8."
                ui.label(text).classes("quiet")
            else:
                Table(SCHEMA_COLUMNS, label="Columns").set_rows([_column(topic, field) for field in topic.schema])

    def load(self) -> tuple[Description, list[Lag]]:
        return self._visit.services.topics.describe(self._topic.name), self._visit.lags(self._topic.name)

    def show(self, content: tuple[Description, list[Lag]]) -> None:
        described, lags = content
        history, topic = context().history, self._topic
        status = history.topics.get(topic.name)
        seconds_max = topic.retention.seconds_max
        held = "kept for ever" if seconds_max is None else f"kept for {span(seconds_max)}"
        if topic.compact:
            held = "offsets; compaction leaves fewer rows"
        self._rows.set(short(described.rows), foot=f"{count(described.rows)} {held}")
        line = history.values("topic", topic.name, "rate")
        self._rate.set(short(status.rate if status else 0.0), foot="in the last seconds", line=line)
        self._size.set(size(described.bytes), foot=f"in {counted(len(described.partitions), 'partition')}")
        self._show_lag(lags)
        appended = [part.appended_at_us for part in described.partitions if part.appended_at_us is not None]
        last = max(appended, default=None)
        self._last.set(ago(last).removesuffix(" ago"), foot="" if last is None else f"{moment(last)} UTC")
        self._chart.set({"rows/s": history.series("topic", topic.name, "rate", points=300)})
        self._partitions.set_rows([self._partition(part) for part in described.partitions])

    def _show_lag(self, lags: list[Lag]) -> None:
        rows = lag_by(lags, "group")
        largest = sorted(rows, key=lambda group: (-rows[group], group))
        of_group = {group: [lag for lag in lags if lag.group == group] for group in largest}
        self._groups.set_rows([_group(group, of_group[group]) for group in largest])
        statuses, name = sorted(self._visit.queries(), key=badness), self._topic.name
        readers = [status for status in readers_of(name, statuses) if status.lag_rows is not None]
        self._queries.set_rows(
            [_query(status, "writes it") for status in writers_of(name, statuses)]
            + [_query(status, "reads it") for status in readers_of(name, statuses)]
        )
        behind = [(rows[group], max(lag.seconds for lag in of_group[group]), group) for group in largest]
        behind += [(status.lag_rows or 0, status.lag_seconds or 0.0, status.name) for status in readers]
        if not behind:
            self._lag.set("–", foot="nothing reads this topic", unit="")
            return
        worst, seconds, reader = max(behind)
        foot = f"{reader}, {span(seconds)} behind" if worst else reader
        self._lag.set(short(worst), foot=foot, href=path_to("groups" if reader in rows else "queries"))

    def _partition(self, part: PartitionInfo) -> Row:
        cells = [
            link(f"Partition {part.partition}", f"{topic_path(self._topic.name, 'Browse')}?partition={part.partition}"),
            str(part.offset_start),
            str(part.offset_next),
            count(part.rows),
            size(part.bytes),
            count(part.segments),
            ago(part.appended_at_us),
        ]
        return Row(cells, key=part.partition)

    async def delete(self) -> None:
        """Delete the topic, after a question that says what is lost."""
        name = self._topic.name
        described = await attempt(lambda: self._visit.services.topics.describe(name))
        if described is None:
            return
        groups = sorted({lag.group for lag in self._visit.lags(name)})
        statuses = context().history.statuses
        queries = sorted(status.name for status in statuses if name in (*status.inputs, *status.outputs))
        with Question(f"Delete {name}?", yes="Delete", danger=True) as question:
            ui.label(f"{count(described.rows)} rows, {size(described.bytes)}, are gone for good.")
            if groups:
                ui.label(f"Groups that read it: {', '.join(groups[:8])}{' and more' if len(groups) > 8 else ''}.")
            if queries:
                ui.label(f"Queries that use it will fail: {', '.join(queries[:8])}.").classes("tone-text-bad")
            box = text_box(f"Write {name} to confirm")
        if not await question.answered():
            return
        if (box.value or "").strip() != name:
            notify("Nothing was deleted: the name was another one.", good=False)
        elif await perform(lambda: self._visit.services.topics.delete(name)):
            ui.navigate.to(path_to("topics"))


def settings_of(topic: Topic) -> list[tuple[str, str]]:
    """The settings of a topic, in words."""
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


def _column(topic: Topic, field: pa.Field) -> Row:
    use = mark("event time", "info") if field.name == topic.time_column else ""
    return Row(
        [
            field.name,
            format_schema(pa.schema([field])).removeprefix(f"{field.name} "),
            "may be null" if field.nullable else "never",
            mark("key", "accent") if field.name in topic.key else use,
        ]
    )


def _group(group: str, lags: list[Lag]) -> Row:
    rows = sum(lag.rows for lag in lags)
    never = "no commit yet" if all(lag.committed is None for lag in lags) else ""
    cells = [
        link(group, path_to("groups", group)),
        toned(count(rows), "warn" if rows > LAG_ROWS_WARN else "", under=never),
        span(max(lag.seconds for lag in lags)) if rows else "–",
        count(len({lag.member for lag in lags if lag.member})),
    ]
    return Row(cells, key=group)


def _query(status: QueryStatus, does: str) -> Row:
    reads = does == "reads it"
    behind = status.lag_rows if reads else None
    cells = [
        link(status.name, query_path(status), under=f"{status.kind} of {status.app}" if status.app else status.kind),
        does,
        mark(status.state, TONES.get(status.state, "")),
        "–" if behind is None else toned(count(behind), "warn" if behind > LAG_ROWS_WARN else ""),
        span(status.lag_seconds) if behind and status.lag_seconds is not None else "–",
    ]
    return Row(cells, key=f"{does} {status.app}/{status.name}/{status.version}")
