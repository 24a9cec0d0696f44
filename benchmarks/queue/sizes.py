"""What a message costs when many are scheduled, and when many wait. No peer: RabbitMQ schedules by a plug-in only."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import headwater as hw
from benchmarks.harness import Bar, Bench, Result, Stopwatch
from benchmarks.queue.clients import BATCH, BODY
from headwater.clock import ManualClock
from headwater.queues import Outgoing, Queue


def delay(bench: Bench) -> list[Result]:
    """Microseconds for each scheduled message: put, noted in the schedule, taken when it is due, acknowledged."""
    few, many = bench.size(100_000, 2_000), bench.size(1_000_000, 20_000)
    costs = {}
    for count in (few, many):
        with bench.scratch("queue") as folder:
            costs[count] = _delayed(folder, count)
        bench.say(f"delay {count:,}: {costs[count]:.1f} µs for each message")
    more = {"messages": many, "growth": costs[many] / costs[few]}
    return [
        Result(
            name="delay",
            value=costs[many],
            unit="µs",
            peer=f"{few:,} messages",
            peer_value=costs[few],
            more=more,
            bars=[Bar(figure="ratio", most=1.3)],
        )
    ]


def _delayed(folder: Path, count: int) -> float:
    clock = ManualClock()
    with hw.open(folder / "log", clock=clock) as log, log.queue("jobs", lease="1 day") as queue, Stopwatch() as watch:
        for start in range(0, count, BATCH):
            queue.put_many(
                [Outgoing(body=BODY, delay=1 + (start + each) * 7_919 % 3_600) for each in range(BATCH)],
            )
        if queue.take():
            raise RuntimeError("a message came before its time")
        left = count
        while left:
            clock.advance(seconds=60)
            while messages := queue.take(BATCH):
                queue.ack_many(messages)
                left -= len(messages)
    return watch.seconds / count * 1e6


def depth(bench: Bench) -> list[Result]:
    """Microseconds for each message to take and acknowledge, with few and with many that wait."""
    few, many = 1_000, bench.size(10_000_000, 50_000)
    with bench.scratch("queue") as folder, hw.open(folder / "log") as log, log.queue("jobs") as queue:

        def fill(count: int) -> None:
            rows = {
                size: queue.encoder.batches([Outgoing(body=BODY)] * size, now_us=0)[0][0] for size in (1_000, 50_000)
            }
            while count:
                size = 50_000 if count >= 50_000 else 1_000
                log.append("jobs", rows[size], partition=0, durable=count <= size)
                count -= size

        costs: dict[int, float] = {}
        for count in (few, many):
            fill(count)
            costs[count] = statistics.median(
                _taken(queue, refill=lambda: fill(BATCH)) for _ in range(bench.size(30, 5))
            )
            bench.say(f"depth {queue.stats().waiting:,} waiting: {costs[count]:.1f} µs for each message")
    more = {"messages": many}
    return [
        Result(
            name="depth",
            value=costs[many],
            unit="µs",
            peer=f"{few:,} waiting",
            peer_value=costs[few],
            more=more,
            bars=[Bar(figure="ratio", most=1.2)],
        )
    ]


def _taken(queue: Queue, *, refill: Callable[[], None]) -> float:
    """Microseconds for each of a batch of messages; as many are put again."""
    with Stopwatch() as watch:
        messages = queue.take(BATCH)
        queue.ack_many(messages)
    if len(messages) != BATCH:
        raise RuntimeError(f"{BATCH} messages were expected, {len(messages)} came")
    refill()
    return watch.seconds / BATCH * 1e6
