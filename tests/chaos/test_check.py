"""The checker agrees with a plain loop over the orders, and sees each kind of mistake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.log import Log
from headwater.log import open as open_log
from tests.chaos.check import Verdict, check
from tests.chaos.producer import Orders
from tests.chaos.query import (
    BILLS,
    BILLS_SCHEMA,
    LATE_BY_SECONDS,
    ORDERS,
    ORDERS_SCHEMA,
    REFUSED_COLUMNS,
    WINDOW_US,
    WITHIN_SECONDS,
)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log") as log:
        log.create(ORDERS, ORDERS_SCHEMA, partitions=4, key="user", durability="os")
        log.create(BILLS, BILLS_SCHEMA, partitions=3, key="user", durability="os")
        orders = Orders(5, began_us=1_800_000_000_000_000)
        for _ in range(700):
            log.append(ORDERS, orders.next())
        log.append(ORDERS, orders.last())
        yield log


def looped(log: Log, state: Path) -> list[dict[str, Any]]:
    """What the query writes, one row after the other; the side output goes to its folder."""
    table = log.read(ORDERS, columns=["id", "user", "amount", "at", "_partition", "_offset"]).table()
    table = table.set_column(3, "at", table.column("at").cast(pa.int64()))
    passed_at: dict[str, int] = {}
    sums: dict[str, tuple[int, int]] = {}
    windows: dict[tuple[str, int], tuple[int, int]] = {}
    latest: dict[int, int] = {}
    rows: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    for row in sorted(table.to_pylist(), key=lambda row: (row["_partition"], row["_offset"])):
        if row["at"] - passed_at.get(row["id"], 0) < WITHIN_SECONDS * 1_000_000:
            continue
        passed_at[row["id"]] = latest[row["_partition"]] = row["at"]
        place = {"id": row["id"], "read_partition": row["_partition"], "read_offset": row["_offset"]}
        if row["amount"] < 0:
            refused.append(place)
            continue
        n, total = sums.get(row["user"], (0, 0))
        sums[row["user"]] = n, total = n + 1, total + row["amount"]
        rows.append({"kind": "order", "user": row["user"], **place, "n": n, "total": total})
        window = row["user"], row["at"] // WINDOW_US * WINDOW_US
        n, total = windows.get(window, (0, 0))
        windows[window] = n + 1, total + row["amount"]
    watermark_us = min(latest.values()) - LATE_BY_SECONDS * 1_000_000
    rows += [
        {"kind": "window", "user": user, "window": start, "n": n, "total": total}
        for (user, start), (n, total) in windows.items()
        if start + WINDOW_US <= watermark_us
    ]
    side = state / "query" / "billed" / "sides" / "refused"
    side.mkdir(parents=True)
    with pa.OSFile(str(side / "0.arrow"), "wb") as sink, pa.ipc.new_file(sink, REFUSED_COLUMNS) as writer:
        writer.write_table(pa.Table.from_pylist(refused, REFUSED_COLUMNS))
    return rows


def verdict(log: Log, state: Path) -> Verdict:
    return check(
        log,
        state=state,
        within_us=WITHIN_SECONDS * 1_000_000,
        window_us=WINDOW_US,
        late_by_us=LATE_BY_SECONDS * 1_000_000,
    )


def test_the_output_of_a_plain_loop_is_what_the_checker_expects(log: Log, tmp_path: Path) -> None:
    log.append(BILLS, looped(log, tmp_path / "state"))
    found = verdict(log, tmp_path / "state")
    assert found.good, found
    assert found.expected == found.got
    assert found.windows
    assert found.repeated
    assert found.refused
    # Some ids pass more than once, for they come again after the period.
    passed = [row["id"] for row in log.read(BILLS).rows() if row["kind"] == "order"]
    assert len(passed) > len(set(passed))


def test_a_row_that_is_missing_twice_there_or_different_is_told(log: Log, tmp_path: Path) -> None:
    rows = looped(log, tmp_path / "state")
    log.append(BILLS, [*rows[:100], *rows[101:], rows[200], {**rows[300], "id": "nobody's"}])
    found = verdict(log, tmp_path / "state")
    assert (found.lost, found.doubled, found.wrong) == (1, 1, 1)
    assert not found.good
