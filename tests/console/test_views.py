"""Views: rows that change while one looks, a chart of them, one of them by its key, and where they come from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

import headwater
from headwater.log import EmbeddedLog
from headwater.server.tokens import Tokens
from tests.console.conftest import Running, Visit, serving
from tests.console.kept import APP, keeping, kept
from tests.console.test_login import log_in

CARD = 73_314_510_714_175_488
CITIES = ("Bergen", "Lyon", "Porto", "Turin")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def fill(log: EmbeddedLog) -> None:
    log.create("payments", {"card": "int64", "amount": "float64"}, key="card")
    log.create("spend", {"total": "float64", "card": "int64", "name": "string"}, key="card", compact=True)
    log.create(
        "orders_per_minute",
        {"city": "string", "minute": "timestamp", "orders": "int64"},
        key=["city", "minute"],
        compact=True,
    )
    log.append("spend", [{"card": CARD + n, "total": float(n * 7 % 120), "name": f"customer {n}"} for n in range(120)])
    log.append(
        "orders_per_minute",
        [
            {"city": city, "minute": NOON + timedelta(minutes=minute), "orders": 20 + (minute * 7 + place * 11) % 30}
            for minute in range(60)
            for place, city in enumerate(CITIES)
        ],
    )


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedLog, str]]:
    """A log whose views are kept, and the address of its console."""
    with headwater.open(tmp_path_factory.mktemp("shop") / "log") as log:
        assert isinstance(log, EmbeddedLog)
        fill(log)
        with keeping(log.path) as address:
            yield log, address


def test_views_are_listed_with_how_fresh_they_are(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    visitor = visit(shop[1])
    page = visitor.open("/views")
    row = page.get_by_role("row", name=re.compile("spend"))
    expect(row).to_contain_text("total, card, name")
    expect(row).to_contain_text("up to date")
    expect(row).to_contain_text("payments")
    visitor.picture("views-light")
    page.get_by_label("Filter views").fill("orders")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Why: Freshness").click()
    expect(page.get_by_text("kept, not computed when one asks")).to_be_visible()


def test_rows_change_while_one_looks_with_the_key_in_front(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = shop
    page = visit(address).open("/views/spend")
    expect(page.locator("thead th").first).to_contain_text("card")
    expect(page.get_by_text("1 to 50 of 120")).to_be_visible()
    row = page.get_by_role("row", name=re.compile(str(CARD + 1)))
    expect(row).to_contain_text("customer 1")
    log.append("spend", [{"card": CARD + 1, "total": 4242.5, "name": "<b>Ada</b>"}])
    expect(row.locator("td.tone-fresh").first).to_contain_text("4242.5")
    expect(row).to_contain_text("<b>Ada</b>")
    log.append("spend", [{"card": CARD + 1, "_tombstone": True}])
    expect(page.get_by_text("1 to 50 of 119")).to_be_visible()
    expect(row).to_have_count(0)
    log.append("spend", [{"card": CARD + 1, "total": 7.0, "name": "customer 1"}])
    expect(page.get_by_text("1 to 50 of 120")).to_be_visible()


def test_rows_are_ordered_and_paged_by_the_store(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/views/spend")
    page.get_by_role("button", name="total").click()
    expect(page.locator("tbody tr").first).to_contain_text(str(CARD))
    page.get_by_role("button", name="total").click()
    expect(page.locator("tbody tr").first).to_contain_text("119")
    page.get_by_label("Further").click()
    expect(page.get_by_text("51 to 100 of 120")).to_be_visible()
    expect(page.locator("tbody tr").first).to_contain_text("69")


def test_one_row_is_looked_up_by_its_key_to_the_last_digit(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/views/spend")
    box = page.get_by_label("Key: card")
    box.fill(str(CARD + 3))
    box.press("Enter")
    expect(page.locator("dl.facts")).to_contain_text(str(CARD + 3))
    expect(page.locator("dl.facts")).to_contain_text("customer 3")
    box.fill("17")
    page.get_by_label("Look a row up by its key").click()
    expect(page.get_by_text("No row has the key 17.")).to_be_visible()
    box.fill("many")
    box.press("Enter")
    expect(page.get_by_text("'many' is no int64, as card is")).to_be_visible()


def test_a_chart_is_guessed_and_can_be_chosen(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    visitor = visit(shop[1])
    page = visitor.open("/views/orders_per_minute?tab=chart")
    chart = page.get_by_role("img", name="Chart of orders_per_minute")
    for city in CITIES:
        expect(chart).to_contain_text(city)
    visitor.picture("view-chart-light")
    page = visitor.open("/views/spend?tab=chart")
    expect(page.get_by_text("The 24 largest of 120.")).to_be_visible()
    page.get_by_label("Chart: over").click()
    page.get_by_role("option", name="name").click()
    expect(page.get_by_role("img", name="Chart of spend")).to_contain_text("customer")


def test_a_definition_leads_to_what_the_view_is_made_of(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/views/spend?tab=definition")
    expect(page.get_by_role("row", name=re.compile("card int64 yes"))).to_be_visible()
    expect(page.get_by_role("link", name="payments")).to_have_attribute("href", "/console/topics/payments")


def test_views_of_an_app_that_does_not_run_are_shown_as_it_left_them(log: EmbeddedLog, visit: Visit) -> None:
    fill(log)
    home = log.path / "apps" / APP
    home.mkdir(parents=True)
    keeper = kept(log, home / "views.duckdb")
    keeper.catch_up()
    keeper.store.close()
    with serving(log.path) as address:
        page = visit(address).open("/views")
        expect(page.get_by_role("row", name=re.compile("spend"))).to_contain_text("as its app left it")
        page.goto(f"{address}/console/views/spend")
        expect(page.get_by_text("1 to 50 of 120")).to_be_visible()
        expect(page.get_by_role("group", name="Behind its sources")).to_contain_text("its app does not run")


def test_a_view_that_is_not_there_is_told_in_a_sentence(served: str, visit: Visit) -> None:
    visitor = visit(served)
    expect(visitor.open("/views").get_by_text("No views yet")).to_be_visible()
    expect(visitor.open("/views/nothing").get_by_role("alert")).to_contain_text("nothing")


def test_whoever_may_not_read_a_view_does_not_see_it(log: EmbeddedLog, visit: Visit) -> None:
    fill(log)
    token = Tokens(log.path).create("guest", ["read:orders*"])
    with keeping(log.path) as address:
        page = visit(address).page
        log_in(page, address, token, to="/views")
        expect(page.get_by_role("row", name=re.compile("orders_per_minute"))).to_be_visible()
        expect(page.get_by_role("row", name=re.compile("spend"))).to_have_count(0)
        page.goto(f"{address}/console/views/spend")
        expect(page.get_by_role("alert")).to_contain_text("read:spend")


def test_a_view_in_light_dark_and_on_a_phone(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    for dark in (False, True):
        visitor = visit(shop[1], dark=dark)
        expect(visitor.open("/views/spend").get_by_text("1 to 50 of 120")).to_be_visible()
        visitor.picture(f"view-{'dark' if dark else 'light'}")
    phone = visit(shop[1], phone=True).open("/views/spend")
    expect(phone.get_by_text("1 to 50 of 120")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_view_of_a_real_app_follows_its_topic(running: Running, visit: Visit) -> None:
    page = visit(running.address).open("/views/orders_per_minute")
    expect(page.get_by_role("group", name="Freshness")).to_contain_text("Up to date", timeout=60_000)
    expect(page.get_by_role("row", name=re.compile("Bergen")).first).to_be_visible()
