"""`headwater entity`: entities at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import headwater
from headwater.schema import cloudevents
from tests.cli.conftest import Cli
from tests.cli.test_serve import serving

BANK = """
from dataclasses import dataclass

import headwater as hw


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Withdraw:
    amount: int


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Withdrawn:
    amount: int


def decide(balance: int, command: Deposit | Withdraw) -> list[Deposited | Withdrawn] | hw.Rejected:
    if isinstance(command, Deposit):
        return [Deposited(command.amount)]
    return [Withdrawn(command.amount)] if command.amount <= balance else hw.Rejected(f"the balance is {balance}")


def evolve(balance: int, event: Deposited | Withdrawn) -> int:
    return balance + event.amount if isinstance(event, Deposited) else balance - event.amount


log = hw.open("data")
accounts = hw.Entities(log, "account", hw.Decider(initial=0, decide=decide, evolve=evolve))
"""
FILE = ("--file", "bank.py")


@pytest.fixture(autouse=True)
def bank(an_empty_folder: Path) -> None:
    (an_empty_folder / "bank.py").write_text(BANK)


def send(cli: Cli, command: str, amount: int, *more: str) -> str:
    done = cli("entity", "send", "account", "acc-1", command, json.dumps({"amount": amount}), *FILE, *more)
    assert done.code == 0, done.err
    return done.out + done.err


def test_a_command_is_tried_and_sent_and_its_events_are_shown(cli: Cli) -> None:
    assert "That would be 1 event of account acc-1. Nothing was appended." in send(cli, "Deposit", 20, "--dry-run")
    told = send(cli, "Deposit", 20, "--by", "clerk", "--command-id", "c-1")
    assert [line.split(maxsplit=2) for line in told.splitlines()[:2]] == [
        ["VERSION", "EVENT", "DATA"],
        ["1", "Deposited", '{"amount": 20}'],
    ]
    assert "account acc-1 is at version 1." in told
    assert "was done before" in send(cli, "Deposit", 20, "--command-id", "c-1")
    rejected = cli("entity", "send", "account", "acc-1", "Withdraw", '{"amount": 30}', *FILE)
    assert (rejected.code, "the balance is 20" in rejected.err) == (5, True)


def test_histories_and_ids_need_no_file(cli: Cli) -> None:
    send(cli, "Deposit", 20, "--by", "clerk")
    send(cli, "Withdraw", 5, "--by", "clerk", "--why", "rent")
    lines = cli("entity", "history", "account", "acc-1").out.splitlines()
    assert "WHY" in lines[0]
    assert "CORRELATION" not in lines[0]
    assert lines[2].split()[3:] == ["Withdrawn", '{"amount":', "5}", "clerk", "rent"]
    first = cli("entity", "history", "account", "acc-1", "-n", "1")
    assert "headwater entity history account acc-1 --after 1" in first.err
    assert [row["event"] for row in cli("entity", "history", "account", "acc-1", "--json").json] == [
        "Deposited",
        "Withdrawn",
    ]
    events = cli("entity", "history", "account", "acc-1", "--cloudevents", "--after", "1").out.splitlines()
    assert [cloudevents.from_structured(event)["id"] for event in events] == ["acc-1/2"]
    assert cli("entity", "list", "account", "--json").json == [{"id": "acc-1", "version": 2}]
    assert cli("entity", "list").out.splitlines()[1].split()[:2] == ["account", "2"]
    assert "Deposit(amount), Withdraw(amount)" in cli("entity", "list", *FILE).out
    shown = cli("entity", "show", "account", "acc-1")
    assert 'Withdrawn {"amount": 5}, by clerk: rent' in shown.out
    assert "--file" in shown.err


def test_a_state_is_shown_where_the_file_is_named(cli: Cli) -> None:
    send(cli, "Deposit", 20)
    send(cli, "Withdraw", 5)
    assert "  state    15" in cli("entity", "show", "account", "acc-1", *FILE).out
    assert cli("entity", "at", "account", "acc-1", "--version", "1", *FILE, "--json").json == {
        "id": "acc-1",
        "version": 1,
        "state": 20,
    }
    assert cli("entity", "at", "account", "acc-1", *FILE).code == 2
    assert "--file" in cli("entity", "at", "account", "acc-1", "--version", "1").err


def test_the_log_of_the_command_line_comes_before_that_of_the_file(cli: Cli) -> None:
    with headwater.open("other") as log:
        log.create("some", "id int64")
    assert "at version 1" in send(cli, "Deposit", 7, "--log", "other")
    assert cli("entity", "list", "account", "--log", "other", "--json").json == [{"id": "acc-1", "version": 1}]
    assert cli("entity", "list", "account", "--json").json == []
    refused = cli("entity", "send", "account", "a", "Deposit", *FILE, "--log", "http://127.0.0.1:1")
    assert (refused.code, "headwater serve --entities" in refused.err) == (2, True)


@pytest.mark.process
def test_a_server_decides_commands_with_the_file_that_it_was_given(cli: Cli) -> None:
    with serving("--entities", "bank.py", "--log", "served") as (address, _):
        sent = cli("entity", "send", "account", "acc-1", "Deposit", '{"amount": 20}', "--log", address)
        assert sent.code == 0, sent.err
        assert "  state    20" in cli("entity", "show", "account", "acc-1", "--log", address).out
    assert cli("entity", "list", "account", "--log", "served", "--json").json == [{"id": "acc-1", "version": 1}]


def test_a_mistake_says_what_to_write_instead(cli: Cli, tmp_path: Path) -> None:
    send(cli, "Deposit", 20)
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "acting.py").write_text(f'{BANK}accounts.send("acc-1", Withdraw(99))\n')
    for arguments, code, hint in (
        (("show", "acount", "acc-1"), 3, "Did you mean 'account'?"),
        (("show", "account", "acc-9"), 3, "headwater entity list"),
        (("send", "account", "acc-1", "Deposit"), 2, "headwater entity … --file FILE"),
        (("send", "account", "acc-1", "Deposit", "20", *FILE), 2, "as in"),
        (("send", "account", "acc-1", "Deposit", *FILE), 2, "needs the field 'amount'"),
        (("send", "account", "acc-1", "Depose", *FILE), 2, "it has Deposit, Withdraw"),
        (("list", "--file", "empty.py"), 2, "hw.Entities"),
        (("list", "--file", "acting.py"), 2, "only declares entities"),
    ):
        result = cli("entity", *arguments)
        assert (result.code, hint in result.err) == (code, True), result.err
