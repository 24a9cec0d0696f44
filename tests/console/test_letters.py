"""Dead letters: grouped by reason, each one whole, redriven after a dry run, parked, and taken up again."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Page, expect

import headwater
from headwater.console.letters import LetterIndex
from headwater.console.redriving import Job, Jobs, Plan
from headwater.log import EmbeddedLog
from headwater.log.deadletters import DeadLetter, append_dead_letters
from headwater.log.letters import STATES, Found, Selection, letter_topic, read_letters
from headwater.log.redrive import park, redrive
from tests.console.conftest import Visit, serving

SCHEMA = "customer string, amount long"
NOW = time.time_ns() // 1_000 - 7_200_000_000
TRACE = 'Traceback (most recent call last):\n  File "pipeline.py", line 42, in charge\nValueError: the rate of XXX is 0'


def letter(number: int, error: str = "RowInvalid", topic: str = "orders", **more: object) -> DeadLetter:
    row = f'{{"customer": "ada", "amount": {73314510714175488 + number}}}'
    given = {"row": row, "message": f"order {number} is broken", "at_us": NOW + number * 60_000_000, **more}
    return DeadLetter(topic=topic, partition=0, offset=number, error=error, **given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedLog]:
    with headwater.open(tmp_path_factory.mktemp("letters") / "log") as log:
        assert isinstance(log, EmbeddedLog)
        yield log


@pytest.fixture(scope="module")
def served_shop(shop: EmbeddedLog) -> Iterator[str]:
    with serving(shop.path) as address:
        yield address


def fill(log: EmbeddedLog, topic: str, letters: list[DeadLetter]) -> None:
    log.create(topic, SCHEMA)
    append_dead_letters(log, topic, letters)


def tile(page: Page, name: str, number: str) -> None:
    expect(page.get_by_role("group", name=name, exact=True)).to_contain_text(number)


def test_letters_are_grouped_by_reason_and_each_is_shown_whole(
    shop: EmbeddedLog, served_shop: str, visit: Visit
) -> None:
    letters = [letter(n, "RowInvalid" if n % 3 else "ValueError", topic="orders") for n in range(60)]
    bad = letter(
        60, "ValueError", topic="orders", message=TRACE, attempt=2, query="totals", headers=[("trace", b"<b>4bf9</b>")]
    )
    fill(shop, "orders", [*letters, bad])
    visitor = visit(served_shop)
    page = visitor.open("/letters")
    expect(page.get_by_role("row", name=re.compile("^orders 61 0 0 RowInvalid, 40"))).to_be_visible()
    page.get_by_role("link", name="orders", exact=True).click()
    tile(page, "Open", "61")
    expect(page.get_by_role("row", name=re.compile("^RowInvalid 40 0 0 up to 1"))).to_be_visible()
    page.get_by_role("row", name=re.compile("^ValueError 21 0 0 up to 2")).click()
    expect(page.get_by_text("21 letters", exact=True)).to_be_visible()
    page.get_by_role("region", name="Letters", exact=True).get_by_text("ValueError: the rate of XXX is 0").click()
    whole = page.get_by_role("complementary", name="Letter")
    expect(whole.get_by_label("Message")).to_contain_text('File "pipeline.py", line 42')
    expect(whole.get_by_label("Row")).to_contain_text('"amount": 73314510714175548')  # to the last digit
    expect(whole).to_contain_text("<b>4bf9</b>")  # as text
    expect(whole.get_by_role("link", name="orders, partition 0, offset 60")).to_have_attribute(
        "href", "/console/topics/orders/0/60"
    )
    visitor.picture("letters-light")
    page.get_by_label("Search in messages").fill("RATE OF xxx")
    expect(page.get_by_text("1 letter", exact=True)).to_be_visible()
    page.get_by_label("Search in messages").fill("nothing says this")
    expect(page.get_by_text("No letter fits.")).to_be_visible()


def test_a_redrive_begins_with_a_dry_run_puts_back_once_and_parks_what_was_tried_too_often(
    shop: EmbeddedLog, served_shop: str, visit: Visit
) -> None:
    tired = [letter(n, "TimeoutError", topic="carts", attempt=3) for n in range(4)]
    misfit = letter(9, "RowInvalid", topic="carts", row='{"customer": 1, "no such": 2}')
    fill(shop, "carts", [*(letter(n, topic="carts") for n in range(12)), *tired, misfit])
    visitor = visit(served_shop, dark=True)
    page = visitor.open("/letters/carts")
    page.get_by_role("button", name="Redrive", exact=True).click()
    dialog = page.get_by_role("dialog", name="Redrive")
    expect(dialog.get_by_text("12 would be redriven and 4 would be parked")).to_be_visible()
    expect(dialog.get_by_text("1 would be refused, and stay open")).to_be_visible()
    expect(dialog.get_by_text("no such")).to_be_visible()
    dialog.get_by_label("Attempts, then park").fill("1")
    expect(dialog.get_by_text("17 would be parked")).to_be_visible()
    dialog.get_by_label("Attempts, then park").fill("zero")
    expect(dialog.get_by_text("attempts, at least 1")).to_be_visible()
    expect(dialog.get_by_role("button", name="Redrive", exact=True)).to_be_disabled()
    dialog.get_by_label("Attempts, then park").fill("3")
    dialog.get_by_label("Rows a second, at most").fill("500")
    expect(dialog.get_by_role("button", name="Redrive 12, park 4")).to_be_enabled()
    assert shop.read("carts").count() == 0  # a dry run changes nothing
    visitor.picture("letters-dark")
    dialog.get_by_role("button", name="Redrive 12, park 4").click()
    expect(page.get_by_text("Redriven: 16 of 16, 1 refused. Begun by local.")).to_be_visible()
    expect(page.get_by_role("progressbar", name="Letters redriven")).to_have_attribute("aria-valuenow", "100")
    tile(page, "Open", "1")
    tile(page, "Redriven", "12")
    tile(page, "Parked", "4")
    assert sorted(row["amount"] for row in shop.read("carts").rows()) == [73314510714175488 + n for n in range(12)]
    audit = [row["target"] for row in shop.read("__audit").rows() if row["action"] == "letters.redrive"]
    assert audit == ["carts.dlq 16 letters to where each came from, rate 500, attempts 3"]


def test_a_limit_of_rows_a_second_is_kept_and_the_work_can_be_stopped(
    shop: EmbeddedLog, served_shop: str, visit: Visit
) -> None:
    fill(shop, "crates", [letter(n, topic="crates") for n in range(300)])
    page = visit(served_shop).open("/letters/crates")
    page.get_by_role("button", name="Redrive", exact=True).click()
    dialog = page.get_by_role("dialog", name="Redrive")
    dialog.get_by_label("Rows a second, at most").fill("1")
    dialog.get_by_role("button", name="Redrive 300").click()
    status = page.get_by_role("status", name="Redrive")
    expect(status).to_contain_text("Redriving: ")
    status.get_by_role("button", name="Stop").click()
    expect(status).to_contain_text("Stopped: ")
    assert 1 <= shop.read("crates").count() < 300  # without the limit all would be there at once


def test_one_letter_is_put_back_alone(shop: EmbeddedLog, served_shop: str, visit: Visit) -> None:
    fill(shop, "boxes", [letter(n, topic="boxes") for n in range(5)])
    page = visit(served_shop).open("/letters/boxes.dlq")
    page.get_by_role("region", name="Letters", exact=True).get_by_text("order 3 is broken").click()
    page.get_by_role("button", name="Redrive this one").click()
    page.get_by_role("dialog", name="Redrive").get_by_role("button", name="Redrive 1").click()
    tile(page, "Redriven", "1")
    assert [row["amount"] for row in shop.read("boxes").rows()] == [73314510714175491]


def test_what_the_filter_means_is_parked_and_taken_up_again(shop: EmbeddedLog, served_shop: str, visit: Visit) -> None:
    fill(shop, "parcels", [letter(n, "RowInvalid" if n < 3 else "ValueError", topic="parcels") for n in range(8)])
    page = visit(served_shop).open("/letters/parcels.dlq?reason=ValueError")
    expect(page.get_by_text("5 letters", exact=True)).to_be_visible()
    page.get_by_role("button", name="Park", exact=True).click()
    page.get_by_role("dialog", name="Park 5 letters?").get_by_role("button", name="Park 5 letters").click()
    tile(page, "Parked", "5")
    tile(page, "Open", "3")
    page.get_by_role("button", name="Parked", exact=True).click()
    expect(page.get_by_text("5 letters", exact=True)).to_be_visible()
    page.get_by_role("button", name="Park", exact=True).click()
    page.get_by_role("dialog", name="Take up 5 letters?").get_by_role("button", name="Take up 5 letters").click()
    tile(page, "Open", "8")
    actions = [row["action"] for row in shop.read("__audit").rows() if "parcels" in row["target"]]
    assert actions == ["letters.park", "letters.unpark"]


def test_a_topic_without_letters_says_so_and_the_page_fits_a_phone(
    shop: EmbeddedLog, served_shop: str, visit: Visit
) -> None:
    shop.create("clean.dlq", SCHEMA)
    page = visit(served_shop).open("/letters/clean")
    expect(page.get_by_role("alert")).to_contain_text("a topic whose rows are dead letters")
    fill(shop, "notes", [letter(n, topic="notes") for n in range(30)])
    phone = visit(served_shop, phone=True).open("/letters/notes")
    tile(phone, "Open", "30")
    assert phone.evaluate("document.documentElement.scrollWidth <= innerWidth")


# -- the index and the work, without a browser ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedLog]:
    with headwater.open(tmp_path_factory.mktemp("index") / "log") as log:
        assert isinstance(log, EmbeddedLog)
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


@given(
    steps=_STEPS, reason=st.none() | _REASONS, state=st.none() | st.sampled_from(STATES), text=st.none() | st.just("3")
)
def test_the_index_finds_what_a_reader_of_all_letters_finds(
    small: EmbeddedLog, steps: list[tuple[str, object]], reason: str | None, state: str | None, text: str | None
) -> None:
    name = f"t{next(_made)}"
    small.create(name, SCHEMA, durability="memory")
    append_dead_letters(small, name, [letter(0, "A", topic=name)])
    topic = letter_topic(small, name)
    index, number = LetterIndex(small, topic), 1
    for step, what in steps:
        if step == "write":
            assert isinstance(what, list)
            letters = [letter(number + n, one, topic=name) for n, one in enumerate(what)]
            number += len(what)
            append_dead_letters(small, name, letters)
        else:
            chosen = Selection(reasons=(str(what),))
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
    every: list[Found] = [one for some in read_letters(small, topic) for one in some]
    expected = [one for one in every if selection.includes(one)]
    places = index.places(selection)
    assert list(places) == [one.place for one in reversed(expected)]
    assert [(one.place, one.letter, one.state) for one in index.read(places)] == [
        (one.place, one.letter, one.state) for one in reversed(expected)
    ]
    counted = {(one.name, each): one.states[each] for one in index.reasons() for each in STATES if one.states[each]}
    assert counted == {
        (r, s): n
        for r in "ABC"
        for s in STATES
        if (n := sum(one.letter.error == r and one.state == s for one in every))
    }
    assert sum(map(sum, index.timeline().counts.values())) == len(every)


def test_work_that_is_stopped_leaves_the_rest_open(small: EmbeddedLog) -> None:
    fill(small, "slow", [letter(n, topic="slow") for n in range(50)])
    jobs, job = Jobs(), Job(plan=Plan(topic="slow.dlq", selection=Selection(), rate=1.0), total=50, caller="ada")
    assert jobs.begin(small, job)
    assert not jobs.begin(small, Job(plan=job.plan, total=50, caller="bob"))  # one at a time
    job.stop()
    for thread in threading.enumerate():
        if thread.name == "headwater-redrive":
            thread.join(10)
    assert job.state == "stopped"
    states = [one.state for some in read_letters(small, letter_topic(small, "slow")) for one in some]
    assert states.count("redriven") == small.read("slow").count() == job.done < 50
