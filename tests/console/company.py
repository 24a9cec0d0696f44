"""A small company for the console to show: a window view with late rows, a pattern, a sink, and orders that are broken.

orders → orders_per_minute (view), its late rows → orders.late; payments → alerts → archive (a lake of files).
An order without a time cannot be put into a window, and becomes a dead letter in `orders.dlq`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import headwater as hw
from headwater.operators import Match, Tumbling, agg
from headwater.sinks import LakeSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.log import Log

NAME = "company"
QUERIES = ("orders_per_minute", "alerts", "archive")
CITIES = ("Bergen", "Lyon", "Porto", "Turin")

app = hw.App(NAME, log="./data", master="local[2]", conf={"spark.sql.shuffle.partitions": 1})
app.input(
    "orders",
    {"id": "int64", "city": "string", "amount": "float64", "at": "timestamp"},
    key="city",
    time=hw.EventTime("at", delay="10 seconds"),
    partitions=2,
)
app.input("payments", {"id": "int64", "card": "int64", "amount": "float64", "at": "timestamp"}, key="card", time="at")

CARD_TRIED_OUT = """
    PARTITION BY card
    ORDER BY at
    MEASURES COUNT(small.*) AS tries, big.amount AS amount, FIRST(small.at) AS began_at, big.at AS at
    PATTERN (small{2,} big)
    WITHIN INTERVAL '10' MINUTE
    DEFINE small AS amount < 5, big AS amount > 500
"""


@app.view(key=["city", "minute"], late="orders.late", trigger="1 second")
def orders_per_minute(orders: DataFrame) -> DataFrame:
    """What each city orders per minute: at once, and corrected while rows come."""
    minutes = Tumbling(
        size="1 minute",
        by="city",
        compute={"orders": agg.count(), "total": agg.sum("amount")},
        emit="changes",
    )
    return orders.transform(minutes).withColumnRenamed("window_start", "minute").drop("window_end")


@app.topic(key="card", time="at", trigger="1 second")
def alerts(payments: DataFrame) -> DataFrame:
    """A stolen card is tried out with small payments, and then used for a large one."""
    return payments.transform(Match(CARD_TRIED_OUT, time=hw.EventTime("at", delay="2 seconds")))


@app.sink(LakeSink(path="lake"), trigger="1 second")
def archive(alerts: DataFrame) -> DataFrame:
    """Alerts are kept for good."""
    return alerts


class Feed:
    """Writes what happens in the company: minutes of orders and payments, of which some are late, broken or stolen."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._number = 0
        self._now = datetime.fromtimestamp(int(time.time()) - 600, UTC)

    def some(self, *, seconds: int = 60) -> None:
        """So many seconds of the company's life, appended at once."""
        self._log.append("orders", list(self._orders(seconds)))
        self._log.append("payments", list(self._payments(seconds)))
        self._now += timedelta(seconds=seconds)

    def late(self, count: int = 5) -> None:
        """Orders of an hour ago, whose windows are closed."""
        self._log.append("orders", [self._order(-3_600 + number) for number in range(count)])

    def broken(self, count: int = 3) -> None:
        """Orders without a time."""
        self._log.append("orders", [{**self._order(0), "at": None} for _ in range(count)])

    # Any: rows.
    def _orders(self, seconds: int) -> Iterator[dict[str, Any]]:
        for second in range(seconds):
            yield from (self._order(second) for _ in range(4))

    def _order(self, second: float) -> dict[str, Any]:
        self._number += 1
        return {
            "id": self._number,
            "city": CITIES[self._number % len(CITIES)],
            "amount": 10.0 + self._number % 17,
            "at": self._now + timedelta(seconds=second),
        }

    def _payments(self, seconds: int) -> Iterator[dict[str, Any]]:
        """Every tenth card is tried out: two small payments, then a large one."""
        for second in range(seconds):
            self._number += 1
            card, part = 4_000_000_000_000_000 + second // 3, second % 3
            stolen = (second // 3) % 10 == 0
            amount = (2.0, 3.0, 750.0)[part] if stolen else 40.0 + part
            yield {"id": self._number, "card": card, "amount": amount, "at": self._now + timedelta(seconds=second)}
