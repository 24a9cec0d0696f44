"""Topics are copied from a folder to Kafka and back, each row once, and groups go on at the same row."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.kafka_broker import Kafka
from headwater import faults
from headwater.config import Config
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.mirror import Mirror
from tests.kafka_server import kafka as kafka

pytestmark = [pytest.mark.process, pytest.mark.kafka]

SCHEMA = "id int64 not null, text string"
#: Ends itself at the second visit of a crash point.
MIRROR_KILLED_AT = """
import os, signal, sys
from headwater.faults import install
from headwater.log import open
from headwater.log.mirror import Mirror
left = [2]
def hook(point):
    left[0] -= point == sys.argv[3]
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
install(hook)
with open(sys.argv[1]) as source, open(sys.argv[2]) as target:
    Mirror(source, target, rows_max=17).run()
"""
FORMATS = pytest.mark.parametrize("values", ["frames", "json", "avro"])


def namespace(kafka: Kafka) -> str:
    return f"{kafka.address}/mirror-{uuid.uuid4().hex[:12]}"


def append(log: Log, first: int, count: int, **more: Any) -> None:
    log.append("t", [{"id": number, "text": f"row {number}"} for number in range(first, first + count)], **more)


def rows_of(log: Log) -> list[list[dict[str, Any]]]:
    columns = ["id", "text", "_headers"]
    return [log.read("t", partitions=[number], columns=columns).rows() for number in range(2)]


@FORMATS
def test_rows_and_positions_come_back_as_they_were(kafka: Kafka, values: str, tmp_path: Path) -> None:
    config = Config(kafka_values=values)
    with (
        open_log(tmp_path / "a") as source,
        open_log(namespace(kafka), config=config) as there,
        open_log(tmp_path / "b") as back,
    ):
        source.create("t", SCHEMA, partitions=2, retention="7 days")
        for first in range(0, 300, 30):
            append(source, first, 30, partition=first // 30 % 2, headers={"first": str(first).encode()})
        groups = {f"g{offset}": {0: offset, 1: 150 - offset} for offset in (0, 1, 29, 30, 31, 77, 149, 150)}
        for group, offsets in groups.items():
            source.commit_offsets(group, "t", offsets)
        Mirror(source, there, groups=True, rows_max=70).run()
        append(source, 300, 10, partition=0)
        Mirror(source, there, groups=True, rows_max=70).run()
        Mirror(there, back, groups=True, rows_max=45).run()
        assert rows_of(there) == rows_of(back) == rows_of(source)
        assert back.topic("t").retention == source.topic("t").retention
        for group, offsets in groups.items():
            assert back.committed(group, "t") == offsets
            left = [
                sorted(row["id"] for row in log.read("t", start=log.committed(group, "t")).rows())
                for log in (source, there)
            ]
            assert left[0] == left[1]


def test_compacted_topics_keep_their_tombstones(kafka: Kafka, tmp_path: Path) -> None:
    config = Config(kafka_values="json")
    with open_log(tmp_path / "a") as source, open_log(namespace(kafka), config=config) as there:
        source.create("t", SCHEMA, key="id", compact=True, partitions=2)
        append(source, 0, 20)
        source.append("t", [{"id": 7, "_tombstone": True}])
        Mirror(source, there).run()
        deleted = [row["id"] for row in there.read("t").rows() if row["_tombstone"]]
        assert deleted == [7]
        assert {row["id"] for row in there.read("t").rows() if not row["_tombstone"]} == set(range(20))


@pytest.mark.parametrize("point", faults.MIRROR_CRASH_POINTS)
def test_a_mirror_that_is_killed_goes_on(kafka: Kafka, point: str, tmp_path: Path) -> None:
    address = namespace(kafka)
    with open_log(tmp_path / "a") as source:
        source.create("t", SCHEMA, partitions=2)
        for first in range(0, 100, 10):
            append(source, first, 10)
        # In a process of its own: clients of brokers have threads, which a fork does not take along.
        words = [sys.executable, "-c", MIRROR_KILLED_AT, str(tmp_path / "a"), address, point]
        assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
        with open_log(address) as there:
            Mirror(source, there, rows_max=17).run()
            assert rows_of(there) == rows_of(source)


@pytest.mark.long
def test_five_million_rows_there_and_back_are_equal(kafka: Kafka, tmp_path: Path) -> None:
    config = Config(kafka_values="frames")
    with (
        open_log(tmp_path / "a") as source,
        open_log(namespace(kafka), config=config) as there,
        open_log(tmp_path / "b") as back,
    ):
        source.create("t", SCHEMA, partitions=2)
        for number in range(50):
            ids = np.arange(number * 100_000, (number + 1) * 100_000)
            rows = pa.record_batch({"id": pa.array(ids), "text": pa.array(ids).cast(pa.string())})
            source.append("t", rows, partition=number % 2)
        for part in range(10):
            source.commit_offsets(f"g{part}", "t", {0: part * 250_000 + part, 1: part * 199_999})
        for first, second in ((source, there), (there, back)):
            assert Mirror(first, second, groups=True).run().rows == 5_000_000
        for number in range(2):
            tables = [log.read("t", partitions=[number], columns=["id", "text"]).table() for log in (source, back)]
            assert tables[0].equals(tables[1])
        for part in range(10):
            assert back.committed(f"g{part}", "t") == source.committed(f"g{part}", "t")
