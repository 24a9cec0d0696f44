"""Browsing: rows from any place, each of them whole, and exactly as it was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import headwater
from headwater.log import EmbeddedLog
from tests.console.conftest import Visit, serving
from tests.console.shop import BIG, add_orders, make_orders


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedLog, str]]:
    """Topics with a schema, without one, and compacted."""
    path: Path = tmp_path_factory.mktemp("shop") / "log"
    with headwater.open(path) as log:
        assert isinstance(log, EmbeddedLog)
        make_orders(log, count=120)
        log.create("bytes")
        log.append("bytes", [("text", "plain ✓".encode()), ("binary", bytes([255, 254, 0, 1]))], headers={"n": b"1"})
        log.append("bytes", [("json", b'{"big":73314510714175488,"price":1.10}'), ("<img src=x>", b"<script>")])
        log.create("long")
        log.append("long", [("k", b"y" * 1_000_000)])
        log.create("states", "id string, city string", key="id", compact=True, segment_bytes_max=4096)
        for number in range(40):
            log.append("states", [{"id": f"{number % 3}", "city": f"city {number}"}])
        log.append("states", [{"id": "0", "_tombstone": True}])
        log.tidy("states", seal=True)
        with serving(path) as address:
            yield log, address


def rows_of(page: Page) -> list[str]:
    """The places of the rows in sight."""
    page.wait_for_selector("[data-row]")
    found: list[str] = page.eval_on_selector_all("[data-row]", "rows => rows.map((row) => row.dataset.row)")
    return found


def test_the_newest_rows_come_first_and_older_ones_follow(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    visitor = visit(shop[1])
    page = visitor.open("/topics/orders/browse")
    assert rows_of(page) == [f"0/{offset}" for offset in range(119, 69, -1)]
    page.get_by_role("button", name="Older").click()
    expect(page.locator('[data-row="0/69"]')).to_be_visible()
    assert rows_of(page) == [f"0/{offset}" for offset in range(69, 19, -1)]
    page.get_by_role("button", name="Back").click()
    expect(page.locator('[data-row="0/119"]')).to_be_visible()


def test_a_row_is_shown_whole_beside_the_list(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    visitor = visit(shop[1])
    page = visitor.open("/topics/orders/browse?from=oldest")
    page.locator('[data-row="0/0"]').click()
    beside = page.get_by_role("complementary", name="Row")
    expect(beside).to_contain_text(f'"order_id": {BIG}')
    expect(beside).to_contain_text("2026-11-15 09:30:00.000 UTC")
    expect(beside).to_contain_text("web")
    visitor.picture("browse-light")
    beside.get_by_role("button", name="Hex").click()
    expect(beside).to_contain_text('7b 22 6f 72 64 65 72 5f  69 64 22 3a 37 33 33 31  {"order_id":7331')
    beside.get_by_role("button", name="Raw").click()
    expect(beside).to_contain_text(f'{{"order_id":{BIG},"customer":"ada"')
    beside.get_by_role("button", name="The row behind").click()
    expect(beside).to_contain_text("offset 1")
    beside.get_by_role("button", name="Close").click()
    expect(beside).not_to_be_visible()


def test_one_begins_at_an_offset_or_at_a_time(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/topics/orders/browse?from=offset&at=100")
    assert rows_of(page)[0] == "0/100"
    page.goto(f"{shop[1]}/console/topics/orders/browse?from=time&at=2000-01-01")
    assert rows_of(page)[0] == "0/0"
    page.goto(f"{shop[1]}/console/topics/orders/browse?from=time&at=2999-01-01")
    expect(page.get_by_text("No rows here.").first).to_be_visible()
    page.goto(f"{shop[1]}/console/topics/orders/browse?from=time&at=yesterday")
    expect(page.get_by_text("a time such as").first).to_be_visible()
    page.goto(f"{shop[1]}/console/topics/orders/browse?partition=9")
    expect(page.get_by_role("alert")).to_contain_text("partition")


def test_bytes_are_text_where_they_are_utf8_and_digits_where_not(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/topics/bytes/browse?from=oldest")
    expect(page.locator('[data-row="0/0"]')).to_contain_text("plain ✓")
    expect(page.locator('[data-row="0/1"]')).to_contain_text("ff fe 00 01")
    expect(page.locator('[data-row="0/2"]')).to_contain_text(str(BIG))
    expect(page.locator('[data-row="0/3"]')).to_contain_text("<script>")
    page.locator('[data-row="0/2"]').click()
    expect(page.get_by_role("complementary", name="Row")).to_contain_text('"price": 1.10')


def test_a_long_value_is_cut_until_all_of_it_is_wanted(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/topics/long/browse")
    page.locator('[data-row="0/0"]').click()
    beside = page.get_by_role("complementary", name="Row")
    expect(beside).to_contain_text("16,000 of 1,000,000 letters are shown.")
    beside.get_by_role("button", name="Show all").click()
    expect(beside.get_by_text("letters are shown")).not_to_be_visible()
    assert page.evaluate("document.querySelector('pre.code').textContent.length") == 1_000_000


def test_offsets_of_a_compacted_topic_are_shown_as_they_are(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = shop
    left = [f"0/{row['_offset']}" for row in log.read("states").rows()]
    assert len(left) < 41
    page = visit(address).open("/topics/states/browse?from=oldest")
    assert rows_of(page) == left
    expect(page.get_by_text("tombstone").first).to_be_visible()


def test_rows_that_come_meanwhile_are_counted_and_push_nothing_away(
    shop: tuple[EmbeddedLog, str], visit: Visit
) -> None:
    log, address = shop
    make_orders(log, count=10, partitions=3, name="growing")
    visitor = visit(address, dark=True)
    page = visitor.open("/topics/growing/browse")
    before = rows_of(page)
    assert len(before) == 10
    add_orders(log, range(10, 14), name="growing")
    page.get_by_role("button", name="4 newer").click()
    expect(page.locator("[data-row]")).to_have_count(14)
    page.locator("[data-row]").first.click()
    expect(page.get_by_role("complementary", name="Row")).to_contain_text("order_id")
    visitor.picture("browse-dark")


def test_a_topic_that_is_not_there_is_one_sentence(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/topics/nowhere/browse")
    expect(page.get_by_role("alert")).to_contain_text("TopicNotFound")


def test_a_phone_shows_rows_without_scrolling_sideways(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1], phone=True).open("/topics/orders/browse")
    page.locator('[data-row="0/119"]').click()
    expect(page.get_by_role("complementary", name="Row")).to_contain_text("order_id")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
