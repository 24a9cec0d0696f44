"""Home and the list of topics: what is there, how fast it grows, and that ten thousand of them are no trouble."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import expect

import headwater
from headwater.log import EmbeddedLog
from headwater.log.deadletters import DeadLetter, append_dead_letters
from headwater.log.redrive import redrive
from tests.console.conftest import Running, Visit, serving

SCHEMA = "customer string, amount long"


def test_home_of_an_empty_log_says_what_to_do(served: str, visit: Visit) -> None:
    page = visit(served).open("/")
    expect(page.get_by_text("Nothing here yet")).to_be_visible()
    expect(page.get_by_text("headwater produce greetings")).to_be_visible()


def test_topics_grow_while_one_looks(log: EmbeddedLog, served: str, visit: Visit) -> None:
    log.create("orders", SCHEMA, partitions=2)
    log.append("orders", [{"customer": "ada", "amount": number} for number in range(1_500)])
    page = visit(served).open("/topics")
    row = page.get_by_role("row", name=re.compile("orders"))
    expect(row.get_by_text("1,500")).to_be_visible()
    log.append("orders", [{"customer": "ada", "amount": 1}])
    expect(row.get_by_text("1,501")).to_be_visible()


def test_lag_stands_in_the_row_of_the_topic_and_no_commit_is_not_zero(
    log: EmbeddedLog, served: str, visit: Visit
) -> None:
    log.create("orders", SCHEMA)
    log.append("orders", [{"customer": "ada", "amount": number} for number in range(10)])
    log.groups.seek("billing", "orders", {0: 4})
    page = visit(served).open("/topics")
    expect(page.get_by_role("row", name=re.compile("orders"))).to_contain_text("billing 6")


def test_home_counts_the_dead_letters_that_wait_for_a_decision(log: EmbeddedLog, served: str, visit: Visit) -> None:
    log.create("orders", SCHEMA)
    row = '{"customer": "ada", "amount": 1}'
    letters = [
        DeadLetter(topic="orders", partition=0, offset=number, error="Bad", message="no", row=row, at_us=1)
        for number in range(3)
    ]
    append_dead_letters(log, "orders", letters)
    page = visit(served).open("/")
    tile = page.get_by_role("group", name="Dead letters")
    expect(tile).to_contain_text("waiting for a decision")
    expect(tile.get_by_text("3", exact=True)).to_be_visible()
    assert redrive(log, "orders").redriven == {"Bad": 3}
    expect(tile).to_contain_text("none")
    expect(tile.get_by_text("0", exact=True)).to_be_visible()


def test_a_filter_an_order_and_the_jump_box_find_topics(log: EmbeddedLog, served: str, visit: Visit) -> None:
    for name in ("apples", "pears", "plums"):
        log.create(name, SCHEMA)
    log.append("pears", [{"customer": "ada", "amount": 1}])
    page = visit(served).open("/topics")
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_role("button", name="Rows", exact=True).click()
    expect(page.locator("tbody tr").first).to_contain_text("pears")
    page.keyboard.press("/")
    page.keyboard.type("plu")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.keyboard.press("Control+k")
    page.get_by_label("Jump to").last.fill("appl")
    expect(page.locator(".hw-palette a").first).to_contain_text("apples")


@contextmanager
def serving_ten_thousand(folder: Path) -> Iterator[str]:
    with headwater.open(folder / "log") as log:
        for number in range(10_000):
            log.create(f"topic.{number:05}", SCHEMA, durability="os")
    with serving(folder / "log") as address:
        yield address


def test_ten_thousand_topics_are_one_page_of_fifty(visit: Visit) -> None:
    # In memory, where there is a place for files in it: each topic is synced to the disk when it is made.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, serving_ten_thousand(Path(folder)) as address:
        page = visit(address).open("/topics")
        expect(page.get_by_text("1 to 50 of 10,000")).to_be_visible(timeout=60_000)
        expect(page.locator("tbody tr")).to_have_count(50)
        page.get_by_label("Filter topics").fill("09876")
        expect(page.locator("tbody tr")).to_have_count(1)
        page.goto(f"{address}/console/")
        expect(page.get_by_role("group", name="Rows in")).to_contain_text("10,000 topics")


def test_light_dark_and_phone(log: EmbeddedLog, served: str, visit: Visit) -> None:
    log.create("orders", SCHEMA)
    visitor = visit(served)
    page = visitor.open("/")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.get_by_label("Light or dark").click()
    page.wait_for_function("document.documentElement.dataset.theme === 'dark'")
    phone = visit(served, phone=True).open("/topics")
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")
    expect(phone.get_by_role("link", name="Home")).not_to_be_in_viewport()
    phone.get_by_label("Open the navigation").click()
    expect(phone.get_by_role("link", name="Home")).to_be_in_viewport()


def test_a_question_mark_explains_its_number(served: str, visit: Visit) -> None:
    page = visit(served).open("/")
    page.get_by_label("Why: Lag").first.click()
    expect(page.get_by_text("When it is red")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("When it is red")).not_to_be_visible()


@pytest.mark.parametrize("dark", [False, True])
def test_home_of_a_company_at_work(running: Running, visit: Visit, dark: bool) -> None:
    visitor = visit(running.address, dark=dark)
    page = visitor.open("/")
    expect(page.get_by_role("group", name="Queries")).to_contain_text("3/3")
    orders = page.get_by_label("Busiest topics").get_by_role("row", name=re.compile(r"^orders\b(?!\.)"))
    for _ in range(8):  # a line has several points
        running.feed.some(seconds=20)
        expect(orders.first).to_contain_text(f"{running.log.describe('orders').rows:,}", timeout=20_000)
    visitor.picture(f"home-{'dark' if dark else 'light'}")
