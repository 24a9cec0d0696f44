"""An app on a standalone Spark cluster, whose executors are other processes: its output is exact, whatever ends meanwhile."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headwater as hw
from benchmarks.spark_cluster import environment, spark_cluster
from headwater.apps.home import Home
from headwater.log import Log
from headwater.spark.cluster import PARTITIONS
from headwater.spark.session import spark_settings
from tests.conditions import SECONDS_MAX, until

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


def test_the_settings_of_a_cluster_are_those_of_its_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    monkeypatch.setenv("HEADWATER_TOKEN", "a token")
    settings = spark_settings("spark://127.0.0.1:7077", tmp_path, None, {})
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.sql.shuffle.partitions"] == str(PARTITIONS)
    assert settings["spark.executorEnv.HEADWATER_TOKEN"] == "a token"
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.1.2.3")
    assert spark_settings("spark://127.0.0.1:7077", tmp_path, None, {})["spark.driver.host"] == "10.1.2.3"
    monkeypatch.delenv("SPARK_LOCAL_IP")
    assert "spark.driver.host" not in spark_settings("yarn", tmp_path, None, {"spark.sql.shuffle.partitions": 4})


@pytest.mark.process
@pytest.mark.spark
def test_a_worker_that_is_killed_changes_nothing_in_the_output(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(FILE)
    with spark_cluster(tmp_path / "cluster") as cluster, hw.open(tmp_path / "data", create=True) as log:
        log.create("orders", {"user": "int64", "at": "timestamp"}, time="at", key="user", partitions=2)
        append_orders(log, 0, 3_000)
        home = Home(tmp_path / "data" / "apps" / "shop")
        with running(tmp_path, cluster.url) as child:
            until(lambda: home.read_checkpoint("totals", 1).batch is not None, "a batch was committed", child)
            assert all(cluster.executors(worker) for worker in cluster.workers), "both workers take part"
            cluster.workers[0].kill()
            append_orders(log, 3_000, 6_000)
            until(lambda: home.read_checkpoint("totals", 1).rows_read >= 6_000, "all rows were read", child)
        assert child.returncode == 0
        assert totals(log) == expected(log)


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
    child = subprocess.Popen(
        [sys.executable, "-m", "headwater.cli", "run", "shop.py", "--master", master],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
    )
    try:
        yield child
        child.send_signal(signal.SIGINT)
        child.wait(SECONDS_MAX)
    finally:
        child.kill()
        child.wait()
