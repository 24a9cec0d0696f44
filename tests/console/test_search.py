"""Searching in the page: it says how far it has looked, can be stopped, and goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

import headwater
from headwater.log import EmbeddedLog
from tests.console.conftest import Visit, serving
from tests.console.shop import BIG, make_orders


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedLog, str]]:
    path: Path = tmp_path_factory.mktemp("shop") / "log"
    with headwater.open(path) as log:
        assert isinstance(log, EmbeddedLog)
        make_orders(log, count=3_000, partitions=2)
        log.append("orders", [{"order_id": 1, "customer": "zoë"}], headers={"trace": b"needle-in-a-header"})
        with serving(path) as address:
            yield log, address


def test_a_text_is_found_in_values_and_marked(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    visitor = visit(shop[1])
    page = visitor.open("/topics/orders/search")
    page.get_by_label("Search for").fill(str(BIG + 2_999))
    page.keyboard.press("Enter")
    expect(page.locator("[data-row]")).to_have_count(1)
    expect(page.locator("[data-row] mark")).to_have_text(str(BIG + 2_999))
    expect(
        page.get_by_text(re.compile(r"Scanned 3,001 of 3,001 \(.* to .*\), 1 found\. That is all\."))
    ).to_be_visible()


def test_headers_are_searched(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/topics/orders/search?q=NEEDLE-in")
    expect(page.locator("[data-row]")).to_have_count(1)
    page.locator("[data-row]").click()
    expect(page.get_by_role("complementary", name="Row")).to_contain_text("needle-in-a-header")


def test_it_stops_after_a_page_and_continues(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    visitor = visit(shop[1])
    page = visitor.open("/topics/orders/search?q=grace&order=oldest")
    expect(page.get_by_text(re.compile(r"Scanned [\d,]+ of 3,001 .* 50 found$"))).to_be_visible()
    page.locator("[data-row]").nth(1).click()
    expect(page.get_by_role("complementary", name="Row")).to_contain_text("order_id")
    found, line = (
        page.locator("[data-row] mark").first.bounding_box(),
        page.locator("[data-row] .v").first.bounding_box(),
    )
    assert found is not None
    assert line is not None
    assert found["x"] + found["width"] < line["x"] + line["width"], (
        "what was found is in sight, though a row is open beside"
    )
    visitor.picture("search-light")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text(re.compile("100 found$"))).to_be_visible()


def test_a_condition_and_a_pattern_are_searched(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    visitor = visit(shop[1], dark=True)
    page = visitor.open("/topics/orders/search")
    page.get_by_role("button", name="SQL", exact=True).click()
    page.get_by_label("Search for").fill(f"order_id = {BIG} or customer = 'zoë'")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator("[data-row]")).to_have_count(2)
    visitor.picture("search-dark")
    page.get_by_role("button", name="Pattern").click()
    page.get_by_label("Search for").fill("SKU-0(13|26)")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_text(re.compile("50 found$"))).to_be_visible()


def test_what_is_wrong_is_said_in_one_sentence(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/topics/orders/search?how=sql&q=nothing%20%3D%201")
    expect(page.get_by_role("status").filter(has_text="condition")).to_be_visible()
    page.get_by_label("Search for").fill("order_id is null")
    page.keyboard.press("Enter")
    expect(page.get_by_text(re.compile("3,001 of 3,001 .* 0 found. That is all."))).to_be_visible()
