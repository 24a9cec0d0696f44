"""The SQL box: exact answers, errors at their spot, what is asked again and again, and what is taken along."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

import headwater
from headwater.console.asking import spot
from headwater.errors import StatementInvalid
from headwater.log import EmbeddedLog
from headwater.server.tokens import Tokens
from headwater.views.sql import Sql
from tests.console.conftest import Visit, serving
from tests.console.test_login import log_in

CARD = 73_314_510_714_175_488
SHOPS = ("Books & Co", "Corner shop", "Ferry", "Jewels")


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[EmbeddedLog, str]]:
    with headwater.open(tmp_path_factory.mktemp("sql") / "log") as log:
        assert isinstance(log, EmbeddedLog)
        log.create(
            "payments", {"card": "int64", "amount": "float64", "merchant": "string", "at": "timestamp"}, key="card"
        )
        log.create("orders.late", {"id": "int64"})
        rows = [
            {
                "card": CARD + n % 7,
                "amount": n % 90 + 0.5,
                "merchant": SHOPS[n % 4],
                "at": 1_794_700_000_000_000 + n * 1_000_000,
            }
            for n in range(3_000)
        ]
        log.append("payments", rows)
        with serving(log.path) as address:
            yield log, address


def write(page: Page, text: str) -> None:
    """Write a statement in place of what is there."""
    box = page.get_by_role("textbox", name="Statement")
    box.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def test_an_answer_is_exact_and_says_how_long_it_took(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/sql")
    write(page, "SELECT card, count(*) AS n FROM payments GROUP BY card ORDER BY card")
    page.keyboard.press("Control+Enter")
    expect(page.locator("tbody tr").first).to_contain_text(str(CARD))
    expect(page.locator("tbody tr").first).to_contain_text("429")
    expect(page.get_by_text("7 rows ·")).to_be_visible()


def test_more_rows_than_the_limit_are_not_hidden(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/sql")
    write(page, "SELECT * FROM payments")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("The first 1,000 rows; there are more")).to_be_visible()
    expect(page.get_by_text("1 to 50 of 1,000")).to_be_visible()
    page.get_by_label("Further").click()
    expect(page.get_by_text("51 to 100 of 1,000")).to_be_visible()


@pytest.mark.parametrize(
    ("statement", "wrong", "told"),
    [
        ("SELECT *\nFORM payments", "payments", "syntax error"),
        ("SELECT amout FROM payments", "amout", "amout"),
        ("SELECT * FROM paymnts", "paymnts", "payments"),
        ("DELETE FROM payments", None, "no query"),
    ],
)
def test_an_error_is_shown_at_its_spot(
    shop: tuple[EmbeddedLog, str], visit: Visit, statement: str, wrong: str | None, told: str
) -> None:
    page = visit(shop[1]).open("/sql")
    write(page, statement)
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text(told)
    if wrong is None:
        expect(page.locator(".editor .trouble")).to_have_count(0)
    else:
        expect(page.locator(".editor .trouble")).to_have_text(wrong)


def test_a_spot_is_found_in_long_lines_and_after_others(log: EmbeddedLog) -> None:
    statement = "SELECT 1,\n" + "amount + " * 40 + "amount FORM payments WHERE amount > 1"
    with pytest.raises(StatementInvalid) as raised:
        Sql(log).query(statement)
    place = spot(statement, raised.value)
    assert place is not None
    assert statement[place[0] : place[1]] == "payments"


def test_names_are_written_where_the_cursor_is(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/sql")
    page.get_by_role("button", name="orders.late").click()
    expect(page.get_by_role("textbox", name="Statement")).to_have_text('SELECT * FROM "orders.late"')
    page.get_by_label("Filter names").fill("pay")
    expect(page.get_by_role("button", name="orders.late")).to_have_count(0)
    page.get_by_label("Columns of payments").click(position={"x": 6, "y": 10})
    write(page, "SELECT ")
    page.get_by_role("button", name="merchant").click()
    expect(page.get_by_role("textbox", name="Statement")).to_have_text("SELECT merchant")


def test_watching_asks_again_until_stopped(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    log, address = shop
    log.create("clicks", {"n": "int64"})
    log.append("clicks", [{"n": 1}])
    page = visit(address).open("/sql")
    write(page, "SELECT count(*) AS n FROM clicks")
    page.get_by_label("Ask again every 2 seconds").click()
    expect(page.locator("tbody tr").first).to_have_text("1")
    log.append("clicks", [{"n": 2}])
    expect(page.locator("tbody td.tone-fresh")).to_have_text("2")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    log.append("clicks", [{"n": 3}])
    page.get_by_role("button", name="Run").click()
    expect(page.locator("tbody tr").first).to_have_text("3")


def test_a_statement_that_takes_long_is_stopped(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    page = visit(shop[1]).open("/sql")
    write(page, "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range % 7 = b.range % 11")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("alert")).to_have_text("You have stopped it.")
    write(page, "SELECT 42 AS answer")
    page.keyboard.press("Control+Enter")
    expect(page.locator("tbody tr").first).to_have_text("42")


def test_answers_are_drawn_and_taken_along(shop: tuple[EmbeddedLog, str], visit: Visit, tmp_path: Path) -> None:
    page = visit(shop[1]).open("/sql")
    write(
        page,
        "SELECT merchant, min(card) AS card, sum(amount) AS total FROM payments GROUP BY merchant ORDER BY merchant",
    )
    page.keyboard.press("Control+Enter")
    expect(page.locator("tbody tr")).to_have_count(4)
    with page.expect_download() as loading:
        page.get_by_label("Download the rows as CSV").click()
    loading.value.save_as(tmp_path / "answer.csv")
    rows = list(csv.reader((tmp_path / "answer.csv").read_text().splitlines()))
    assert rows[0] == ["merchant", "card", "total"]
    assert [row[0] for row in rows[1:]] == sorted(SHOPS)
    assert rows[1][1] == str(CARD)
    page.get_by_role("button", name="Chart", exact=True).click()
    expect(page.get_by_role("img", name="Chart of the answer")).to_contain_text("Corner shop")


def test_what_was_asked_stays_in_this_browser(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    visitor = visit(shop[1])
    page = visitor.open("/sql")
    write(page, "SELECT 'first' AS x")
    page.keyboard.press("Control+Enter")
    expect(page.locator("tbody tr").first).to_have_text("first")
    page = visitor.open("/sql")
    page.get_by_role("button", name="SELECT 'first' AS x").click()
    expect(page.get_by_role("textbox", name="Statement")).to_have_text("SELECT 'first' AS x")
    other = visit(shop[1]).open("/sql")
    expect(other.get_by_text("Kept in this browser alone.")).to_be_visible()


def test_a_statement_needs_the_right_to_read_what_it_reads(log: EmbeddedLog, visit: Visit) -> None:
    log.create("orders", {"id": "int64"})
    log.create("salaries", {"name": "string"})
    log.append("salaries", [{"name": "Ada"}])
    token = Tokens(log.path).create("guest", ["read:orders"])
    with serving(log.path) as address:
        page = visit(address).page
        log_in(page, address, token, to="/sql")
        expect(page.get_by_role("button", name="orders")).to_be_visible()
        expect(page.get_by_role("button", name="salaries")).to_have_count(0)
        write(page, "SELECT * FROM log.salaries")
        page.keyboard.press("Control+Enter")
        expect(page.get_by_role("alert")).to_contain_text("read:salaries")


def test_the_page_in_light_dark_and_on_a_phone(shop: tuple[EmbeddedLog, str], visit: Visit) -> None:
    text = "SELECT merchant, count(*) AS payments, sum(amount) AS total%0AFROM payments%0AGROUP BY merchant%0AORDER BY total DESC"
    for dark in (False, True):
        visitor = visit(shop[1], dark=dark)
        page = visitor.open(f"/sql?text={text}")
        expect(page.get_by_role("row", name="Jewels")).to_be_visible()
        expect(page.get_by_role("button", name="payments", exact=True)).to_be_visible()
        visitor.picture(f"sql-{'dark' if dark else 'light'}")
    phone = visit(shop[1], phone=True).open(f"/sql?text={text}")
    expect(phone.get_by_role("row", name="Jewels")).to_be_visible()
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
