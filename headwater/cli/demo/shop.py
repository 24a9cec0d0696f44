"""The shop of the demo: its topics, and the schedule of what happens when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.log import EmbeddedLog

ORDERS, CUSTOMERS, INVOICES, LEDGER = "orders", "customers", "invoices", "ledger"
BILLING, AUDIT = "billing", "audit"
PARTITIONS = 4
NAMES = (
    "ada",
    "bob",
    "cleo",
    "dan",
    "eve",
    "fay",
    "gus",
    "hal",
    "ida",
    "joe",
    "kim",
    "lou",
    "mia",
    "ned",
    "oda",
    "pia",
)
ITEMS = ("lamp", "chair", "kettle", "rug", "mirror", "clock", "shelf", "vase")
ROWS_PER_SECOND = 1_500
LINGER_SECONDS = 0.02
SECONDS_MIN = 4.0


def make_topics(log: EmbeddedLog) -> None:
    """Orders come in, customers are a table, and each invoice has its line in the ledger."""
    order = "id int64 not null, customer string, item string, amount float64, at timestamp"
    log.create(ORDERS, order, partitions=PARTITIONS, key="customer", time="at")
    log.create(CUSTOMERS, "customer string not null, orders int64, spent float64", key="customer", compact=True)
    log.create(INVOICES, "order int64 not null, customer string, amount float64", partitions=2, key="customer")
    log.create(LEDGER, "order int64 not null, cents int64")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When things happen, in seconds from the start.

    >>> Schedule.of(20).kill_at
    9.0
    """

    seconds: float
    kill_at: float
    compact_at: float
    stop_at: float

    @classmethod
    def of(cls, seconds: float) -> Schedule:
        return cls(seconds=seconds, kill_at=seconds * 0.45, compact_at=seconds * 0.65, stop_at=seconds * 0.88)
