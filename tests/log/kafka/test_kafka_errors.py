"""Bad input to a log on Kafka: each is told with what is wrong and what to do."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from benchmarks.kafka_broker import USERS, Kafka, kafka_brokers
from benchmarks.peer_servers import free_port
from headwater import Config
from headwater.errors import ArgumentInvalid, NotFound, NotPossible
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.errors import BrokerUnreachable
from headwater.log.kafka import KafkaLog
from headwater.log.kafka.address import Address
from headwater.log.kafka.errors import AccessDenied, CredentialsRefused, ValueUnreadable
from tests.conditions import until
from tests.kafka_server import kafka as kafka
from tests.log.adapters import open_kafka
from tests.servers import or_skip


def open_as(address: str, user: str, password: str) -> Log:
    return KafkaLog(address, config=Config(kafka_user=user, kafka_password=password, kafka_seconds_max=6))


@pytest.mark.parametrize(
    "address", ["kafka://", "kafka://host:x", "kafka://a b", "kafka://host/-x", "kafka://host/a/b"]
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ArgumentInvalid, match="kafka://HOST:PORT"):
        Address.parse(address)


def test_a_broker_that_is_away_is_told_with_its_address() -> None:
    with KafkaLog(f"kafka://127.0.0.1:{free_port()}", config=Config(kafka_seconds_max=1)) as log:
        with pytest.raises(BrokerUnreachable, match="cannot be reached"):
            log.topics()
        with pytest.raises(BrokerUnreachable):
            log.append("t", [{"id": 1}])


@pytest.mark.kafka
@pytest.mark.process
def test_wrong_credentials_are_told_as_such(kafka: Kafka) -> None:
    with open_as(kafka.sasl_address, "ada", "wrong") as log, pytest.raises(CredentialsRefused, match="kafka_password"):
        log.topics()


@pytest.mark.kafka
@pytest.mark.process
def test_a_missing_acl_names_what_is_not_allowed(kafka: Kafka) -> None:
    with open_kafka(kafka) as log:
        namespace = log.address.rpartition("/")[2]
        log.create("t", {"id": "int64"})
        log.append("t", [{"id": 1}])
        with open_as(f"{kafka.sasl_address}/{namespace}", "eve", USERS["eve"]) as theirs:
            with pytest.raises(AccessDenied, match="topic 't'"):
                theirs.read("t")
            with pytest.raises(AccessDenied, match="topic 't'"):
                theirs.append("t", [{"id": 2}])
            allow(kafka, "User:eve", namespace)
            until(lambda: theirs.topics() == ["t"])  # the broker has taken the ACLs in
            assert [row["id"] for row in theirs.read("t").rows()] == [1]
            with pytest.raises(AccessDenied, match=r"group '.*query'"):  # it has the fence of that name
                theirs.transaction("query", sequence=0).commit()
            with (
                pytest.raises(AccessDenied, match=r"group '.*billing'"),
                theirs.consumer("t", group="billing") as consumer,
            ):
                consumer.poll(seconds=10)
            with pytest.raises(AccessDenied, match="transactional id"):  # schemas are written in transactions
                theirs.create("mine", {"id": "int64"})


def allow(kafka: Kafka, user: str, namespace: str) -> None:
    """Let a user read all topics of a namespace."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    bindings = [
        AclBinding(
            ResourceType.TOPIC, namespace, ResourcePatternType.PREFIXED, user, "*", operation, AclPermissionType.ALLOW
        )
        for operation in (AclOperation.READ, AclOperation.DESCRIBE)
    ]
    for future in admin.create_acls(bindings).values():
        future.result(30)


@pytest.mark.kafka
@pytest.mark.process
def test_a_message_of_another_format_is_told_with_its_offset(kafka: Kafka) -> None:
    with open_kafka(kafka) as log:
        log.create("t", {"id": "int64"})
        log.append("t", [{"id": 1}])
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        producer.produce(f"{log.address.rpartition('/')[2]}.t", b"no json", partition=0)
        producer.flush(30)
        with pytest.raises(ValueUnreadable, match="offset 1 of 't'/0"):
            log.read("t").rows()
        assert [row["id"] for row in log.read("t", stop=1).rows()] == [1]


@pytest.mark.kafka
@pytest.mark.process
def test_a_topic_that_is_deleted_under_a_reader_is_told(kafka: Kafka) -> None:
    with open_kafka(kafka) as log:
        log.create("t", {"id": "int64"})
        log.append("t", [{"id": 1}])
        reader = log.read("t")
        log.delete("t")
        with pytest.raises(NotFound, match="no topic 't'"):
            reader.rows()
        with pytest.raises(NotFound):
            log.append("t", [{"id": 1}])


@pytest.mark.kafka
@pytest.mark.process
def test_queues_and_entities_say_that_they_need_another_log(kafka: Kafka) -> None:
    with open_kafka(kafka) as log, pytest.raises(NotPossible, match="queue"):
        log.queue(f"jobs-{uuid.uuid4().hex[:6]}")


@pytest.mark.long
@pytest.mark.process
def test_a_log_goes_on_after_its_broker_was_away(tmp_path: Path) -> None:
    with or_skip(kafka_brokers(tmp_path)) as server, open_log(f"{server.address}/away") as log:
        log.create("t", {"id": "int64"})
        log.append("t", [{"id": 1}])
        server.broker.kill()
        hasty = KafkaLog(f"{server.address}/away", config=Config(kafka_seconds_max=2))
        with hasty, pytest.raises(BrokerUnreachable):
            hasty.read("t")
        server.broker.start()
        server.broker.wait_until_ready()
        log.append("t", [{"id": 2}])
        with log.transaction("query", sequence=0) as transaction:
            transaction.append("t", [{"id": 3}])
        assert [row["id"] for row in log.read("t").rows()] == [1, 2, 3]
