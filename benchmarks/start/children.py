"""What is measured in a process of its own: `python -m benchmarks.start.children ready …` prints one JSON object."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

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


if __name__ == "__main__":
    print(json.dumps({"ready": ready}[sys.argv[1]](*sys.argv[2:])))
