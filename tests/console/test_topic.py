"""One topic: what it is, one of its rows at an address of its own, rows written by hand, and its end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

import headwater
from headwater.log import EmbeddedLog
from headwater.log.deadletters import DeadLetter, append_dead_letters
from tests.console.conftest import Visit, serving
from tests.console.shop import BIG, add_orders, make_orders


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedLog, str]]:
    path: Path = tmp_path_factory.mktemp("shop") / "log"
    with headwater.open(path) as log:
        assert isinstance(log, EmbeddedLog)
        make_orders(log, count=1_200, partitions=3)
        log.groups.seek("billing", "orders", {number: end // 2 for number, end in log.end_offsets("orders").items()})
        letter = DeadLetter(topic="orders", partition=0, offset=7, error="RowInvalid", message="no amount", at_us=5)
        append_dead_letters(log, "orders", [letter])
        log.create("bytes")
        with serving(path) as address:
            yield log, address


def test_a_topic_shows_its_partitions_its_readers_and_its_settings(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = shop
    for dark in (False, True):
        visitor = visit(address, dark=dark)
        page = visitor.open("/topics/orders")
        behind = log.describe("orders").rows - sum(log.committed("billing", "orders").values())
        readers = page.get_by_role("region", name="Groups that read this topic")
        expect(readers.get_by_role("row", name=re.compile("billing"))).to_contain_text(f"{behind:,}")
        partitions = page.get_by_role("region", name="Partitions")
        for one in log.describe("orders").partitions:
            row = partitions.get_by_role("row", name=re.compile(f"Partition {one.partition}"))
            expect(row).to_contain_text(str(one.offset_next))
        expect(page.get_by_role("region", name="Columns")).to_contain_text("event time")
        for count in (140, 210, 90, 260):  # a line has several points
            add_orders(log, range(count))
            rows = page.get_by_role("group", name="Rows", exact=True)
            expect(rows).to_contain_text(f"{log.describe('orders').rows:,}")
        visitor.picture("topic-dark" if dark else "topic-light")


def test_it_grows_while_one_looks(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = shop
    make_orders(log, count=3, name="young")
    page = visit(address).open("/topics/young")
    tile = page.get_by_role("group", name="Rows", exact=True)
    expect(tile).to_contain_text("3 kept for ever")
    add_orders(log, range(3, 5), name="young")
    expect(tile).to_contain_text("5 kept for ever")


def test_a_row_has_an_address_with_its_neighbours(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = shop
    make_orders(log, count=3, name="few")
    visitor = visit(address)
    page = visitor.open("/topics/few/0/0")
    expect(page.get_by_label("Value", exact=True)).to_contain_text(f'"order_id": {BIG}')
    expect(page.get_by_label("The row before")).to_be_disabled()
    page.get_by_label("The row behind").click()
    expect(page).to_have_url(f"{address}/console/topics/few/0/1")
    expect(page.get_by_label("Value", exact=True)).to_contain_text(str(BIG + 1))
    visitor.picture("record-light")
    page.goto(f"{address}/console/topics/few/0/3")
    expect(page.get_by_text("The next row of this partition will get offset 3.")).to_be_visible()
    page.goto(f"{address}/console/topics/few/0/x")
    expect(page.get_by_role("alert")).to_contain_text("whole number")
    page.goto(f"{address}/console/topics/few/7/0")
    expect(page.get_by_role("alert")).to_contain_text("PartitionNotFound")


def test_a_dead_letter_leads_to_the_row_that_it_was(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    _, address = shop
    visitor = visit(address, dark=True)
    page = visitor.open("/topics/orders.dlq/0/0")
    expect(page.get_by_text("no amount").first).to_be_visible()
    visitor.picture("record-dark")
    page.get_by_role("link", name="orders, partition 0, offset 7").click()
    expect(page).to_have_url(f"{address}/console/topics/orders/0/7")


def test_a_row_is_written_by_hand_and_checked(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = shop
    make_orders(log, count=1, name="written")
    visitor = visit(address)
    page = visitor.open("/topics/written/produce")
    box = page.get_by_label(re.compile("^JSON"))
    expect(box).to_have_value(re.compile('"order_id": 0'))
    page.get_by_role("button", name="From the newest row").click()
    expect(box).to_have_value(re.compile(str(BIG)))
    visitor.picture("produce-light")
    box.fill('{"order_id": "many"}')
    page.get_by_role("button", name="Append", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="order_id")).to_be_visible()
    box.fill(f'{{"order_id": {BIG + 77}, "customer": "new"}}')
    page.get_by_label(re.compile("^Headers")).fill("trace: 4f2a")
    page.get_by_role("button", name="Append", exact=True).click()
    page.get_by_role("button", name="Cancel").click()
    assert log.describe("written").rows == 1
    page.get_by_role("button", name="Append", exact=True).click()
    page.get_by_role("button", name="Append 1 row").click()
    page.get_by_role("link", name="partition 0, offset 1").click()
    expect(page.get_by_label("Value", exact=True)).to_contain_text(str(BIG + 77))
    [row] = log.read("written", start=1).rows()
    assert row["order_id"] == BIG + 77
    assert row["_headers"] == {"trace": b"4f2a"}


def test_bytes_are_written_by_hand(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = shop
    page = visit(address).open("/topics/bytes/produce")
    page.get_by_label("Key", exact=True).fill("k")
    page.get_by_label("Value", exact=True).fill("hello")
    page.get_by_role("button", name="Append", exact=True).click()
    page.get_by_role("button", name="Append 1 row").click()
    expect(page.get_by_text("Appended 1 row")).to_be_visible()
    assert [(row["key"], row["value"]) for row in log.read("bytes").rows()] == [(b"k", b"hello")]


def test_a_topic_is_made_and_what_is_wrong_is_said_before(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = shop
    visitor = visit(address)
    page = visitor.open("/topics")
    page.get_by_role("button", name="New topic").click()
    label = page.get_by_role("dialog").get_by_text("Key columns", exact=True)
    expect(label).to_have_css("font-size", "12px")
    above, box = label.bounding_box(), page.get_by_label(re.compile("^Key columns")).bounding_box()
    assert above is not None
    assert box is not None
    assert above["y"] + above["height"] <= box["y"], "a label stands above its box, also while the box is empty"
    page.get_by_label("Name", exact=True).fill("made here")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert").filter(has_text="made here")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("made.here")
    page.get_by_label(re.compile("^Columns")).fill("id long, at timestamp")
    page.get_by_label(re.compile("^Key columns")).fill("id")
    page.get_by_label("Partitions", exact=True).fill("4")
    expect(page.get_by_label("The same in a terminal")).to_contain_text("--partitions 4")
    visitor.picture("create-topic-light")
    page.get_by_role("button", name="Create").click()
    expect(page).to_have_url(f"{address}/console/topics/made.here")
    expect(page.get_by_role("heading", name="made.here")).to_be_visible()
    assert log.topic("made.here").partitions == 4
    assert log.topic("made.here").key == ("id",)


def test_a_topic_is_deleted_only_by_its_name(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = shop
    make_orders(log, count=2, name="old")
    page = visit(address).open("/topics/old")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("2 rows,")).to_be_visible()
    page.get_by_label("Write old to confirm").fill("older")
    page.get_by_role("button", name="Delete").last.click()
    expect(page.get_by_text("Nothing was deleted")).to_be_visible()
    page.get_by_role("button", name="Delete").first.click()
    page.get_by_label("Write old to confirm").fill("old")
    page.get_by_role("button", name="Delete").last.click()
    expect(page).to_have_url(f"{address}/console/topics")
    assert "old" not in log.topics()


def test_hostile_texts_are_only_texts(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = shop
    log.create("hostile", "note string", key="note")
    bad = "<img src=x onerror=alert(1)>"
    log.append("hostile", [{"note": bad}], headers={bad: bad.encode()})
    visitor = visit(address)
    for path in (
        "/topics/hostile/0/0",
        "/topics/hostile/browse",
        "/topics/hostile/tail",
        "/topics/hostile/search?q=img",
    ):
        page = visitor.open(path)
        expect(page.get_by_text("onerror=alert(1)").first).to_be_visible()
        assert page.locator("img").count() == 0
