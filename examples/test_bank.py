"""Transfers of the bank, also when the program ends between any two steps."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import bank
import pytest
from bank import ACCOUNT, TRANSFER, Close, Deposit, Request

import headwater as hw


class Ended(Exception):
    """Stands for the end of the program."""


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[bank.Accounts]:
    with hw.open(tmp_path) as log, hw.Entities(log, "account", ACCOUNT) as accounts:
        accounts.send("ann", Deposit(100))
        accounts.send("bob", Deposit(5))
        accounts.send("cem", Close())
        yield accounts


@pytest.mark.parametrize("ends_after", range(6))
@pytest.mark.parametrize(
    ("target", "amount", "stage", "balances"),
    [("bob", 30, "done", (70, 35)), ("bob", 200, "returned", (100, 5)), ("cem", 30, "returned", (100, 5))],
)
def test_a_transfer_happens_or_its_money_comes_back(
    accounts: bank.Accounts,
    target: str,
    amount: int,
    stage: str,
    balances: tuple[int, int],
    ends_after: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = 0
    send = hw.Entities.send

    def send_until_the_end(entities: object, *values: object, **options: object) -> object:
        nonlocal sent
        if sent == ends_after:
            raise Ended
        sent += 1
        return send(entities, *values, **options)  # type: ignore[arg-type]  # as it was called

    with hw.Entities(accounts.log, "transfer", TRANSFER) as transfers:
        transfers.send("t-1", Request("ann", target, amount))
        with monkeypatch.context() as patch:
            patch.setattr(hw.Entities, "send", send_until_the_end)
            with contextlib.suppress(Ended):
                bank.advance(accounts, transfers, "t-1")
        assert bank.advance(accounts, transfers, "t-1").stage == stage
        assert (accounts.load("ann").state.balance, accounts.load("bob").state.balance) == balances


def test_the_reason_of_a_refund_is_in_the_history(accounts: bank.Accounts) -> None:
    with hw.Entities(accounts.log, "transfer", TRANSFER) as transfers:
        transfers.send("t-1", Request("ann", "cem", 30))
        bank.advance(accounts, transfers, "t-1")
    refund = accounts.history("ann")[-1]
    assert (refund.event, refund.why, refund.correlation) == (bank.Deposited(30), "the account is closed", "t-1")
