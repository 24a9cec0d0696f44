"""One topic: what it is, one of its rows at an address of its own, rows written by hand, and its end."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

import headwater
from headwater.log import Log
from headwater.log.dead_letters import DeadLetter, append_dead_letters
from tests.conditions import until
from tests.console.conftest import WANTS_PICTURES, Served, Visit
from tests.console.shop import BIG, add_orders, make_orders
from tests.console.simulation import SimulatedConsole, simulated

JSON = "JSON: one object, an array of them, or one a line"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with headwater.open(tmp_path_factory.mktemp("shop") / "log") as log:
        assert isinstance(log, Log)
        make_shop(log)
        log.create("bytes")
        yield log


def make_shop(log: Log, name: str = "orders") -> None:
    make_orders(log, count=1_200, partitions=3, name=name)
    log.groups.seek(f"{name}.billing", name, {number: end // 2 for number, end in log.end_offsets(name).items()})
    letter = DeadLetter(topic=name, partition=0, offset=7, error="RowInvalid", message="no amount", at_us=5)
    append_dead_letters(log, name, [letter])


@pytest.fixture(scope="module")
def console(shop: Log) -> Iterator[SimulatedConsole]:
    with simulated(shop) as made:
        yield made


def test_a_topic_shows_its_partitions_its_readers_and_its_settings(shop: Log, console: SimulatedConsole) -> None:
    page = console.open("/topics/orders")
    behind = shop.describe("orders").rows - sum(shop.committed("orders.billing", "orders").values())
    page.sees_row("Groups that read this topic", f"orders.billing {behind:,}")
    for part in shop.describe("orders").partitions:
        page.sees_row("Partitions", f"Partition {part.partition} {part.offset_start} {part.offset_next}")
    page.sees_row("Columns", "at timestamp may be null event time")
    assert "<dt>Event time</dt><dd>at</dd>" in page.markup()


def test_it_grows_while_one_looks(shop: Log, console: SimulatedConsole) -> None:
    make_orders(shop, count=3, name="young")
    page = console.open("/topics/young").sees("3 kept for ever", within="Rows")
    add_orders(shop, range(3, 5), name="young")
    page.later().sees("5 kept for ever", within="Rows")


def test_a_row_has_an_address_with_its_neighbours(shop: Log, console: SimulatedConsole) -> None:
    make_orders(shop, count=3, name="few")
    page = console.open("/topics/few/0/0").sees(f'"order_id": {BIG}')
    assert not page.is_enabled("The row before")
    page.press("The row after").sees(f'"order_id": {BIG + 1}')
    assert page.address == "/topics/few/0/1"
    page.open("/topics/few/0/3").sees("The next row of this partition will get offset 3.")
    page.open("/topics/few/0/x").sees("ArgumentInvalid", "whole number")
    page.open("/topics/few/7/0").sees("There is no partition 'few/7'")


def test_a_dead_letter_leads_to_the_row_that_it_was(console: SimulatedConsole) -> None:
    page = console.open("/topics/orders.dlq/0/0").sees("no amount")
    assert page.links()["orders, partition 0, offset 7"] == "/console/topics/orders/0/7"


def test_a_row_is_written_by_hand_and_checked(shop: Log, console: SimulatedConsole) -> None:
    make_orders(shop, count=1, name="written")
    page = console.open("/topics/written/produce")
    assert '"order_id": 0' in page.value(JSON)
    page.press("From the newest row")
    until(lambda: str(BIG) in page.value(JSON), "the newest row is there")
    page.write(JSON, '{"order_id": "many"}').press("Append").sees("order_id", "many")
    page.write(JSON, f'{{"order_id": {BIG + 77}, "customer": "new"}}').write("Headers, one a line", "trace: 4f2a")
    page.press("Append").sees("Append 1 row to written?").press("Cancel").sees_not("Append 1 row to written?")
    assert shop.describe("written").rows == 1
    page.press("Append").sees("Append 1 row to written?").press("Append 1 row").sees("Appended 1 row")
    page.open(page.links()["partition 0, offset 1"].removeprefix("/console")).sees(f'"order_id": {BIG + 77}')
    [row] = shop.read("written", start=1).rows()
    assert row["order_id"] == BIG + 77
    assert row["_headers"] == {"trace": b"4f2a"}


def test_bytes_are_written_by_hand(shop: Log, console: SimulatedConsole) -> None:
    page = console.open("/topics/bytes/produce").write("Key", "k").write("Value", "hello")
    page.press("Append").sees("Append 1 row to bytes?").press("Append 1 row").sees("Appended 1 row")
    assert [(row["key"], row["value"]) for row in shop.read("bytes").rows()] == [(b"k", b"hello")]


def test_a_topic_is_made_and_what_is_wrong_is_said_before(shop: Log, console: SimulatedConsole) -> None:
    page = console.open("/topics").press("New topic").write("Name", "made here").press("Create").sees("'made here'")
    page.write("Name", "made.here").write("Columns", "id long, at timestamp").write("Key columns", "id")
    page.write("Partitions", "4").sees("--partitions 4").press("Create")
    until(lambda: page.address == "/topics/made.here", "the page of the topic is opened")
    page.sees("made.here\ninput · 4 partitions")
    assert (shop.topic("made.here").partitions, shop.topic("made.here").key) == (4, ("id",))


def test_a_topic_is_deleted_only_by_its_name(shop: Log, console: SimulatedConsole) -> None:
    make_orders(shop, count=2, name="old")
    page = console.open("/topics/old").press("Delete").sees("2 rows,")
    page.write("Write old to confirm", "older").press("Delete").hears("Nothing was deleted")
    page.sees_not("2 rows,").press("Delete").sees("2 rows,").write("Write old to confirm", "old").press("Delete")
    until(lambda: page.address == "/topics", "the list is opened")
    assert "old" not in shop.topics()


def test_hostile_texts_are_only_texts(shop: Log, console: SimulatedConsole) -> None:
    shop.create("hostile", "note string", key="note")
    bad = "<img src=x onerror=alert(1)>"
    shop.append("hostile", [{"note": bad}], headers={bad: bad.encode()})
    for path in ("/0/0", "/browse", "/search?q=img"):
        page = console.open(f"/topics/hostile{path}").sees("onerror=alert(1)")
        assert "<img" not in page.markup()


# -- in a browser -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dark", [False, True])
def test_a_topic_and_its_rows_in_light_and_dark(dark: bool, shared: Served, prefix: str, visit: Visit) -> None:
    log, name, look = shared.log, f"{prefix}orders", "dark" if dark else "light"
    make_shop(log, name)
    visitor = visit(shared.address, dark=dark)
    page = visitor.open(f"/topics/{name}")
    for count in (140, 210, 90, 260) if WANTS_PICTURES else (140,):  # a line has several points
        add_orders(log, range(count), name=name)
        rows = page.get_by_role("group", name="Rows", exact=True)
        expect(rows).to_contain_text(f"{log.describe(name).rows:,}")
    visitor.picture(f"topic-{look}")
    page = visitor.open(f"/topics/{name}.dlq/0/0" if dark else f"/topics/{name}/0/1")
    expect(page.get_by_label("Value", exact=True)).to_contain_text("no amount" if dark else '"order_id"')
    visitor.picture(f"record-{look}")


def test_a_form_has_its_labels_above_and_hostile_texts_stay_texts(shared: Served, prefix: str, visit: Visit) -> None:
    log, name, bad = shared.log, f"{prefix}hostile", "<img src=x onerror=alert(1)>"
    log.create(name, "note string", key="note")
    log.append(name, [{"note": bad}], headers={bad: bad.encode()})
    visitor = visit(shared.address)
    for path in ("/0/0", "/browse", "/tail", "/search?q=img"):
        page = visitor.open(f"/topics/{name}{path}")
        expect(page.get_by_text("onerror=alert(1)").locator("visible=true").first).to_be_visible()
        assert page.locator("img").count() == 0
    page = visitor.open(f"/topics/{name}/produce")
    expect(page.get_by_label(re.compile("^JSON"))).to_have_value(re.compile('"note"'))
    visitor.picture("produce-light")
    page = visitor.open("/topics")
    page.get_by_role("button", name="New topic").click()
    label = page.get_by_role("dialog").get_by_text("Key columns", exact=True)
    expect(label).to_have_css("font-size", "12px")
    above, box = label.bounding_box(), page.get_by_label(re.compile("^Key columns")).bounding_box()
    assert above is not None
    assert box is not None
    assert above["y"] + above["height"] <= box["y"], "a label stands above its box, also while the box is empty"
    page.get_by_label("Name", exact=True).fill("made.here")
    expect(page.get_by_label("The same in a terminal")).to_contain_text("made.here")
    visitor.picture("create-topic-light")
