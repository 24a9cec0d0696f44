"""The bank ledger, as its user tests it: no money is lost, wherever the process of a transfer dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bank_ledger import ACCOUNT, Account, Accounts, Close, Declined, Deposit, Withdraw, transfer, transfers

import headwater as hw
from headwater.log import Log

TRANSFER: dict[str, Any] = {"id": "t-1", "source": "ada", "target": "eve", "amount": 30}


@pytest.fixture(autouse=True)
def shared_session() -> None:
    """In the place of the one of all examples: this one needs no Spark."""


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Log, Log]:
    return hw.open(tmp_path / "ours"), hw.open(tmp_path / "theirs")


@pytest.fixture
def banks(logs: tuple[Log, Log]) -> tuple[Accounts, Accounts]:
    ours, theirs = (hw.Entities(log, "account", ACCOUNT, partitions=1) for log in logs)
    ours.send("ada", Deposit(100))
    return ours, theirs


def balances(banks: tuple[Accounts, Accounts]) -> tuple[int, int]:
    ours, theirs = banks
    return ours.load("ada").state.balance, theirs.load("eve").state.balance


def test_a_worker_moves_money_to_the_other_bank(logs: tuple[Log, Log], banks: tuple[Accounts, Accounts]) -> None:
    logs[0].queue("transfers").put(TRANSFER)
    transfers(logs[0], *banks).run(until_empty=True)
    assert balances(banks) == (70, 30)
    assert transfer(*banks, **TRANSFER) == "completed"
    assert balances(banks) == (70, 30)


def test_a_transfer_that_was_declined_stays_declined(banks: tuple[Accounts, Accounts]) -> None:
    large = TRANSFER | {"amount": 130}
    assert transfer(*banks, **large) == "declined"
    banks[0].send("ada", Deposit(100))
    assert transfer(*banks, **large) == "declined"
    assert balances(banks) == (200, 0)
    [_, declined, _] = banks[0].history("ada")
    assert declined.event == Declined("the balance is 100")


class Died(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("done", [False, True], ids=["before it", "after it"])
@pytest.mark.parametrize("step", ["withdraw", "deposit", "refund"])
def test_a_transfer_that_died_at_a_step_is_ended_by_the_next_attempt(
    banks: tuple[Accounts, Accounts], monkeypatch: pytest.MonkeyPatch, step: str, done: bool
) -> None:
    send = hw.Entities.send

    def dying(accounts: Accounts, account: str, command: Any, *, command_id: str) -> Any:
        if done or not command_id.endswith(step):
            decision = send(accounts, account, command, command_id=command_id)
        if command_id.endswith(step):
            raise Died
        return decision

    banks[1].send("eve", Close())
    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(hw.Entities, "send", dying)
        transfer(*banks, **TRANSFER)
    assert transfer(*banks, **TRANSFER) == "refunded"
    assert balances(banks) == (100, 0)


def test_an_account_that_was_closed_meanwhile_is_paid_back(banks: tuple[Accounts, Accounts]) -> None:
    banks[1].send("eve", Close())
    banks[0].send("ada", Withdraw(30), command_id="t-1/withdraw")
    banks[0].send("ada", Close())
    assert transfer(*banks, **TRANSFER) == "refunded"
    assert banks[0].load("ada").state == Account(100, closed=True)
