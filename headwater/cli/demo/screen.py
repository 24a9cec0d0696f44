"""The demo in a terminal: one pane per idea, each with a sentence about what one sees."""

from __future__ import annotations

from rich import box
from rich.console import Group as Lines
from rich.layout import Layout
from rich.panel import Panel
from rich.table import Column, Table
from rich.text import Text

from headwater.cli.demo.shop import AUDIT, BILLING, CUSTOMERS, INVOICES, LEDGER
from headwater.cli.demo.watching import Group, Scene, sparkline
from headwater.units import format_bytes

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
