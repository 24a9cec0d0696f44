"""Rows a second on one, two and four executors of a standalone cluster, beside one session without a cluster.

All are on this machine, so that what a cluster costs is seen, and how far it scales only up to the cores that there are.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import headwater
from benchmarks.cluster.events import Run, fill, run
from benchmarks.harness import Bench, Result, run_child
from benchmarks.spark.workbench import CORES
from benchmarks.spark_cluster import spark_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXECUTORS = (1, 2, 4)
BATCHES = 8
LOCAL = f"local[{CORES}]"


def executors(bench: Bench) -> list[Result]:
    """The same query by 1, 2 and 4 executors of one core each, and by the two cores of a local session."""
    rows, users, rounds = bench.size(4_000_000, 80_000), bench.size(100_000, 1_000), bench.size(2, 1)
    counts = (0, *EXECUTORS) if not bench.quick else (0, 2)
    found: dict[int, list[Run]] = {count: [] for count in counts}
    starts: dict[int, list[float]] = {count: [] for count in counts}
    with bench.scratch("executors") as folder:
        bench.say("executors: filling")
        fill(folder / "log", rows=rows, users=users)
        for number in range(rounds):
            for count in counts if number % 2 == 0 else reversed(counts):
                body = run_child("benchmarks.cluster.executors", folder, f"run-{number}-{count}", count, rows)
                starts[count].append(body.pop("first_batch_seconds"))
                found[count].append(Run(**body))
                bench.say(f"executors {number + 1}/{rounds} {count or LOCAL}: {_rate([found[count][-1]]):,.0f} rows/s")
    return [
        Result(
            name=f"executors.{count}",
            value=_rate(found[count]),
            unit="rows/s",
            peer=LOCAL,
            peer_value=_rate(found[0]),
            more={
                "rows": rows,
                "keys": users,
                "batches": BATCHES,
                "cpu_seconds_per_million": _cpu(found[count]),
                "peer_cpu_seconds_per_million": _cpu(found[0]),
                "first_batch_seconds": statistics.median(starts[count]),
                "peer_first_batch_seconds": statistics.median(starts[0]),
                "batch_ms": statistics.median(one.batch_ms_median for one in found[count]),
            },
        )
        for count in counts
        if count
    ]


def _rate(runs: list[Run]) -> float:
    return statistics.median(one.rows / one.seconds for one in runs)


def _cpu(runs: list[Run]) -> float:
    return round(statistics.median(one.cpu_seconds / one.rows * 1e6 for one in runs), 3)


def _measured(folder: Path, name: str, count: int, rows: int) -> dict[str, object]:
    """Start a cluster of so many workers, or none, and run the query once: the executors are those of this run."""
    place = folder / name
    conf = {"spark.sql.shuffle.partitions": 4, "spark.executor.memory": "600m", "spark.driver.memory": "1g"}
    if not count:
        return _timed(headwater.session("bench", master=LOCAL, state=place / "state", conf=conf), folder, place, rows)
    with spark_cluster(place / "cluster", workers=count) as cluster:
        spark = headwater.session("bench", master=cluster.url, state=place / "state", conf=conf)
        try:
            return _timed(spark, folder, place, rows)
        finally:
            spark.stop()


def _timed(spark: SparkSession, folder: Path, place: Path, rows: int) -> dict[str, object]:
    began = time.perf_counter()
    done = run(
        spark, folder / "log", checkpoint=str(place / "checkpoint"), topic=place.name, rows=rows, batches=BATCHES
    )
    first = time.perf_counter() - began - done.seconds
    return {**vars(done), "first_batch_seconds": first}


if __name__ == "__main__":
    print(json.dumps(_measured(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))))
