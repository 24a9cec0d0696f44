"""What the tour of the log shows: values read from the log as any other process could, on a terminal or line by line."""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group as Lines
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from headwater.cli.demo.log_tour import AUDIT, BILLING, CUSTOMERS, INVOICES, LEDGER, ORDERS
from headwater.cli.session import Session
from headwater.cli.terminal.query_table import sparkline
from headwater.errors import NotFound
from headwater.units import format_bytes

if TYPE_CHECKING:
    from headwater.log import Log

HISTORY = 60
TAIL_ROWS = 16
#: Each sentence for narrow and for wide panes.
SENTENCES = {
    "producer": (
        "Acknowledged only when on disk.",
        "One process appends. A row counts when the disk has it; one sync serves many.",
    ),
    BILLING: (
        "Two members share 4 partitions.",
        "Two processes share the partitions; if one dies, the other takes over.",
    ),
    AUDIT: ("Another group reads all of it, too.", "Another group reads the same rows at its own pace."),
    "tail": ("Rows, as soon as they are safe.", "The newest rows, shown as soon as they are safe to read."),
    CUSTOMERS: ("Compaction: last row per key.", "A table as a topic: compaction keeps the last row of each key."),
    "together": (
        "All in one transaction, or nothing.",
        "Invoice, ledger and group offset: one transaction, or nothing.",
    ),
    "log": ("No server: files in one folder.", "There is no server. All of this is files in one folder."),
}
LINE_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True)
class Member:
    """A process that reads for a group."""

    name: str
    pid: int
    alive: bool
    partitions: list[int]


@dataclass(kw_only=True)
class Group:
    """A group: who reads, and how far behind."""

    name: str
    members: list[Member] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    rows: int = 0
    seconds: float = 0.0
    history: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened, to be remembered on the screen."""

    at: float
    text: str


@dataclass(kw_only=True)
class Scene:
    """All that is shown."""

    folder: str
    seconds: float
    elapsed: float = 0.0
    appended: int = 0
    rate: float = 0.0
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=HISTORY))
    groups: dict[str, Group] = field(default_factory=lambda: {name: Group(name=name) for name in (BILLING, AUDIT)})
    # Any: rows of a topic.
    tail: list[dict[str, Any]] = field(default_factory=list)
    invoices: int = 0
    ledger: int = 0
    customers: int = 0
    compacted: tuple[int, int] | None = None
    bytes: int = 0
    segments: int = 0
    topics: int = 0
    events: list[Event] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        """Whether all processes are at work."""
        members = {name: sum(one.alive for one in group.members) for name, group in self.groups.items()}
        return self.appended > 0 and members[BILLING] == 2 and members[AUDIT] == 1

    def happened(self, text: str) -> None:
        self.events.append(Event(at=self.elapsed, text=text))


class Watcher:
    """Looks at the log again and again, and keeps the scene up to date."""

    def __init__(self, log: Log, scene: Scene) -> None:
        self._log = log
        self._scene = scene
        self._started = time.monotonic()
        self._counts: deque[tuple[float, int]] = deque(maxlen=8)

    def begin(self) -> None:
        """Let the time begin now."""
        self._started = time.monotonic()
        self._counts.clear()

    def look(self) -> None:
        scene = self._scene
        scene.elapsed = time.monotonic() - self._started
        ends = self._log.end_offsets(ORDERS)
        scene.appended = sum(ends.values())
        self._counts.append((scene.elapsed, scene.appended))
        (first, before), (last, after) = self._counts[0], self._counts[-1]
        scene.rate = (after - before) / (last - first) if last > first else 0.0
        scene.rates.append(scene.rate)
        scene.invoices = sum(self._log.end_offsets(INVOICES).values())
        scene.ledger = sum(self._log.end_offsets(LEDGER).values())
        scene.customers = sum(self._log.end_offsets(CUSTOMERS).values())
        for group in scene.groups.values():
            self._look_at_group(group)
        starts = self._log.start_offsets(ORDERS)
        begins = {number: max(starts[number], end - TAIL_ROWS) for number, end in ends.items()}
        rows = self._log.read(ORDERS, start=begins, stop=ends).rows()
        scene.tail = sorted(rows, key=lambda row: int(row["id"]))[-TAIL_ROWS:]
        topics = [self._log.describe(name) for name in self._log.topics(internal=True)]
        scene.bytes = sum(one.bytes for one in topics)
        scene.segments = sum(part.segments for one in topics for part in one.partitions)
        scene.topics = len(topics)

    def _look_at_group(self, group: Group) -> None:
        try:
            found = self._log.groups.describe(group.name)
        except NotFound:  # its first member is still starting
            return
        group.members = [
            Member(name=one.id, pid=one.pid, alive=one.alive, partitions=one.assignment.get(ORDERS, []))
            for one in sorted(found.members, key=lambda one: one.joined_us)
        ]
        group.rows = found.rows
        group.seconds = max((one.seconds for one in found.partitions), default=0.0)
        group.history.append(group.rows)


def draw(scene: Scene, *, width: int, height: int) -> Layout:
    """The whole screen."""
    inner = width // 2 - 4
    body = Layout()
    events = max(1, min(5, height - 22))
    body.split_column(
        Layout(_title(scene, width), size=1),
        Layout(name="panes"),
        Layout(_events(scene, events), size=events),
    )
    body["panes"].split_row(Layout(name="left"), Layout(name="right"))
    body["left"].split_column(
        Layout(_producer(scene, inner), size=5),
        Layout(_group(scene.groups[BILLING], inner, "billing"), ratio=3, minimum_size=8),
        Layout(_group(scene.groups[AUDIT], inner, "audit"), ratio=2, minimum_size=6),
    )
    body["right"].split_column(
        Layout(_tail(scene, inner, height - events - 16), ratio=1, minimum_size=6),
        Layout(_customers(scene, inner), size=4),
        Layout(_together(scene, inner), size=4),
        Layout(_files(scene, inner), size=4),
    )
    return body


def _title(scene: Scene, width: int) -> Text:
    done = min(1.0, scene.elapsed / scene.seconds)
    cells = max(10, width - 46)
    bar = "━" * int(cells * done)
    text = Text(" Headwater ", style="bold reverse")
    text.append("  an event log in a folder  ", style="bold")
    text.append(bar, style="cyan").append("─" * (cells - len(bar)), style="dim")
    return text.append(f" {min(scene.elapsed, scene.seconds):4.1f} s")


def _pane(title: str, sentence: str, inner: int, *content: Text | Table) -> Panel:
    short, long = SENTENCES[sentence]
    text = Text(long if len(long) <= inner else short, style="dim italic", no_wrap=True, overflow="ellipsis")
    return Panel(Lines(text, *content), title=f"[bold]{title}", title_align="left", box=box.ROUNDED, padding=(0, 1))


def _producer(scene: Scene, inner: int) -> Panel:
    numbers = Text(f"{scene.rate:>7,.0f} rows/s   {scene.appended:,} rows", style="green")
    return _pane("producer → orders", "producer", inner, numbers, Text(sparkline(scene.rates, inner), style="green"))


def _group(group: Group, inner: int, sentence: str) -> Panel:
    members = Table.grid(padding=(0, 1))
    for pid in group.killed:
        members.add_row(Text("✗", style="bold red"), Text(f"process {pid}", style="dim strike"), "killed")
    for member in group.members:
        where = ",".join(map(str, member.partitions)) or "-"
        if member.alive:
            members.add_row(Text("●", style="green"), f"process {member.pid}", f"partitions {where}")
    lag = Text(f"lag {group.rows:>6,} rows  {group.seconds:5.2f} s", style="yellow" if group.rows > 500 else "")
    spark = Text(sparkline(group.history, inner), style="yellow")
    return _pane(f"group {group.name}", sentence, inner, members, lag, spark)


def _tail(scene: Scene, inner: int, rows: int) -> Panel:
    table = Table.grid(padding=(0, 1))
    table.columns = [Column(), Column(), Column(), Column(justify="right")]
    for row in scene.tail[-rows:]:
        cells = [f"[{row['_partition']}]@{row['_offset']}", row["customer"], row["item"], f"{row['amount']:,.2f}"]
        table.add_row(*(Text(cell, no_wrap=True, overflow="crop") for cell in cells))
    return _pane("tail orders", "tail", inner, table)


def _customers(scene: Scene, inner: int) -> Panel:
    if scene.compacted is None:
        text = Text(f"{scene.customers:,} rows, and growing")
    else:
        before, after = scene.compacted
        text = Text(f"compacted: {before:,} → {after:,} rows", style="bold green")
    return _pane(f"table {CUSTOMERS}", CUSTOMERS, inner, text)


def _together(scene: Scene, inner: int) -> Panel:
    text = Text(f"{INVOICES} {scene.invoices:,}   {LEDGER} {scene.ledger:,}")
    return _pane("transactions", "together", inner, text)


def _files(scene: Scene, inner: int) -> Panel:
    text = Text(f"{format_bytes(scene.bytes)} in {scene.segments} segments of {scene.topics} topics")
    return _pane("log", "log", inner, text)


def _events(scene: Scene, count: int) -> Text:
    lines = [f" {event.at:5.1f} s  {event.text}" for event in scene.events[-count:]]
    return Text("\n".join(lines), style="bold", no_wrap=True, overflow="ellipsis")


class Teller:
    """Tells what the scene shows, once a second; to stderr, where stdout is for the result as JSON."""

    def __init__(self, session: Session, scene: Scene) -> None:
        self._session = session
        self._scene = scene
        self._told_events = 0
        self._told_at = -LINE_SECONDS

    def tell(self) -> None:
        scene = self._scene
        for event in scene.events[self._told_events :]:
            self._line(f"{event.at:5.1f} s  * {event.text}")
        self._told_events = len(scene.events)
        if not scene.events or scene.elapsed - self._told_at < LINE_SECONDS:
            return
        self._told_at = scene.elapsed
        lag = "  ".join(f"{one.name} lag {one.rows:,} rows {one.seconds:.1f} s" for one in scene.groups.values())
        self._line(
            f"{scene.elapsed:5.1f} s  orders {scene.appended:,} ({scene.rate:,.0f}/s)  {lag}  log {format_bytes(scene.bytes)}"
        )

    def _line(self, text: str) -> None:
        if self._session.output == "table":
            self._session.write(text)
            sys.stdout.flush()
        else:
            self._session.say(text)
