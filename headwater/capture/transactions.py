"""Transaction markers: for each transaction of the database a row BEGIN and a row END, which says how many changes it has.

A consumer of several topics of a capture can so apply whole transactions: it waits until it has seen as many changes of
the transaction in each topic as END says. A source reads whole transactions in one piece, so that the markers are in
the same transaction of the log as the changes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.port import Changes
from headwater.schema import parse_schema

TRANSACTIONS_TOPIC = "transactions"
TRANSACTIONS_SCHEMA: pa.Schema = parse_schema(
    "status string not null, id string not null, event_count int64, "
    "data_collections list<struct<data_collection: string, event_count: int64>>, ts_ms int64"
)
FACTS = pa.struct(
    [pa.field("id", pa.string()), pa.field("total_order", pa.int64()), pa.field("data_collection_order", pa.int64())]
)


class TransactionCounts:
    """Counts the changes of the transactions of one piece, while they are appended."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, int]] = {}
        self._first_order: dict[str, int] = {}
        self._at_ms: dict[str, int] = {}

    def first(self, changes: Changes) -> None:
        """Note where transactions begin, among the changes of all tables."""
        for name, _, order, _ in _runs(changes):
            self._first_order[name] = min(order, self._first_order.get(name, order))

    def facts(self, changes: Changes) -> pa.StructArray:
        """Count the changes, and return the transaction of each, with its place in it."""
        self.first(changes)
        total = np.zeros(changes.count, np.int64)
        within = np.zeros(changes.count, np.int64)
        orders = changes.order.to_numpy()
        known = np.zeros(changes.count, bool)
        for name, places, _, at_ms in _runs(changes):
            counts = self._tables.setdefault(name, {})
            before = counts.get(changes.table.name, 0)
            known[places] = True
            total[places] = orders[places] - self._first_order[name] + 1
            within[places] = before + 1 + np.arange(len(places))
            counts[changes.table.name] = before + len(places)
            self._at_ms[name] = max(at_ms, self._at_ms.get(name, 0))
        ids = changes.transaction if changes.transaction is not None else pa.nulls(changes.count, pa.string())
        return pa.StructArray.from_arrays(
            [ids, pa.array(total), pa.array(within)], fields=list(FACTS), mask=pa.array(~known)
        )

    # Any: values of rows.
    def markers(self) -> list[dict[str, Any]]:
        """The rows BEGIN and END of each transaction, in commit order."""
        rows: list[dict[str, Any]] = []
        for name in sorted(self._tables, key=lambda one: self._first_order[one]):
            counts = self._tables[name]
            collections = [{"data_collection": table, "event_count": count} for table, count in counts.items()]
            rows.append({"status": "BEGIN", "id": name, "ts_ms": self._at_ms[name]})
            rows.append(
                {
                    "status": "END",
                    "id": name,
                    "event_count": sum(counts.values()),
                    "data_collections": collections,
                    "ts_ms": self._at_ms[name],
                }
            )
        return rows


# Any: NumPy's places.
def _runs(changes: Changes) -> list[tuple[str, Any, int, int]]:
    """The transactions of changes: the id, the places of its changes, the smallest order, and when it was committed."""
    if changes.transaction is None or not changes.count:
        return []
    coded = pc.fill_null(changes.transaction, "").dictionary_encode()
    codes = coded.indices.to_numpy()
    orders, at_us = changes.order.to_numpy(), changes.at_us.to_numpy()
    names = coded.dictionary.to_pylist()
    by_code = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[by_code], np.arange(len(names) + 1))
    runs = []
    for code, name in enumerate(names):
        if name:
            places = by_code[cuts[code] : cuts[code + 1]]
            runs.append((name, places, int(orders[places].min()), int(at_us[places].max()) // 1000))
    return runs
