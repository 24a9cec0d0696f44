"""Orders: a saga reserves an article and charges its customer; if the money does not suffice, the article is released.

Articles, accounts and orders are entities of their own. An order reacts to the events of the other two, and sends them
commands. It remembers what it waits for, so it can be asked, and its history says what has happened and why.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import headwater as hw
from headwater.log import Log
from headwater.sourcing import RecordedEvent, Saga, Send, SendRejected

# -- articles and accounts: two kinds of entities that count -------------------------------------------------------------


@dataclass(frozen=True)
class Add:
    count: int


@dataclass(frozen=True)
class Take:
    count: int


@dataclass(frozen=True)
class Added:
    count: int


@dataclass(frozen=True)
class Taken:
    count: int


def decide_supply(count: int, command: Add | Take) -> Added | Taken | hw.Rejected:
    if isinstance(command, Add):
        return Added(command.count)
    return Taken(command.count) if command.count <= count else hw.Rejected(f"only {count} are left")


def evolve_supply(count: int, event: Added | Taken) -> int:
    return count + event.count if isinstance(event, Added) else count - event.count


SUPPLY: hw.Decider[int, Add | Take, Added | Taken] = hw.Decider(initial=0, decide=decide_supply, evolve=evolve_supply)

# -- orders --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    article: str
    customer: str
    price: int


@dataclass(frozen=True)
class Placed:
    article: str
    customer: str
    price: int


@dataclass(frozen=True)
class Reserved:
    customer: str
    price: int


@dataclass(frozen=True)
class Paid:
    pass


@dataclass(frozen=True)
class Cancelled:
    reason: str
    release: str | None


@dataclass(frozen=True)
class Order:
    status: Literal["new", "placed", "reserved", "paid", "cancelled"] = "new"
    placed: Placed | None = None


Event = Placed | Reserved | Paid | Cancelled


def decide(order: Order, message: Place | RecordedEvent | SendRejected) -> Event | hw.Rejected | None:
    if isinstance(message, Place):
        is_new = order.status == "new"
        return Placed(message.article, message.customer, message.price) if is_new else hw.Rejected("it was placed")
    if order.placed is None:
        return None  # an event that is about no order
    match order.status, message:
        case "placed", RecordedEvent(event=Taken()):
            return Reserved(order.placed.customer, order.placed.price)
        case "placed", SendRejected(reason=reason):
            return Cancelled(f"no article: {reason}", release=None)
        case "reserved", RecordedEvent(event=Taken()):
            return Paid()
        case "reserved", SendRejected(reason=reason):
            return Cancelled(f"no money: {reason}", release=order.placed.article)
    return None


def evolve(order: Order, event: Event) -> Order:
    match event:
        case Placed():
            return Order("placed", event)
        case Reserved():
            return replace(order, status="reserved")
        case Paid():
            return replace(order, status="paid")
        case Cancelled():
            return replace(order, status="cancelled")


def commands(own: RecordedEvent) -> Send | None:
    """What an event of an order asks for."""
    match own.event:
        case Placed(article):
            return Send("article", article, Take(1))
        case Reserved(customer, price):
            return Send("account", customer, Take(price))
        case Cancelled(release=str(article)):
            return Send("article", article, Add(1))
    return None


ORDER: hw.Decider[Order, Place | RecordedEvent | SendRejected, Event] = hw.Decider(
    initial=Order(), decide=decide, evolve=evolve
)


def open_shop(log: Log) -> tuple[Saga, dict[str, hw.Entities[Any, Any, Any]]]:
    """The saga, and the entities that it is about; call `run` of the saga in a process of its own."""
    articles, accounts = hw.Entities(log, "article", SUPPLY), hw.Entities(log, "account", SUPPLY)
    orders = hw.Entities(log, "order", ORDER)
    saga = Saga(orders, sources=[articles, accounts], send=commands)
    # Any: the classes of three deciders.
    return saga, {"article": articles, "account": accounts, "order": orders}
