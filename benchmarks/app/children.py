"""Child processes: `python -m benchmarks.app.children ACT …`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

UPDATES_PER_SECOND = 20_000
APPENDS_PER_SECOND = 100


def write(folder: str, topic: str, keys: str, seconds: str, rows_per_second: str) -> dict[str, Any]:
    """Append updates at an even pace, each with the time at which it was sent where the topic has room for it."""
    import numpy as np
    import pyarrow as pa

    import headwater.log as hwlog

    random = np.random.default_rng(5)
    rows = int(rows_per_second) // APPENDS_PER_SECOND
    with hwlog.open(folder) as log:
        schema = log.topic(topic).schema
        shops = pa.array([f"shop {number}" for number in range(rows)])
        print("begun", flush=True)
        due = time.monotonic()
        until = due + float(seconds)
        while due < until:
            columns = {"card": pa.array(random.integers(0, int(keys), rows))}
            if "sent_ns" in schema.names:
                columns["sent_ns"] = pa.array(np.full(rows, time.monotonic_ns()))
            else:
                columns |= {"total": pa.array(random.random(rows)), "n": pa.array(random.integers(0, 9, rows))}
                columns["shop"] = shops
            log.append(topic, pa.record_batch(columns))
            due += 1 / APPENDS_PER_SECOND
            time.sleep(max(0.0, due - time.monotonic()))
    return {}


def lookup(address: str, keys: str, seconds: str) -> dict[str, Any]:
    """Look rows up over the local API."""
    import numpy as np

    from headwater.views import RemoteView

    random = np.random.default_rng(9)
    view = RemoteView("spend", address=address)
    latencies = []
    until = time.monotonic() + float(seconds)
    while time.monotonic() < until:
        card = int(random.integers(0, int(keys)))
        began = time.perf_counter()
        row = view.get(card=card)
        latencies.append((time.perf_counter() - began) * 1e3)
        if row is None or row["card"] != card:
            raise RuntimeError(f"card {card} was not found")
        time.sleep(0.002)
    view.close()
    return {"latencies": latencies[len(latencies) // 20 :]}


ACTS: dict[str, Callable[..., dict[str, Any]]] = {"write": write, "lookup": lookup}

if __name__ == "__main__":
    print(json.dumps(ACTS[sys.argv[1]](*sys.argv[2:])), flush=True)
