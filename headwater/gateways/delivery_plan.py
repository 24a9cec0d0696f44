"""When a message goes to an endpoint: its retry schedule, the order of its key, and the circuit breaker of the endpoint.

Everything here is decided by values and a time; nothing is sent. While the circuit is open, no message is tried: its schedule waits, too.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Literal

from headwater.gateways.outlet import Outgoing

CircuitState = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Pauses that double from `first_seconds` to `pause_seconds_max`, up to `deadline_seconds` after the first attempt.

    >>> schedule = Schedule(first_seconds=5, pause_seconds_max=60, deadline_seconds=100)
    >>> [schedule.next_us(attempts, first_us=0, now_us=0) for attempts in (1, 2, 5)]
    [5000000, 10000000, 60000000]
    >>> schedule.next_us(6, first_us=0, now_us=50_000_000) is None
    True
    """

    first_seconds: float
    pause_seconds_max: float
    deadline_seconds: float

    def next_us(self, attempts: int, *, first_us: int, now_us: int, after_seconds: float = 0.0) -> int | None:
        """When to try again after so many attempts; None if that is behind the deadline."""
        pause = min(self.first_seconds * 2 ** min(attempts - 1, 40), self.pause_seconds_max)
        at_us = now_us + round(max(pause, after_seconds) * 1e6)
        return at_us if at_us <= first_us + self.deadline_seconds * 1e6 else None


@dataclass
class Circuit:
    """The circuit breaker of an endpoint: open after some failures in a row, half-open for one attempt after a pause.

    >>> circuit = Circuit(failures_max=2, pause_seconds=30, pause_seconds_max=300)
    >>> circuit.failed(now_us=0); circuit.state(now_us=0)
    'closed'
    >>> circuit.failed(now_us=0); circuit.state(now_us=0), circuit.state(now_us=30_000_000)
    ('open', 'half-open')
    >>> circuit.succeeded(); circuit.state(now_us=30_000_000)
    'closed'
    """

    failures_max: int
    pause_seconds: float
    pause_seconds_max: float
    failures: int = 0
    open_until_us: int = 0

    def state(self, *, now_us: int) -> CircuitState:
        if now_us < self.open_until_us:
            return "open"
        return "half-open" if self.failures >= self.failures_max else "closed"

    def succeeded(self) -> None:
        self.failures = 0

    def failed(self, *, now_us: int, after_seconds: float = 0.0) -> None:
        """Count a failure; a receiver that asks to wait gets nothing for so long."""
        self.failures += 1
        pause = after_seconds
        if self.failures >= self.failures_max:
            opened = self.failures - self.failures_max
            pause = max(pause, min(self.pause_seconds * 2 ** min(opened, 40), self.pause_seconds_max))
        self.open_until_us = max(self.open_until_us, now_us + round(pause * 1e6))


@dataclass
class Delivery:
    """A message on its way to an endpoint: the rows of one partition that go in one request."""

    id: str
    rows: list[Outgoing]
    body: bytes
    #: Values of the key: a later delivery with one of them waits for this one.
    keys: frozenset[str] = frozenset()
    attempts: int = 0
    first_us: int = 0
    due_us: int = 0
    in_flight: bool = False

    @property
    def partition(self) -> int:
        return self.rows[0].partition


@dataclass
class Pending:
    """The deliveries that are not done, in the order of their rows, and the offsets up to which all are done."""

    deliveries: OrderedDict[str, Delivery] = field(default_factory=OrderedDict)
    #: Behind the last row that was read, by partition.
    read: dict[int, int] = field(default_factory=dict)

    def add(self, delivery: Delivery) -> None:
        self.deliveries[delivery.id] = delivery
        self.read[delivery.partition] = delivery.rows[-1].offset + 1

    def done(self, delivery: Delivery) -> None:
        del self.deliveries[delivery.id]

    @property
    def rows(self) -> int:
        return sum(len(delivery.rows) for delivery in self.deliveries.values())

    def committable(self) -> dict[int, int]:
        """In each partition the first offset that is not done."""
        offsets = dict(self.read)
        for delivery in reversed(self.deliveries.values()):
            offsets[delivery.partition] = delivery.rows[0].offset
        return offsets

    def ready(self, *, now_us: int, circuit: Circuit, concurrency: int) -> list[Delivery]:
        """The deliveries to try now, at most so many at once. Those of one key go one after the other."""
        state = circuit.state(now_us=now_us)
        flying = sum(delivery.in_flight for delivery in self.deliveries.values())
        room = {"open": 0, "half-open": 1, "closed": concurrency}[state] - flying
        busy: set[str] = set()
        found: list[Delivery] = []
        for delivery in self.deliveries.values():
            if len(found) >= room:
                break
            if not delivery.in_flight and delivery.due_us <= now_us and busy.isdisjoint(delivery.keys):
                found.append(delivery)
            busy |= delivery.keys
        return found
