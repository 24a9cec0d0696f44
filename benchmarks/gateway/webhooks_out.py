"""Webhooks out: rows that wait, as fast as they are sent and acknowledged; and the delay of rows that come."""

from __future__ import annotations

import time

import pyarrow as pa

import headwater as hw
from benchmarks.gateway import consumers
from benchmarks.gateway.children import child, gateway
from benchmarks.harness import Bench, Result, Sample, median_cpu_rate, median_rate

ROUNDS = 3
#: Rows a second while the delay is measured: fewer than one process can send, so that none waits for another.
RATE = 200


def webhook_out(bench: Bench) -> list[Result]:
    samples = [_waiting(bench, bench.size(10_000, 200)) for _ in range(bench.size(ROUNDS, 1))]
    p50, p99 = _delays(bench, bench.size(2_000, 200))
    return [
        Result(
            name="webhook_out",
            value=median_rate(samples),
            unit="events/s",
            p50=p50,
            p99=p99,
            more={"per_cpu_second": median_cpu_rate(samples)},
            note="one row in each signed request, 8 at once; the position is committed behind what was answered",
        )
    ]


def _waiting(bench: Bench, count: int) -> Sample:
    with bench.scratch("webhook-out") as folder, child("webhook", "", module=consumers.MODULE) as receiver:
        with hw.open(folder / "log") as log:
            log.create("rows", "sent_ns int64")
            log.append("rows", [{"sent_ns": 0}] * count)
        with gateway(folder / "log", "webhook-out", topic="rows", endpoints=receiver.first, secret="s3cret") as sender:
            began, cpu = time.perf_counter(), sender.cpu_seconds
            sender.ask("start")
            received = receiver.ask(f"until {count}")["received"]
            return Sample(received, time.perf_counter() - began, sender.cpu_seconds - cpu)


def _delays(bench: Bench, count: int) -> tuple[float, float]:
    with (
        bench.scratch("webhook-out") as folder,
        hw.open(folder / "log") as log,
        child("webhook", "", module=consumers.MODULE) as receiver,
    ):
        log.create("rows", "sent_ns int64")
        with gateway(folder / "log", "webhook-out", topic="rows", endpoints=receiver.first, secret="s3cret") as sender:
            sender.ask("start")
            pa.array([None])  # what Arrow loads at its first array is no delay of the gateway
            began = time.monotonic()
            for number in range(count):
                time.sleep(max(0.0, began + number / RATE - time.monotonic()))
                log.append("rows", [{"sent_ns": time.monotonic_ns()}])
            told = receiver.ask(f"until {count}")
    return told["p50"], told["p99"]
