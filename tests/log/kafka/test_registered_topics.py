"""Topics whose values have the numbers of a schema registry: other programs read them, and bad schemas change nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.kafka_broker import Kafka
from benchmarks.peer_servers import free_port
from headwater import Config
from headwater.errors import ArgumentInvalid
from headwater.http import Address, served
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.kafka.values.registry import RegistryRefused, RegistryUnavailable
from tests.kafka_server import kafka as kafka

pytestmark = [pytest.mark.process, pytest.mark.kafka]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[str]:
    """The registry of a server of Headwater."""
    with open_log(tmp_path / "log") as log, served(log, Address(port=0), confined=False) as at:
        yield at


def opened(kafka: Kafka, registry: str | None, namespace: str = "", seconds: float = 30) -> Log:
    config = Config(kafka_values="avro-registry", kafka_registry=registry, kafka_seconds_max=seconds)
    return open_log(f"{kafka.address}/{namespace or f'test-{uuid.uuid4().hex[:12]}'}", config=config)


def test_clients_of_confluent_read_a_topic_by_its_schema_in_the_registry(kafka: Kafka, registry: str) -> None:
    with opened(kafka, registry) as log:
        name = f"{log.address.rpartition('/')[2]}.orders"
        log.create("orders", {"id": "int64", "text": "string"})
        log.append("orders", [{"id": 1, "text": "a"}, {"id": 2, "text": None}])
        assert [(row["id"], row["text"]) for row in log.read("orders").rows()] == [(1, "a"), (2, None)]
        with SchemaRegistryClient({"url": registry}) as client:
            assert f"{name}-value" in client.get_subjects()
            consumer = Consumer(
                {"bootstrap.servers": kafka.bootstrap, "group.id": "x", "auto.offset.reset": "earliest"}
            )
            consumer.assign([TopicPartition(name, 0, 0)])
            messages = consumer.consume(2, timeout=20)
            consumer.close()
            read, context = AvroDeserializer(client), SerializationContext(name, MessageField.VALUE)
            assert [read(message.value(), context) for message in messages] == [
                {"id": 1, "text": "a"},
                {"id": 2, "text": None},
            ]


def test_a_schema_that_the_registry_refuses_changes_nothing(kafka: Kafka, registry: str) -> None:
    with opened(kafka, registry) as log:
        log.create("orders", {"id": "int32"})
        log.alter("orders", schema={"id": "int32", "text": "string"})
        subject = f"{log.address.rpartition('/')[2]}.orders-value"
        httpx.put(f"{registry}/config/{subject}", json={"compatibility": "FORWARD"}).raise_for_status()
        with pytest.raises(RegistryRefused, match="incompatible"):
            log.alter("orders", schema={"id": "int64", "text": "string"}, retention="1 hour")
        assert (log.topic("orders").schema_version, log.topic("orders").retention.seconds_max) == (2, None)
        log.delete("orders")
        with pytest.raises(RegistryRefused, match="incompatible"):
            log.create("orders", {"id": "string"})
        assert log.topics() == []


def test_a_registry_that_is_away_is_told_and_known_schemas_go_on(kafka: Kafka, registry: str) -> None:
    with opened(kafka, registry) as log:
        log.create("orders", {"id": "int64"})
        log.append("orders", [{"id": 1}])
        assert log.read("orders").count() == 1
        namespace = log.address.rpartition("/")[2]
        with opened(kafka, f"http://127.0.0.1:{free_port()}", namespace, seconds=2) as elsewhere:
            with pytest.raises(RegistryUnavailable, match="does not answer"):
                elsewhere.read("orders").rows()
            with pytest.raises(RegistryUnavailable):
                elsewhere.create("others", {"id": "int64"})
            assert elsewhere.topics() == ["orders"]
        with opened(kafka, None, namespace) as without, pytest.raises(ArgumentInvalid, match="kafka_registry"):
            without.read("orders").rows()
        assert log.read("orders").count() == 1


def test_the_format_needs_the_address_of_a_registry(kafka: Kafka) -> None:
    with opened(kafka, None) as log:
        with pytest.raises(ArgumentInvalid, match="kafka_registry"):
            log.create("orders", {"id": "int64"})
        assert log.topics() == []


def test_a_password_in_the_address_of_a_registry_is_not_shown() -> None:
    config = Config(kafka_registry="https://ada:secret@registry:8081")
    shown = next(setting for setting in config.describe() if setting.name == "kafka_registry")
    assert (shown.text, shown.value, "secret" in repr(config)) == (*["https://ada:…@registry:8081"] * 2, False)
