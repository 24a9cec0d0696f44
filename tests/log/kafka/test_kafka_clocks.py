"""Clocks that differ, of brokers, of producers and of this process: no row is hidden, and order is never decided by a clock.

A broker whose clock is wrong stamps messages as a producer does whose clock is wrong, in a topic that keeps producers' times;
such a topic is the default of Kafka, so that the tests need no second clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka_broker import Kafka
from headwater.clock import ManualClock
from headwater.log import Log
from headwater.log.kafka import KafkaLog
from tests.kafka_server import kafka as kafka
from tests.log.adapters import open_kafka

pytestmark = [pytest.mark.process, pytest.mark.kafka]
#: The seconds by which the clock of each append is ahead, in the order of appends.
AHEAD = (0, 100, 100, -200, 0, 50, 0)


@pytest.fixture
def log(kafka: Kafka) -> Iterator[Log]:
    with open_kafka(kafka) as opened:
        yield opened


def stamped(kafka: Kafka, log: Log, topic: str) -> datetime:
    """A topic whose messages have the times of clocks that differ; returns the time of the clock that is right."""
    name = f"{log.address.rpartition('/')[2]}.{topic}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=1, config={"message.timestamp.type": "CreateTime"})])[
        name
    ].result(30)
    now_ms = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number, seconds in enumerate(AHEAD):
        producer.produce(name, str(number).encode(), partition=0, timestamp=now_ms + seconds * 1000)
        producer.flush(30)  # a batch each, as of producers that know nothing of each other
    return datetime.fromtimestamp(now_ms / 1000, UTC)


def test_a_read_from_a_time_has_every_row_that_was_stamped_since(kafka: Kafka, log: Log) -> None:
    now = stamped(kafka, log, "t")
    for seconds in (-300, -200, -100, 0, 50, 100, 101):
        start = now + timedelta(seconds=seconds)
        found = [int(row["value"]) for row in log.read("t", start=start).rows()]
        since = [number for number, ahead in enumerate(AHEAD) if ahead >= seconds]
        assert set(since) <= set(found), seconds
        # It begins at the first such row: those behind it come too, whatever their clocks have said.
        assert found == (list(range(since[0], len(AHEAD))) if since else [])


def test_rows_come_in_the_order_of_appends_whatever_clocks_say(kafka: Kafka, log: Log) -> None:
    now = stamped(kafka, log, "t")
    with log.consumer("t", group="g", start="earliest") as consumer:
        rows = [row for batch in consumer.poll(seconds=30) for row in batch.rows()]
        consumer.commit()
    assert [int(row["value"]) for row in rows] == list(range(len(AHEAD)))
    assert [round((row["_appended_at"] - now).total_seconds()) for row in rows] == list(AHEAD)
    assert log.committed("g", "t") == log.end_offsets("t")


def test_topics_of_ours_have_the_brokers_times_and_not_those_of_a_process_that_is_ahead(log: Log) -> None:
    log.create("t", {"id": "int64"})
    ahead = ManualClock(start_us=int((time.time() + 3_600) * 1e6))
    with KafkaLog(log.address, clock=ahead) as theirs:
        theirs.append("t", [{"id": 1}])
    [row] = log.read("t").rows()
    assert abs((row["_appended_at"] - datetime.now(UTC)).total_seconds()) < 60


@pytest.mark.parametrize("values", ["json", "frames"])
def test_an_event_of_a_clock_that_is_ahead_does_not_move_event_time_beyond_its_bound(
    kafka: Kafka, values: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_KAFKA_VALUES", values)
    with open_kafka(kafka) as log:
        log.create("t", {"at": "timestamp"}, time="at")
        log.append("t", [{"at": 1_000_000}, {"at": 3_600_000_000}])
        log.append("t", [{"at": 2_000_000}])
        found = log.event_times("t", 0, start=0, stop=log.end_offsets("t")[0], until_us=60_000_000)
    assert found.latest_us == 2_000_000
