"""Home and the list of topics: what is there, how fast it grows, and that thousands of them are one page."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

import headwater
from headwater.apps.home import DeclaredQuery, Home
from headwater.apps.status import QueryStatus, State
from headwater.console.queries.status import WORST_FIRST
from headwater.log import Log
from headwater.log.dead_letters import DeadLetter, append_dead_letters
from headwater.log.redrive import redrive
from tests.console.conftest import LOOKS, WANTS_PICTURES, Running, Served, Visit
from tests.console.page_state import expect_theme, expect_to_fit, loading_again
from tests.console.simulation import SimulatedConsole, simulated
from tests.console.stage import APP, Stage, runner_of

SCHEMA = "customer string, amount long"


def test_home_of_an_empty_log_says_what_to_do(console: SimulatedConsole) -> None:
    console.open("/").sees("Nothing here yet", "headwater produce greetings")


def test_topics_grow_while_one_looks(log: Log, console: SimulatedConsole) -> None:
    log.create("orders", SCHEMA, partitions=2)
    log.append("orders", [{"customer": "ada", "amount": number} for number in range(1_500)])
    page = console.open("/topics").later()
    page.sees_row("Topics", "orders input 2 1,500 ")
    log.append("orders", [{"customer": "ada", "amount": 1}])
    page.later().sees_row("Topics", "orders input 2 1,501 ")


def test_lag_stands_in_the_row_of_the_topic_and_no_commit_is_not_zero(log: Log) -> None:
    log.create("orders", SCHEMA)
    log.append("orders", [{"customer": "ada", "amount": number} for number in range(10)])
    log.groups.seek("billing", "orders", {0: 4})
    with log.consumer("orders", "fresh", auto_commit=False) as reader:
        reader.poll(seconds=0.0)
        with simulated(log) as console:
            console.open("/topics").sees_row("Topics", "orders .*fresh no commit, billing 6")


def test_home_shows_stopped_queries_the_worst_lag_of_all_readers_and_rows_of_inputs_alone(log: Log) -> None:
    log.create("orders", SCHEMA)
    log.create("spend", SCHEMA)
    log.append("orders", [{"customer": "ada", "amount": number} for number in range(1_800)])
    log.groups.seek("billing", "orders", {0: 1_790})
    Home(log.home / "apps" / "shop").set_queries(
        [DeclaredQuery(name="spend", kind="view", inputs=("orders",), output="spend")]
    )
    with simulated(log) as console:
        page = console.open("/").later()
        page.sees("0/1\nall stopped", within="Queries").sees("1 input of 2 topics", within="Rows in")
        page.sees("1.80 krows\nquery spend", within="Worst lag").sees_not("all run")
        assert "spend stopped 0 1.80 k" in page.sees_row("Queries", "spend")
        console.open("/queries/spend").sees("No process runs app shop", "stopped")
        page = console.open("/topics/orders").sees("input · 1 partition")
        assert "reads it stopped 1,800" in page.sees_row("Queries and views of this topic", "spend")
        page.sees("spend, ", within="Worst lag")
        page = console.open("/topics/spend").sees("changelog of view spend")
        assert "writes it" in page.sees_row("Queries and views of this topic", "spend")
        assert "spend 1.80 k, billing 10" in console.open("/topics").sees_row("Topics", "orders input")


@pytest.mark.parametrize(
    ("states", "text"),
    [
        (["caught up"] * 12 + ["stopped"], "12/13\nstopped: q12"),
        (["caught up"] * 12 + ["restarting"], "12/13\nq12 is restarting"),
        (["running", "starting"], "1/2\n1 start"),
        (["running", "caught up"], "2/2\nall run"),
    ],
)
def test_home_says_that_all_queries_run_only_if_all_do(log: Log, states: list[State], text: str) -> None:
    stage = Stage(log)
    stage.statuses = [
        QueryStatus(name=f"q{number}", kind="topic", app=APP, state=state) for number, state in enumerate(states)
    ]
    stage.show()
    with simulated(log, runner_of(log)) as console:
        page = console.open("/").sees(text, within="Queries")
        worst = min(states, key=WORST_FIRST.index)
        page.sees_first("Queries", f"q{states.index(worst)}")


def test_home_counts_the_dead_letters_that_wait_for_a_decision(log: Log) -> None:
    log.create("orders", SCHEMA)
    row = '{"customer": "ada", "amount": 1}'
    letters = [
        DeadLetter(topic="orders", partition=0, offset=number, error="Bad", message="no", row=row, at_us=1)
        for number in range(3)
    ]
    append_dead_letters(log, "orders", letters)
    with simulated(log) as console:
        page = console.open("/")
        page.sees("3\nwaiting for a decision", within="Dead letters")
        assert redrive(log, "orders").redriven == {"Bad": 3}
        page.later().sees("0\nnone", within="Dead letters")


def test_a_filter_and_an_order_find_topics(log: Log) -> None:
    for name in ("apples", "pears", "plums"):
        log.create(name, SCHEMA)
    log.append("pears", [{"customer": "ada", "amount": 1}])
    with simulated(log) as console:
        page = console.open("/topics")
        assert [row.split()[0] for row in page.rows("Topics")] == ["apples", "pears", "plums"]
        page.trigger("Topics", "sort", "rows").sees_first("Topics", "pears")
        page.write("Filter topics", "plu").sees_first("Topics", "plums")
        assert [row.split()[0] for row in page.rows("Topics")] == ["plums"]
        assert page.links("Topics") == {"plums": "/console/topics/plums"}


def test_the_jump_box_finds_topics_and_screens(log: Log, console: SimulatedConsole) -> None:
    log.create("apples", SCHEMA)
    page = console.open("/topics").later()
    page.press("Jump to").write("Jump to", "appl")
    assert page.dialog().splitlines() == ["apples", "topic"]
    page.submit("Jump to").sees("apples\ninput · 1 partition")
    assert page.address == "/topics/apples"


@pytest.mark.parametrize("topics", [1_200, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_topics_are_one_page_of_fifty(topics: int) -> None:
    # In memory, where there is a place for files in it: each topic is synced to the disk when it is made.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, headwater.open(Path(folder) / "log") as log:
        assert isinstance(log, Log)
        for number in range(topics):
            log.create(f"topic.{number:05}", SCHEMA, durability="memory")
        with simulated(log) as console:
            page = console.open("/topics").sees(f"1 to 50 of {topics:,}")
            assert len(page.rows("Topics")) == 50
            page.press("Further").sees(f"51 to 100 of {topics:,}")
            page.write("Filter topics", "00876").sees_first("Topics", "topic.00876")
            console.open("/").sees(f"{topics:,} topics", within="Rows in")


def test_a_question_mark_explains_its_number(console: SimulatedConsole) -> None:
    page = console.open("/").sees_not("When it is red")
    page.press("Why: Lag").sees("When it is red")
    page.press("Close").sees_not("When it is red")


# -- in a browser -----------------------------------------------------------------------------------------------------


def test_light_dark_phone_and_keys(shared: Served, prefix: str, visit: Visit) -> None:
    shared.log.create(f"{prefix}plums", SCHEMA)
    page = visit(shared.address).open("/topics")
    expect_theme(page, "light")
    with loading_again(page):
        page.get_by_label("Light or dark").click()
    expect_theme(page, "dark")
    expect(page.locator("[data-search] input, input[data-search]")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type(f"{prefix}plu")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Why: Lag").first.click()
    expect(page.get_by_text("When it is red")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_text("When it is red")).not_to_be_visible()
    phone = visit(shared.address, phone=True).open("/topics")
    expect_to_fit(phone)
    expect(phone.get_by_role("link", name="Home")).not_to_be_in_viewport()
    phone.get_by_label("Open the navigation").click()
    expect(phone.get_by_role("link", name="Home")).to_be_in_viewport()


@pytest.mark.parametrize("dark", LOOKS)
def test_home_of_a_company_at_work(running: Running, visit: Visit, dark: bool) -> None:
    visitor = visit(running.address, dark=dark)
    page = visitor.open("/")
    expect(page.get_by_role("group", name="Queries")).to_contain_text("3/3")
    orders = page.get_by_label("Busiest topics").get_by_role("row", name=re.compile(r"^orders\b(?!\.)"))
    for _ in range(8 if WANTS_PICTURES else 1):  # a line has several points
        running.feed.some(seconds=20)
        expect(orders.first).to_contain_text(f"{running.log.describe('orders').rows:,}")
    visitor.picture(f"home-{'dark' if dark else 'light'}")
