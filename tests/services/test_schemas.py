"""Schemas: versions, drafts that are checked before they are registered; the same in this process and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import headwater
from headwater.clock import ManualClock
from headwater.errors import ArgumentInvalid, HeadwaterError, NotFound, SchemaInvalid
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.embedded import local_log
from headwater.log.errors import NameInvalid
from headwater.schema import format_schema
from headwater.services import Services, Settings, local
from headwater.services.callers import ScopeMissing
from headwater.services.host import Host
from headwater.services.schema_registry import SCHEMAS_TOPIC, SchemaRegistry
from headwater.services.schemas import Draft, SchemaIncompatible, SchemaName, Schemas, schema_of_text
from tests.services.conftest import Audited, ServicesOf


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": list(fields)})


AMOUNT = {"name": "amount", "type": "int"}
WHO = {"name": "who", "type": ["null", "string"], "default": None}
FIRST, SECOND = record(AMOUNT), record(AMOUNT, WHO)


@pytest.fixture
def log(log: Log) -> Log:
    """A topic with two versions of its schema, and a subject of it."""
    log.create("orders", "id int64 not null, note string", key="id")
    log.alter("orders", schema="id int64 not null, note string, amount int32")
    SchemaRegistry(log).register("orders-value", FIRST, lambda _: None)
    return log


def test_schemas_are_listed_as_far_as_the_caller_sees_their_topics(services_of: ServicesOf, log: Log) -> None:
    log.create("secret")
    orders = [
        SchemaName(name="orders", kind="topic", topic="orders"),
        SchemaName(name="orders-value", kind="subject", topic="orders"),
    ]
    assert services_of("read:orders").schemas.list_schemas() == orders
    assert services_of().schemas.list_schemas() == [*orders, SchemaName(name="secret", kind="topic", topic="secret")]


def test_a_schema_is_described_with_its_versions(services: Services, log: Log) -> None:
    topic, subject = services.schemas.describe("orders"), services.schemas.describe("orders-value")
    assert (topic.kind, topic.versions, topic.action, topic.level) == ("topic", [1, 2], "admin", "")
    assert (subject.kind, subject.topic, subject.versions, subject.action) == ("subject", "orders", [1], "write")
    assert subject.rule.startswith("BACKWARD: readers of the new schema")
    first = services.schemas.version("orders", 1)
    assert (first.columns.names, first.text, first.id) == (["id", "note"], "id int64 not null,\nnote string", None)
    avro = services.schemas.version("orders-value", 1)
    assert (avro.columns.names, json.loads(avro.text), avro.id) == (["amount"], json.loads(FIRST), 1)
    for name, version in (("orders", 9), ("orders-value", 9)):
        with pytest.raises(ArgumentInvalid):
            services.schemas.version(name, version)
    log.create("orders-value")  # a topic has the name before the subject
    assert services.schemas.describe("orders-value").kind == "topic"
    assert services.schemas.describe("orders-value", kind="subject").kind == "subject"


def test_what_the_caller_may_not_see_is_not_described(services_of: ServicesOf) -> None:
    for name in ("orders", "orders-value", "nowhere"):
        with pytest.raises(ScopeMissing):
            services_of("read:cards").schemas.describe(name)
    for kind in (None, "topic", "subject"):
        with pytest.raises(NotFound):
            services_of().schemas.describe("nowhere", kind=kind)


def test_a_draft_is_checked_and_registered(services: Services, log: Log, audited: Audited) -> None:
    schemas = services.schemas
    wider = Draft(schema="id int64 not null, note string, amount int64")
    verdict = schemas.check("orders", wider)
    assert (verdict.fits, [str(one) for one in verdict.changes]) == (True, ["amount: widened from int32 to int64"])
    refused = schemas.check("orders", Draft(schema="id string not null, note string, amount int32")).refused
    assert "would change from int64 to string" in refused[0]
    assert not schemas.check("orders", Draft(schema="id int64 not null")).fits
    assert schemas.check("orders", Draft(schema="id int64 not null", force=True)).fits
    assert log.topic("orders").schema_version == 2
    assert schemas.register("orders", wider).version == 3
    assert audited() == [{"action": "schemas.register", "target": "orders", "status": 200}]


def test_a_subject_follows_its_level(services: Services, log: Log) -> None:
    schemas = services.schemas
    assert schemas.check("orders-value", Draft(schema=SECOND)).fits
    strict = Draft(schema=record(AMOUNT, {"name": "who", "type": "string"}))
    assert "neither a default nor admits null" in schemas.check("orders-value", strict).refused[0]
    with pytest.raises(SchemaIncompatible, match="neither a default nor admits null"):
        schemas.register("orders-value", strict)
    made = schemas.register("orders-value", Draft(schema=SECOND))
    assert (made.version, made.id, made.columns.names) == (2, 2, ["amount", "who"])
    assert schemas.register("orders-value", Draft(schema=SECOND)).version == 2
    assert schemas.register("fresh-value", Draft(schema=FIRST), kind="subject").id == 1
    assert SchemaRegistry(log).subjects() == ["fresh-value", "orders-value"]
    with pytest.raises(SchemaInvalid):
        schemas.register("orders-value", Draft(schema="{"))
    with pytest.raises(NameInvalid):
        schemas.register("*", Draft(schema=FIRST), kind="subject")


def test_registering_needs_admin_on_a_topic_and_write_for_a_subject(services_of: ServicesOf, audited: Audited) -> None:
    writer = services_of("write:orders").schemas
    with pytest.raises(ScopeMissing, match="admin:orders"):
        writer.register("orders", Draft(schema="id int64 not null, note string, amount int64"))
    assert writer.register("orders-value", Draft(schema=SECOND)).version == 2
    with pytest.raises(ScopeMissing, match="write:orders"):
        services_of("read:orders").schemas.register("orders-value", Draft(schema=FIRST))
    assert [tuple(row.values()) for row in audited()] == [
        ("schemas.register", "orders", 403),
        ("schemas.register", "orders-value", 200),
        ("schemas.register", "orders-value", 403),
    ]


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "id", "id nonsense", '{"type": "record"}', '{"columns": 3}'])
def test_what_is_no_schema_is_refused_in_one_sentence(small: Schemas, text: str) -> None:
    small.log.create("one", "id int64", exist_ok=True)
    assert not small.check("one", Draft(schema=text)).fits
    with pytest.raises(SchemaInvalid):
        schema_of_text(text)


def test_what_was_deleted_last_may_be_compacted_away(tmp_path: Path) -> None:
    clock = ManualClock()
    with open_log(tmp_path / "compacted", clock=clock) as log:
        before = SchemaRegistry(log)
        before.set_level("orders-value", "NONE")
        before.set_level("orders-value", None)
        clock.advance(seconds=3 * 24 * 3600)
        local_log(log).maintain(SCHEMAS_TOPIC, seal=True)
        assert log.read(SCHEMAS_TOPIC).count() == 0
        after = SchemaRegistry(log)
        after.set_level("orders-value", "FULL")
        assert after.level("orders-value") == after.level_in_force("orders-value") == "FULL"


# -- a law ------------------------------------------------------------------------------------------------------------

_TYPES = st.sampled_from([pa.int32(), pa.int64(), pa.string(), pa.float64(), pa.struct([("city", pa.string())])])
_COLUMNS = st.dictionaries(st.sampled_from("abcde"), st.tuples(_TYPES, st.booleans()), min_size=1, max_size=4)
_made = iter(range(1_000_000))


def schema(columns: dict[str, tuple[pa.DataType, bool]]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=nullable) for name, (kind, nullable) in columns.items()])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Schemas]:
    with headwater.open(tmp_path_factory.mktemp("drafts") / "log") as log:
        assert isinstance(log, Log)
        yield local(Host(log=log, settings=Settings())).schemas


@given(old=_COLUMNS, new=_COLUMNS, force=st.booleans())
def test_the_verdict_says_what_the_log_then_does(
    small: Schemas,
    old: dict[str, tuple[pa.DataType, bool]],
    new: dict[str, tuple[pa.DataType, bool]],
    force: bool,
) -> None:
    name = f"t{next(_made)}"
    key = next((one for one, (kind, _) in old.items() if kind in (pa.int64(), pa.string())), None)
    small.log.create(name, schema(old), key=key, durability="memory")
    draft = Draft(schema=format_schema(schema(new)), force=force)
    verdict = small.check(name, draft)
    try:
        made = small.register(name, draft)
    except HeadwaterError:
        assert not verdict.fits
        assert small.log.topic(name).schema_version == 1
    else:
        assert verdict.fits
        assert made.version == (2 if verdict.changes else 1)
        assert schema_of_text(made.text).equals(small.log.topic(name).schema)
