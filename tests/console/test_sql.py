"""The SQL box: exact answers, errors at their spot, what is asked again and again, and what is taken along."""

from __future__ import annotations

import csv
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

import headwater
from headwater.console.sql.statements import spot
from headwater.log import Log
from headwater.views.errors import StatementInvalid
from headwater.views.sql import Sql
from tests.conditions import until
from tests.console.conftest import PHONE, Served, Visit
from tests.console.page_state import expect_to_fit
from tests.console.simulation import SimulatedConsole, SimulatedPage, simulated

CARD = 73_314_510_714_175_488
SHOPS = ("Books & Co", "Corner shop", "Ferry", "Jewels")


def fill(log: Log, name: str = "payments") -> None:
    log.create(name, {"card": "int64", "amount": "float64", "merchant": "string", "at": "timestamp"}, key="card")
    rows = [
        {
            "card": CARD + n % 7,
            "amount": n % 90 + 0.5,
            "merchant": SHOPS[n % 4],
            "at": 1_794_700_000_000_000 + n * 1_000_000,
        }
        for n in range(3_000)
    ]
    log.append(name, rows)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with headwater.open(tmp_path_factory.mktemp("sql") / "log") as log:
        assert isinstance(log, Log)
        fill(log)
        log.create("orders.late", {"id": "int64"})
        yield log


@pytest.fixture(scope="module")
def console(shop: Log) -> Iterator[SimulatedConsole]:
    with simulated(shop) as made:
        yield made


def ask(console: SimulatedConsole, statement: str) -> SimulatedPage:
    return console.open("/sql").write("Statement", statement).press("Run")


def test_an_answer_is_exact_and_says_how_long_it_took(console: SimulatedConsole) -> None:
    page = ask(console, "SELECT card, count(*) AS n FROM payments GROUP BY card ORDER BY card").sees("7 rows ·")
    assert page.rows("Answer")[0] == f"{CARD} 429"


def test_more_rows_than_the_limit_are_not_hidden(console: SimulatedConsole) -> None:
    page = ask(console, "SELECT * FROM payments").sees("The first 1,000 rows; there are more", "1 to 50 of 1,000")
    page.press("Further").sees("51 to 100 of 1,000")


@pytest.mark.parametrize(
    ("statement", "wrong", "told"),
    [
        ("SELECT *\nFORM payments", ["payments"], "syntax error"),
        ("SELECT amout FROM payments", ["amout"], "amout"),
        ("SELECT * FROM paymnts", ["paymnts"], "payments"),
        ("DELETE FROM payments", [], "no query"),
    ],
)
def test_an_error_is_shown_at_its_spot(console: SimulatedConsole, statement: str, wrong: list[str], told: str) -> None:
    ask(console, statement).sees(told).underlines(*wrong)


def test_a_spot_is_found_in_long_lines_and_after_others(log: Log) -> None:
    statement = "SELECT 1,\n" + "amount + " * 40 + "amount FORM payments WHERE amount > 1"
    with pytest.raises(StatementInvalid) as raised:
        Sql(log).query(statement)
    place = spot(statement, raised.value)
    assert place is not None
    assert statement[place[0] : place[1]] == "payments"


def test_names_are_offered_as_sql_takes_them(console: SimulatedConsole) -> None:
    page = console.open("/sql").press("orders.late")
    assert page.value("Statement") == 'SELECT * FROM "orders.late"'
    page.write("Filter names", "pay").sees_not("orders.late\n").sees("payments", "merchant", "timestamp")


def test_watching_asks_again_until_stopped(shop: Log, console: SimulatedConsole) -> None:
    shop.create("clicks", {"n": "int64"})
    shop.append("clicks", [{"n": 1}])
    page = console.open("/sql").write("Statement", "SELECT count(*) AS n FROM clicks")
    page.press("Ask again every 2 seconds").sees("1 row ·").sees_first("Answer", "1")
    shop.append("clicks", [{"n": 2}])
    page.later().sees_first("Answer", "2")
    page.press("Stop")
    until(lambda: not page.is_there("Stop"), "it does not watch any more")
    shop.append("clicks", [{"n": 3}])
    assert page.later().rows("Answer") == ["2"]
    page.press("Run").sees_first("Answer", "3")


def test_a_statement_that_takes_long_is_stopped(console: SimulatedConsole) -> None:
    endless = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range % 7 = b.range % 11"
    page = ask(console, endless).press("Stop").sees("You have stopped it.")
    page.write("Statement", "SELECT 42 AS answer").press("Run").sees("1 row ·").sees_first("Answer", "42")


def test_answers_are_drawn_and_taken_along(console: SimulatedConsole) -> None:
    statement = "SELECT merchant, min(card) AS card, sum(amount) AS total FROM payments GROUP BY ALL ORDER BY merchant"
    page = ask(console, statement).sees("4 rows ·").press("Download the rows as CSV")
    [answer] = until(lambda: page.user.download.http_responses, "the file is there")
    rows = list(csv.reader(answer.text.splitlines()))
    assert rows[0] == ["merchant", "card", "total"]
    assert [row[0] for row in rows[1:]] == sorted(SHOPS)
    assert rows[1][1] == str(CARD)
    assert "Corner shop" in page.press("Chart").chart("Chart of the answer")


# -- in a browser -----------------------------------------------------------------------------------------------------


def write(page: Page, text: str) -> None:
    """Write a statement in place of what is there."""
    box = page.get_by_role("textbox", name="Statement")
    box.click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def test_names_are_written_where_the_cursor_is_and_what_was_asked_stays_in_this_browser(
    shared: Served, prefix: str, visit: Visit
) -> None:
    name = f"{prefix}payments"
    fill(shared.log, name)
    shared.log.create(f"{prefix}other")
    visitor = visit(shared.address)
    page = visitor.open("/sql")
    expect(page.get_by_role("button", name=f"{prefix}other", exact=True)).to_be_visible()
    page.get_by_label("Filter names").fill(name)
    expect(page.get_by_role("button", name=f"{prefix}other", exact=True)).to_have_count(0)
    page.get_by_label(f"Columns of {name}").click(position={"x": 6, "y": 10})
    write(page, "SELECT ")
    page.get_by_role("button", name="merchant").click()
    expect(page.get_by_role("textbox", name="Statement")).to_have_text("SELECT merchant")
    write(page, "SELECT 'first' AS x")
    page.keyboard.press("Control+Enter")
    expect(page.locator("tbody tr").first).to_have_text("first")
    with page.expect_download() as loading:
        page.get_by_label("Download the rows as CSV").click()
    assert loading.value.suggested_filename == "answer.csv"
    page = visitor.open("/sql")
    page.get_by_role("button", name="SELECT 'first' AS x").click()
    expect(page.get_by_role("textbox", name="Statement")).to_have_text("SELECT 'first' AS x")
    other = visit(shared.address).open("/sql")
    expect(other.get_by_text("Kept in this browser alone.")).to_be_visible()


def test_the_page_in_light_dark_and_on_a_phone(shared: Served, prefix: str, visit: Visit) -> None:
    name = f"{prefix}payments"
    fill(shared.log, name)
    text = (
        f'SELECT merchant, count(*) AS payments, sum(amount) AS total%0AFROM "{name}"%0A'
        "GROUP BY merchant%0AORDER BY total DESC"
    )
    for dark in (False, True):
        visitor = visit(shared.address, dark=dark)
        page = visitor.open(f"/sql?text={text}")
        expect(page.get_by_role("row", name="Jewels")).to_be_visible()
        visitor.picture(f"sql-{'dark' if dark else 'light'}")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a typed dictionary of Playwright's own
    expect_to_fit(page)
