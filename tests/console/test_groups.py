"""Groups: lag in rows and in time, members, and a reset that shows what it does before it does it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

import headwater
from headwater.console.groups.reset_dialog import ResetChoice
from headwater.errors import ArgumentInvalid
from headwater.log import Log
from tests.conditions import until
from tests.console.conftest import PHONE, Served, Visit
from tests.console.page_state import expect_to_fit
from tests.console.simulation import SimulatedConsole, simulated

SCHEMA = "customer string, amount long"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with headwater.open(tmp_path_factory.mktemp("groups") / "log") as log:
        assert isinstance(log, Log)
        make_shop(log)
        yield log


def make_shop(log: Log, *, orders: str = "orders", clicks: str = "clicks") -> None:
    log.create(orders, SCHEMA, partitions=2, retention="7 days")
    for partition, rows in ((0, 1_200), (1, 800)):
        log.append(orders, [{"customer": "ada", "amount": n} for n in range(rows)], partition=partition)
    log.create(clicks, SCHEMA)
    log.append(clicks, [{"customer": "ada", "amount": 1}] * 30)


@pytest.fixture(scope="module")
def console(shop: Log) -> Iterator[SimulatedConsole]:
    with simulated(shop) as made:
        yield made


def test_the_worst_group_comes_first_and_no_commit_is_not_zero(shop: Log, console: SimulatedConsole) -> None:
    shop.groups.seek("worst", "orders", {0: 1_000, 1: 0})
    shop.groups.seek("reports", "orders", "latest")
    with shop.consumer("clicks", "fresh", auto_commit=False) as reader:
        reader.poll(seconds=0.0)
        page = console.open("/groups").later()
        row = page.sees_row("Groups", "fresh")
        assert all(told in row for told in ("no commit", "30 rows wait", "1 alive"))
        lags = {row.split()[0]: row for row in page.rows("Groups")}
        assert "1,000" in lags["worst"]
        assert list(lags).index("worst") < list(lags).index("reports")
        page.write("Filter groups", "click").sees("1 to 1 of 1").sees_first("Groups", "fresh")


def test_a_group_shows_each_partition_its_members_and_its_history(shop: Log, console: SimulatedConsole) -> None:
    shop.groups.seek("shipping", "orders", {0: 700})
    page = console.open("/groups/shipping").sees("1,300", within="Lag")
    page.sees_row("Partitions", r"orders 0 700 1,200 500")
    page.sees_row("Partitions", r"orders 1 no commit 800 – 800 wait")
    page.sees("no consumer reads for this group now")
    shop.commit_offsets("shipping", "orders", {0: 1_150, 1: 790})
    page.later().sees("60", within="Lag")
    assert "all topics" in page.chart("Lag in rows over time")


def test_a_reset_shows_what_it_does_then_does_exactly_that_and_is_written_down(
    shop: Log, console: SimulatedConsole
) -> None:
    shop.groups.seek("billing", "orders", {0: 1_000, 1: 100})
    page = console.open("/groups/billing").press("Reset").sees("Reads 1,100 rows again.")
    page.write("Where to", "by").write("Place", "-200")
    page.sees("Reads 300 rows again.")  # partition 1 has only 100 to go back
    page.write("Where to", "offset").sees("Reads 900 rows again.")
    assert page.value("Place") == "100"  # where it is now
    page.write("Place", "400").sees("Reads 600 rows again and passes 300 rows over.")
    page.sees_row("What the reset does", "0 1,000 → 400 600 read again")
    page.sees_row("What the reset does", "1 100 → 400 300 passed over")
    assert shop.committed("billing", "orders") == {0: 1_000, 1: 100}  # a preview changes nothing
    page.press("Reset group").hears("billing: reads 600 rows again and passes 300 rows over.")
    assert page.dialog() == ""
    page.sees_row("Partitions", "orders 0 400")
    assert shop.committed("billing", "orders") == {0: 400, 1: 400}
    audit = [row for row in shop.read("__audit").rows() if row["action"] == "groups.seek"]
    assert audit[-1]["target"] == "billing topic=orders to=0:400,1:400"


def test_a_reset_whose_preview_was_not_seen_moves_nothing(shop: Log, console: SimulatedConsole) -> None:
    shop.groups.seek("unseen", "orders", {0: 1_000, 1: 100})
    page = console.open("/groups/unseen").press("Reset").sees("Reads 1,100 rows again.")
    page.write("Where to", "end").sees("Passes 900 rows over.")
    page.send("Reset group", "click", "1")  # what the browser sends that shows the first preview
    page.write("Where to", "by").sees("Reads 200 rows again.")
    assert shop.committed("unseen", "orders") == {0: 1_000, 1: 100}
    page.press("Reset group").hears("unseen: reads 200 rows again.")


def test_a_place_that_means_nothing_is_told_and_cannot_be_used(shop: Log, console: SimulatedConsole) -> None:
    shop.groups.seek("lost", "orders", "earliest")
    page = console.open("/groups/lost").press("Reset").sees("Stays where it is.")
    page.write("Where to", "time").write("Place", "next <b>week</b>").sees("a time in UTC")
    assert not page.is_enabled("Reset group")


def test_a_group_with_live_members_is_neither_moved_nor_deleted_and_the_page_says_who_they_are(
    shop: Log, console: SimulatedConsole
) -> None:
    with shop.consumer("orders", "packing", member="packer-7") as reader:
        reader.poll(seconds=0.0)
        page = console.open("/groups/packing")
        page.sees_row("Members", "packer-7 alive")
        page.press("Reset").sees("packer-7 (process ")
        assert not page.is_enabled("Reset group")
        page.press("Cancel").press("Delete").sees("Delete group packing?", "packer-7")
        assert not page.is_enabled("Delete group")


def test_a_group_is_deleted_after_a_question_and_a_page_of_one_that_is_gone_says_so(
    shop: Log, console: SimulatedConsole
) -> None:
    shop.groups.seek("obsolete", "orders", "earliest")
    page = console.open("/groups/obsolete").press("Delete").sees("No rows are deleted")
    page.press("Delete group")
    until(lambda: page.address == "/groups", "the list is opened")
    assert "obsolete" not in shop.groups.names()
    console.open("/groups/obsolete").sees("There is no", "obsolete")


def test_a_topic_deleted_under_its_group_leaves_the_page_standing(shop: Log, console: SimulatedConsole) -> None:
    shop.create("brief", SCHEMA)
    shop.append("brief", [{"customer": "ada", "amount": 1}])
    shop.groups.seek("readers", "brief", "earliest")
    page = console.open("/groups/readers")
    page.sees_row("Partitions", "brief 0")
    shop.delete("brief")
    page.later().sees("It has neither read nor committed yet")


# -- in a browser -----------------------------------------------------------------------------------------------------

#: Chooses the second topic and presses the button at once, before the server can answer.
IN_A_HURRY = """(topic) => {
    const option = [...document.querySelectorAll(".q-menu .q-item")].find(one => one.innerText.trim() === topic);
    const button = [...document.querySelectorAll("button")].find(one => one.innerText.includes("Reset group"));
    option.click();
    button.click();
}"""


def test_a_reset_pressed_before_the_preview_of_another_topic_moves_nothing(
    shared: Served, prefix: str, visit: Visit
) -> None:
    log, clicks, orders, group = shared.log, f"{prefix}clicks", f"{prefix}orders", f"{prefix}hasty"
    make_shop(log, orders=orders, clicks=clicks)
    log.groups.seek(group, clicks, {0: 10})
    log.groups.seek(group, orders, {0: 1_000, 1: 100})
    visitor = visit(shared.address, dark=True)
    page = visitor.open(f"/groups/{group}")
    page.get_by_role("button", name="Reset", exact=True).click()
    dialog = page.get_by_role("dialog", name="Reset")
    expect(dialog.get_by_text("Reads 10 rows again.")).to_be_visible()
    expect(dialog.get_by_role("button", name="Reset group")).to_be_enabled()
    dialog.get_by_role("combobox", name="Topic").click()
    expect(page.get_by_role("option", name=orders)).to_be_visible()
    page.evaluate(IN_A_HURRY, orders)
    expect(dialog.get_by_text("Reads 1,100 rows again.")).to_be_visible()
    visitor.picture("groups-dark")
    assert log.committed(group, orders) == {0: 1_000, 1: 100}
    assert log.committed(group, clicks) == {0: 10}
    dialog.get_by_role("button", name="Reset group").click()
    expect(dialog).not_to_be_visible()
    assert log.committed(group, orders) == {0: 0, 1: 0}


def test_the_history_of_a_group_is_drawn_and_fits_a_phone(shared: Served, prefix: str, visit: Visit) -> None:
    log, orders, group = shared.log, f"{prefix}orders", f"{prefix}shipping"
    make_shop(log, orders=orders, clicks=f"{prefix}clicks")
    log.groups.seek(group, orders, {0: 700})
    visitor = visit(shared.address)
    page = visitor.open(f"/groups/{group}")
    expect(page.get_by_role("img", name="Lag in rows over time").locator("path").first).to_be_attached()
    log.commit_offsets(group, orders, {0: 1_150, 1: 790})
    expect(page.get_by_role("group", name="Lag", exact=True)).to_contain_text("60")
    visitor.picture("groups-light")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a typed dictionary of Playwright's own
    expect_to_fit(page)


# -- what is chosen, without a browser --------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "-1", "1.5", "ten", "9" * 30, "--5", "٣"])
def test_what_is_no_offset_is_refused(text: str) -> None:
    with pytest.raises(ArgumentInvalid):
        _ = ResetChoice(topic="orders", partitions=(), kind="offset", text=text).position


def test_numbers_are_taken_as_people_write_them() -> None:
    assert ResetChoice(topic="orders", partitions=(), kind="offset", text=" 1,200 ").position == "1200"
    assert ResetChoice(topic="orders", partitions=(), kind="time", text=" 1h ago").position == "@1h ago"
