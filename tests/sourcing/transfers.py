"""A saga that moves money between accounts, for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import headwater as hw
from headwater.log import Log
from headwater.sourcing import RecordedEvent, Saga, Send, SendRejected
from tests.sourcing.account import DECIDER, Accounts, Deposit, Deposited, Withdraw, Withdrawn


@dataclass(frozen=True)
class Start:
    source: str
    target: str
    amount: int


@dataclass(frozen=True)
class Expire:
    pass


@dataclass(frozen=True)
class Started:
    source: str
    target: str
    amount: int


@dataclass(frozen=True)
class Debited:
    target: str
    amount: int


@dataclass(frozen=True)
class Ended:
    outcome: str


Event = Started | Debited | Ended
Message = Start | Expire | RecordedEvent | SendRejected


def decide(state: Event | None, message: Message) -> list[Event]:
    match state, message:
        case None, Start(source, target, amount):
            return [Started(source, target, amount)]
        case Started(), RecordedEvent(event=Withdrawn(amount)):
            return [Debited(state.target, amount)]
        case Started(), SendRejected(reason=reason):
            return [Ended(f"declined: {reason}")]
        case Debited(), RecordedEvent(event=Deposited()):
            return [Ended("completed")]
        case Ended("completed"), Expire():
            return [Ended("archived")]
    return []


def evolve(_: Event | None, event: Event) -> Event | None:
    return event


def send(own: RecordedEvent) -> list[Send]:
    match own.event:
        case Started(source, _, amount):
            return [Send("account", source, Withdraw(amount)), Send("transfer", own.id, Expire(), delay="1 hour")]
        case Debited(target, amount):
            return [Send("account", target, Deposit(amount))]
    return []


# Any: commands of users and of sagas.
TRANSFER: hw.Decider[Any, Any, Any] = hw.Decider(initial=None, decide=decide, evolve=evolve)
Transfers = hw.Entities[Any, Any, Any]


def open_bank(log: Log, **settings: Any) -> tuple[Accounts, Transfers, Saga]:
    accounts = hw.Entities(log, "account", DECIDER, partitions=2)
    transfers = hw.Entities(log, "transfer", TRANSFER, partitions=2, check=True)
    return accounts, transfers, Saga(transfers, **{"sources": [accounts], "send": send, **settings})
