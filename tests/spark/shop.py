"""An app for tests on a cluster: orders counted for each user in windows, so that the output follows from the input alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.spark_cluster import environment
from headwater.log import Log
from tests.conditions import SECONDS_MAX

FILE = """
import headwater as hw
from headwater.operators import Tumbling, agg

app = hw.App("shop", log="./data", conf={"spark.sql.shuffle.partitions": 2, "spark.executor.memory": "512m"})
app.input("orders")

@app.topic(rows_max=500)
def totals(orders):
    return orders.transform(Tumbling(size="10 seconds", by="user", compute={"count": agg.count()}))
"""
USERS = 20


def create_orders(log: Log) -> None:
    log.create("orders", {"user": "int64", "at": "timestamp"}, time="at", key="user", partitions=2)


def append_orders(log: Log, first: int, last: int) -> None:
    """One order each 100 ms; user and time follow from the number."""
    log.append("orders", [{"user": number % USERS, "at": number * 100_000} for number in range(first, last)])


def expected(log: Log) -> Counter[tuple[int, int]]:
    """How many orders each user has in each window that the slower partition has closed."""
    rows = log.read("orders").table()
    latest = rows.group_by("_partition").aggregate([("at", "max")]).column("at_max").to_pylist()
    users, times = rows.column("user").to_pylist(), rows.column("at").to_pylist()
    counts = Counter((user, int(at.timestamp()) // 10) for user, at in zip(users, times, strict=True))
    closed = int(min(latest).timestamp()) // 10
    return Counter({key: count for key, count in counts.items() if key[1] < closed})


def totals(log: Log) -> Counter[tuple[int, int]]:
    """What the app has written; a window that was written twice is an error."""
    found: Counter[tuple[int, int]] = Counter()
    for row in log.read("totals").table().to_pylist():
        key = (row["user"], int(row["window_start"].timestamp()) // 10)
        assert key not in found, f"twice: {key}"
        found[key] = row["count"]
    return found


@contextmanager
def running(folder: Path, master: str) -> Iterator[subprocess.Popen[bytes]]:
    """`headwater run` of the app, stopped at the end by Ctrl-C."""
    child = started(folder, master)
    try:
        yield child
        child.send_signal(signal.SIGINT)
        child.wait(SECONDS_MAX)
    finally:
        child.kill()
        child.wait()


def started(folder: Path, master: str) -> subprocess.Popen[bytes]:
    """`headwater run` of the app; what it prints is in the file `driver.log`."""
    with (folder / "driver.log").open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "headwater.cli", "run", "shop.py", "--master", master],
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
