"""Rows of the binary log, collected as changes of tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headwater.capture.mariadb.binlog import COMPRESSED, ROWS, UPDATE_ROWS, Event, inflated
from headwater.capture.mariadb.table_map import TableMap
from headwater.capture.port import Changes, Table

# Any: values of any type.
Row = list[Any]


class ImageIncomplete(Exception):
    """Rows of the binary log do not have all columns."""


def rows_of(event: Event, described: TableMap) -> Iterator[tuple[str, Row, Row | None]]:
    """The changes of one event: the operation, the row, and what it was before an update."""
    body = event.body
    at = 8
    if event.type in (30, 31, 32):
        at += int.from_bytes(body[8:10], "little")
    count = len(described.columns)
    at += 1 if count < 251 else 3
    width = (count + 7) // 8
    images = 2 if event.type in UPDATE_ROWS else 1
    present = body[at : at + width * images]
    whole = (1 << count) - 1
    for number in range(images):
        if int.from_bytes(present[number * width : (number + 1) * width], "little") & whole != whole:
            raise ImageIncomplete
    data = body[at + width * images :]
    if event.type in COMPRESSED:
        data = inflated(data)
    decoders = [column.decode for column in described.columns]
    operation, places = ROWS[event.type], described.key_places
    end, at = len(data), 0
    while at < end:
        row, at = _row(data, at, decoders, width)
        if operation != "u":
            yield operation, row, None
            continue
        new, at = _row(data, at, decoders, width)
        if any(row[place] != new[place] for place in places):  # another key is a deletion and an insertion
            yield "d", row, None
            yield "c", new, None
        else:
            yield "u", new, row


# Any: decoders of any type.
def _row(data: bytes, at: int, decoders: Sequence[Any], width: int) -> tuple[Row, int]:
    nulls = int.from_bytes(data[at : at + width], "little")
    at += width
    row: Row = []
    add = row.append
    if not nulls & (1 << len(decoders)) - 1:
        for decode in decoders:
            value, at = decode(data, at)
            add(value)
        return row, at
    for decode in decoders:
        if nulls & 1:
            add(None)
        else:
            value, at = decode(data, at)
            add(value)
        nulls >>= 1
    return row, at


class TableRows:
    """Changes of one table, not yet as Arrow."""

    def __init__(self, described: TableMap) -> None:
        self._described = described
        self._operations: list[str] = []
        self._rows: list[Row] = []
        self._before: list[Row | None] = []
        self._has_before = False
        self._at_us: list[int] = []
        self._order: list[int] = []
        self._transactions: list[str] = []

    def add(self, event: Event, *, transaction: str, order: int) -> int:
        """Add the rows of an event; return how many there are."""
        count = 0
        for operation, row, before in rows_of(event, self._described):
            self._operations.append(operation)
            self._rows.append(row)
            self._before.append(before)
            count += 1
        self._has_before |= event.type in UPDATE_ROWS
        self._at_us += [event.seconds * 1_000_000] * count
        self._order += range(order + 1, order + 1 + count)
        self._transactions += [transaction] * count
        return count

    def changes(self) -> Changes:
        """The changes as Arrow, column by column."""
        before = None
        if self._has_before:
            empty: Row = [None] * len(self._described.columns)
            before = self._batch([row if row is not None else empty for row in self._before])
        return Changes(
            table=self._described.table,
            operations=pa.array(self._operations, pa.string()),
            rows=self._batch(self._rows),
            at_us=pa.array(self._at_us, pa.int64()),
            order=pa.array(self._order, pa.int64()),
            before=before,
            transaction=pa.array(self._transactions, pa.string()),
        )

    def _batch(self, rows: Sequence[Row]) -> pa.RecordBatch:
        columns = zip(*rows, strict=True)
        arrays = [one.array(some) for one, some in zip(self._described.columns, columns, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._described.table.columns)


def truncation(table: Table, *, seconds: int, order: int, transaction: str) -> Changes:
    """One change for all rows of a table."""
    nothing = [pa.nulls(1, one.type) for one in table.columns]
    return Changes(
        table=table,
        operations=pa.array(["t"]),
        rows=pa.RecordBatch.from_arrays(nothing, schema=table.columns),
        at_us=pa.array([seconds * 1_000_000], pa.int64()),
        order=pa.array([order], pa.int64()),
        transaction=pa.array([transaction]),
    )
