"""Browsing: rows from any place, each of them whole, and exactly as it was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

import headwater
from headwater.log import Log
from headwater.log.embedded import local_log
from tests.conditions import until
from tests.console.conftest import PHONE, Served, Visit
from tests.console.page_state import expect_to_fit
from tests.console.shop import BIG, add_orders, make_orders
from tests.console.simulation import SimulatedConsole, simulated


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """Topics with a schema, without one, and compacted."""
    path: Path = tmp_path_factory.mktemp("shop") / "log"
    with headwater.open(path) as log:
        assert isinstance(log, Log)
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
        local_log(log).maintain("states", seal=True)
        yield log


@pytest.fixture(scope="module")
def console(shop: Log) -> Iterator[SimulatedConsole]:
    with simulated(shop) as made:
        yield made


def test_the_newest_rows_come_first_and_older_ones_follow(console: SimulatedConsole) -> None:
    page = console.open("/topics/orders/browse")
    assert page.lines() == [f"0/{offset}" for offset in range(119, 69, -1)]
    page.press("Older").sees("0/69 ")
    assert page.lines() == [f"0/{offset}" for offset in range(69, 19, -1)]
    page.press("Back").sees("0/119 ")


def test_a_row_is_shown_whole_beside_the_list(console: SimulatedConsole) -> None:
    page = console.open("/topics/orders/browse?from=oldest").pick_line("0/0")
    page.sees(f'"order_id": {BIG}', "2026-11-15 09:30:00.000 UTC", "web", within="Row")
    page.press("Hex").sees('7b 22 6f 72 64 65 72 5f  69 64 22 3a 37 33 33 31  {"order_id":7331', within="Row")
    page.press("Raw").sees(f'{{"order_id":{BIG},"customer":"ada"', within="Row")
    page.press("The row after").sees("offset 1", within="Row")
    page.press("Close").sees_not("offset 1")


def test_one_begins_at_an_offset_or_at_a_time(console: SimulatedConsole) -> None:
    page = console.open("/topics/orders/browse?from=offset&at=100")
    assert page.lines()[0] == "0/100"
    assert page.open("/topics/orders/browse?from=time&at=2000-01-01").lines()[0] == "0/0"
    page.open("/topics/orders/browse?from=time&at=2999-01-01").sees("No rows here.")
    page.open("/topics/orders/browse?from=time&at=yesterday").hears("a time such as")
    page.open("/topics/orders/browse?partition=9").sees("There is no partition")


def test_bytes_are_text_where_they_are_utf8_and_digits_where_not(console: SimulatedConsole) -> None:
    page = console.open("/topics/bytes/browse?from=oldest").sees("plain ✓", "<img src=x> <script>")
    page.pick_line("0/1").sees("ff fe 00 01", within="Row")
    page.pick_line("0/2").sees('"price": 1.10', within="Row")


def test_a_long_value_is_cut_until_all_of_it_is_wanted(console: SimulatedConsole) -> None:
    page = console.open("/topics/long/browse").pick_line("0/0").sees("16,000 of 1,000,000 characters are shown.")
    page.press("Show all").sees_not("characters are shown")
    assert "y" * 1_000_000 in page.markup()


def test_offsets_of_a_compacted_topic_are_shown_as_they_are(shop: Log, console: SimulatedConsole) -> None:
    left = [f"0/{row['_offset']}" for row in shop.read("states").rows()]
    assert len(left) < 41
    assert console.open("/topics/states/browse?from=oldest").lines() == left


def test_rows_that_come_meanwhile_are_counted_and_push_nothing_away(shop: Log, console: SimulatedConsole) -> None:
    make_orders(shop, count=10, partitions=3, name="growing")
    page = console.open("/topics/growing/browse")
    before = page.lines()
    assert len(before) == 10
    add_orders(shop, range(10, 14), name="growing")
    assert page.later().lines() == before
    page.press("4 newer")
    until(lambda: len(page.lines()) == 14, "the new rows are shown")


def test_a_topic_that_is_not_there_is_one_sentence(console: SimulatedConsole) -> None:
    console.open("/topics/nowhere/browse").sees("There is no topic")


# -- in a browser -----------------------------------------------------------------------------------------------------


def test_rows_in_light_dark_and_on_a_phone(shared: Served, prefix: str, visit: Visit) -> None:
    name = f"{prefix}orders"
    make_orders(shared.log, count=120, name=name)
    shared.log.create(f"{prefix}states", "id string", key="id", compact=True)
    shared.log.append(f"{prefix}states", [{"id": "0", "_tombstone": True}])
    visitor = visit(shared.address)
    page = visitor.open(f"/topics/{name}/browse?from=oldest")
    page.locator('[data-row="0/0"]').click()
    expect(page.get_by_role("complementary", name="Row")).to_contain_text(f'"order_id": {BIG}')
    visitor.picture("browse-light")
    expect(visitor.open(f"/topics/{prefix}states/browse").get_by_text("tombstone").first).to_be_visible()
    dark = visit(shared.address, dark=True)
    page = dark.open(f"/topics/{name}/browse")
    page.locator("[data-row]").first.click()
    expect(page.get_by_role("complementary", name="Row")).to_contain_text("order_id")
    dark.picture("browse-dark")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a typed dictionary of Playwright's own
    expect_to_fit(page)
