"""A bank: a transfer takes from one account and then gives to another; if that is refused, it gives the money back.

python examples/bank.py

A transfer is an entity, too. Its stage says what is to be done next, so a program that dies goes on where it was: each step
has a command id, and is done once however often it is tried.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from typing import Literal

import headwater as hw
from headwater.sourcing import CommandRejected

# -- accounts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Withdraw:
    amount: int


@dataclass(frozen=True)
class Close:
    pass


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Withdrawn:
    amount: int


@dataclass(frozen=True)
class Closed:
    pass


@dataclass(frozen=True)
class Account:
    balance: int = 0
    is_closed: bool = False


AccountEvent = Deposited | Withdrawn | Closed


def decide_account(account: Account, command: Deposit | Withdraw | Close) -> list[AccountEvent] | hw.Rejected:
    if account.is_closed:
        return hw.Rejected("the account is closed")
    match command:
        case Deposit(amount):
            return [Deposited(amount)]
        case Withdraw(amount):
            return [Withdrawn(amount)] if amount <= account.balance else hw.Rejected(f"it has {account.balance}")
        case Close():
            return [Closed()] if account.balance == 0 else hw.Rejected(f"it has {account.balance}")


def evolve_account(account: Account, event: AccountEvent) -> Account:
    match event:
        case Deposited(amount):
            return replace(account, balance=account.balance + amount)
        case Withdrawn(amount):
            return replace(account, balance=account.balance - amount)
        case Closed():
            return replace(account, is_closed=True)


# -- transfers --------------------------------------------------------------------------------------------------------

Stage = Literal["new", "requested", "taken", "done", "refused", "returned"]
#: Which stages may follow. A transfer whose first account refuses it is `returned` at once: no money has moved.
FOLLOWING: dict[Stage, tuple[Stage, ...]] = {
    "requested": ("taken", "returned"),
    "taken": ("done", "refused"),
    "refused": ("returned",),
}


@dataclass(frozen=True)
class Request:
    source: str
    target: str
    amount: int


@dataclass(frozen=True)
class Advance:
    stage: Stage
    reason: str = ""


@dataclass(frozen=True)
class Requested:
    source: str
    target: str
    amount: int


@dataclass(frozen=True)
class Advanced:
    stage: Stage
    reason: str


@dataclass(frozen=True)
class Transfer:
    stage: Stage = "new"
    source: str = ""
    target: str = ""
    amount: int = 0
    reason: str = ""


def decide_transfer(transfer: Transfer, command: Request | Advance) -> list[Requested | Advanced] | hw.Rejected:
    match command:
        case Request(source, target, amount):
            if transfer.stage != "new" or amount <= 0 or source == target:
                return hw.Rejected("a transfer is new, of a positive amount, and between two accounts")
            return [Requested(source, target, amount)]
        case Advance(stage, reason):
            if stage not in FOLLOWING.get(transfer.stage, ()):
                return hw.Rejected(f"{stage} does not follow {transfer.stage}")
            return [Advanced(stage, reason)]


def evolve_transfer(transfer: Transfer, event: Requested | Advanced) -> Transfer:
    match event:
        case Requested(source, target, amount):
            return Transfer("requested", source, target, amount)
        case Advanced(stage, reason):
            return replace(transfer, stage=stage, reason=reason or transfer.reason)


Accounts = hw.Entities[Account, Deposit | Withdraw | Close, AccountEvent]
Transfers = hw.Entities[Transfer, Request | Advance, Requested | Advanced]
ACCOUNT = hw.Decider(initial=Account(), decide=decide_account, evolve=evolve_account)
TRANSFER = hw.Decider(initial=Transfer(), decide=decide_transfer, evolve=evolve_transfer)


def advance(accounts: Accounts, transfers: Transfers, id: str) -> Transfer:
    """Do the steps of a transfer that are left."""
    while True:
        transfer: Transfer = transfers.load(id).state
        if transfer.stage not in FOLLOWING:
            return transfer
        step = step_of(accounts, id, transfer)
        transfers.send(id, step, command_id=step.stage)


def step_of(accounts: Accounts, id: str, transfer: Transfer) -> Advance:
    """Do the next step, and return the stage behind it."""
    amount = transfer.amount
    match transfer.stage:
        case "requested":
            try:
                accounts.send(transfer.source, Withdraw(amount), command_id=f"{id}/take", correlation=id)
            except CommandRejected as rejected:
                return Advance("returned", rejected.reason)
            return Advance("taken")
        case "taken":
            try:
                accounts.send(transfer.target, Deposit(amount), command_id=f"{id}/give", correlation=id)
            except CommandRejected as rejected:
                return Advance("refused", rejected.reason)  # first a fact, then the money: it is not tried again
            return Advance("done")
        case _:
            why = transfer.reason
            accounts.send(transfer.source, Deposit(amount), command_id=f"{id}/return", correlation=id, why=why)
            return Advance("returned")


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        hw.open(folder) as log,
        hw.Entities(log, "account", ACCOUNT) as accounts,
        hw.Entities(log, "transfer", TRANSFER) as transfers,
    ):
        accounts.send("ann", Deposit(100))
        accounts.send("bob", Close())
        transfers.send("t-1", Request("ann", "bob", 30))
        print(advance(accounts, transfers, "t-1"))
        for event in accounts.history("ann"):
            print(event.version, event.event, event.why or "")


if __name__ == "__main__":
    main()
