"""Bank ledger: transfers to accounts of another bank, which are paid back if that bank declines.

Each bank has a log of its own, so no transaction covers both accounts. A transfer is a message of a queue: a worker does
its steps, and does them again from the first one if a process has died. Each step has a command id, so that the accounts
do it once, and answer as they did then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import headwater as hw
from headwater.log import Log
from headwater.queues import Message, Worker


@dataclass(frozen=True)
class Deposit:
    amount: int


@dataclass(frozen=True)
class Withdraw:
    amount: int


@dataclass(frozen=True)
class Refund:
    amount: int


@dataclass(frozen=True)
class Close:
    pass


@dataclass(frozen=True)
class Booked:
    amount: int


@dataclass(frozen=True)
class Declined:
    reason: str


@dataclass(frozen=True)
class Closed:
    pass


@dataclass(frozen=True)
class Account:
    balance: int = 0
    closed: bool = False


Command = Deposit | Withdraw | Refund | Close
Event = Booked | Declined | Closed
Accounts = hw.Entities[Account, Command, Event]


def decide(account: Account, command: Command) -> Event:
    """An account declines by an event: what is only rejected is decided again when the command is repeated."""
    match command:
        case Refund(amount):  # never declined, or the money would be nowhere
            return Booked(amount)
        case Close():
            return Closed()
        case Deposit() | Withdraw() if account.closed:
            return Declined("the account is closed")
        case Deposit(amount):
            return Booked(amount)
        case Withdraw(amount):
            return Booked(-amount) if amount <= account.balance else Declined(f"the balance is {account.balance}")


def evolve(account: Account, event: Event) -> Account:
    match event:
        case Booked(amount):
            return replace(account, balance=account.balance + amount)
        case Closed():
            return replace(account, closed=True)
        case Declined():
            return account


ACCOUNT: hw.Decider[Account, Command, Event] = hw.Decider(initial=Account(), decide=decide, evolve=evolve)


def transfer(ours: Accounts, theirs: Accounts, *, id: str, source: str, target: str, amount: int) -> str:
    """Move money and say how it ended. To call it again does nothing twice, and ends the same."""
    if not _is_booked(ours, source, Withdraw(amount), f"{id}/withdraw"):
        return "declined"
    if _is_booked(theirs, target, Deposit(amount), f"{id}/deposit"):
        return "completed"
    _is_booked(ours, source, Refund(amount), f"{id}/refund")
    return "refunded"


def _is_booked(accounts: Accounts, account: str, command: Command, command_id: str) -> bool:
    [event] = accounts.send(account, command, command_id=command_id).events
    return isinstance(event, Booked)


def transfers(log: Log, ours: Accounts, theirs: Accounts) -> Worker:
    """The worker of the queue `transfers`. Its messages have the `id`, `source`, `target` and `amount` of a transfer."""

    @log.worker("transfers", retries=hw.Retry(attempts=100))
    def move(message: Message) -> None:
        transfer(ours, theirs, **message.body)

    worker: Worker = move
    return worker
