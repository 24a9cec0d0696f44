"""A log with topics of every kind, for pages of topics."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from headwater.log import Log

BIG = 73314510714175488
BEGIN = datetime(2026, 11, 15, 9, 30, tzinfo=UTC)
CUSTOMERS = ("ada", "grace", "linus", "edsger", "barbara")
SCHEMA = "order_id long, customer string, amount double, paid boolean, items list<string>, at timestamp"


def order(number: int) -> dict[str, object]:
    """The order of a number; always the same."""
    return {
        "order_id": BIG + number,
        "customer": CUSTOMERS[number * 7 % 5],
        "amount": (number * 37 % 400) + 0.25,
        "paid": number % 4 != 0,
        "items": [f"SKU-{number * 13 % 97:03}"],
        "at": BEGIN + timedelta(seconds=number),
    }


def make_orders(log: Log, *, count: int = 120, partitions: int = 1, name: str = "orders") -> None:
    """A topic of orders."""
    log.create(name, SCHEMA, partitions=partitions, key="customer", time="at")
    add_orders(log, range(count), name=name)


def add_orders(log: Log, numbers: Sequence[int] | range, *, name: str = "orders") -> None:
    if len(numbers):
        log.append(name, [order(number) for number in numbers], headers={"source": b"web"})
