"""A process that commits to a log on Kafka is killed at each step: each row is there once, and a repeated commit does nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.kafka_broker import Kafka
from headwater.faults import KAFKA_CRASH_POINTS
from headwater.log import Log
from headwater.testing.crash import ENVIRONMENT_NAME
from tests.kafka_server import kafka as kafka
from tests.log.adapters import open_kafka

pytestmark = [pytest.mark.process, pytest.mark.kafka]
SEQUENCES = 3

#: Commits sequences under one name, by tasks of Spark's way and by prepared transactions, from where it was.
PROGRAM = """
import sys
from headwater.log import open as open_log
from headwater.testing.crash import CrashAt, watch_points

watch_points(CrashAt.from_env(__import__("os").environ))
address, count = sys.argv[1], int(sys.argv[2])
with open_log(address) as log:
    for sequence in range(max(0, log.committed_sequence("query")), count):  # the last one is repeated
        rows = [{"id": sequence * 10 + number} for number in range(10)]
        with log.stage("query", sequence=sequence, attempt="x") as stage:
            stage.append("a", rows)
            staged = stage.finish()
        log.commit_staged([staged], producer="query", sequence=sequence)
        for waiting in log.prepared():
            log.commit(waiting)
        done = {row["id"] for row in log.read("b", columns=["id"]).rows()}
        if sequence not in done:
            transaction = log.transaction()
            transaction.append("b", [{"id": sequence}])
            transaction.commit_offsets("g", "a", {0: sequence})
            transaction.prepare()
            for waiting in log.prepared():
                log.commit(waiting)
"""


@pytest.fixture
def log(kafka: Kafka) -> Iterator[Log]:
    with open_kafka(kafka) as opened:
        yield opened


#: In each run of the slow tests; the others are for the night.
SHORT = ("kafka.committing", "kafka.resolving")


@pytest.mark.parametrize(
    "point", [pytest.param(point, marks=[] if point in SHORT else pytest.mark.long) for point in KAFKA_CRASH_POINTS]
)
def test_a_killed_process_loses_and_doubles_nothing(point: str, log: Log, tmp_path: Path) -> None:
    log.create("a", {"id": "int64"})
    log.create("b", {"id": "int64"})
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    words = [sys.executable, str(program), log.address, str(SEQUENCES)]
    killed = subprocess.run(words, env={**os.environ, ENVIRONMENT_NAME: f"{point}:2"}, timeout=120)
    assert killed.returncode == -signal.SIGKILL
    subprocess.run(words, check=True, timeout=120)
    assert [row["id"] for row in log.read("a").rows()] == list(range(SEQUENCES * 10))
    assert sorted(row["id"] for row in log.read("b").rows()) == list(range(SEQUENCES))
    assert (log.prepared(), log.committed_sequence("query")) == ([], SEQUENCES - 1)
