from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pyarrow as pa
import pytest

from headwater import EventTime
from headwater.errors import ArgumentInvalid, NotFound, NotPossible, SchemaConflict, SchemaInvalid
from headwater.log import Log, Retention
from headwater.log.errors import NameInvalid, TopicExists

ORDERS = {"id": "int64", "customer": "string", "amount": "decimal(12,2)", "at": "timestamp"}


@dataclass
class Order:
    id: int
    customer: str


def test_a_topic_is_what_was_declared(log: Log) -> None:
    log.create("orders", ORDERS, partitions=3, key="customer", time="at", retention="7 days", codec="zstd")
    topic = log.topic("orders")
    assert topic.partitions == 3
    assert topic.key == ("customer",)
    assert topic.time == EventTime("at")
    assert topic.retention == Retention(seconds_max=7 * 86_400)
    assert topic.codec == "zstd"
    assert topic.schema.field("amount").type == pa.decimal128(12, 2)
    assert log.topics() == ["orders"]


def test_the_event_time_of_a_topic_keeps_its_settings_and_can_change_them(log: Log) -> None:
    log.create("orders", ORDERS, time=EventTime("at", delay="30 seconds", idle_timeout="1 minute", future_max=None))
    assert log.topic("orders").time == EventTime("at", delay=30, idle_timeout=60, future_max=None)
    assert log.alter("orders", time=EventTime("at", delay="5 minutes")).time == EventTime("at", delay=300)
    assert log.topic("orders").time == EventTime("at", delay=300)
    with pytest.raises(ArgumentInvalid, match="settings of column 'at'"):
        log.alter("orders", time="customer")
    log.create("plain", ORDERS)
    with pytest.raises(ArgumentInvalid, match="made without event time"):
        log.alter("plain", time="at")


def test_a_topic_may_take_its_schema_from_a_dataclass(log: Log) -> None:
    log.create("orders", Order)
    log.append("orders", Order(id=1, customer="ada"))
    row = log.read("orders").rows()[0]
    assert (row["id"], row["customer"]) == (1, "ada")


def test_a_topic_without_a_schema_holds_keys_and_values(log: Log) -> None:
    log.create("raw")
    log.append("raw", [(b"k", b"v"), (None, b"w")])
    assert [(row["key"], row["value"]) for row in log.read("raw").rows()] == [(b"k", b"v"), (None, b"w")]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../evil", "a/b", "/etc", ".hidden", "__mine", "a b", "a\0b", "ä", "x" * 201, "-x"]
)
def test_names_that_could_leave_the_folder_are_refused(log: Log, name: str) -> None:
    with pytest.raises(NameInvalid):
        log.create(name, ORDERS)
    with pytest.raises((NameInvalid, NotFound)):
        log.append(name, [])
    assert log.topics(internal=True) == []


def test_an_existing_topic_is_not_made_again(log: Log) -> None:
    made = log.create("orders", ORDERS)
    with pytest.raises(TopicExists):
        log.create("orders", ORDERS)
    assert log.create("orders", ORDERS, exist_ok=True).id == made.id
    with pytest.raises(TopicExists, match="another schema"):
        log.create("orders", {"id": "int32"}, exist_ok=True)


def test_an_unknown_topic_is_named_with_the_nearest_one(log: Log) -> None:
    log.create("orders", ORDERS)
    with pytest.raises(NotFound, match="Did you mean 'orders'"):
        log.read("order")


def test_topics_are_listed_by_pattern(log: Log) -> None:
    for name in ("shop.orders", "shop.items", "web"):
        log.create(name, {"id": "int64"})
    assert log.topics("shop.*") == ["shop.items", "shop.orders"]


@pytest.mark.parametrize(
    "bad",
    [
        {"partitions": 0},
        {"partitions": 100_000},
        {"key": "nope"},
        {"time": "id"},
        {"time": "nope"},
        {"compact": True},
        {"durability": "maybe"},
        {"codec": "rar"},
        {"retention": "soon"},
        {"retention": "0 seconds"},
        {"segment_bytes_max": 0},
    ],
)
def test_a_topic_that_cannot_work_is_refused(log: Log, bad: dict[str, object]) -> None:
    with pytest.raises((ArgumentInvalid, SchemaConflict)):
        log.create("orders", ORDERS, **bad)  # type: ignore[arg-type]
    assert log.topics() == []


@pytest.mark.parametrize("schema", [{}, {"_offset": "int64"}, {"a": "nonsense"}, 42])
def test_a_schema_that_means_nothing_is_refused(log: Log, schema: object) -> None:
    with pytest.raises(SchemaInvalid):
        log.create("orders", schema)


def test_rows_written_under_an_old_schema_are_read_under_the_new_one(log: Log) -> None:
    log.create("orders", {"id": "int32", "score": "float"})
    log.append("orders", [{"id": 1, "score": 0.5}])
    changed = log.alter("orders", schema={"id": "int64", "score": "double", "note": "string"})
    assert changed.schema_version == 2
    log.append("orders", [{"id": 2**40, "score": 1.5, "note": "new"}])
    rows = log.read("orders", columns=["id", "score", "note"]).rows()
    assert rows == [{"id": 1, "score": 0.5, "note": None}, {"id": 2**40, "score": 1.5, "note": "new"}]
    assert log.schema("orders", 1).field("id").type == pa.int32()


def test_a_rename_is_refused_and_a_removal_needs_force(log: Log) -> None:
    log.create("orders", {"id": "int64", "name": "string"})
    with pytest.raises(SchemaConflict):
        log.alter("orders", schema={"id": "int64", "title": "string"})
    with pytest.raises(SchemaConflict):
        log.alter("orders", schema={"id": "int64"})
    with pytest.raises(SchemaConflict):
        log.alter("orders", schema={"id": "int32", "name": "string"})
    log.append("orders", [{"id": 1, "name": "x"}])
    log.alter("orders", schema={"id": "int64"}, force=True)
    assert log.read("orders", columns=["id"]).rows() == [{"id": 1}]


def test_a_key_column_cannot_be_removed_even_by_force(log: Log) -> None:
    log.create("orders", {"id": "int64", "name": "string"}, key="id")
    with pytest.raises(SchemaConflict):
        log.alter("orders", schema={"name": "string"}, force=True)


def test_a_key_cannot_move_to_other_partitions_by_a_change_of_type(log: Log) -> None:
    log.create("orders", {"id": "int32", "name": "string"}, key="id", partitions=4)
    with pytest.raises(SchemaConflict, match="another partition"):
        log.alter("orders", schema={"id": "double", "name": "string"})
    log.alter("orders", schema={"id": "int64", "name": "string"})


def test_partitions_can_be_added_but_not_taken_away(log: Log) -> None:
    log.create("orders", {"id": "int64"}, partitions=2)
    log.append("orders", [{"id": 1}], partition=1)
    assert log.alter("orders", partitions=5).partitions == 5
    log.append("orders", [{"id": 2}], partition=4)
    assert log.read("orders").count() == 2
    with pytest.raises(ArgumentInvalid):
        log.alter("orders", partitions=1)


def test_settings_change_while_the_topic_is_in_use(log: Log) -> None:
    log.create("orders", {"id": "int64"})
    log.append("orders", [{"id": 1}])
    changed = log.alter("orders", retention=timedelta(days=1), codec="lz4")
    assert changed.retention.seconds_max == 86_400
    log.append("orders", [{"id": 2}])
    assert [row["id"] for row in log.read("orders").rows()] == [1, 2]


@pytest.mark.parametrize("name", ["__offsets", "__nothing"])
def test_topics_of_the_log_itself_stay(log: Log, name: str) -> None:
    log.create("orders", ORDERS)
    log.commit_offsets("g", "orders", {0: 0})
    with pytest.raises(NotPossible):
        log.delete(name)
    assert log.committed("g", "orders") == {0: 0}


def test_a_deleted_topic_is_gone_and_its_name_is_free(log: Log) -> None:
    log.create("orders", {"id": "int64"})
    log.append("orders", [{"id": 1}])
    log.delete("orders")
    with pytest.raises(NotFound):
        log.read("orders")
    log.create("orders", {"other": "string"})
    assert log.read("orders").count() == 0


def test_segments_can_be_archived(log: Log) -> None:
    log.create("orders", {"id": "int64"})
    assert log.alter("orders", archive=True).archive


def test_a_description_counts_rows(log: Log) -> None:
    log.create("orders", {"id": "int64"}, partitions=2)
    log.append("orders", [{"id": 1}, {"id": 2}], partition=0)
    described = log.describe("orders")
    assert described.rows == 2
    assert [part.offset_next for part in described.partitions] == [2, 0]


def test_a_description_counts_bytes_and_segments(log: Log) -> None:
    log.create("orders", {"id": "int64"})
    log.append("orders", [{"id": 1}])
    described = log.describe("orders")
    assert described.bytes > 0
    assert described.partitions[0].segments == 1
