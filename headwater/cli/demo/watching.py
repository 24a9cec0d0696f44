"""What the demo shows, as values: everything is read from the log itself, as any other process could."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.cli.demo.shop import AUDIT, BILLING, CUSTOMERS, INVOICES, LEDGER, ORDERS
from headwater.errors import GroupNotFound

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog

HISTORY = 60
TAIL_ROWS = 16
BARS = "▁▂▃▄▅▆▇█"


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

    def __init__(self, log: EmbeddedLog, scene: Scene) -> None:
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
        scene.rate = _rate(self._counts)
        scene.rates.append(scene.rate)
        scene.invoices = sum(self._log.end_offsets(INVOICES).values())
        scene.ledger = sum(self._log.end_offsets(LEDGER).values())
        scene.customers = sum(self._log.end_offsets(CUSTOMERS).values())
        for group in scene.groups.values():
            self._look_at_group(group)
        scene.tail = self._last_rows()
        self._look_at_files()

    def _look_at_group(self, group: Group) -> None:
        try:
            found = self._log.groups.describe(group.name)
        except GroupNotFound:  # its first member is still starting
            return
        group.members = [
            Member(name=one.id, pid=one.pid, alive=one.alive, partitions=one.assignment.get(ORDERS, []))
            for one in sorted(found.members, key=lambda one: one.joined_us)
        ]
        group.rows = found.rows
        group.seconds = max((one.seconds for one in found.partitions), default=0.0)
        group.history.append(group.rows)

    def _last_rows(self) -> list[dict[str, Any]]:
        starts, ends = self._log.start_offsets(ORDERS), self._log.end_offsets(ORDERS)
        begins = {number: max(starts[number], end - TAIL_ROWS) for number, end in ends.items()}
        rows = self._log.read(ORDERS, start=begins, stop=ends).rows()
        return sorted(rows, key=lambda row: int(row["id"]))[-TAIL_ROWS:]

    def _look_at_files(self) -> None:
        found = [self._log.describe(name) for name in self._log.topics(internal=True)]
        self._scene.bytes = sum(one.bytes for one in found)
        self._scene.segments = sum(part.segments for one in found for part in one.partitions)
        self._scene.topics = len(found)


def _rate(counts: deque[tuple[float, int]]) -> float:
    (first, before), (last, after) = counts[0], counts[-1]
    return (after - before) / (last - first) if last > first else 0.0


def sparkline(values: deque[float], width: int) -> str:
    """The newest values as bars, the highest of them at full height.

    >>> sparkline(deque([0.0, 5.0, 10.0]), 8)
    '▁▄█'
    """
    newest = list(values)[-width:]
    top = max(newest, default=0.0) or 1.0
    return "".join(BARS[min(7, int(value / top * 7.5))] for value in newest)
