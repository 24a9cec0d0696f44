"""What a log on Kafka does in its own way, on a real broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from benchmarks.kafka_broker import Kafka
from headwater.errors import ArgumentInvalid
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.errors import GroupActive, RowTooLarge
from headwater.log.kafka.errors import BrokerRefused, CapabilityMissing
from tests.kafka_server import kafka as kafka
from tests.log.adapters import open_kafka
from tests.log.contract.limits import KAFKA_CANNOT

pytestmark = [pytest.mark.process, pytest.mark.kafka]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def log(kafka: Kafka) -> Iterator[Log]:
    with open_kafka(kafka) as opened:
        yield opened


def test_what_the_contract_leaves_out_is_on_the_reference_page() -> None:
    page = " ".join((ROOT / "docs" / "reference" / "kafka.md").read_text().split())
    assert [reason for reason in set(KAFKA_CANNOT.values()) if reason not in page] == []


def test_topics_of_other_programs_are_keys_and_values(log: Log, kafka: Kafka) -> None:
    namespace = log.address.rpartition("/")[2]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(f"{namespace}.theirs", 2, 1)])[f"{namespace}.theirs"].result(30)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(f"{namespace}.theirs", b"\x00\xff", b"k", 1, headers=[("trace", b"7")])
    producer.flush(30)
    assert log.topics() == ["theirs"]
    topic = log.topic("theirs")
    assert (topic.schemaless, topic.partitions) == (True, 2)
    row = log.read("theirs").rows()[0]
    assert (row["key"], row["value"], row["_partition"], row["_headers"]) == (b"k", b"\x00\xff", 1, {"trace": b"7"})
    log.append("theirs", [(b"k", b"ours")])
    assert log.read("theirs").count() == 2


def test_a_conditional_append_names_the_capability(log: Log) -> None:
    log.create("t", {"id": "int64"}, key="id")
    with pytest.raises(CapabilityMissing, match="no conditional append"):
        log.append("t", [{"id": 1}], expected_offset=0)
    with pytest.raises(CapabilityMissing, match="no conditional append"):
        log.append("t", [{"id": 1}], expected_key_offset=-1)
    with pytest.raises(CapabilityMissing, match="no archive"):
        log.read("t", archived=True)


def test_a_range_has_the_punctuations_whose_offsets_are_in_it(log: Log) -> None:
    log.create("t", {"at": "timestamp"}, time="at")
    log.append("t", [{"at": 5}])
    log.punctuate("t", 9)
    log.append("t", [{"at": 10}])
    end = log.end_offsets("t")[0]
    batches = list(log.read("t", columns=["at"]).batches())
    assert [batch.punctuation_us for batch in batches] == [None, 9, None]
    middle = batches[1].offset
    assert [batch.punctuation_us for batch in log.read_range("t", 0, start=0, stop=middle, punctuations=(0, 0))] == [
        None
    ]
    rest = list(log.read_range("t", 0, start=middle, stop=end, punctuations=(0, 0)))
    assert [batch.punctuation_us for batch in rest] == [9, None]
    assert sum(batch.data.num_rows for batch in log.read_range("t", 0, start=0, stop=end)) == 2
    assert log.event_times("t", 0, start=0, stop=middle) == (5, None)
    assert log.event_times("t", 0, start=0, stop=end) == (10, 9)


def test_times_of_appends_are_the_brokers(log: Log) -> None:
    log.create("t", {"id": "int64"})
    before = time.time_ns() // 1_000_000 * 1_000
    log.append("t", [{"id": 1}], sent_at_us=5)
    row = log.read("t").rows()[0]
    assert row["_sent_at"] == datetime.fromtimestamp(5e-6, UTC)
    assert before <= row["_appended_at"].timestamp() * 1e6
    assert log.offset_at("t", before) == {0: 0}
    assert log.offset_at("t", row["_appended_at"]) == {0: 0}
    assert log.offset_at("t", int(row["_appended_at"].timestamp() * 1e6) + 1_000) == {0: 1}


def test_a_message_that_is_too_large_is_refused_before_it_is_sent(log: Log) -> None:
    log.create("t", {"name": "string"})
    with pytest.raises(RowTooLarge):
        log.append("t", [{"name": "x" * 1_100_000}])
    assert log.read("t").count() == 0


def test_a_message_that_is_too_large_for_its_topic_is_refused_with_all_of_its_transaction(
    log: Log, kafka: Kafka
) -> None:
    log.create("t", {"name": "string"})
    resource = ConfigResource(
        ResourceType.TOPIC,
        f"{log.address.rpartition('/')[2]}.t",
        incremental_configs=[
            ConfigEntry(
                "max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET
            )  # by Kafka's own tools
        ],
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)
    with pytest.raises(RowTooLarge, match=r"'t'.*at most 2000"):
        log.append("t", [{"name": "x" * 3_000}])
    with pytest.raises(BrokerRefused, match="may have 2000 bytes"):  # the client sends them together
        log.append("t", [{"name": "x" * 1_000}] * 10)
    with log.stage("query", sequence=0, attempt="x") as stage:
        stage.append("t", [{"name": "small"}])
        stage.append("t", [{"name": "x" * 3_000}])
        staged = stage.finish()
    with pytest.raises(RowTooLarge, match=r"'t'.*at most 2000"):
        log.commit_staged([staged], producer="query", sequence=0)
    assert (log.read("t").count(), log.committed_sequence("query")) == (0, -1)


def test_a_compacted_topic_keeps_the_key_of_a_tombstone(log: Log) -> None:
    log.create("t", {"id": "int64", "name": "string"}, key="id", compact=True)
    log.append("t", [{"id": 1, "name": "a"}, {"id": 1, "_tombstone": True}])
    rows = log.read("t", columns=["id", "name", "_tombstone"]).rows()
    assert rows == [{"id": 1, "name": "a", "_tombstone": False}, {"id": 1, "name": None, "_tombstone": True}]


def test_members_of_a_group_share_partitions_and_commit_as_kafkas_own(log: Log) -> None:
    log.create("t", {"id": "int64"}, partitions=2)
    for number in range(10):
        log.append("t", [{"id": number}], partition=number % 2)
    with log.consumer("t", group="readers") as one:
        seen = [row["id"] for batch in one.poll(seconds=10) for row in batch.rows()]
        one.commit()
        with pytest.raises(GroupActive):
            log.groups.seek("readers", "t", "earliest")
        assert sorted(seen) == list(range(10))
        assert log.committed("readers", "t") == {0: 5, 1: 5}
        described = log.groups.describe("readers")
        assert [member.assignment for member in described.members] == [{"t": [0, 1]}]
        assert described.rows == 0
        with log.consumer("t", group="readers") as two:
            deadline = time.monotonic() + 30
            while not (one.assignment and two.assignment and one.assignment != {"t": [0, 1]}):
                assert time.monotonic() < deadline
                one.poll(seconds=0.05)
                two.poll(seconds=0.05)
            assert sorted(one.assignment["t"] + two.assignment["t"]) == [0, 1]
    log.append("t", [{"id": 10}], partition=0)
    assert log.groups.describe("readers").rows == 1
    assert [step.new for step in log.groups.seek("readers", "t", "earliest")] == [0, 0]
    log.groups.delete("readers")
    assert log.groups.names() == []


def test_two_processes_that_commit_under_one_name_commit_each_sequence_once(log: Log) -> None:
    log.create("t", {"id": "int64"})
    with open_log(log.address) as other:
        for sequence in range(4):
            for each in (log, other):
                with each.transaction("query", sequence=sequence) as transaction:
                    transaction.append("t", [{"id": sequence}])
    assert [row["id"] for row in log.read("t").rows()] == [0, 1, 2, 3]


def test_two_processes_that_alter_topics_at_once_lose_nothing(log: Log) -> None:
    log.create("a", {"id": "int64"})
    log.create("b", {"id": "int64"})
    with open_log(log.address) as other:
        log.alter("a", schema={"id": "int64", "x": "int64"})
        other.alter("b", schema={"id": "int64", "y": "int64"})
        log.alter("a", schema={"id": "int64", "x": "int64", "z": "int64"})
        assert other.topic("a").schema_version == 3
        assert log.topic("b").schema.names == ["id", "y"]


def test_large_metadata_of_a_transaction_are_kept_elsewhere(log: Log) -> None:
    log.create("t", {"id": "int64"})
    large = {"sources": ["x" * 100] * 100, "tag": uuid.uuid4().hex}
    log.commit_staged([], producer="query", sequence=0, metadata=large)
    assert log.transaction_metadata("query") == large
    assert log.committed_sequence("query") == 0


def test_an_unknown_format_of_values_is_refused(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_KAFKA_VALUES", "cobol")
    with open_kafka(kafka) as log, pytest.raises(ArgumentInvalid, match="kafka_values"):
        log.create("t", {"id": "int64"})


def test_rows_in_frames_have_offsets_of_their_own_and_are_counted(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_KAFKA_VALUES", "frames")
    with open_kafka(kafka) as log:
        log.create("t", {"id": "int64"})
        assert log.append("t", [{"id": number} for number in range(5)]).count == 5
        with log.transaction() as transaction:
            transaction.append("t", [{"id": 5}, {"id": 6}])
        rows = log.read("t").rows()
        assert [row["id"] for row in rows] == list(range(7))
        offsets = [row["_offset"] for row in rows]
        assert offsets == sorted(set(offsets))
        assert [row["id"] for row in log.read("t", start=offsets[3]).rows()] == [3, 4, 5, 6]
        assert [row["id"] for row in log.read("t", start=-3).rows()] == [4, 5, 6]
        assert log.describe("t").rows == 7
        assert 65_536 / 7 < log.offset_step("t") <= 65_536
        log.commit_offsets("g", "t", {0: offsets[3]})
        assert log.committed("g", "t") == {0: offsets[3]}
        assert [lag.rows for lag in log.groups.lag("g")] == [4]
        with log.consumer("t", group="g", columns=["id"], rows_max=2) as consumer:
            assert [row["id"] for row in consumer.poll(seconds=10)[0].rows()] == [3, 4]
            consumer.commit()
            assert [lag.rows for lag in consumer.lag()] == [2]
            assert log.committed("g", "t") == {0: offsets[5]}
