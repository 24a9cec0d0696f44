"""Entities as services have them: histories without the decider; states and commands with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import headwater as hw
from headwater.errors import ArgumentInvalid, NotAllowed, NotFound, NotPossible
from headwater.log import Log
from headwater.services import Services
from headwater.services.entities import ENCRYPTED
from headwater.sourcing import CommandRejected, Entities, VersionConflict
from headwater.sourcing.errors import CommandUnknown
from tests.services.conftest import Audited, ServicesOf
from tests.sourcing.account import DECIDER, Accounts, Deposit, Open, Withdraw
from tests.sourcing.customer import CUSTOMER


@pytest.fixture
def accounts(log: Log) -> Iterator[Accounts]:
    with hw.Entities(log, "account", DECIDER, partitions=2) as accounts:
        accounts.send("acc-1", Open("Ada"), by="clerk", why="new customer", correlation="day-1")
        accounts.send("acc-1", Deposit(20), command_id="c-1")
        accounts.send("acc-2", Open("Bob"))
        yield accounts


# Any: the state, command and event classes of both.
@pytest.fixture
def entities(log: Log, accounts: Accounts) -> Iterator[list[Entities[Any, Any, Any]]]:
    with hw.Entities(log, "customer", CUSTOMER) as customers:
        yield [accounts, customers]


def test_kinds_ids_and_histories_are_read_without_a_decider(services: Services, log: Log) -> None:
    with hw.Entities(log, "lamp", DECIDER) as lamps:
        lamps.send("l-1", Open("Ada"))
    log.create("other.events", "id int64")
    assert [(each.name, each.events, each.commands is None) for each in services.entities.kinds()] == [
        ("account", 3, False),
        ("customer", 0, False),
        ("lamp", 1, True),
    ]
    [event] = services.entities.history("lamp", "l-1").events
    assert (event.event, event.data, event.version, event.schema) == ("Opened", {"owner": "Ada"}, 1, 1)
    with pytest.raises(NotPossible, match="--entities"):
        services.entities.state("lamp", "l-1")
    with pytest.raises(NotPossible, match="--file"):
        services.entities.send("lamp", "l-1", "Deposit", {"amount": 1})


def test_a_history_says_who_when_and_why_a_page_at_a_time(services: Services, accounts: Accounts) -> None:
    page = services.entities.history("account", "acc-1", limit=1)
    [opened] = page.events
    assert (opened.by, opened.why, opened.correlation, page.next) == ("clerk", "new customer", "day-1", 1)
    rest = services.entities.history("account", "acc-1", after=1)
    assert ([each.command_id for each in rest.events], rest.next) == (["c-1"], None)
    accounts.send("acc-1", Withdraw(5))
    assert services.entities.history("account", "acc-1").events[-1].data == {"amount": 5}


def test_entities_are_listed_in_pages(services: Services) -> None:
    page = services.entities.ids("account", limit=1)
    assert ([(each.id, each.version) for each in page.entities], page.next) == ([("acc-1", 2)], "acc-1")
    assert [each.id for each in services.entities.ids("account", after="acc-1").entities] == ["acc-2"]
    assert services.entities.ids("account", prefix="b").entities == []
    with pytest.raises(ArgumentInvalid, match="limit"):
        services.entities.ids("account", limit=0)


def test_what_does_not_exist_is_not_found(services: Services) -> None:
    with pytest.raises(NotFound, match="Did you mean 'account'"):
        services.entities.history("acount", "acc-1")
    with pytest.raises(NotFound, match="headwater entity list"):
        services.entities.history("account", "acc-9")
    with pytest.raises(NotFound, match="acc-9"):
        services.entities.state("account", "acc-9")


def test_a_state_is_that_of_now_or_of_then(services: Services, accounts: Accounts) -> None:
    first, second = accounts.history("acc-1")
    now = services.entities.state("account", "acc-1")
    assert (now.version, now.state) == (2, {"owner": "Ada", "balance": 20, "movements": [20]})
    for then in ({"version": 1}, {"offset": first.offset}, {"time": first.at.isoformat()}):
        state = services.entities.state("account", "acc-1", **then)
        assert state.state["balance"] == 0 or first.at == second.at
    with pytest.raises(ArgumentInvalid, match="one of"):
        services.entities.state("account", "acc-1", version=1, offset=1)
    with pytest.raises(ArgumentInvalid, match="time"):
        services.entities.state("account", "acc-1", time="yesterday")


def test_a_command_is_sent_by_its_name_and_fields(services: Services, accounts: Accounts, audited: Audited) -> None:
    done = services.entities.send("account", "acc-1", "Withdraw", {"amount": 5}, command_id="c-2", why="rent")
    assert [(each.version, each.event, each.data) for each in done.events] == [(3, "Withdrawn", {"amount": 5})]
    assert services.entities.send("account", "acc-1", "Withdraw", {"amount": 5}, command_id="c-2").duplicate
    last = accounts.history("acc-1")[-1]
    assert (last.by or "").startswith("ada")
    assert last.why == "rent"
    with pytest.raises(CommandRejected, match="the balance is 15"):
        services.entities.send("account", "acc-1", "Withdraw", {"amount": 99})
    with pytest.raises(VersionConflict):
        services.entities.send("account", "acc-1", "Deposit", {"amount": 1}, expected_version=1)
    with pytest.raises(CommandUnknown, match="Open, Deposit, Withdraw"):
        services.entities.send("account", "acc-1", "Steal")
    with pytest.raises(ArgumentInvalid, match="amount"):
        services.entities.send("account", "acc-1", "Deposit", {"amount": "much"})
    assert accounts.load("acc-1").version == 3
    assert {row["action"] for row in audited()} == {"entities.send"}


def test_a_dry_run_decides_and_appends_nothing(services_of: ServicesOf, accounts: Accounts, log: Log) -> None:
    reader = services_of("read:account.events").entities
    would = reader.send("account", "acc-1", "Withdraw", {"amount": 5}, dry_run=True)
    assert (would.version, [each.event for each in would.events]) == (3, ["Withdrawn"])
    with pytest.raises(CommandRejected):
        reader.send("account", "acc-1", "Withdraw", {"amount": 99}, dry_run=True)
    with pytest.raises(VersionConflict):
        reader.send("account", "acc-1", "Deposit", {"amount": 1}, expected_version=7, dry_run=True)
    assert accounts.load("acc-1").version == 2
    assert "__audit" not in log.topics(internal=True)


def test_scopes_are_those_of_the_topic_of_events(services_of: ServicesOf) -> None:
    reader = services_of("read:account.*").entities
    assert [each.name for each in reader.kinds()] == ["account"]
    assert reader.state("account", "acc-1").version == 2
    with pytest.raises(NotAllowed, match=r"write:account\.events"):
        reader.send("account", "acc-1", "Deposit", {"amount": 1})
    with pytest.raises(NotAllowed, match=r"read:customer\.events"):
        reader.history("customer", "c-1")


def test_personal_values_are_shown_to_admins_alone(services_of: ServicesOf) -> None:
    writer, admin = services_of("read:*", "write:*").entities, services_of("admin:*").entities
    assert writer.send("customer", "c-1", "Register", {"name": "Ada"}).events[0].data == {"name": ENCRYPTED}
    assert writer.history("customer", "c-1").events[0].data == {"name": ENCRYPTED}
    with pytest.raises(NotAllowed, match=r"admin:customer\.events"):
        writer.state("customer", "c-1")
    assert admin.state("customer", "c-1").state == "Ada"
    assert admin.send("customer", "c-1", "Register", {"name": "Eve"}, dry_run=True).events[0].data == {"name": "Eve"}


def test_a_kind_that_was_deleted_and_made_again_has_its_new_events(services: Services, log: Log) -> None:
    for name in ("first", "second"):
        with hw.Entities(log, "lamp", DECIDER) as lamps:
            lamps.send(name, Open("Ada"))
        assert [each.id for each in services.entities.ids("lamp").entities] == [name]
        log.delete("lamp.events")
    with pytest.raises(NotFound):
        services.entities.ids("lamp")
