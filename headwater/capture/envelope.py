"""What a captured change looks like as a row of a topic.

flat        the columns of the table. A topic with a key holds the table: a deletion is a tombstone. In a topic
            without one, the header `_op` says what happened.
debezium    `before`, `after`, `op`, `ts_ms`, `source` and `transaction`, as Debezium names them, behind the columns of the
            key; a deletion is followed by a tombstone. `transaction` has the id of the change's transaction and its
            place among all changes of it, and among those of its table. `unchanged` names columns whose large value
            the database did not send, because it had not changed

With transaction markers, flat rows have the id of their transaction as the header `_transaction`.
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.port import Changes, Table
from headwater.capture.transactions import FACTS

TOMBSTONE = "_tombstone"
HEADERS = "_headers"
OPERATION_HEADER = "_op"
TRANSACTION_HEADER = "_transaction"

EnvelopeName = Literal["flat", "debezium"]
_SOURCE = pa.struct(
    [
        pa.field("connector", pa.string()),
        pa.field("name", pa.string()),
        pa.field("ts_ms", pa.int64()),
        pa.field("snapshot", pa.bool_()),
        pa.field("table", pa.string()),
        pa.field("sequence", pa.int64()),
    ]
)
_UNCHANGED = pa.list_(pa.string())
_DELETIONS = ("d", "t")


class Envelope(Protocol):
    """How changes become rows of a topic."""

    def schema(self, table: Table) -> pa.Schema:
        """The columns of the topic of a table."""

    def rows(self, changes: Changes, transaction: pa.StructArray | None = None) -> pa.RecordBatch:
        """The rows of changes, with `_tombstone` where a key is deleted; `transaction` has the facts of each."""


class Flat:
    """The columns of the table as they are."""

    def schema(self, table: Table) -> pa.Schema:
        return table.columns

    def rows(self, changes: Changes, transaction: pa.StructArray | None = None) -> pa.RecordBatch:
        headers: dict[str, pa.Array] = {}
        if not changes.table.key:
            headers[OPERATION_HEADER] = changes.operations
        if transaction is not None:
            headers[TRANSACTION_HEADER] = pc.fill_null(pc.struct_field(transaction, "id"), "")
        rows = changes.rows
        if changes.table.key:
            rows = rows.append_column(TOMBSTONE, _is_deleted(changes))
        return rows.append_column(HEADERS, _headers(headers, changes.count)) if headers else rows


def _headers(headers: dict[str, pa.Array], count: int) -> pa.MapArray:
    """Headers of rows: every row has all of them."""
    width = len(headers)
    names = pa.array(list(headers) * count, pa.string())
    values = pa.concat_arrays([one.cast(pa.binary()) for one in headers.values()])
    in_rows = values.take(pa.array(np.arange(width * count).reshape(width, count).T.reshape(-1)))
    return pa.MapArray.from_arrays(pa.array(np.arange(count + 1) * width, pa.int32()), names, in_rows)


class Debezium:
    """The envelope of Debezium, as typed columns."""

    def __init__(self, *, connector: str, name: str) -> None:
        self._connector = connector
        self._name = name

    def schema(self, table: Table) -> pa.Schema:
        row = pa.struct(list(table.columns))
        return pa.schema(
            [
                *(table.columns.field(name) for name in table.key),
                pa.field("before", row),
                pa.field("after", row),
                pa.field("op", pa.string()),
                pa.field("ts_ms", pa.int64()),
                pa.field("source", _SOURCE),
                pa.field("transaction", FACTS),
                pa.field("unchanged", _UNCHANGED),
            ]
        )

    def rows(self, changes: Changes, transaction: pa.StructArray | None = None) -> pa.RecordBatch:
        schema = self.schema(changes.table)
        deleted = _is_deleted(changes)
        row = pa.StructArray.from_arrays(changes.rows.columns, fields=list(changes.table.columns))
        nothing = pa.nulls(changes.count, row.type)
        known = nothing
        if changes.before is not None:
            known = pa.StructArray.from_arrays(changes.before.columns, fields=list(changes.table.columns))
        milliseconds = pc.divide(changes.at_us, 1000)
        source = pa.StructArray.from_arrays(
            [
                pa.array([self._connector] * changes.count, pa.string()),
                pa.array([self._name] * changes.count, pa.string()),
                milliseconds,
                pc.equal(changes.operations, "r"),
                pa.array([changes.table.name] * changes.count, pa.string()),
                changes.order,
            ],
            fields=list(_SOURCE),
        )
        columns = [
            *(changes.rows.column(name) for name in changes.table.key),
            pc.if_else(deleted, row, known),
            pc.if_else(deleted, nothing, row),
            changes.operations,
            milliseconds,
            source,
            transaction if transaction is not None else pa.nulls(changes.count, FACTS),
            changes.unchanged.cast(_UNCHANGED)
            if changes.unchanged is not None
            else pa.nulls(changes.count, _UNCHANGED),
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        return _with_tombstones(rows, deleted) if changes.table.key else rows


def _is_deleted(changes: Changes) -> pa.BooleanArray:
    """Which keys are gone after a change: those that were deleted or truncated."""
    return pc.is_in(changes.operations, value_set=pa.array(_DELETIONS))


def _with_tombstones(rows: pa.RecordBatch, deleted: pa.BooleanArray) -> pa.RecordBatch:
    """Add a tombstone behind each deletion."""
    twice = deleted.to_numpy(zero_copy_only=False)
    places = np.repeat(np.arange(len(twice)), 1 + twice)
    tombstones = np.r_[False, places[1:] == places[:-1]] if len(places) else np.zeros(0, bool)
    return rows.take(pa.array(places)).append_column(TOMBSTONE, pa.array(tombstones))
