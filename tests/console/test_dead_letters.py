"""Dead letters: grouped by reason, each one whole, redriven after a dry run, parked, and taken up again."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import expect

import headwater
from headwater.errors import InUse
from headwater.log import Log
from headwater.log.dead_letters import (
    STATES,
    DeadLetter,
    Selection,
    append_dead_letters,
    find_dead_letter_topic,
)
from headwater.log.redrive import park, redrive
from headwater.services import Settings, local
from headwater.services.dead_letter_index import DeadLetterIndex
from headwater.services.host import Host
from tests.conditions import until
from tests.console.conftest import PHONE, Served, Visit
from tests.console.page_state import expect_to_fit
from tests.console.simulation import SimulatedConsole, simulated
from tests.laws import costly
from tests.log.dead_letters import all_dead_letters

SCHEMA = "customer string, amount long"
NOW = time.time_ns() // 1_000 - 7_200_000_000
TRACE = 'Traceback (most recent call last):\n  File "pipeline.py", line 42, in charge\nValueError: the rate of XXX is 0'


def letter(number: int, error: str = "RowInvalid", topic: str = "orders", **more: object) -> DeadLetter:
    row = f'{{"customer": "ada", "amount": {73314510714175488 + number}}}'
    given = {"row": row, "message": f"order {number} is broken", "at_us": NOW + number * 60_000_000, **more}
    return DeadLetter(topic=topic, partition=0, offset=number, error=error, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with headwater.open(tmp_path_factory.mktemp("letters") / "log") as log:
        assert isinstance(log, Log)
        yield log


def letters_of(topic: str) -> list[DeadLetter]:
    """Sixty dead letters of two reasons, and one with a trace, headers and a second attempt."""
    bad = letter(
        60, "ValueError", topic=topic, message=TRACE, attempt=2, query="totals", headers=[("trace", b"<b>4bf9</b>")]
    )
    return [*(letter(n, "RowInvalid" if n % 3 else "ValueError", topic=topic) for n in range(60)), bad]


def tired_letters(topic: str) -> list[DeadLetter]:
    """Twelve dead letters, four that were tried too often, and one whose row does not fit."""
    tired = [letter(n, "TimeoutError", topic=topic, attempt=3) for n in range(4)]
    misfit = letter(9, "RowInvalid", topic=topic, row='{"customer": 1, "no such": 2}')
    return [*(letter(n, topic=topic) for n in range(12)), *tired, misfit]


def fill(log: Log, topic: str, letters: list[DeadLetter]) -> None:
    log.create(topic, SCHEMA)
    append_dead_letters(log, topic, letters)


@pytest.fixture(scope="module")
def console(shop: Log) -> Iterator[SimulatedConsole]:
    with simulated(shop) as made:
        yield made


def test_dead_letters_are_grouped_by_reason_and_each_is_shown_whole(shop: Log, console: SimulatedConsole) -> None:
    fill(shop, "orders", letters_of("orders"))
    page = console.open("/dead-letters")
    page.sees_row("Dead letters", "orders 61 0 0 RowInvalid, 40")
    assert page.links("Dead letters")["orders"] == "/console/dead-letters/orders.dlq"
    page.open("/dead-letters/orders.dlq").sees("61", within="Open")
    page.sees_row("Reasons", "RowInvalid 40 0 0 up to 1")
    page.pick("Reasons", "ValueError 21 0 0 up to 2").sees("21 dead letters")
    page.pick("Dead letters", ".*ValueError: the rate of XXX is 0")
    page.sees('File "pipeline.py", line 42', "<b>4bf9</b>", '"amount": 73314510714175548', within="Dead letter")
    assert page.links()["orders, partition 0, offset 60"] == "/console/topics/orders/0/60"
    page.write("Search in messages", "RATE OF xxx").sees("1 dead letter\n")
    page.write("Search in messages", "nothing says this").sees("No dead letter fits.")


def test_a_redrive_begins_with_a_dry_run_redrives_once_and_parks_what_was_tried_too_often(
    shop: Log, console: SimulatedConsole
) -> None:
    fill(shop, "carts", tired_letters("carts"))
    page = console.open("/dead-letters/carts").press("Redrive")
    page.sees("12 would be redriven and 4 would be parked", "1 would be refused, and stay open", "no such")
    page.write("Attempts, then park", "1").sees("17 would be parked")
    page.write("Attempts, then park", "zero").sees("attempts, at least 1")
    assert not page.is_enabled("Redrive")
    page.write("Attempts, then park", "3").write("Rows a second, at most", "500").sees("Redrive 12, park 4")
    assert shop.read("carts").count() == 0  # a dry run changes nothing
    page.press("Redrive 12, park 4")
    until(lambda: "Redriven: 16 of 16" in page.later().text(), "all are redriven")
    page.later().sees("Redriven: 16 of 16, 1 refused. Begun by local.")
    assert 'aria-valuenow="100"' in page.markup()
    for tile, number in (("Open", "1"), ("Redriven", "12"), ("Parked", "4")):
        page.sees(number, within=tile)
    assert sorted(row["amount"] for row in shop.read("carts").rows()) == [73314510714175488 + n for n in range(12)]
    audit = [row["target"] for row in shop.read("__audit").rows() if row["action"] == "dead_letters.redrive"]
    assert audit == ["carts.dlq attempts_max=3 rate=500"]


def test_a_limit_of_rows_a_second_is_kept_and_the_work_can_be_stopped(shop: Log, console: SimulatedConsole) -> None:
    fill(shop, "crates", [letter(n, topic="crates") for n in range(300)])
    page = console.open("/dead-letters/crates").press("Redrive").sees("300 would be redriven")
    page.write("Rows a second, at most", "1").press("Redrive 300").sees("Redriving: ")
    until(lambda: shop.read("crates").count() >= 1, "the first is put back")
    page.press("Stop")
    until(lambda: "Stopped: " in page.later().text(), "it has stopped")
    assert 1 <= shop.read("crates").count() < 300  # without the limit all would be there at once


def test_one_dead_letter_is_redriven_alone(shop: Log, console: SimulatedConsole) -> None:
    fill(shop, "boxes", [letter(n, topic="boxes") for n in range(5)])
    page = console.open("/dead-letters/boxes.dlq").pick("Dead letters", ".*order 3 is broken")
    page.press("Redrive this one").press("Redrive 1")
    until(lambda: "1\n" in page.later().text("Redriven"), "it is put back")
    assert [row["amount"] for row in shop.read("boxes").rows()] == [73314510714175491]


def test_what_the_filter_means_is_parked_and_taken_up_again(shop: Log, console: SimulatedConsole) -> None:
    fill(shop, "parcels", [letter(n, "RowInvalid" if n < 3 else "ValueError", topic="parcels") for n in range(8)])
    page = console.open("/dead-letters/parcels.dlq?reason=ValueError").sees("5 dead letters")
    page.press("Park").sees("Park 5 dead letters?").press("Park 5 dead letters").sees("5", within="Parked").sees(
        "3", within="Open"
    )
    page.press("Parked").sees("5 dead letters")
    page.press("Park").sees("Take up 5 dead letters?").press("Take up 5 dead letters").sees("8", within="Open")
    actions = [row["action"] for row in shop.read("__audit").rows() if "parcels" in row["target"]]
    assert actions == ["dead_letters.park", "dead_letters.park"]


def test_a_topic_without_dead_letters_says_so(shop: Log, console: SimulatedConsole) -> None:
    shop.create("clean.dlq", SCHEMA)
    console.open("/dead-letters/clean").sees("a topic whose rows are dead letters")


# -- in a browser -----------------------------------------------------------------------------------------------------


def test_dead_letters_in_light_dark_and_on_a_phone(shared: Served, prefix: str, visit: Visit) -> None:
    orders, carts = f"{prefix}orders", f"{prefix}carts"
    fill(shared.log, orders, letters_of(orders))
    fill(shared.log, carts, tired_letters(carts))
    visitor = visit(shared.address)
    page = visitor.open(f"/dead-letters/{orders}")
    page.get_by_role("row", name=re.compile("^ValueError 21 0 0 up to 2")).click()
    expect(page.get_by_text("21 dead letters", exact=True)).to_be_visible()
    page.get_by_role("region", name="Dead letters", exact=True).get_by_text("ValueError: the rate of XXX is 0").click()
    whole = page.get_by_role("complementary", name="Dead letter")
    expect(whole.get_by_label("Row")).to_contain_text('"amount": 73314510714175548')  # to the last digit
    visitor.picture("dead-letters-light")
    dark = visit(shared.address, dark=True)
    page = dark.open(f"/dead-letters/{carts}")
    page.get_by_role("button", name="Redrive", exact=True).click()
    dialog = page.get_by_role("dialog", name="Redrive")
    expect(dialog.get_by_role("button", name="Redrive 12, park 4")).to_be_enabled()
    dark.picture("dead-letters-dark")
    dialog.get_by_role("button", name="Redrive 12, park 4").click()
    expect(page.get_by_role("progressbar", name="Dead letters redriven")).to_have_attribute("aria-valuenow", "100")
    page.set_viewport_size(PHONE)  # type: ignore[arg-type]  # a typed dictionary of Playwright's own
    expect_to_fit(page)


# -- the index and the work, without a browser ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    with headwater.open(tmp_path_factory.mktemp("index") / "log") as log:
        assert isinstance(log, Log)
        yield log


_REASONS = st.sampled_from(["A", "B", "C"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(_REASONS, min_size=1, max_size=5)),
        st.tuples(st.just("park"), _REASONS),
        st.tuples(st.just("unpark"), _REASONS),
        st.tuples(st.just("redrive"), _REASONS),
    ),
    max_size=6,
)
_made = iter(range(1_000_000))


@costly(4)
@given(
    steps=_STEPS, reason=st.none() | _REASONS, state=st.none() | st.sampled_from(STATES), text=st.none() | st.just("3")
)
def test_the_index_finds_what_a_reader_of_all_dead_letters_finds(
    small: Log, steps: list[tuple[str, object]], reason: str | None, state: str | None, text: str | None
) -> None:
    name = f"t{next(_made)}"
    small.create(name, SCHEMA, durability="memory")
    append_dead_letters(small, name, [letter(0, "A", topic=name)])
    topic = find_dead_letter_topic(small, name)
    index, number = DeadLetterIndex(small, topic), 1
    for step, argument in steps:
        if step == "write":
            assert isinstance(argument, list)
            letters = [letter(number + n, reason, topic=name) for n, reason in enumerate(argument)]
            number += len(argument)
            append_dead_letters(small, name, letters)
        else:
            chosen = Selection(reasons=(str(argument),))
            if step == "redrive":
                redrive(small, name, chosen)
            else:
                park(small, name, chosen, undo=step == "unpark")
        index.reasons()  # it is caught up a little at a time
    selection = Selection(
        reasons=() if reason is None else (reason,),
        states=() if state is None else (state,),  # type: ignore[arg-type]
        text=text,
    )
    every = all_dead_letters(small, name)
    expected = [one for one in every if selection.includes(one)]
    places = index.places(selection)
    assert list(places) == [letter.place for letter in reversed(expected)]
    assert [(letter.place, letter.letter, letter.state) for letter in index.read(places)] == [
        (letter.place, letter.letter, letter.state) for letter in reversed(expected)
    ]
    counted = {
        (reason.name, state): reason.states[state]
        for reason in index.reasons()
        for state in STATES
        if reason.states[state]
    }
    assert counted == {
        (r, s): n
        for r in "ABC"
        for s in STATES
        if (n := sum(letter.letter.error == r and letter.state == s for letter in every))
    }
    assert sum(map(sum, index.timeline().counts.values())) == len(every)


def test_work_that_is_stopped_leaves_the_rest_open(small: Log) -> None:
    fill(small, "slow", [letter(n, topic="slow") for n in range(50)])
    service = local(Host(log=small, settings=Settings())).dead_letters
    assert service.redrive("slow", rate=1.0, wait_seconds=0).running
    with pytest.raises(InUse):
        service.redrive("slow", wait_seconds=0)
    service.stop_redrive("slow")
    job = service.redrive_progress("slow", wait_seconds=30)
    assert job is not None
    assert job.state == "stopped"
    states = [one.state for one in all_dead_letters(small, "slow")]
    assert states.count("redriven") == small.read("slow").count() == job.outcome.changed < 50
