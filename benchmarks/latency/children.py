"""What is measured in a process of its own: `python -m benchmarks.latency.children ACT …` prints one JSON object."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from benchmarks.harness import percentile
from headwater.errors import HeadwaterError

#: So many texts take turns: within a window of a second each comes once.
KEYS = 1_000


def produce(log: str, topic: str, seconds: str, rows_per_second: str, every_ms: str) -> dict[str, Any]:
    """Make rows at an even pace, and append those of each few milliseconds together; a row carries its creation."""
    import headwater.log as hwlog

    every = float(every_ms) / 1000
    each = round(float(rows_per_second) * every)
    appends: list[float] = []
    made = 0
    with hwlog.open(log) as opened:
        due = time.monotonic() + 0.1
        end = due + float(seconds)
        while due < end:
            # The rows were created one after the other up to now, not all in this moment.
            created = [round((due + every * (number + 1) / each) * 1e9) for number in range(each)]
            now = datetime.now(UTC)
            rows = [
                {"created_ns": one, "text": f"{(made + number) % KEYS:080}", "at": now}
                for number, one in enumerate(created)
            ]
            made += each
            due += every
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            opened.append(topic, rows)
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
            reading = opened.read(topic, start=offsets, columns=["created_ns"])
            for data in reading:
                now = time.monotonic_ns()
                ages += [(created / 1e9, (now - created) / 1e6) for created in data.column("created_ns").to_pylist()]
            # Offsets may have gaps, so that rows do not tell where the next one is.
            offsets = {0: reading.ranges[0][1]}
    return {"ages": ages}


def subscribe(folder: str, seconds: str, idle_seconds: str) -> dict[str, Any]:
    """Follow the view of an app that another process runs, and note for each change how old its newest row is."""
    os.chdir(folder)
    sys.path.insert(0, folder)
    app = importlib.import_module("one_view").app

    ages: list[tuple[float, float]] = []
    deadline = time.monotonic() + float(seconds)
    changes = _subscription(app, deadline)
    while time.monotonic() < deadline:
        change = changes.next(timeout=float(idle_seconds))
        if change is None:
            break
        if change.row and change.row["newest"]:
            now = time.monotonic_ns()
            ages.append((change.row["newest"] / 1e9, (now - change.row["newest"]) / 1e6))
    return {"ages": ages}


def _subscription(app: Any, deadline: float) -> Any:
    """The changes of the view, once the app runs."""
    while True:
        try:
            return app.views["counts"].subscribe()
        except HeadwaterError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


ACTS: dict[str, Callable[..., dict[str, Any]]] = {"produce": produce, "watch": watch, "subscribe": subscribe}

if __name__ == "__main__":
    print(json.dumps(ACTS[sys.argv[1]](*sys.argv[2:])))
