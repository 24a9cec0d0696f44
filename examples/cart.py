"""Carts of a shop: commands are decided into events, two views follow them, and each order is confirmed by a mail.

headwater run examples/cart.py
carts_of(hw.open("data")).send("cart-1", Add("chair", 2, 40))     # in the program of the shop
headwater sql "select * from sold order by revenue desc"
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater.log import Log
from headwater.operators import Enrich, Evolve
from headwater.sinks import MailSink
from headwater.sourcing import EVENT_SCHEMA, Deleted, ReadModel, RecordedEvent

# -- a cart --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Add:
    article: str
    count: int
    price: int


@dataclass(frozen=True)
class Remove:
    article: str


@dataclass(frozen=True)
class CheckOut:
    customer: str


@dataclass(frozen=True)
class Added:
    article: str
    count: int
    price: int


@dataclass(frozen=True)
class Removed:
    article: str


@dataclass(frozen=True)
class Sold:
    article: str
    count: int
    price: int


@dataclass(frozen=True)
class CheckedOut:
    customer: str
    total: int


@dataclass(frozen=True)
class Cart:
    lines: tuple[Added, ...] = ()
    is_ordered: bool = False


Command = Add | Remove | CheckOut
Event = Added | Removed | Sold | CheckedOut
Carts = hw.Entities[Cart, Command, Event]


def decide(cart: Cart, command: Command) -> list[Event] | hw.Rejected:
    if cart.is_ordered:
        return hw.Rejected("it was checked out")
    match command:
        case Add(article, count, price):
            return [Added(article, count, price)] if count > 0 else hw.Rejected("a count is at least 1")
        case Remove(article):
            is_there = any(line.article == article for line in cart.lines)
            return [Removed(article)] if is_there else hw.Rejected(f"it has no {article}")
        case CheckOut(customer):
            if not cart.lines:
                return hw.Rejected("it is empty")
            sold: list[Event] = [Sold(line.article, line.count, line.price) for line in cart.lines]
            return [*sold, CheckedOut(customer, sum(line.count * line.price for line in cart.lines))]


def evolve(cart: Cart, event: Event) -> Cart:
    match event:
        case Added():
            return replace(cart, lines=(*cart.lines, event))
        case Removed(article):
            return replace(cart, lines=tuple(line for line in cart.lines if line.article != article))
        case Sold():
            return cart
        case CheckedOut():
            return replace(cart, is_ordered=True)


CART: hw.Decider[Cart, Command, Event] = hw.Decider(initial=Cart(), decide=decide, evolve=evolve)


def carts_of(log: Log) -> Carts:
    """The carts, for the program that sends commands to them."""
    return hw.Entities(log, "cart", CART)


# -- two views -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OpenCart:
    articles: tuple[str, ...] = ()
    changed: datetime | None = None


def open_cart(row: OpenCart, event: RecordedEvent) -> OpenCart | Deleted:
    """A cart that was checked out is not open any more."""
    match event.event:
        case Added(article):
            return OpenCart((*row.articles, article), event.at)
        case Removed(article):
            return OpenCart(tuple(each for each in row.articles if each != article), event.at)
        case _:
            return Deleted()


@dataclass(frozen=True)
class Sales:
    count: int = 0
    revenue: int = 0


def sales(row: Sales, event: RecordedEvent) -> Sales:
    return Sales(row.count + event.event.count, row.revenue + event.event.count * event.event.price)


def sold_article(event: RecordedEvent) -> str | None:
    """The row that an event is about: only sold articles are about one."""
    return event.event.article if isinstance(event.event, Sold) else None


OPEN_CARTS = ReadModel("open_carts", CART, initial=OpenCart(), evolve=open_cart)
SOLD = ReadModel("sold", CART, initial=Sales(), evolve=sales, key="article", by=sold_article)

app = hw.App("cart_shop", log="./data")
app.input("cart.events", EVENT_SCHEMA, key="entity", time="at")
app.input("customers", {"customer": "string", "email": "string"}, key="customer", compact=True)


@app.view(key="entity", inputs={"events": "cart.events"})
def open_carts(events: DataFrame) -> DataFrame:
    return events.transform(Evolve(model=OPEN_CARTS))


@app.view(key="article", inputs={"events": "cart.events"})
def sold(events: DataFrame) -> DataFrame:
    return events.transform(Evolve(model=SOLD))


# -- an e-mail -----------------------------------------------------------------------------------------------------------


@app.sink(
    MailSink(
        host="localhost",
        port=int(os.environ.get("SMTP_PORT", "1025")),
        sender="shop@example.org",
        to="{email}",
        subject="Your order {cart}",
        body="Thank you, {customer}. Your order comes to {total}.\n",
    ),
    inputs={"events": "cart.events"},
)
def confirmations(events: DataFrame, customers: hw.Table) -> DataFrame:
    """One mail for each order. Addresses are in a table, not in the events, so that they can be changed and deleted."""
    field = partial(F.get_json_object, "data")
    orders = events.where("event = 'CheckedOut'").select(
        F.col("entity").alias("cart"), field("$.customer").alias("customer"), field("$.total").alias("total")
    )
    return orders.transform(Enrich(customers, on="customer")).where("email is not null")
