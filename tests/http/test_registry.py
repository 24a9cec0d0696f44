"""The schema registry, asked by Confluent's own client over a real connection."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.serialization import MessageField, SerializationContext

from headwater.http import Address, Tokens, served
from headwater.log import Log
from headwater.log import open as open_log


def record(*fields: dict[str, Any], name: str = "Order") -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields)})


ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": ["null", "string"], "default": None}
FIRST = record(ID)
SECOND = record(ID, NOTE)
NARROWER = record({"name": "id", "type": "int"})


@pytest.fixture
def registry(address: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": address}) as client:
        yield client


def code_of(error: pytest.ExceptionInfo[SchemaRegistryError]) -> tuple[int, int]:
    return error.value.http_status_code, error.value.error_code


def test_a_schema_is_registered_once_and_found_by_every_name(registry: SchemaRegistryClient) -> None:
    first = registry.register_schema("orders-value", Schema(FIRST, "AVRO"))
    assert registry.register_schema("orders-value", Schema(FIRST.replace(" ", ""), "AVRO")) == first
    second = registry.register_schema("orders-value", Schema(SECOND, "AVRO"))
    assert second == first + 1
    assert registry.register_schema("copies-value", Schema(FIRST, "AVRO")) == first
    registry.clear_caches()
    assert json.loads(registry.get_schema(first).schema_str or "") == json.loads(FIRST)
    assert registry.get_subjects() == ["copies-value", "orders-value"]
    assert registry.get_versions("orders-value") == [1, 2]
    assert registry.get_latest_version("orders-value").version == 2
    assert registry.get_version("orders-value", 1).schema_id == first
    assert registry.lookup_schema("orders-value", Schema(SECOND, "AVRO")).version == 2
    assert {(one.subject, one.version) for one in registry.get_schema_versions(first)} == {
        ("copies-value", 1),
        ("orders-value", 1),
    }
    assert registry.get_schema_types() == ["AVRO"]


def test_a_schema_that_old_rows_could_not_follow_is_refused(registry: SchemaRegistryClient) -> None:
    registry.register_schema("orders-value", Schema(FIRST, "AVRO"))
    assert registry.test_compatibility("orders-value", Schema(SECOND, "AVRO"))
    assert not registry.test_compatibility("orders-value", Schema(NARROWER, "AVRO"))
    with pytest.raises(SchemaRegistryError) as caught:
        registry.register_schema("orders-value", Schema(NARROWER, "AVRO"))
    assert code_of(caught) == (409, 409)
    registry.set_compatibility("orders-value", "NONE")
    assert registry.get_compatibility("orders-value") == "NONE"
    registry.register_schema("orders-value", Schema(NARROWER, "AVRO"))


def test_each_mistake_has_its_five_digits(registry: SchemaRegistryClient) -> None:
    schema = Schema(FIRST, "AVRO")
    registry.register_schema("orders-value", schema)
    mistakes: list[tuple[Any, tuple[int, int]]] = [
        (lambda: registry.get_versions("nope"), (404, 40401)),
        (lambda: registry.get_latest_version("nope"), (404, 40401)),
        (lambda: registry.get_version("orders-value", 9), (404, 40402)),
        (lambda: registry.get_schema(999), (404, 40403)),
        (lambda: registry.lookup_schema("nope", schema), (404, 40401)),
        (lambda: registry.lookup_schema("orders-value", Schema(SECOND, "AVRO")), (404, 40403)),
        (lambda: registry.register_schema("orders-value", Schema("{", "AVRO")), (422, 42201)),
        (lambda: registry.register_schema("orders-value", Schema('{"type": "nonsense"}', "AVRO")), (422, 42201)),
        (lambda: registry.register_schema("orders-value", Schema("message A {}", "PROTOBUF")), (422, 42201)),
        (lambda: registry.set_compatibility("orders-value", "SIDEWAYS"), (422, 42203)),
        (lambda: registry.get_compatibility("nope"), (404, 40408)),
    ]
    for number, (mistake, expected) in enumerate(mistakes):
        with pytest.raises(SchemaRegistryError) as caught:
            mistake()
        assert code_of(caught) == expected, number
    with pytest.raises(SchemaRegistryError) as caught:
        registry.delete_subject("orders-value", permanent=True)
    assert caught.value.error_code in (40404, 40405)


def test_a_version_that_means_nothing_is_refused(address: str, registry: SchemaRegistryClient) -> None:
    registry.register_schema("orders-value", Schema(FIRST, "AVRO"))
    for version in ("0", "first", "-2", "99999999999999"):
        answer = httpx.get(f"{address}/subjects/orders-value/versions/{version}")
        assert (answer.status_code, answer.json()["error_code"]) == (422, 42202)
        assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"


def test_a_deleted_subject_is_hidden_and_then_forgotten(registry: SchemaRegistryClient) -> None:
    identity = registry.register_schema("orders-value", Schema(FIRST, "AVRO"))
    assert registry.delete_subject("orders-value") == [1]
    assert registry.get_subjects() == []
    assert registry.get_subjects(deleted=True) == ["orders-value"]
    registry.clear_caches()
    assert registry.get_schema(identity).schema_str is not None  # rows written with it can still be read
    assert registry.delete_subject("orders-value", permanent=True) == [1]
    assert registry.get_subjects(deleted=True) == []


def test_confluents_serialisers_work_against_it(registry: SchemaRegistryClient) -> None:
    context = SerializationContext("orders", MessageField.VALUE)
    row = {"id": 73314510714175488, "note": "Zoë"}
    written = AvroSerializer(registry, SECOND)(row, context)
    assert written is not None
    assert written[:1] == b"\x00"
    assert AvroDeserializer(registry)(written, context) == row
    assert registry.get_subjects() == ["orders-value"]


def test_what_was_registered_is_there_in_another_process(log: Log) -> None:
    with served(log, Address(port=0)) as first, SchemaRegistryClient({"url": first}) as registry:
        identity = registry.register_schema("orders-value", Schema(FIRST, "AVRO"))
    with (
        open_log(log.home) as other,
        served(other, Address(port=0)) as second,
        SchemaRegistryClient({"url": second}) as registry,
    ):
        assert registry.get_latest_version("orders-value").schema_id == identity


def test_a_subject_is_for_those_who_may_use_its_topic(log: Log, tokens: Tokens) -> None:
    admin, reader = tokens.create("boss"), tokens.create("reader", ["read:orders"])
    bearer = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.logical.cluster": "x"}
    bearer["bearer.auth.identity.pool.id"] = "x"
    with (
        served(log, Address(port=0)) as address,
        SchemaRegistryClient({"url": address, **bearer, "bearer.auth.token": admin}) as boss,
        SchemaRegistryClient({"url": address, **bearer, "bearer.auth.token": reader}) as client,
    ):
        boss.register_schema("orders-value", Schema(FIRST, "AVRO"))
        secret = boss.register_schema("cards-value", Schema(SECOND, "AVRO"))
        assert client.get_subjects() == ["orders-value"]
        assert client.get_versions("orders-value") == [1]
        for forbidden in (
            lambda: client.get_versions("cards-value"),
            lambda: client.register_schema("orders-value", Schema(SECOND, "AVRO")),
            lambda: client.delete_subject("orders-value"),
            lambda: client.set_compatibility(level="NONE"),
        ):
            with pytest.raises(SchemaRegistryError) as caught:
                forbidden()  # type: ignore[no-untyped-call]
            assert caught.value.http_status_code == 403
        with pytest.raises(SchemaRegistryError) as caught:
            client.get_schema(secret)
        assert caught.value.error_code == 40403
