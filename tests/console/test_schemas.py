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
from headwater.console.schemas.draft import FORCE_HELP
from headwater.console.schemas.page import column_diffs
from headwater.log import Log
from headwater.services.schema_registry import SchemaRegistry
from tests.console.conftest import Served, Visit
from tests.console.page_state import expect_to_fit
from tests.console.simulation import SimulatedConsole, simulated

DRAFT = "Columns, as `name type [not null]`, or JSON"


def make_payments(log: Log, name: str = "payments") -> None:
    log.create(name, "card string not null, amount int32", key="card")
    log.alter(name, schema="card string not null, amount int64, currency string")
    wide = "card string not null, amount int64, currency string, address struct<city: string, zip: int32>"
    log.alter(name, schema=wide)
    log.alter(name, schema=wide.replace("int32", "int64") + ", tags list<string>")
    log.groups.seek(f"{name}.billing", name, "earliest")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with headwater.open(tmp_path_factory.mktemp("schemas") / "log") as log:
        assert isinstance(log, Log)
        make_payments(log)
        log.create("raw")
        yield log


@pytest.fixture(scope="module")
def console(shop: Log) -> Iterator[SimulatedConsole]:
    with simulated(shop) as made:
        yield made


def record(*fields: object) -> str:
    return json.dumps({"type": "record", "name": "Payment", "fields": list(fields)})


def test_versions_stand_side_by_side_and_users_are_named(console: SimulatedConsole) -> None:
    page, lines = console.open("/schemas"), "Columns of both versions"
    page.sees_row("Schemas", "payments topic 4 5 card, amount")
    page.sees_row("Schemas", "raw topic 1 bytes any key and any value")
    page.open("/schemas/payments").sees_row(lines, "tags list<string> added")
    page.sees_row(lines, "address.zip int32 int64 widened")
    page.sees_row(lines, "card string not null string not null same")
    page.sees_row("Users", "payments.billing group")
    page.open("/schemas/payments?old=1&new=2").sees_row(lines, "amount int32 int64 widened")
    page.sees_row(lines, "currency string added")
    assert not any(row.startswith("tags") for row in page.rows(lines))


def test_a_draft_is_tried_as_it_is_written_and_registered_after_a_question(
    shop: Log, console: SimulatedConsole
) -> None:
    shop.create("orders", "id int64 not null, note string", key="id")
    page = console.open("/schemas/orders")
    assert page.value(DRAFT) == "id int64 not null,\nnote string"
    page.write(DRAFT, "id string, amount float64").sees("It may not follow", "would change from int64 to string")
    assert not page.is_enabled("Register")
    page.write(DRAFT, "id int64 not null, <script>").sees("cannot be used")
    page.write(DRAFT, "id int64 not null, note string, amount float64").sees("+ amount: added as float64")
    page.press("Register").sees("Register a new version of orders?")
    assert shop.topic("orders").schema_version == 1
    page.press("Register it").sees_row("Columns of both versions", "amount float64 added")
    assert shop.topic("orders").schema.names == ["id", "note", "amount"]
    page.write(DRAFT, "id int64 not null, amount float64").sees("was removed, and rows hold values there")
    page.press(FORCE_HELP).sees("It may follow")
    audit = [row["target"] for row in shop.read("__audit").rows() if row["action"] == "schemas.register"]
    assert audit == ["orders kind=topic"]


def test_a_subject_follows_its_own_level(shop: Log, console: SimulatedConsole) -> None:
    registry, amount = SchemaRegistry(shop), {"name": "amount", "type": "int"}
    registry.register("payments-value", record(amount), lambda _: None)
    page = console.open("/schemas/payments-value").sees("BACKWARD: readers of the new schema")
    page.write("Avro schema", record(amount, {"name": "who", "type": "string"}))
    page.sees("is new, and has neither a default nor admits null")
    page.write("Avro schema", record(amount, {"name": "who", "type": ["null", "string"], "default": None}))
    page.sees("It may follow").press("Register").press("Register it")
    page.sees_row("Columns of both versions", "who string added")
    assert list(registry.versions("payments-value")) == [1, 2]


def test_a_schema_that_is_not_there_is_told(console: SimulatedConsole) -> None:
    console.open("/schemas/nowhere").sees("There is no topic 'nowhere'")


# -- in a browser -----------------------------------------------------------------------------------------------------


def test_schemas_in_light_dark_and_on_a_phone(shared: Served, prefix: str, visit: Visit) -> None:
    payments = f"{prefix}payments"
    make_payments(shared.log, payments)
    SchemaRegistry(shared.log).register(f"{payments}-value", record({"name": "amount", "type": "int"}), lambda _: None)
    visitor = visit(shared.address)
    page = visitor.open(f"/schemas/{payments}")
    page.locator("textarea").fill(f"{page.locator('textarea').input_value()},\nnote string")
    expect(page.get_by_role("status", name="Verdict")).to_contain_text("+ note: added as string")
    visitor.picture("schemas-light", full=True)
    dark = visit(shared.address, dark=True)
    page = dark.open(f"/schemas/{payments}-value")
    new = {"name": "who", "type": ["null", "string"], "default": None}
    page.locator("textarea").fill(record({"name": "amount", "type": "int"}, new))
    expect(page.get_by_role("status", name="Verdict")).to_contain_text("It may follow")
    dark.picture("schemas-dark", full=True)
    phone = visit(shared.address, phone=True).open(f"/schemas/{payments}")
    expect(phone.get_by_role("row", name=re.compile("^tags"))).to_be_visible()
    expect_to_fit(phone)


# -- what is decided, without a browser -------------------------------------------------------------------------------

_TYPES = st.sampled_from([pa.int32(), pa.int64(), pa.string(), pa.float64(), pa.struct([("city", pa.string())])])
_COLUMNS = st.dictionaries(st.sampled_from("abcde"), st.tuples(_TYPES, st.booleans()), min_size=1, max_size=4)


def schema(columns: dict[str, tuple[pa.DataType, bool]]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, nullable=nullable) for name, (kind, nullable) in columns.items()])


@given(old=_COLUMNS, new=_COLUMNS)
def test_every_column_of_both_versions_has_one_line(
    old: dict[str, tuple[pa.DataType, bool]], new: dict[str, tuple[pa.DataType, bool]]
) -> None:
    lines = {column.name: column for column in column_diffs(schema(old), schema(new)) if column.name in {*old, *new}}
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
