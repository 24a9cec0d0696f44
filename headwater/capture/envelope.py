"""What a captured change looks like as a row of a topic.

flat        the columns of the table. A topic with a key holds the table: a deletion is a tombstone. In a topic
            without one, the header `_op` says what happened.
debezium    `before`, `after`, `op`, `ts_ms`, `source` and `transaction`, as Debezium names them, behind the columns of the
            key; a deletion is followed by a tombstone
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.capture.port import Changes, Table

TOMBSTONE = "_tombstone"
HEADERS = "_headers"
OPERATION_HEADER = "_op"

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


_DELETIONS = pa.array(["d", "t"])


class Envelope(Protocol):
    """How changes become rows of a topic."""

    def schema(self, table: Table) -> pa.Schema:
        """The columns of the topic of a table."""

    def rows(self, changes: Changes) -> pa.RecordBatch:
        """The rows of changes, with `_tombstone` where a key is deleted."""


class Flat:
    """The columns of the table as they are."""

    def schema(self, table: Table) -> pa.Schema:
        return table.columns

    def rows(self, changes: Changes) -> pa.RecordBatch:
        if changes.table.key:
            return changes.rows.append_column(TOMBSTONE, _is_deleted(changes))
        names = pa.array([OPERATION_HEADER] * changes.count, pa.string())
        places = pa.array(range(changes.count + 1), pa.int32())
        headers = pa.MapArray.from_arrays(places, names, changes.operations.cast(pa.binary()))
        return changes.rows.append_column(HEADERS, headers)


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
            ]
        )

    def rows(self, changes: Changes) -> pa.RecordBatch:
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
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=schema)
        return _with_tombstones(rows, deleted) if changes.table.key else rows


def _is_deleted(changes: Changes) -> pa.BooleanArray:
    """Which keys are gone after a change: those that were deleted or truncated."""
    return pc.is_in(changes.operations, value_set=_DELETIONS)


def _with_tombstones(rows: pa.RecordBatch, deleted: pa.BooleanArray) -> pa.RecordBatch:
    """Add a tombstone behind each deletion."""
    twice = deleted.to_numpy(zero_copy_only=False)
    places = np.repeat(np.arange(len(twice)), 1 + twice)
    tombstones = np.r_[False, places[1:] == places[:-1]] if len(places) else np.zeros(0, bool)
    return rows.take(pa.array(places)).append_column(TOMBSTONE, pa.array(tombstones))
