"""Somebody with a token that only reads: sees what concerns their topics, and can change nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

import headwater
from headwater.log.deadletters import DeadLetter, append_dead_letters
from headwater.server.tokens import Tokens
from tests.console.conftest import Visit, serving


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """An address, and a token that reads what begins with `orders`."""
    folder = tmp_path_factory.mktemp("looking") / "log"
    with headwater.open(folder) as log:
        for topic in ("orders", "salaries"):
            log.create(topic, "id int64, amount int64")
            log.append(topic, [{"id": number, "amount": 1} for number in range(20)])
            log.groups.seek(f"{topic}-readers", topic, "earliest")
            letter = DeadLetter(topic=topic, partition=0, offset=1, error="Bad", message="no", row='{"id": 1}', at_us=1)
            append_dead_letters(log, topic, [letter])
        token = Tokens(folder).create("reader", ["read:orders*"])
        with serving(folder) as address:
            yield address, token


@pytest.fixture
def page(shop: tuple[str, str], visit: Visit) -> Page:
    visitor = visit(shop[0])
    visitor.log_in(shop[1])
    return visitor.open("/groups")


def test_only_what_they_may_read_is_listed(shop: tuple[str, str], page: Page) -> None:
    expect(page.get_by_role("row", name=re.compile("orders-readers"))).to_be_visible()
    for path in ("groups", "letters", "schemas"):
        page.goto(f"{shop[0]}/console/{path}")
        expect(page.get_by_role("row", name=re.compile("^orders")).first).to_be_visible()
        expect(page.get_by_text("salaries")).to_have_count(0)
    for path in ("groups/salaries-readers", "letters/salaries.dlq", "schemas/salaries"):
        page.goto(f"{shop[0]}/console/{path}")
        expect(page.get_by_role("alert").first).to_be_visible()
        expect(page.get_by_role("region")).to_have_count(0)


def test_home_tells_of_their_topics_only(shop: tuple[str, str], page: Page) -> None:
    page.goto(f"{shop[0]}/console/")
    expect(page.get_by_role("group", name="Dead letters").get_by_text("1", exact=True)).to_be_visible()
    expect(page.get_by_role("group", name="Worst lag")).to_contain_text("orders-readers")
    expect(page.get_by_text("salaries")).to_have_count(0)


def test_they_may_try_but_not_change(shop: tuple[str, str], page: Page) -> None:
    page.goto(f"{shop[0]}/console/groups/orders-readers")
    page.get_by_role("button", name="Reset", exact=True).click()
    dialog = page.get_by_role("dialog", name="Reset")
    dialog.get_by_role("button", name="End").click()
    expect(dialog.get_by_text("Passes 20 rows over. Only somebody with admin rights")).to_be_visible()
    expect(dialog.get_by_role("button", name="Reset group")).to_be_disabled()
    page.goto(f"{shop[0]}/console/letters/orders.dlq")
    page.get_by_role("button", name="Redrive", exact=True).click()
    dialog = page.get_by_role("dialog", name="Redrive")
    expect(dialog.get_by_text("1 would be redriven")).to_be_visible()
    expect(dialog.get_by_role("button", name="Redrive 1")).to_be_disabled()
    page.goto(f"{shop[0]}/console/schemas/orders")
    page.locator("textarea").fill("id int64, amount int64, note string")
    expect(page.get_by_text("one needs admin rights on orders")).to_be_visible()
    expect(page.get_by_role("button", name="Register")).to_be_disabled()
