"""Commands of several entities in one transaction, and decisions over tagged events."""

from __future__ import annotations

from dataclasses import replace

import pytest

import headwater as hw
from headwater.errors import ArgumentInvalid, NotPossible
from headwater.log import Log
from headwater.log.errors import TransactionFinished
from headwater.sourcing import CommandRejected
from tests.sourcing.account import DECIDER, Accounts, Deposit, Open, Withdraw


def test_a_transfer_is_done_whole_or_not_at_all(log: Log, accounts: Accounts) -> None:
    log.create("transfers", {"amount": "int64"})
    accounts.send("a", Deposit(10))
    with accounts.transaction() as transfer:
        transfer.send("a", Withdraw(7), by="Ada")
        transfer.send("b", Deposit(7), by="Ada")
        transfer.append("transfers", [{"amount": 7}])
    assert [decision.version for decision in transfer.decisions] == [2, 1]
    with pytest.raises(CommandRejected), accounts.transaction() as transfer:
        transfer.send("b", Deposit(7))
        transfer.send("a", Withdraw(7))
        transfer.append("transfers", [{"amount": 7}])
    assert (accounts.load("a").state.balance, accounts.load("b").state.balance) == (3, 7)
    assert log.read("transfers").count() == 1
    with pytest.raises(TransactionFinished):
        transfer.commit()


def test_a_transaction_spans_entities_of_several_names(log: Log, accounts: Accounts) -> None:
    with hw.Entities(log, "saving", DECIDER) as savings:
        with accounts.transaction() as transaction:
            transaction.send("a", Deposit(1))
            transaction.send("a", Deposit(2), entities=savings)
            transaction.send("a", Deposit(3), entities=savings)
        assert (accounts.load("a").state.balance, savings.load("a").state.balance) == (1, 5)


def test_commands_after_a_transaction_of_another_process_see_it(log: Log, accounts: Accounts) -> None:
    accounts.send("a", Deposit(1))
    with hw.Entities(log, "account", DECIDER) as others:
        with others.transaction() as transaction:
            transaction.send("a", Withdraw(1))
            transaction.send("b", Deposit(1))
        with pytest.raises(CommandRejected):
            accounts.send("a", Withdraw(1))


def test_a_decision_can_depend_on_events_of_many_entities(accounts: Accounts) -> None:
    for number in range(6):
        accounts.send(f"a-{number}", Deposit(10))
    # The boundary is every deposit and every payment: the bank pays out what it holds, from any account.
    bounds = ["kind:Deposited", "kind:Withdrawn"]
    assert accounts.boundary(bounds).balance == 60
    decision = accounts.decide_over(bounds, Withdraw(50), id="till", command_id="c-1", by="clerk")
    assert (decision.id, decision.version) == ("till", 1)
    with pytest.raises(CommandRejected, match="the balance is 10"):
        accounts.decide_over(bounds, Withdraw(50), id="till")
    assert accounts.decide_over(bounds, Withdraw(50), id="till", command_id="c-1").duplicate
    assert accounts.load("till").state.balance == -50


def test_a_boundary_can_be_unique(accounts: Accounts) -> None:
    accounts.decide_over(["owner:Ada"], Open("Ada"), id="a")
    with pytest.raises(CommandRejected):
        accounts.decide_over(["owner:Ada"], Open("Ada"), id="b")
    accounts.decide_over(["owner:Eve"], Open("Eve"), id="b")


def test_a_boundary_needs_tags(log: Log, accounts: Accounts) -> None:
    with pytest.raises(ArgumentInvalid):
        accounts.boundary("kind:Opened")
    untagged = replace(DECIDER, tags=None)
    with hw.Entities(log, "untagged", untagged) as others, pytest.raises(NotPossible):
        others.boundary(["kind:Opened"])
