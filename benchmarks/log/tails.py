"""Latency from an append in one process to a waiting reader in another."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, percentile
from headwater.config import Durability

ROWS_PER_SECOND = 200
SCHEMA = {"sent_ns": "int64", "text": "string"}


def tail_local(bench: Bench) -> list[Result]:
    """Latency from before the append to the row in the reader, for topics of both durabilities."""
    return [_tail(bench, "tail.local", "os"), _tail(bench, "tail.local.fsync", "fsync")]


def _tail(bench: Bench, name: str, durability: Durability) -> Result:
    rows = bench.size(2_000, 60)
    latencies: list[float] = []
    with bench.scratch(name) as folder, hwlog.open(folder / "ours") as log:
        log.create("rows", SCHEMA, durability=durability)
        words = [sys.executable, "-m", "benchmarks.log.children", "write", str(folder / "ours"), str(rows)]
        writer = subprocess.Popen([*words, str(ROWS_PER_SECOND)], stdout=subprocess.PIPE, text=True)
        offset = 0
        while offset < rows and log.wait("rows", after={0: offset}, seconds=20):
            for data in log.read("rows", start={0: offset}, columns=["sent_ns"]):
                now = time.monotonic_ns()
                latencies += [(now - sent) / 1e6 for sent in data.column("sent_ns").to_pylist()]
                offset += data.num_rows
        output, _ = writer.communicate(timeout=60)
    if offset != rows:
        raise RuntimeError(f"{rows} rows were written, {offset} arrived")
    bare: dict[str, Any] = json.loads(output.splitlines()[-1])
    return _result(name, durability, latencies[rows // 10 :], bare)


def _result(name: str, durability: Durability, latencies: list[float], bare: dict[str, Any]) -> Result:
    p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
    more: dict[str, Any] = {"rows_per_second": ROWS_PER_SECOND, "append_p50": bare["append_p50"]}
    if durability == "os":
        bars = [Bar(figure="p50", most=1), Bar(figure="p99", most=5)]
        return Result(name=name, value=p50, unit="ms", p50=p50, p99=p99, more=more, bars=bars)
    more |= {"p50_beyond_sync": p50 - bare["sync_p50"], "p99_beyond_sync": p99 - bare["sync_p99"]}
    return Result(
        name=name,
        value=p50,
        unit="ms",
        peer="bare 4 KB write + fdatasync",
        peer_value=bare["sync_p50"],
        p50=p50,
        p99=p99,
        more=more | {"peer_p99": bare["sync_p99"]},
        bars=[Bar(figure="p50_beyond_sync", most=1), Bar(figure="p99_beyond_sync", most=5)],
    )
