"""Entities in the console: histories without their code; states around an event, and commands tried, with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

import headwater as hw
from headwater.cli.entity_file import load_entities
from headwater.console.entities.model import History, Place, command_data, json_text, marked
from headwater.errors import ArgumentInvalid, NotFound
from headwater.log import Log
from headwater.services import Settings, local
from headwater.services.entities import CommandField
from headwater.services.host import Host
from headwater.services.tokens import Tokens
from tests.console.conftest import LOOKS, Visit, serving
from tests.console.page_state import expect_shown
from tests.console.simulation import SimulatedConsole, simulated
from tests.sourcing.account import DECIDER, Accounts, Deposit, Open, Withdraw
from tests.sourcing.customer import CUSTOMER, Register

ENROLMENT = Path(__file__).parents[2] / "examples" / "course_enrolment.py"


@pytest.fixture
def accounts(log: Log) -> Iterator[Accounts]:
    with hw.Entities(log, "account", DECIDER) as accounts:
        accounts.send("acc-1", Open("Ada"), by="clerk", why="new customer", correlation="day-1")
        accounts.send("acc-1", Deposit(20), by="Ada", causation="account/acc-1/1")
        accounts.send("acc-1", Withdraw(5))
        yield accounts


@pytest.fixture
def history(log: Log, accounts: Accounts) -> History:
    host = Host(log=log, settings=Settings(), entities={"account": accounts})
    return History(local(host).entities, "account", "acc-1")


@pytest.fixture
def deciding(log: Log, accounts: Accounts) -> Iterator[SimulatedConsole]:
    """A console whose process has the deciders."""
    with hw.Entities(log, "customer", CUSTOMER) as customers, simulated(log, entities=[accounts, customers]) as made:
        yield made


# -- values -----------------------------------------------------------------------------------------------------------


def test_a_place_in_a_history_is_a_version_an_offset_or_a_time(history: History, accounts: Accounts) -> None:
    first, second, third = accounts.history("acc-1")
    for number, event in enumerate((first, second, third), 1):
        assert history.version_at(Place(kind="version", at=str(number))) == number
        assert history.version_at(Place(kind="offset", at=str(event.offset))) == number
    assert history.version_at(Place(kind="offset", at="1,000")) == 3
    assert history.version_at(Place(kind="time", at=third.at.isoformat())) == 3
    assert history.version_at(Place(kind="time", at="2020-01-01 12:00")) == 0
    for kind in ("version", "offset", "time"):
        with pytest.raises(ArgumentInvalid, match="such as"):
            history.version_at(Place(kind=kind, at="soon"))
    with pytest.raises(NotFound):
        history.version_at(Place(kind="version", at="4"))


def test_a_page_of_a_history_has_the_newest_events_first(history: History) -> None:
    assert [event.version for event in history.page(3, 2)] == [3, 2]
    assert [event.version for event in history.page(1, 2)] == [1]
    assert history.page(0, 2) == []


def test_lines_that_one_of_two_states_has_are_marked() -> None:
    before, after = marked('{\n  "name": "Ada",\n  "paid": 1\n}', '{\n  "name": "Ada"\n}')
    assert "line-after" not in after
    [line] = [line for line in before.split("\n") if "line-before" in line]
    assert "paid" in line


def test_a_value_that_moves_from_one_list_to_another_is_marked_in_both() -> None:
    before, after = marked(
        json_text({"offered": [], "waiting": ["Max"]}), json_text({"offered": ["Max"], "waiting": []})
    )
    for text, sign in ((before, "−"), (after, "+")):
        [line] = [line for line in text.split("\n") if "Max" in line]
        assert sign in line


def test_fields_of_a_form_become_json_by_their_types() -> None:
    fields = [
        CommandField(name=name, type=type, required=name != "note")
        for name, type in {
            "amount": "int",
            "price": "Decimal",
            "name": "str",
            "note": "str | None",
            "items": "list[str]",
            "is_gift": "bool",
            "colour": "Literal['red', 'blue']",
        }.items()
    ]
    texts = {"amount": "20", "price": "1.50", "name": "7", "items": '["a"]', "is_gift": "True", "colour": "red"}
    assert command_data(fields, texts) == {
        "amount": 20,
        "price": "1.50",
        "name": "7",
        "items": ["a"],
        "is_gift": True,
        "colour": "red",
    }
    with pytest.raises(ArgumentInvalid, match="amount"):
        command_data(fields, {**texts, "amount": ""})


# -- pages ------------------------------------------------------------------------------------------------------------


def test_kinds_lead_to_entities_and_these_to_their_histories(accounts: Accounts, console: SimulatedConsole) -> None:
    accounts.send("acc-2", Open("Bob"))
    page = console.open("/entities").later()
    assert "not known here" in page.sees_row("Entities", "account 4")
    assert page.links("Entities")["account"] == "/console/entities/account"
    page = console.open("/entities/account").sees("headwater serve --entities FILE")
    page.sees_row("Entities", "acc-1 3")
    page.sees_row("Entities", "acc-2 1")
    page.write("Beginning of an id", "acc-2").sees("1 entity").submit("Beginning of an id")
    page.sees("An entity of kind account")
    assert page.address == "/entities/account/entity?id=acc-2"


@pytest.mark.usefixtures("accounts")
def test_a_history_is_shown_without_the_code_of_its_entities(console: SimulatedConsole) -> None:
    page = console.open("/entities/account/entity?id=acc-1").sees("This process does not have the code")
    page.sees_first("History", r"3 .* Withdrawn \{\"amount\":5\}")
    page.sees_not("State after it", "Try a command")
    page.pick("History", "1 ").sees("1: Opened", "clerk", "new customer", "day-1")
    assert console.open("/entities/account/entity?id=acc").text("page").startswith("There is no entity 'acc'")


def test_an_event_has_the_states_before_and_after_it(deciding: SimulatedConsole) -> None:
    page = deciding.open("/entities/account/entity?id=acc-1&version=2").sees("2: Deposited")
    page.sees('"balance": 0', within="State before").sees('+   "balance": 20', within="State after")
    assert page.text("page").count("account/acc-1/1") == 1
    assert page.links()["account/acc-1/1"] == "/console/entities/account/entity?id=acc-1&version=1"
    page.press("Later event").sees('"balance": 15', within="State after")
    page.press("Earlier event").press("Earlier event").sees("nothing had happened")
    page.write("Go to", "offset").write("Place", "1").press("Go there").sees("2: Deposited")
    page.write("Go to", "time").write("Place", "2020-01-01").press("Go there").hears("acc-1 had no event yet.")


def test_the_newest_event_is_followed_until_another_one_is_picked(
    deciding: SimulatedConsole, accounts: Accounts
) -> None:
    page = deciding.open("/entities/account/entity?id=acc-1").sees("3: Withdrawn")
    accounts.send("acc-1", Deposit(7))
    page.later().sees("4: Deposited").pick("History", "3 ").sees("3: Withdrawn")
    accounts.send("acc-1", Deposit(7))
    page.later().sees("5", within="Version").sees("3: Withdrawn")


def test_a_command_is_tried_and_nothing_is_done(deciding: SimulatedConsole, accounts: Accounts, log: Log) -> None:
    page = deciding.open("/entities/account/entity?id=acc-1").press("Try a command")
    page.write("Command", "Withdraw").write("amount", "99").press("Try it").sees(
        "It would be rejected", "the balance is 15"
    )
    page.write("amount", "much").press("Try it").sees("It cannot be decided", "amount")
    page.write("amount", "5").press("Try it").sees("The entity would be at version 4.", '"balance": 10')
    assert "Withdrawn" in page.sees_row("Events that it would make", "4 ")
    assert accounts.load("acc-1").version == 3
    assert "__audit" not in log.topics(internal=True)


def test_personal_values_are_shown_to_callers_who_may_see_them(deciding: SimulatedConsole, log: Log) -> None:
    with hw.Entities(log, "customer", CUSTOMER) as customers:
        customers.send("c-1", Register("Ada"))
    reader = Tokens(log.home).create("auditor", ["read:customer.events"])
    path = "/entities/customer/entity?id=c-1"
    page = deciding.open(path, reader).sees("[encrypted]", "admin:customer.events").sees_not("Ada")
    page.press("Try a command").write("name", "Eve").press("Try it").sees("which you may not see")
    assert "account" not in deciding.open("/entities", reader).later().text("page")
    admin = Tokens(log.home).create("owner", ["admin:*", "read:*"])
    deciding.open(path, admin).sees('"Ada"', within="State after").sees("[encrypted]")


# -- in a browser -----------------------------------------------------------------------------------------------------


def test_a_server_with_the_code_shows_what_an_event_changed_and_what_a_command_would_do(
    log: Log, tmp_path: Path, visit: Visit
) -> None:
    declared = tmp_path / "courses.py"
    made = f'courses = hw.Entities(hw.open({str(tmp_path / "log")!r}), "course", COURSE)\n'
    declared.write_text(f"{ENROLMENT.read_text(encoding='utf-8')}\n\n{made}", encoding="utf-8")
    [courses] = load_entities(str(declared))
    with courses:
        send = local(Host(log=log, settings=Settings(), entities={"course": courses})).entities.send
        send("course", "logic", "Announce", {"places": 2}, by="office", why="winter term")
        for student in ("Ada", "Ben", "Eve", "Max"):
            send("course", "logic", "Enrol", {"student": student}, by=student, correlation=f"enrolment-{student}")
        send("course", "logic", "Cancel", {"student": "Ben"}, by="Ben", why="moves away", correlation="enrolment-Ben")
        send("course", "logic", "Accept", {"student": "Eve"}, by="Eve", correlation="enrolment-Eve")
        courses.log.close()
    with serving(Path(log.address), "--entities", str(declared)) as address:
        for dark in LOOKS:
            visitor = visit(address, dark=dark)
            look = "dark" if dark else "light"
            page = visitor.open("/entities/course/entity?id=logic")
            expect_shown(page)
            page.get_by_role("row", name="Cancelled").click()
            expect(page.get_by_label("State before").locator(".line-before")).to_contain_text(['"Ben"'])
            visitor.picture(f"entity-{look}")
            page.get_by_role("button", name="Try a command").click()
            page.get_by_role("combobox", name="Command").click()
            page.get_by_role("option", name="Cancel").click()
            page.get_by_label("student").fill("Ada")
            page.get_by_role("button", name="Try it").click()
            expect(page.get_by_label("Events that it would make")).to_contain_text("Offered")
            expect(page.get_by_label("State that it would give").locator(".line-after").first).to_contain_text(
                "offered"
            )
            if not dark:
                visitor.picture("entity-try-light")
