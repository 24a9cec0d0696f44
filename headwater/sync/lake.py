"""What lakes share: their types, and the history of rows as a slowly changing dimension of type 2.

A history has every version of a row, with the time from and to which it was valid.

A change closes the current version of its key and opens a new one; a deletion only closes it. The time is that of the change
in the database, if the topic has the envelope of Debezium, and else that of its append to the topic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.sinks.lake_files import lake_type
from headwater.sync.changes import AT, TOMBSTONE
from headwater.sync.port import TargetTable

FROM, TO, CURRENT = "valid_from", "valid_to", "is_current"
TIME = pa.timestamp("us", "UTC")


def lake_rows(target: str, rows: pa.Table) -> pa.Table:
    """Rows in types that Parquet and Delta tables have: a time of day is text, a duration counts microseconds."""
    columns = []
    for column in rows.schema:
        values = rows.column(column.name)
        if pa.types.is_time(column.type):
            values = values.cast(pa.string())
        elif pa.types.is_duration(column.type):
            values = values.cast(pa.duration("us"), safe=False).cast(pa.int64())
        columns.append(values.cast(lake_type(target, column.name, values.type)))
    return pa.table(columns, names=rows.column_names)


@dataclass(frozen=True, kw_only=True)
class History:
    """What changes make of a history: keys whose current version ends at `valid_to`, and new versions."""

    closed: pa.Table
    opened: pa.Table


def history_columns(columns: pa.Schema) -> pa.Schema:
    """The columns of a table with its history."""
    return pa.schema([*columns, pa.field(FROM, TIME), pa.field(TO, TIME), pa.field(CURRENT, pa.bool_())])


def history_of(versions: pa.Table, table: TargetTable) -> History:
    """The versions that rows in the order of the topic open and close.

    >>> table = TargetTable(topic="t", topic_id="", name="t", columns=pa.schema([("id", pa.int64()), ("n", pa.int64())]), key=("id",))
    >>> rows = pa.table({"id": [1, 1, 2], "n": [1, 2, None], "_tombstone": [False, False, True], "_at": [10, 20, 30]})
    >>> found = history_of(rows, table)
    >>> found.closed.column("id").to_pylist(), found.opened.column("n").to_pylist(), found.opened.column("is_current").to_pylist()
    ([1, 2], [1, 2], [False, True])
    """
    count = versions.num_rows
    keys = list(zip(*(versions.column(name).to_pylist() for name in table.key), strict=True))
    at = np.asarray(versions.column(AT)).astype(np.int64)
    ends = np.full(count, -1, dtype=np.int64)
    last: dict[object, int] = {}
    first: dict[object, int] = {}
    for place, key in enumerate(keys):
        if key in last:
            at[place] = max(
                at[place], at[last[key]]
            )  # a clock that was set back must not make a version end before it began
            ends[last[key]] = at[place]
        first.setdefault(key, place)
        last[key] = place
    is_open = ends < 0
    times = pa.array(at, pa.int64()).cast(TIME)
    until = pa.array(np.where(is_open, 0, ends), pa.int64(), mask=is_open).cast(TIME)
    opened = versions.select(table.columns.names)
    for name, column in ((FROM, times), (TO, until), (CURRENT, pa.array(is_open))):
        opened = opened.append_column(name, column)
    gone = np.asarray(versions.column(TOMBSTONE))
    places = pa.array(sorted(first.values()), pa.int64())
    closed = versions.select(list(table.key)).take(places).append_column(TO, times.take(places))
    return History(closed=closed, opened=opened.filter(pa.array(~gone)))
