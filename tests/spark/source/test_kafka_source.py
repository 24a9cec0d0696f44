"""The source reads topics on Kafka as it reads any other, in each format of values; without Spark, but with a broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kafka_broker import Kafka
from headwater.config import Config
from headwater.log import Log
from headwater.log import open as open_log
from headwater.spark.datasource import HeadwaterSource
from headwater.spark.errors import SourceChanged
from tests.kafka_server import kafka as kafka
from tests.spark.source.planner import Checkpoint, Plan, rows_in
from tests.spark.source.tasks import crossed

pytestmark = [pytest.mark.process, pytest.mark.kafka]

SCHEMA = "id int64 not null, name string, at timestamp"
COUNT = 400


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": id, "name": f"row {id}", "at": id * 1_000} for id in range(first, first + count)]


@pytest.fixture(params=["frames", "json"])
def log(request: pytest.FixtureRequest, kafka: Kafka) -> Iterator[Log]:
    """A log with a topic of two partitions, with 200 rows in ten appends in each."""
    address = f"{kafka.address}/source-{uuid.uuid4().hex[:12]}"
    with open_log(address, config=Config(kafka_values=request.param)) as opened:
        opened.create("orders", SCHEMA, partitions=2, time="at")
        for number in range(20):
            opened.append("orders", rows(number * 20, 20), partition=number % 2, headers={"n": str(number).encode()})
        yield opened


def plan(log: Log, folder: Path, **options: Any) -> Plan:
    given = {"log": log.address, "path": "orders", "metadata": "none", **options}
    texts = {name: str(value) for name, value in given.items()}
    source = HeadwaterSource.bound(state=folder / "state")(texts)
    return Plan(source, source.schema())


def ids(checkpoint: Checkpoint) -> list[int]:
    return sorted(row["id"] for row in checkpoint.rows)


def test_a_query_reads_every_row_once_and_goes_on(log: Log, tmp_path: Path) -> None:
    checkpoint = Checkpoint()
    sizes = [len(batch) for batch in checkpoint(plan(log, tmp_path, rows_max=130))]
    assert ids(checkpoint) == list(range(COUNT))
    assert 3 <= len([size for size in sizes if size]) <= 8
    assert max(sizes) <= 200
    log.append("orders", rows(COUNT, 1), partition=0)
    checkpoint(plan(log, tmp_path, rows_max=130))
    assert ids(checkpoint) == list(range(COUNT + 1))


def test_rows_of_transactions_are_read_when_they_are_committed(log: Log, tmp_path: Path) -> None:
    checkpoint = Checkpoint()
    checkpoint(plan(log, tmp_path))
    for number in range(3):
        transaction = log.transaction("p", sequence=number)
        transaction.append("orders", rows(COUNT + 2 * number, 1), partition=0)
        transaction.append("orders", rows(COUNT + 2 * number + 1, 1), partition=1)
        transaction.commit()
        checkpoint(plan(log, tmp_path))
        assert ids(checkpoint) == list(range(COUNT + 2 * number + 2))


def test_a_bounded_read_has_the_columns_of_the_system(log: Log, tmp_path: Path) -> None:
    planned = plan(log, tmp_path, metadata="all")
    reader = planned.source.reader(planned.schema)
    found = [
        row
        for part in reader.partitions()
        for batch in crossed(reader).read(crossed(part))
        for row in rows_in(batch, planned.schema)
    ]
    stored = {(row["_partition"], row["_offset"]): row for row in log.read("orders").rows()}
    assert len(found) == len(stored) == COUNT
    for row in found:
        same = stored[row["_partition"], row["_offset"]]
        assert row["id"] == same["id"]
        assert row["_headers"] == dict(same["_headers"]) == {"n": str(row["id"] // 20).encode()}
        assert row["_appended_at"] == same["_appended_at"]


def test_a_batch_knows_the_event_time_of_its_end(log: Log, tmp_path: Path) -> None:
    checkpoint = Checkpoint()
    checkpoint(plan(log, tmp_path))
    times = json.loads(checkpoint.offsets[-1])["times"]["orders"]
    assert {number: latest for number, (latest, _) in times.items()} == {"0": 379_000, "1": 399_000}
    log.punctuate("orders", 500_000, partition=0)
    checkpoint(plan(log, tmp_path))
    assert json.loads(checkpoint.offsets[-1])["promised"] == {"orders": {"0": 500_000}}


def test_a_topic_that_is_deleted_under_a_query_is_told(log: Log, tmp_path: Path) -> None:
    checkpoint = Checkpoint()
    planned = plan(log, tmp_path)
    checkpoint(planned)
    log.delete("orders")
    with pytest.raises(SourceChanged, match="has been deleted"):
        checkpoint(planned)
    log.create("orders", SCHEMA, partitions=2, time="at")
    with pytest.raises(SourceChanged, match="deleted and made again"):
        checkpoint(planned)


def test_a_position_in_time_is_found(log: Log, tmp_path: Path) -> None:
    checkpoint = Checkpoint()
    checkpoint(plan(log, tmp_path, start="latest"))
    assert ids(checkpoint) == []
    log.append("orders", rows(COUNT, 5), partition=1)
    checkpoint(plan(log, tmp_path, start="latest"))
    assert ids(checkpoint) == list(range(COUNT, COUNT + 5))
