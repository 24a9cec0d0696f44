"""Groups: lag in rows and in time, members, and a reset that shows what it does before it does it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

import headwater
from headwater.console.resetting import Where, offsets_at, time_of, told
from headwater.errors import ArgumentInvalid
from headwater.log import EmbeddedLog
from headwater.log.groups import SeekStep
from tests.console.conftest import Visit, serving

SCHEMA = "customer string, amount long"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedLog]:
    with headwater.open(tmp_path_factory.mktemp("groups") / "log") as log:
        assert isinstance(log, EmbeddedLog)
        log.create("orders", SCHEMA, partitions=2, retention="7 days")
        for partition, rows in ((0, 1_200), (1, 800)):
            log.append("orders", [{"customer": "ada", "amount": n} for n in range(rows)], partition=partition)
        log.create("clicks", SCHEMA)
        log.append("clicks", [{"customer": "ada", "amount": 1}] * 30)
        yield log


@pytest.fixture(scope="module")
def served_shop(shop: EmbeddedLog) -> Iterator[str]:
    with serving(shop.path) as address:
        yield address


def cells(page: Page, table: str) -> list[list[str]]:
    rows = page.get_by_role("region", name=table, exact=True).locator("tbody tr")
    return [[cell.strip() for cell in row.locator("td").all_inner_texts()] for row in rows.all()]


def test_the_worst_group_comes_first_and_no_commit_is_not_zero(
    shop: EmbeddedLog, served_shop: str, visit: Visit
) -> None:
    shop.groups.seek("billing", "orders", {0: 1_000, 1: 100})
    shop.groups.seek("reports", "orders", "latest")
    with shop.consumer("clicks", "fresh", auto_commit=False) as reader:
        reader.poll(seconds=0.0)
        page = visit(served_shop).open("/groups")
        row = page.get_by_role("row", name=re.compile("^fresh"))
        expect(row).to_contain_text("no commit")
        expect(row).to_contain_text("30 rows wait")
        expect(row).to_contain_text("1 alive")
        expect(page.locator("tbody tr").first).to_contain_text("billing")
        expect(page.locator("tbody tr").first).to_contain_text("900")
        page.get_by_label("Filter groups").fill("click")
        expect(page.locator("tbody tr")).to_have_count(1)


def test_a_group_shows_each_partition_its_members_and_its_history(
    shop: EmbeddedLog, served_shop: str, visit: Visit
) -> None:
    shop.groups.seek("shipping", "orders", {0: 700})
    visitor = visit(served_shop)
    page = visitor.open("/groups/shipping")
    expect(page.get_by_role("group", name="Lag", exact=True)).to_contain_text("1,300")
    expect(page.get_by_role("row", name=re.compile(r"^orders 0 700 1,200 500"))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile(r"^orders 1 no commit 800 – 800 wait"))).to_be_visible()
    expect(page.get_by_text("nobody reads for this group now")).to_be_visible()
    expect(page.get_by_role("img", name="Lag in rows over time").locator("path").first).to_be_attached()
    shop.commit_offsets("shipping", "orders", {0: 1_150, 1: 790})
    expect(page.get_by_role("group", name="Lag", exact=True)).to_contain_text("60")
    visitor.picture("groups-light")


def test_a_reset_shows_what_it_does_then_does_exactly_that_and_is_written_down(
    shop: EmbeddedLog, served_shop: str, visit: Visit
) -> None:
    shop.groups.seek("billing", "orders", {0: 1_000, 1: 100})
    visitor = visit(served_shop, dark=True)
    page = visitor.open("/groups/billing")
    page.get_by_role("button", name="Reset", exact=True).click()
    dialog = page.get_by_role("dialog", name="Reset")
    expect(dialog.get_by_text("Reads 1,100 rows again.")).to_be_visible()
    dialog.get_by_role("button", name="Back or forward").click()
    dialog.get_by_label("Place").fill("-200")
    expect(dialog.get_by_text("Reads 300 rows again.")).to_be_visible()  # partition 1 has only 100 to go back
    dialog.get_by_role("button", name="Offset").click()
    expect(dialog.get_by_label("Place")).to_have_value("100")  # where it is now
    dialog.get_by_label("Place").fill("400")
    expect(dialog.get_by_text("Reads 600 rows again and passes 300 rows over.")).to_be_visible()
    expect(dialog.get_by_role("row", name=re.compile("^0 1,000 → 400 600 read again"))).to_be_visible()
    expect(dialog.get_by_role("row", name=re.compile("^1 100 → 400 300 passed over"))).to_be_visible()
    assert shop.committed("billing", "orders") == {0: 1_000, 1: 100}  # a preview changes nothing
    visitor.picture("groups-dark")
    dialog.get_by_role("button", name="Reset group").click()
    expect(dialog).not_to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^orders 0 400"))).to_be_visible()
    assert shop.committed("billing", "orders") == {0: 400, 1: 400}
    audit = [row for row in shop.read("__audit").rows() if row["action"] == "group.seek"]
    assert audit[-1]["target"] == "billing orders 0:1000→400 1:100→400"


#: Chooses the topic `orders` and presses the button at once, before the server can answer.
IN_A_HURRY = """() => {
    const option = [...document.querySelectorAll(".q-menu .q-item")].find(one => one.innerText.trim() === "orders");
    const button = [...document.querySelectorAll("button")].find(one => one.innerText.includes("Reset group"));
    option.click();
    button.click();
}"""


def test_a_reset_pressed_before_the_preview_of_another_topic_moves_nothing(
    shop: EmbeddedLog, served_shop: str, visit: Visit
) -> None:
    shop.groups.seek("hasty", "clicks", {0: 10})
    shop.groups.seek("hasty", "orders", {0: 1_000, 1: 100})
    page = visit(served_shop).open("/groups/hasty")
    page.get_by_role("button", name="Reset", exact=True).click()
    dialog = page.get_by_role("dialog", name="Reset")
    expect(dialog.get_by_text("Reads 10 rows again.")).to_be_visible()
    expect(dialog.get_by_role("button", name="Reset group")).to_be_enabled()
    dialog.get_by_role("combobox", name="Topic").click()
    expect(page.get_by_role("option", name="orders")).to_be_visible()
    page.evaluate(IN_A_HURRY)
    expect(dialog.get_by_text("Reads 1,100 rows again.")).to_be_visible()
    assert shop.committed("hasty", "orders") == {0: 1_000, 1: 100}
    assert shop.committed("hasty", "clicks") == {0: 10}
    dialog.get_by_role("button", name="Reset group").click()
    expect(dialog).not_to_be_visible()
    assert shop.committed("hasty", "orders") == {0: 0, 1: 0}


def test_a_place_that_means_nothing_is_told_and_cannot_be_used(
    served_shop: str, shop: EmbeddedLog, visit: Visit
) -> None:
    shop.groups.seek("billing", "orders", "earliest")
    page = visit(served_shop).open("/groups/billing")
    page.get_by_role("button", name="Reset", exact=True).click()
    dialog = page.get_by_role("dialog", name="Reset")
    dialog.get_by_role("button", name="Time").click()
    dialog.get_by_label("Place").fill("next <b>week</b>")
    expect(dialog.get_by_text("a time in UTC")).to_be_visible()
    expect(dialog.get_by_role("button", name="Reset group")).to_be_disabled()


def test_a_group_with_live_members_is_neither_moved_nor_deleted_and_the_page_says_who_they_are(
    shop: EmbeddedLog, served_shop: str, visit: Visit
) -> None:
    with shop.consumer("orders", "packing", member="packer-7") as reader:
        reader.poll(seconds=0.0)
        page = visit(served_shop).open("/groups/packing")
        expect(page.get_by_role("region", name="Members").get_by_text("packer-7")).to_be_visible()
        page.get_by_role("button", name="Reset", exact=True).click()
        dialog = page.get_by_role("dialog", name="Reset")
        expect(dialog.get_by_role("alert")).to_contain_text("packer-7 (process ")
        expect(dialog.get_by_role("button", name="Reset group")).to_be_disabled()
        dialog.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Delete", exact=True).click()
        question = page.get_by_role("dialog", name="Delete group packing?")
        expect(question.get_by_role("alert")).to_contain_text("packer-7")
        expect(question.get_by_role("button", name="Delete group")).to_be_disabled()


def test_a_group_is_deleted_after_a_question_and_a_page_of_one_that_is_gone_says_so(
    shop: EmbeddedLog, served_shop: str, visit: Visit
) -> None:
    shop.groups.seek("obsolete", "orders", "earliest")
    page = visit(served_shop).open("/groups/obsolete")
    page.get_by_role("button", name="Delete", exact=True).click()
    question = page.get_by_role("dialog", name="Delete group obsolete?")
    expect(question).to_contain_text("No rows are deleted")
    question.get_by_role("button", name="Delete group").click()
    page.wait_for_url("**/console/groups")
    assert "obsolete" not in shop.groups.names()
    gone = visit(served_shop).open("/groups/obsolete")
    expect(gone.get_by_role("alert")).to_contain_text("obsolete")


def test_groups_fit_a_phone(shop: EmbeddedLog, served_shop: str, visit: Visit) -> None:
    shop.groups.seek("billing", "orders", "earliest")
    page = visit(served_shop, phone=True).open("/groups/billing")
    expect(page.get_by_role("group", name="Lag", exact=True)).to_contain_text("2,000")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


# -- what is decided, without a browser -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedLog]:
    with headwater.open(tmp_path_factory.mktemp("small") / "log") as log:
        assert isinstance(log, EmbeddedLog)
        log.create("orders", SCHEMA, partitions=3, durability="memory")
        for partition, rows in ((0, 50), (1, 7)):
            log.append("orders", [{"customer": "a", "amount": n} for n in range(rows)], partition=partition)
        log.commit_offsets("g", "orders", {0: 20, 1: 7})
        yield log


@given(step=st.integers(-100, 100))
def test_a_shift_never_leaves_its_partition(small: EmbeddedLog, step: int) -> None:
    found = offsets_at(small, "g", "orders", Where(way="by", text=str(step)), now_us=0)
    ends, committed = {0: 50, 1: 7, 2: 0}, {0: 20, 1: 7, 2: 0}
    assert found == {n: sorted((0, committed[n] + step, ends[n]))[1] for n in ends}


@given(offset=st.integers(0, 2**62))
def test_an_offset_beyond_a_partition_is_its_end(small: EmbeddedLog, offset: int) -> None:
    found = offsets_at(small, "g", "orders", Where(way="offset", text=f"{offset:,}"), partitions=[0], now_us=0)
    assert found == {0: min(offset, 50)}


@pytest.mark.parametrize("text", ["", "-1", "1.5", "ten", "9" * 30, "--5", "٣"])
def test_what_is_no_offset_is_refused(small: EmbeddedLog, text: str) -> None:
    with pytest.raises(ArgumentInvalid):
        offsets_at(small, "g", "orders", Where(way="offset", text=text), now_us=0)


@pytest.mark.parametrize("text", ["", "soon", "2026-99-99", "-", "1 parsec", "9" * 400 + "d"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ArgumentInvalid):
        time_of(text, now_us=10**15)


def test_a_reset_that_does_nothing_says_so() -> None:
    assert told([SeekStep(group="g", topic="t", partition=0, current=4, new=4)]) == "Stays where it is."
    assert told([SeekStep(group="g", topic="t", partition=0, current=None, new=1)]) == "Passes 1 row over."


def test_a_topic_deleted_under_its_group_leaves_the_page_standing(tmp_path: Path, visit: Visit) -> None:
    with headwater.open(tmp_path / "log") as log, serving(tmp_path / "log") as address:
        log.create("brief", SCHEMA)
        log.append("brief", [{"customer": "ada", "amount": 1}])
        log.groups.seek("readers", "brief", "earliest")
        page = visit(address).open("/groups/readers")
        expect(page.get_by_role("row", name=re.compile("^brief 0"))).to_be_visible()
        log.delete("brief")
        expect(page.get_by_text("It has neither read nor committed yet")).to_be_visible()
