"""The live tail: every row, or an honest count of those that were left out."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from playwright.sync_api import Page, expect

from tests.console.conftest import Served, Visit
from tests.console.shop import BIG, add_orders, make_orders


def seen(page: Page) -> list[str]:
    """The places of all rows that the page keeps, found by scrolling through it as a person would."""
    places: list[str] = page.evaluate(
        """async () => {
            const box = document.querySelector(".hw-rows .scroll"), seen = new Set();
            for (let at = 0; at <= box.scrollHeight; at += 450) {
                box.scrollTop = at;
                await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
                document.querySelectorAll("[data-row]").forEach((row) => seen.add(row.dataset.row));
            }
            return [...seen];
        }"""
    )
    return places


def test_a_burst_of_a_thousand_rows_is_a_thousand_rows(shared: Served, prefix: str, visit: Visit) -> None:
    log, address = shared.log, shared.address
    make_orders(log, count=3, partitions=2, name=f"{prefix}burst")
    page = visit(address).open(f"/topics/{prefix}burst/tail")
    expect(page.locator("[data-row]")).to_have_count(3)
    add_orders(log, range(3, 1_003), name=f"{prefix}burst")
    expect(page.get_by_text("1,003 rows shown")).to_be_visible()
    assert "skipped" not in page.locator(".toolbar").inner_text()
    ends = log.end_offsets(f"{prefix}burst")
    assert sorted(seen(page)) == sorted(f"{number}/{offset}" for number in ends for offset in range(ends[number]))
    assert page.locator("[data-row]").count() < 100


@pytest.mark.core
def test_pausing_keeps_rows_and_counts_and_resuming_goes_on(shared: Served, prefix: str, visit: Visit) -> None:
    log, address = shared.log, shared.address
    make_orders(log, count=5, name=f"{prefix}resting")
    visitor = visit(address)
    page = visitor.open(f"/topics/{prefix}resting/tail")
    expect(page.locator("[data-row]")).to_have_count(5)
    expect(page.locator('[data-row="0/0"]')).to_contain_text(str(BIG))
    expect(page.locator('[data-row="0/0"] .ev')).to_have_text("11-15 09:30:00.000")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    add_orders(log, range(5, 12), name=f"{prefix}resting")
    expect(page.get_by_text("7 have come meanwhile")).to_be_visible()
    expect(page.locator("[data-row]")).to_have_count(5)
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("[data-row]")).to_have_count(12)
    expect(page.get_by_text("12 rows shown")).to_be_visible()


def test_stopping_keeps_rows_and_gives_the_controls_back(shared: Served, prefix: str, visit: Visit) -> None:
    log, address = shared.log, shared.address
    make_orders(log, count=5, partitions=2, name=f"{prefix}halted")
    page = visit(address).open(f"/topics/{prefix}halted/tail")
    expect(page.locator("[data-row]")).to_have_count(5)
    expect(page.locator(".toolbar .q-field--disabled")).to_have_count(2)
    page.get_by_role("button", name="Stop").click()
    expect(page.locator(".toolbar .q-field--disabled")).to_have_count(0)
    add_orders(log, range(5, 8), name=f"{prefix}halted")
    page.locator("[data-row]").first.click()
    expect(page.get_by_role("complementary", name="Row")).to_contain_text("order_id")
    expect(page.locator("[data-row]")).to_have_count(5)
    page.get_by_role("button", name="Start").click()
    expect(page.locator("[data-row]")).to_have_count(8)


def test_more_than_can_be_shown_is_counted_and_said(shared: Served, prefix: str, visit: Visit) -> None:
    log, address = shared.log, shared.address
    make_orders(log, count=10, name=f"{prefix}flood")
    visitor = visit(address)
    page = visitor.open(f"/topics/{prefix}flood/tail")
    expect(page.locator("[data-row]")).to_have_count(10)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    add_orders(log, range(10, 20_010), name=f"{prefix}flood")
    expect(page.get_by_text("20,000 have come meanwhile")).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("18,500 skipped", exact=True)).to_be_visible()
    expect(page.get_by_text("1,510 rows shown")).to_be_visible()
    gap = [row for row in seen(page) if row.startswith("gap")]
    assert gap == ["gap before 0/18510"]
    visitor.picture("tail-skipped-light")


#: Of the numbers that the page tells, every row is in one: `3,500 rows shown, …` and `996,510 skipped`.
ALL_COUNTED = """(rows) => {
    const told = (document.querySelector(".toolbar")?.innerText ?? "").replaceAll(",", "");
    const number = (words) => Number(told.match(words)?.[1] || 0);
    return number(/(\\d+) rows? shown/) + number(/(\\d+) skipped/) === rows;
}"""


@pytest.mark.parametrize("rows", [200_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_many_rows_pass_and_each_is_shown_or_counted(rows: int, shared: Served, prefix: str, visit: Visit) -> None:
    log, address = shared.log, shared.address
    log.create(f"{prefix}river", "number long, name string", partitions=2)
    log.append(f"{prefix}river", [{"number": -1, "name": "source"}])
    page = visit(address).open(f"/topics/{prefix}river/tail")
    expect(page.locator("[data-row]")).to_have_count(1)
    for start in range(0, rows, 50_000):
        numbers = pa.array(range(start, start + 50_000))
        log.append(f"{prefix}river", pa.table({"number": numbers, "name": pc.cast(numbers, pa.string())}))
    page.wait_for_function(ALL_COUNTED, arg=rows + 1)
    ends = log.end_offsets(f"{prefix}river")
    assert sum(ends.values()) == rows + 1
    places = seen(page)
    assert {f"{number}/{end - 1}" for number, end in ends.items()} & set(places)  # the newest row is there
    assert sum(not row.startswith("gap") for row in places) <= 2_000
    page.get_by_role("button", name="Pause").click()  # and the page still answers
    expect(page.get_by_text("paused", exact=True)).to_be_visible()
    page.locator('[data-row]:not([data-row^="gap"])').first.click()
    expect(page.get_by_role("complementary", name="Row")).to_contain_text("number")


def test_a_topic_deleted_while_one_looks_is_one_sentence_and_the_rows_stay(
    shared: Served, prefix: str, visit: Visit
) -> None:
    log, address = shared.log, shared.address
    make_orders(log, count=4, name=f"{prefix}doomed")
    page = visit(address).open(f"/topics/{prefix}doomed/tail")
    expect(page.locator("[data-row]")).to_have_count(4)
    log.delete(f"{prefix}doomed")
    expect(page.get_by_role("status").filter(has_text=re.compile("doomed"))).to_be_visible()
    expect(page.locator("[data-row]")).to_have_count(4)
    expect(page.get_by_role("button", name="Start")).to_be_visible()


def test_it_looks_well_in_light_and_dark(shared: Served, prefix: str, visit: Visit) -> None:
    log, address = shared.log, shared.address
    make_orders(log, count=60, partitions=3, name=f"{prefix}payments")
    for dark in (False, True):
        visitor = visit(address, dark=dark)
        page = visitor.open(f"/topics/{prefix}payments/tail")
        expect(page.get_by_text("50 rows shown")).to_be_visible()
        page.locator("[data-row]").nth(2).click()
        expect(page.get_by_role("complementary", name="Row")).to_contain_text("order_id")
        visitor.picture("tail-dark" if dark else "tail-light")
