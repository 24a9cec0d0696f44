"""The processes of the demo. Each is started as `python -m headwater.cli.demo.log_workers ROLE FOLDER`, and ends on SIGTERM.

A worker also ends when the process that started it is gone, so that a demo which was killed leaves nothing behind.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import headwater
from headwater.cli import leave_pandas_out
from headwater.cli.demo.log_tour import (
    AUDIT,
    BILLING,
    CUSTOMERS,
    INVOICES,
    ITEMS,
    LEDGER,
    LINGER_SECONDS,
    NAMES,
    ORDERS,
    ROWS_PER_SECOND,
)
from headwater.log import Log

TICK_SECONDS = 0.05
WAVE_SECONDS = 5.0
POLL_SECONDS = 0.2

Goes = Callable[[], bool]


def produce(log: Log, goes: Goes) -> dict[str, Any]:
    """Append orders in waves, and with each order the newest state of its customer. Lingering lets one sync serve many."""
    chance = random.Random(7)
    spent = dict.fromkeys((f"{name}{number}" for name in NAMES for number in range(8)), 0.0)
    orders = dict.fromkeys(spent, 0)
    started, count = time.monotonic(), 0
    with log.producer(ORDERS, name="shop", linger_seconds=LINGER_SECONDS) as producer:
        while goes():
            due = _due(time.monotonic() - started)
            rows = [_order(number, chance, list(spent)) for number in range(count, due)]
            count = max(count, due)
            producer.send(rows)
            for row in rows[::4]:
                name = row["customer"]
                spent[name] += row["amount"]
                orders[name] += 1
                producer.send({"customer": name, "orders": orders[name], "spent": spent[name]}, topic=CUSTOMERS)
            time.sleep(TICK_SECONDS)
        producer.flush()
    return {"orders": count}


def _due(elapsed: float) -> int:
    """How many orders there should be by now: a rate that goes up and down, summed."""
    wave = WAVE_SECONDS / math.tau
    return int(ROWS_PER_SECOND * (elapsed + 0.6 * wave * (1 - math.cos(elapsed / wave))))


def _order(number: int, chance: random.Random, customers: list[str]) -> dict[str, Any]:
    return {
        "id": number,
        "customer": chance.choice(customers),
        "item": chance.choice(ITEMS),
        "amount": chance.randrange(100, 20_000) / 100,
        "at": datetime.now(UTC),
    }


def bill(log: Log, goes: Goes) -> dict[str, Any]:
    """Write an invoice and a line of the ledger for each order, together with how far the group has come.

    All three are one transaction: whenever this process is killed, an order has been billed once or not yet.
    """
    columns = ["id", "customer", "amount"]
    with log.consumer(ORDERS, BILLING, columns=columns, auto_commit=False, rows_max=2_000) as consumer:
        while goes():
            batches = [batch for batch in consumer.poll(seconds=POLL_SECONDS) if batch.data.num_rows]
            if not batches:
                continue
            rows = [row for batch in batches for row in batch.rows()]
            with log.transaction() as together:
                together.append(
                    INVOICES,
                    [{"order": row["id"], "customer": row["customer"], "amount": row["amount"]} for row in rows],
                )
                together.append(LEDGER, [{"order": row["id"], "cents": round(row["amount"] * 100)} for row in rows])
                together.commit_offsets(BILLING, ORDERS, {batch.partition: batch.offset_next for batch in batches})
    return {}


def audit(log: Log, goes: Goes) -> dict[str, Any]:
    """Read all orders for another group, and count which were seen how often."""
    seen: dict[int, int] = {}
    with log.consumer(ORDERS, AUDIT, columns=["id"]) as consumer:
        while goes():
            for batch in consumer.poll(seconds=POLL_SECONDS):
                for number in batch.data.column("id").to_pylist():
                    seen[number] = seen.get(number, 0) + 1
    return {"seen": len(seen), "doubled": sum(count - 1 for count in seen.values()), "highest": max(seen, default=-1)}


ROLES: dict[str, Callable[[Log, Goes], dict[str, Any]]] = {"produce": produce, "bill": bill, "audit": audit}


def main(role: str, folder: str) -> None:
    leave_pandas_out()
    told: list[int] = []
    parent = os.getppid()
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that directs; it tells us
    with headwater.open(folder) as log:
        report = ROLES[role](log, lambda: not told and os.getppid() == parent)
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
