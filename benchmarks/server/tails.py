"""Latency of a tail over HTTP, with one subscriber and with a hundred."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import headwater.log as hwlog
from benchmarks.harness import Bench, Result, percentile
from benchmarks.server.children import server

ROWS_PER_SECOND = 50


def tail(bench: Bench) -> list[Result]:
    """Latency from before the append to the event in the subscriber."""
    return [_tail(bench, subscribers) for subscribers in (1, 100)]


def _tail(bench: Bench, subscribers: int) -> Result:
    rows = bench.size(500, 20)
    name = f"tail.{subscribers}"
    with bench.scratch(name) as folder, hwlog.open(folder / "log") as log, server(folder / "log") as address:
        log.create("rows", "sent_ns int64", durability="os")
        words = [sys.executable, "-m", "benchmarks.server.children", "subscribe", address, str(subscribers), str(rows)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
            began = time.monotonic()
            for number in range(rows):
                time.sleep(max(0.0, began + number / ROWS_PER_SECOND - time.monotonic()))
                log.append("rows", [{"sent_ns": time.monotonic_ns()}])
            latencies: list[float] = json.loads(process.communicate(timeout=120)[0])
    if len(latencies) != rows * subscribers:
        raise RuntimeError(f"{rows * subscribers} events were expected, {len(latencies)} came")
    p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
    more = {"rows_per_second": ROWS_PER_SECOND, "subscribers": subscribers}
    return Result(name=name, value=p50, unit="ms", p50=p50, p99=p99, more=more)
