"""Fixtures for tests of the source: a log of the test's own, and a topic in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.config import Config
from headwater.engine import open_logs
from headwater.log import Log
from headwater.log import open as open_log
from tests.spark.source.planner import Checkpoint
from tests.spark.source.spark_reads import Run


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task freezes in a worker would stay in this process until its end."""
    monkeypatch.setattr("gc.freeze", lambda: None)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", config=Config(maintenance="manual")) as opened:
        yield opened
    known = open_logs._logs.pop((os.getpid(), opened.address), None)
    if known is not None:
        known[1].close()


@pytest.fixture
def orders(log: Log) -> Log:
    """A topic of two partitions with five rows each: 0 to 4, and 10 to 14."""
    log.create("orders", {"id": "int64", "name": "string"}, partitions=2)
    for partition in (0, 1):
        log.append("orders", [{"id": 10 * partition + n, "name": "x"} for n in range(5)], partition=partition)
    return log


@pytest.fixture
def checkpoint() -> Checkpoint:
    """A query that is not run by Spark."""
    return Checkpoint()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """A query that Spark runs."""
    started = Run(tmp_path)
    yield started
    if started.query is not None:
        started.query.stop()
