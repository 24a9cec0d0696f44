"""Searching in the page: it says how far it has looked, can be stopped, and goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

import headwater
from headwater.log import Log
from tests.console.conftest import Served, Visit
from tests.console.shop import BIG, make_orders
from tests.console.simulation import SimulatedConsole, simulated


def fill(log: Log, name: str = "orders") -> None:
    make_orders(log, count=3_000, partitions=2, name=name)
    log.append(name, [{"order_id": 1, "customer": "zoë"}], headers={"trace": b"needle-in-a-header"})


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimulatedConsole]:
    with headwater.open(tmp_path_factory.mktemp("shop") / "log") as log:
        assert isinstance(log, Log)
        fill(log)
        with simulated(log) as made:
            yield made


def test_a_text_is_found_in_values(console: SimulatedConsole) -> None:
    page = console.open("/topics/orders/search").write("Search for", str(BIG + 2_999)).submit("Search for")
    page.sees("1 found. That is all.", str(BIG + 2_999))
    assert re.search(r"Scanned 3,001 of 3,001 \(.* to .*\), 1 found\. That is all\.", page.text())
    assert len(page.lines()) == 1


def test_headers_are_searched(console: SimulatedConsole) -> None:
    page = console.open("/topics/orders/search?q=NEEDLE-in").sees("1 found. That is all.")
    page.pick_line(page.lines()[0]).sees("needle-in-a-header", within="Row")


def test_it_stops_after_a_page_and_continues(console: SimulatedConsole) -> None:
    page = console.open("/topics/orders/search?q=grace&order=oldest").sees(" 50 found\n")
    assert re.search(r"Scanned [\d,]+ of 3,001 .* 50 found\n", page.text())
    page.press("Continue").sees(" 100 found\n")


def test_a_condition_and_a_pattern_are_searched(console: SimulatedConsole) -> None:
    page = console.open("/topics/orders/search").press("SQL")
    page.write("Search for", f"order_id = {BIG} or customer = 'zoë'").press("Search").sees("2 found. That is all.")
    page.press("Pattern").write("Search for", "SKU-0(13|26)").press("Search").sees(" 50 found\n")


def test_what_is_wrong_is_said_in_one_sentence(console: SimulatedConsole) -> None:
    page = console.open("/topics/orders/search?how=sql&q=nothing%20%3D%201").sees("condition", "nothing")
    page.write("Search for", "order_id is null").submit("Search for").sees("0 found. That is all.")


# -- in a browser -----------------------------------------------------------------------------------------------------


def test_what_is_found_is_marked_and_in_sight(shared: Served, prefix: str, visit: Visit) -> None:
    name = f"{prefix}orders"
    fill(shared.log, name)
    visitor = visit(shared.address)
    page = visitor.open(f"/topics/{name}/search?q=grace&order=oldest")
    expect(page.get_by_text(re.compile(r"Scanned [\d,]+ of 3,001 .* 50 found$"))).to_be_visible()
    page.locator("[data-row]").nth(1).click()
    expect(page.get_by_role("complementary", name="Row")).to_contain_text("order_id")
    mark, line = (
        page.locator("[data-row] mark").first.bounding_box(),
        page.locator("[data-row] .v").first.bounding_box(),
    )
    assert mark is not None
    assert line is not None
    assert mark["x"] + mark["width"] < line["x"] + line["width"], (
        "what was found is in sight, though a row is open beside"
    )
    visitor.picture("search-light")
    dark = visit(shared.address, dark=True)
    page = dark.open(f"/topics/{name}/search?how=sql&q=order_id%20%3D%20{BIG}")
    expect(page.locator("[data-row]")).to_have_count(1)
    dark.picture("search-dark")
