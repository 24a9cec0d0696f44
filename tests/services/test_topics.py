"""Topics: listed, created, described, altered, deleted; the same in this process and over HTTP."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from headwater.errors import ArgumentInvalid, NotFound, NotPossible, SchemaConflict
from headwater.log import Log, Retention
from headwater.log.errors import NameInvalid, TopicExists
from headwater.schema import parse_schema
from headwater.services import Services
from headwater.services.callers import ScopeMissing
from headwater.services.topics import TopicChanges, TopicSettings
from tests.services.conftest import Audited, ServicesOf

SCHEMA = parse_schema("id int64 not null, user string, at timestamp, price decimal(12,2)")


def test_a_topic_is_created_as_it_is_declared(services: Services, log: Log) -> None:
    settings = TopicSettings(
        partitions=2, key=["user"], time="at", retention="7 days", compact=True, durability="os", codec="lz4",
        segment_bytes_max="1 MiB", segment_seconds_max="1 hour", tombstone_seconds_max=60, archive=True,
    )  # fmt: skip
    made = services.topics.create("orders", SCHEMA, settings)
    assert made == log.topic("orders") == services.topics.get("orders")
    assert (made.schema, made.key, made.retention) == (SCHEMA, ("user",), Retention(seconds_max=604_800.0))
    with pytest.raises(TopicExists):
        services.topics.create("orders", SCHEMA)
    assert services.topics.create("orders", SCHEMA, settings, exist_ok=True) == made
    plain = services.topics.create("plain", settings=TopicSettings(retention=Retention(bytes_max=10_000)))
    assert (plain.schemaless, plain.retention.bytes_max) == (True, 10_000)


def test_a_declaration_that_makes_no_sense_makes_no_topic(services: Services) -> None:
    for settings in (
        TopicSettings(partitions=0),
        TopicSettings(codec="rar"),  # type: ignore[arg-type]
        TopicSettings(retention="soon"),
        TopicSettings(compact=True),
    ):
        with pytest.raises(ArgumentInvalid):
            services.topics.create("orders", SCHEMA, settings)
    with pytest.raises(NameInvalid):
        services.topics.create("../orders")
    assert services.topics.names() == []


def test_topics_are_listed_a_page_at_a_time_as_far_as_the_caller_sees_them(services_of: ServicesOf, log: Log) -> None:
    for name in ("a1", "a2", "a3", "b1"):
        log.create(name, "id int64")
    reader = services_of("read:a*").topics
    assert reader.names() == ["a1", "a2", "a3"]
    assert reader.names("*2") == ["a2"]
    first = reader.page(limit=2)
    assert (first.topics, first.next) == (["a1", "a2"], "a2")
    last = reader.page(limit=2, after="a2")
    assert (last.topics, last.next) == (["a3"], None)
    assert "__offsets" not in reader.names(internal=True)
    for limit in (0, 1_001):
        with pytest.raises(ArgumentInvalid):
            reader.page(limit=limit)


def test_a_topic_is_described_to_those_who_see_it(services_of: ServicesOf, log: Log) -> None:
    log.create("orders", "id int64", partitions=2)
    log.append("orders", [{"id": 1}, {"id": 2}], partition=1)
    found = services_of("write:orders").topics.describe("orders")
    assert found == log.describe("orders")
    assert (found.rows, found.partitions[1].offset_next) == (2, 2)
    with pytest.raises(ScopeMissing):
        services_of("read:cards").topics.describe("orders")
    with pytest.raises(ScopeMissing):
        services_of("read:cards").topics.get("orders")
    with pytest.raises(NotFound):
        services_of().topics.describe("order")


def test_an_alteration_says_what_changed(services: Services, log: Log) -> None:
    log.create("orders", "id int64, user string")
    wider = parse_schema("id int64, user string, note string")
    changes = TopicChanges(partitions=3, retention="7 days")
    tried = services.topics.alter("orders", TopicChanges(partitions=3), schema=wider, dry_run=True)
    assert tried.changes == ["partitions: 1 → 3", "note: added as string"]
    assert tried.topic == log.topic("orders")
    done = services.topics.alter("orders", changes, schema=wider)
    assert done.changes == [
        "partitions: 1 → 3",
        "schema_version: 1 → 2",
        "retention_seconds_max: None → 604800.0",
        "note: added as string",
    ]
    assert done.topic == log.topic("orders")
    assert services.topics.alter("orders", changes, schema=wider).changes == []
    assert services.topics.schema("orders", 1).names == ["id", "user"]
    for dry_run in (True, False):
        with pytest.raises(SchemaConflict):
            services.topics.alter("orders", schema=pa.schema([("id", pa.int64())]), dry_run=dry_run)
    services.topics.alter("orders", schema=pa.schema([("id", pa.int64())]), force=True)
    assert services.topics.get("orders").schema.names == ["id"]


def test_changes_need_the_scope_admin_and_are_audited(services_of: ServicesOf, log: Log, audited: Audited) -> None:
    log.create("orders", "id int64")
    writer, admin = services_of("write:*").topics, services_of("admin:orders*").topics
    with pytest.raises(ScopeMissing):
        writer.create("orders.eu")
    with pytest.raises(ScopeMissing):
        writer.alter("orders", TopicChanges(partitions=2))
    with pytest.raises(ScopeMissing):
        writer.delete("orders")
    admin.create("orders.eu")
    admin.alter("orders", TopicChanges(partitions=2))
    admin.alter("orders", TopicChanges(partitions=3), dry_run=True)
    admin.delete("orders")
    assert [tuple(row.values()) for row in audited()] == [
        ("topics.create", "name=orders.eu", 403),
        ("topics.alter", "orders", 403),
        ("topics.delete", "orders", 403),
        ("topics.create", "name=orders.eu", 200),
        ("topics.alter", "orders", 200),
        ("topics.delete", "orders", 200),
    ]
    assert log.topics() == ["orders.eu"]


def test_topics_of_the_log_itself_are_not_deleted(services: Services) -> None:
    with pytest.raises(NotPossible):
        services.topics.delete("__offsets")


def test_offsets_are_told_to_those_who_see_the_topic(services_of: ServicesOf, log: Log) -> None:
    log.create("orders", "id int64", partitions=2, retention="7 days")
    log.append("orders", [{"id": 1}, {"id": 2}], partition=1)
    reader = services_of("read:orders").topics
    assert reader.start_offsets("orders") == {0: 0, 1: 0}
    assert reader.end_offsets("orders") == {0: 0, 1: 2}
    assert reader.offset_at("orders", "2020-01-01T00:00:00Z") == {0: 0, 1: 0}
    later = log.clock.now_us() + 1_000_000
    assert reader.offset_at("orders", str(later)) == {0: 0, 1: 2}
    assert reader.offset_at("orders", datetime.fromtimestamp(later / 1e6, UTC).isoformat()) == {0: 0, 1: 2}
    assert reader.offset_at("orders", "-1") == {0: 0, 1: 0}
    expiry = reader.expiry("orders", 1, 0)
    assert (expiry.offset_next, expiry.oldest, round(expiry.seconds or 0, -2)) == (2, True, 604_800)
    for wrong in (lambda: reader.offset_at("orders", "soon"), lambda: reader.expiry("orders", -1, 0)):
        with pytest.raises(ArgumentInvalid):
            wrong()
    log.commit_offsets("billing", "orders", {0: 0})
    assert sum(reader.end_offsets("__offsets").values()) == 1  # consumers wait for commits, whatever they read
    for refused in (reader.start_offsets, reader.end_offsets):
        with pytest.raises(ScopeMissing):
            refused("cards")
