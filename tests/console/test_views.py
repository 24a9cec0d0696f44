"""Views: rows that change while one looks, a chart of them, one of them by its key, and where they come from."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import expect

from headwater.console.views.page import ViewContent, ViewPage
from headwater.log import Log
from headwater.services.tokens import Tokens
from headwater.views import ViewKeeper
from tests.conditions import until
from tests.console.conftest import PHONE, Running, Visit
from tests.console.page_state import expect_to_fit
from tests.console.simulation import SimulatedConsole, simulated
from tests.console.view_app import APP, keeping, kept, runner_of

CARD = 73_314_510_714_175_488
CITIES = ("Bergen", "Lyon", "Porto", "Turin")
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def fill(log: Log) -> None:
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


@pytest.fixture
def keeper(log: Log) -> Iterator[ViewKeeper]:
    """A keeper of views, which follows its topics when a test says so."""
    fill(log)
    home = log.home / "apps" / APP
    home.mkdir(parents=True)
    made = kept(log, home / "views.duckdb")
    made.catch_up()
    yield made
    made.store.close()


@pytest.fixture
def console(log: Log, keeper: ViewKeeper) -> Iterator[SimulatedConsole]:
    with simulated(log, runner_of(log, keeper)) as made:
        yield made


def test_views_are_listed_with_how_fresh_they_are(console: SimulatedConsole) -> None:
    page = console.open("/views")
    row = page.sees_row("Views", "spend")
    assert "total, card, name payments" in row
    assert "up to date" in row
    page.write("Filter views", "spe").sees_first("Views", "spend")
    assert len(page.rows("Views")) == 1
    page.press("Why: Freshness").sees("kept, not computed when one asks")


def test_rows_change_while_one_looks_with_the_key_in_front(
    log: Log, keeper: ViewKeeper, console: SimulatedConsole
) -> None:
    page, rows = console.open("/views/spend"), "Rows of spend"
    page.sees("1 to 50 of 120")
    assert page.sees_row(rows, str(CARD + 1)) == f"{CARD + 1} 7 customer 1"
    log.append("spend", [{"card": CARD + 1, "total": 4242.5, "name": "<b>Ada</b>"}])
    keeper.catch_up()
    page.later().sees_row(rows, f"{CARD + 1} 4242.5 <b>Ada</b>")
    log.append("spend", [{"card": CARD + 1, "_tombstone": True}])
    keeper.catch_up()
    page.later().sees("1 to 50 of 119")
    assert not any(row.startswith(str(CARD + 1)) for row in page.rows(rows))


def test_rows_are_ordered_and_paged_by_the_store(console: SimulatedConsole) -> None:
    page, rows = console.open("/views/spend"), "Rows of spend"
    page.trigger(rows, "sort", "1").sees_first(rows, f"{CARD} 0 ")
    page.trigger(rows, "sort", "1").sees_first(rows, r"\d+ 119 ")
    page.press("Further").sees("51 to 100 of 120").sees_first(rows, r"\d+ 69 ")


def test_rows_that_come_after_another_order_was_chosen_are_not_shown(
    console: SimulatedConsole, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, rows = console.open("/views/spend"), "Rows of spend"
    look, show, shown = ViewPage.load, ViewPage.show, []
    begun, released = threading.Event(), threading.Event()

    def slow_load(self: ViewPage) -> ViewContent:
        content = look(self)
        if isinstance(content.chosen, tuple) and content.chosen[1:] == ("1", False):
            begun.set()
            assert released.wait(60)
        return content

    def noted_show(self: ViewPage, content: ViewContent) -> None:
        show(self, content)
        shown.append(content.chosen)

    monkeypatch.setattr(ViewPage, "load", slow_load)
    monkeypatch.setattr(ViewPage, "show", noted_show)
    page.trigger(rows, "sort", "1")
    until(begun.is_set, "the first look has its rows")
    page.trigger(rows, "sort", "1").sees_first(rows, r"\d+ 119 ")
    released.set()
    until(lambda: (0, "1", False) in shown, "the first answer is there")
    page.sees_first(rows, r"\d+ 119 ")


def test_one_row_is_looked_up_by_its_key_to_the_last_digit(console: SimulatedConsole) -> None:
    page = console.open("/views/spend")
    page.write("Key: card", str(CARD + 3)).submit("Key: card")
    until(lambda: f"<dt>card</dt><dd>{CARD + 3}</dd>" in page.markup(), "the row is found")
    assert "<dt>name</dt><dd>customer 3</dd>" in page.markup()
    page.write("Key: card", "17").press("Look a row up by its key").sees("No row has the key 17.")
    page.write("Key: card", "many").submit("Key: card").sees("'many' is no int64, as card is")


def test_a_chart_is_guessed_and_can_be_chosen(console: SimulatedConsole) -> None:
    drawn = console.open("/views/orders_per_minute?tab=chart").chart("Chart of orders_per_minute")
    assert all(city in drawn for city in CITIES)
    page = console.open("/views/spend?tab=chart").sees("The 24 largest of 120.")
    assert "customer" not in page.chart("Chart of spend")
    page.write("Chart: over", "name").sees("The 24 largest of 120.")
    until(lambda: "customer" in page.chart("Chart of spend"), "the names are drawn")


def test_a_definition_leads_to_what_the_view_is_made_of(console: SimulatedConsole) -> None:
    page = console.open("/views/spend?tab=definition")
    page.sees_row("Columns", "card int64 yes")
    assert page.links()["payments"] == "/console/topics/payments"


def test_views_of_an_app_that_does_not_run_are_shown_as_it_left_them(log: Log, keeper: ViewKeeper) -> None:
    keeper.store.close()
    with simulated(log) as console:
        assert "stopped, up to date" in console.open("/views").sees_row("Views", "spend")
        page = console.open("/views/spend").sees("1 to 50 of 120")
        page.sees("not known yet", within="Behind its sources")


def test_a_view_that_is_not_there_is_told_in_a_sentence(log: Log) -> None:
    with simulated(log) as console:
        console.open("/views").sees("No views yet")
        console.open("/views/nothing").sees("There is no view 'nothing'")


def test_a_token_that_may_not_read_a_view_does_not_show_it(log: Log, console: SimulatedConsole) -> None:
    token = Tokens(log.home).create("guest", ["read:orders*"])
    assert [row.split()[0] for row in console.open("/views", token).rows("Views")] == ["orders_per_minute"]
    console.open("/views/spend", token).sees("read:spend")


def test_views_in_light_dark_and_on_a_phone(log: Log, visit: Visit) -> None:
    fill(log)
    with keeping(log.home) as address:
        visitor = visit(address)
        page = visitor.open("/views")
        expect(page.get_by_role("row", name=re.compile("spend"))).to_contain_text("up to date")
        visitor.picture("views-light")
        page = visitor.open("/views/orders_per_minute?tab=chart")
        expect(page.get_by_role("img", name="Chart of orders_per_minute")).to_contain_text(CITIES[0])
        visitor.picture("view-chart-light")
        expect(visitor.open("/views/spend").get_by_text("1 to 50 of 120")).to_be_visible()
        visitor.picture("view-light")
        row = page.get_by_role("row", name=re.compile(str(CARD + 1)))
        log.append("spend", [{"card": CARD + 1, "total": 4242.5, "name": "<b>Ada</b>"}])
        expect(row.locator("td.tone-fresh").first).to_contain_text("4242.5")
        dark = visit(address, dark=True)
        expect(dark.open("/views/spend").get_by_text("1 to 50 of 120")).to_be_visible()
        dark.picture("view-dark")
        dark.page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a typed dictionary of Playwright's own
        expect_to_fit(dark.page)


def test_a_view_of_a_real_app_follows_its_topic(running: Running, visit: Visit) -> None:
    page = visit(running.address).open("/views/orders_per_minute")
    expect(page.get_by_role("group", name="Freshness")).to_contain_text("Up to date")
    expect(page.get_by_role("row", name=re.compile("Bergen")).first).to_be_visible()
