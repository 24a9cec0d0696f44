"""Schemas: versions side by side, a draft that is tried before it is registered, for topics and for subjects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

import headwater
from headwater.console.schemas import TopicSchemas, lines_between, schema_of
from headwater.errors import HeadwaterError, SchemaInvalid
from headwater.log import EmbeddedLog
from headwater.schema import format_schema
from headwater.server.registered import Registry
from tests.console.conftest import Visit, serving


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedLog]:
    with headwater.open(tmp_path_factory.mktemp("schemas") / "log") as log:
        assert isinstance(log, EmbeddedLog)
        log.create("payments", "card string not null, amount int32", key="card")
        log.alter("payments", schema="card string not null, amount int64, currency string")
        wide = "card string not null, amount int64, currency string, address struct<city: string, zip: int32>"
        log.alter("payments", schema=wide)
        log.alter("payments", schema=wide.replace("int32", "int64") + ", tags list<string>")
        log.groups.seek("billing", "payments", "earliest")
        log.create("raw")
        yield log


@pytest.fixture(scope="module")
def served_shop(shop: EmbeddedLog) -> Iterator[str]:
    with serving(shop.path) as address:
        yield address


def record(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "Payment", "fields": list(fields)})


def test_versions_stand_side_by_side_and_users_are_named(served_shop: str, visit: Visit) -> None:
    visitor = visit(served_shop)
    page = visitor.open("/schemas")
    expect(page.get_by_role("row", name=re.compile("^payments topic 4 5 card, amount"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^raw topic 1 bytes any key and any value"))).to_be_visible()
    page.get_by_role("link", name="payments", exact=True).first.click()
    expect(page.get_by_role("row", name=re.compile("^tags list<string> added"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^address.zip int32 int64 widened"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^card string not null string not null same"))).to_be_visible()
    expect(page.get_by_role("region", name="Users")).to_contain_text("billing")
    page.locator("textarea").fill(f"{page.locator('textarea').input_value()},\nnote string")
    expect(page.get_by_role("status", name="Verdict")).to_contain_text("+ note: added as string")
    visitor.picture("schemas-light", full=True)
    visitor.open("/schemas/payments?old=1&new=2")
    expect(page.get_by_role("row", name=re.compile("^amount int32 int64 widened"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^currency string added"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^tags"))).to_have_count(0)


def test_a_draft_is_tried_as_it_is_written_and_registered_after_a_question(
    shop: EmbeddedLog, served_shop: str, visit: Visit
) -> None:
    shop.create("orders", "id int64 not null, note string", key="id")
    visitor = visit(served_shop)
    page = visitor.open("/schemas/orders")
    box, verdict = page.locator("textarea"), page.get_by_role("status", name="Verdict")
    expect(box).to_have_value("id int64 not null,\nnote string")
    box.fill("id string, amount float64")
    expect(verdict).to_contain_text("It may not follow")
    expect(verdict).to_contain_text("would change from int64 to string")
    expect(page.get_by_role("button", name="Register")).to_be_disabled()
    box.fill("id int64 not null, <script>")
    expect(verdict).to_contain_text("cannot be used")
    box.fill("id int64 not null, note string, amount float64")
    expect(verdict).to_contain_text("+ amount: added as float64")
    page.get_by_role("button", name="Register").click()
    question = page.get_by_role("dialog", name="Register a new version of orders?")
    assert shop.topic("orders").schema_version == 1
    question.get_by_role("button", name="Register it").click()
    expect(page.get_by_role("row", name=re.compile("^amount float64 added"))).to_be_visible()
    assert shop.topic("orders").schema.names == ["id", "note", "amount"]
    box.fill("id int64 not null, amount float64")
    expect(verdict).to_contain_text("was removed, and rows hold values there")
    page.get_by_text("Columns may go").click()
    expect(verdict).to_contain_text("It may follow")
    audit = [row["target"] for row in shop.read("__audit").rows() if row["action"] == "schema.register"]
    assert audit == ["topic orders version 2"]


def test_a_subject_follows_its_own_level(shop: EmbeddedLog, served_shop: str, visit: Visit) -> None:
    registry = Registry(shop)
    amount = {"name": "amount", "type": "int"}
    registry.register("payments-value", record(amount), lambda _: None)
    page_of = visit(served_shop, dark=True)
    page = page_of.open("/schemas/payments-value")
    expect(page.get_by_text("BACKWARD: whoever knows the new schema")).to_be_visible()
    box, verdict = page.locator("textarea"), page.get_by_role("status", name="Verdict")
    box.fill(record(amount, {"name": "who", "type": "string"}))
    expect(verdict).to_contain_text("is new, and has neither a default nor admits null")
    box.fill(record(amount, {"name": "who", "type": ["null", "string"], "default": None}))
    expect(verdict).to_contain_text("It may follow")
    page_of.picture("schemas-dark", full=True)
    page.get_by_role("button", name="Register").click()
    page.get_by_role("button", name="Register it").click()
    expect(page.get_by_role("row", name=re.compile("^who string added"))).to_be_visible()
    assert list(registry.versions("payments-value")) == [1, 2]


def test_what_is_not_there_is_told_and_the_page_fits_a_phone(served_shop: str, visit: Visit) -> None:
    expect(visit(served_shop).open("/schemas/nowhere").get_by_role("alert")).to_contain_text("nowhere")
    phone = visit(served_shop, phone=True).open("/schemas/payments")
    expect(phone.get_by_role("row", name=re.compile("^tags"))).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


# -- what is decided, without a browser -------------------------------------------------------------------------------

_TYPES = st.sampled_from([pa.int32(), pa.int64(), pa.string(), pa.float64(), pa.struct([("city", pa.string())])])
_COLUMNS = st.dictionaries(st.sampled_from("abcde"), st.tuples(_TYPES, st.booleans()), min_size=1, max_size=4)
_made = iter(range(1_000_000))


def schema(columns: dict[str, tuple[pa.DataType, bool]]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=nullable) for name, (kind, nullable) in columns.items()])


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedLog]:
    with headwater.open(tmp_path_factory.mktemp("drafts") / "log") as log:
        assert isinstance(log, EmbeddedLog)
        yield log


@given(old=_COLUMNS, new=_COLUMNS, force=st.booleans())
def test_the_verdict_says_what_the_log_then_does(
    small: EmbeddedLog,
    old: dict[str, tuple[pa.DataType, bool]],
    new: dict[str, tuple[pa.DataType, bool]],
    force: bool,
) -> None:
    name = f"t{next(_made)}"
    key = next((one for one, (kind, _) in old.items() if kind in (pa.int64(), pa.string())), None)
    small.create(name, schema(old), key=key, durability="memory")
    schemas, draft = TopicSchemas(small, name), format_schema(schema(new))
    verdict = schemas.check(draft, force=force)
    try:
        version = schemas.register(draft, force=force)
    except HeadwaterError:
        assert not verdict.fits
        assert small.topic(name).schema_version == 1
    else:
        assert verdict.fits
        assert version == (2 if verdict.changes else 1)
        assert schema_of(schemas.text(version)).equals(small.topic(name).schema)


@given(old=_COLUMNS, new=_COLUMNS)
def test_every_column_of_both_versions_has_one_line(
    old: dict[str, tuple[pa.DataType, bool]], new: dict[str, tuple[pa.DataType, bool]]
) -> None:
    lines = {one.column: one for one in lines_between(schema(old), schema(new)) if one.column in {*old, *new}}
    assert set(lines) == {*old, *new}
    for name, line in lines.items():
        assert (line.old == "") == (name not in old)
        assert (line.new == "") == (name not in new)
        if name not in old:
            assert line.change == "added"
        elif name not in new:
            assert line.change == "removed"
        elif old[name] == new[name]:
            assert line.change in ("", "moved")
        else:
            assert line.change


@pytest.mark.parametrize("text", ["", "{", "{}", "[]", "id", "id nonsense", '{"type": "record"}', '{"columns": 3}'])
def test_what_is_no_schema_is_refused_in_one_sentence(small: EmbeddedLog, text: str) -> None:
    small.create("one", "id int64", exist_ok=True)
    verdict = TopicSchemas(small, "one").check(text, force=False)
    assert not verdict.fits
    with pytest.raises(SchemaInvalid):
        schema_of(text)
