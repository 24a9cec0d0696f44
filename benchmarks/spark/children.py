"""What is measured in a process of its own: `python -m benchmarks.spark.children ACT …` prints one JSON object."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import percentile
from benchmarks.spark.workbench import CORES, tree_cpu_seconds


def ready(archive: str, state: str) -> dict[str, Any]:
    """Start a session, and ask it one thing."""
    import headwater

    spark = headwater.session("start", master=f"local[{CORES}]", state=state, archive=archive == "True")
    ready_at, ready_cpu = time.monotonic(), tree_cpu_seconds()
    spark.range(1000).selectExpr("sum(id)").collect()
    queried_at, query_cpu = time.monotonic(), tree_cpu_seconds()
    spark.stop()
    return {
        "ready_at": ready_at,
        "ready_cpu_seconds": ready_cpu,
        "queried_at": queried_at,
        "query_cpu_seconds": query_cpu,
    }


def produce(log: str, topic: str, seconds: str, rows_per_second: str, every_ms: str) -> dict[str, Any]:
    """Make rows at an even pace, and append those of each few milliseconds together; a row carries its creation."""
    import headwater.log as hwlog

    every = float(every_ms) / 1000
    each = round(float(rows_per_second) * every)
    appends: list[float] = []
    with hwlog.open(log) as opened:
        due = time.monotonic() + 0.1
        end = due + float(seconds)
        while due < end:
            # The rows were created one after the other up to now, not all in this moment.
            created = [round((due + every * (number + 1) / each) * 1e9) for number in range(each)]
            due += every
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            opened.append(topic, [{"created_ns": one, "text": "x" * 80} for one in created])
            appends.append((time.monotonic() - began) * 1000)
    return {
        "rows": len(appends) * each,
        "append_p50": percentile(appends, 0.5),
        "append_p99": percentile(appends, 0.99),
    }


def watch(log: str, topic: str, start: str, rows: str) -> dict[str, Any]:
    """Wait for rows from an offset on, and note for each how old it is when it can be read."""
    import headwater.log as hwlog

    ages: list[tuple[float, float]] = []
    offsets = {0: int(start)}
    with hwlog.open(log) as opened:
        while len(ages) < int(rows) and opened.wait(topic, after=offsets, seconds=30):
            for data in opened.read(topic, start=offsets, columns=["created_ns"]):
                now = time.monotonic_ns()
                ages += [(created / 1e9, (now - created) / 1e6) for created in data.column("created_ns").to_pylist()]
                offsets = {0: offsets[0] + data.num_rows}
    return {"ages": ages}


ACTS: dict[str, Callable[..., dict[str, Any]]] = {"ready": ready, "produce": produce, "watch": watch}

if __name__ == "__main__":
    print(json.dumps(ACTS[sys.argv[1]](*sys.argv[2:])))
