"""Read models of the accounts: one by account, and one whose rows are about the events of many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from headwater.sourcing import Deleted, ReadModel, RecordedEvent
from tests.sourcing.account import DECIDER, Deposited, Opened, Withdrawn


@dataclass(frozen=True)
class Balance:
    owner: str | None = None
    amount: int = 0
    days: tuple[str, ...] = ()
    last: datetime | None = None


def balance(row: Balance, event: RecordedEvent) -> Balance | Deleted:
    row = replace(row, days=(*row.days[-2:], event.at.date().isoformat()), last=event.at)
    match event.event:
        case Opened(owner):
            return replace(row, owner=owner)
        case Deposited(amount):
            return replace(row, amount=row.amount + amount)
        case Withdrawn(amount):
            return replace(row, amount=row.amount - amount) if row.amount > amount else Deleted()
    raise AssertionError(event)


@dataclass(frozen=True)
class Turnover:
    events: int = 0
    amount: int = 0


def turnover(row: Turnover, event: RecordedEvent) -> Turnover:
    return Turnover(row.events + 1, row.amount + getattr(event.event, "amount", 0))


def kinds(event: RecordedEvent) -> list[str] | str | None:
    """An event is about no row, one or two."""
    match event.event:
        case Opened():
            return None
        case Deposited(amount):
            return "deposits" if amount < 5 else ["deposits", "large"]
    return "withdrawals"


BALANCES = ReadModel("balances", DECIDER, initial=Balance(), evolve=balance)
TURNOVER = ReadModel("turnover", DECIDER, initial=Turnover(), evolve=turnover, key="kind", by=kinds)
