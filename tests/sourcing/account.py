"""A small bank: the decider that the tests of event sourcing share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import headwater as hw


@dataclass(frozen=True)
class Open:
    owner: str


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Withdraw:
    amount: int


@dataclass(frozen=True)
class Opened:
    owner: str


@dataclass(frozen=True)
class Deposited:
    amount: int


@dataclass(frozen=True)
class Withdrawn:
    amount: int


@dataclass(frozen=True)
class Account:
    owner: str = ""
    balance: int = 0
    movements: tuple[int, ...] = ()


Command = Open | Deposit | Withdraw
Event = Opened | Deposited | Withdrawn


def decide(account: Account, command: Command) -> list[Event] | hw.Rejected:
    match command:
        case Open():
            return hw.Rejected("it is open") if account.owner else [Opened(command.owner)]
        case Deposit():
            return [Deposited(command.amount)] if command.amount > 0 else hw.Rejected("an amount is positive")
        case Withdraw():
            if command.amount > account.balance:
                return hw.Rejected(f"the balance is {account.balance}")
            return [Withdrawn(command.amount)]


def evolve(account: Account, event: Event) -> Account:
    match event:
        case Opened():
            return replace(account, owner=event.owner)
        case Deposited():
            movement = event.amount
        case Withdrawn():
            movement = -event.amount
    return replace(account, balance=account.balance + movement, movements=(*account.movements[-9:], movement))


def tags(event: Event) -> Iterator[str]:
    yield f"kind:{type(event).__name__}"
    if isinstance(event, Opened):
        yield f"owner:{event.owner}"


DECIDER = hw.Decider(initial=Account(), decide=decide, evolve=evolve, tags=tags)
Accounts = hw.Entities[Account, Command, Event]
