"""What is measured of every gateway: events a second, from the first that is sent to the last that is durable, and the delay at a thousand a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import headwater as hw
from benchmarks.gateway import senders
from benchmarks.gateway.children import child, gateway
from benchmarks.harness import Bench, Sample, percentile

#: The rate at which the delay is measured.
RATE = 1_000


@dataclass(frozen=True, kw_only=True)
class Load:
    """A gateway in, what sends to it, and where in a row the time of its event is."""

    kind: str
    sender: str
    topic: str
    column: str
    settings: Mapping[str, object] = field(default_factory=dict)
    #: The time in nanoseconds of a value of the column. Any: a value of a row.
    stamp: Callable[[object], float] = lambda value: float(str(value))


@dataclass(frozen=True, kw_only=True)
class Received:
    """One round: how fast, what became of the events, and how fast they were sent."""

    sample: Sample
    counters: Mapping[str, int]
    sent: float
    sent_per_second: float


def rate_of(bench: Bench, load: Load, count: int) -> Received:
    """Send as fast as one process can, and wait until every event is durable or known to be lost."""
    with (
        bench.scratch(load.kind) as folder,
        gateway(folder / "log", load.kind, **load.settings) as receiver,
        child(load.sender, receiver.ask("start"), count, 0, module=senders.MODULE) as source,
    ):
        began, cpu = time.perf_counter(), receiver.cpu_seconds
        source.begin("go")
        counters = receiver.ask(f"until {count}")
        seconds, cpu = time.perf_counter() - began, receiver.cpu_seconds - cpu
        sent = source.answer()
    return Received(
        sample=Sample(counters["appended"], seconds, cpu),
        counters=counters,
        sent=sent["sent"],
        sent_per_second=sent["sent"] / sent["seconds"],
    )


def delays_of(bench: Bench, load: Load, count: int) -> tuple[float, float]:
    """p50 and p99 in milliseconds from the send of an event until a consumer of the log has its row."""
    delays: list[float] = []
    with (
        bench.scratch(load.kind) as folder,
        hw.open(folder / "log") as log,
        gateway(folder / "log", load.kind, **load.settings) as receiver,
        child(load.sender, receiver.ask("start"), count, RATE, module=senders.MODULE) as source,
        log.consumer(load.topic, start="earliest", columns=[load.column]) as consumer,
    ):
        source.begin("go")
        deadline = time.monotonic() + count / RATE + 30
        while len(delays) < count and time.monotonic() < deadline:
            for batch in consumer.poll(seconds=1):
                now = time.monotonic_ns()
                values = batch.data.column(load.column).to_pylist()
                delays += [(now - load.stamp(value)) / 1e6 for value in values]
        source.answer()
    if len(delays) < count:
        raise RuntimeError(f"{count - len(delays)} of {count} events have not arrived")
    return percentile(delays, 0.5), percentile(delays, 0.99)
