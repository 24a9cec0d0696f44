"""The buffer of a producer: rows collected in order and divided into batches, with estimated sizes."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.log.port import Appended, Rows


@dataclass(kw_only=True, eq=False)
class Chunk:
    """Rows that are appended by one call."""

    topic: str
    partition: int | None
    rows: Any
    count: int
    size: int
    headers: list[Any] | None = None
    sequence: int | None = None
    sent_at_us: int = 0
    open: bool = False
    appended: Appended | None = None


@dataclass
class Lane:
    """The chunks of one topic and partition, in order."""

    chunks: deque[Chunk] = field(default_factory=deque)
    row_size: int = 64
    until_sample: int = 0


def pieces(rows: Rows, *, rows_max: int | None, bytes_max: int) -> Iterator[tuple[Any, int, int]]:
    """Divide rows into batches of at most `rows_max` (None for one batch), each with its row count and estimated bytes.

    >>> [(part, count) for part, count, _ in pieces([{"id": 1}, {"id": 2}, {"id": 3}], rows_max=2, bytes_max=1000)]
    [([{'id': 1}, {'id': 2}], 2), ([{'id': 3}], 1)]
    """
    if _is_row(rows):
        rows = [rows]
    if isinstance(rows, (pa.Table, pa.RecordBatch)):
        step = rows.num_rows
        if rows_max is not None:
            step = min(rows_max, max(1, rows.num_rows * bytes_max // max(1, rows.nbytes)))
        for start in range(0, rows.num_rows, max(1, step)):
            part = rows.slice(start, step)
            yield part, part.num_rows, part.nbytes
    elif hasattr(rows, "columns") and hasattr(rows, "__len__"):  # a pandas or polars frame
        if len(rows):
            yield rows, len(rows), 8 * len(rows) * max(1, len(rows.columns))
    else:
        listed = rows if isinstance(rows, list) else list(rows)
        if listed and isinstance(listed[0], pa.RecordBatch):
            tables = [pa.Table.from_batches([batch]) for batch in listed]
            whole = pa.concat_tables(tables, promote_options="permissive")
            yield from pieces(whole, rows_max=rows_max, bytes_max=bytes_max)
            return
        step = rows_max or max(1, len(listed))
        for start in range(0, len(listed), step):
            part = listed[start : start + step]
            yield part, len(part), len(part) * row_size(part[0])


def _is_row(rows: Rows) -> bool:
    if isinstance(rows, (Mapping, str, bytes, tuple)):
        return True
    return dataclasses.is_dataclass(rows) and not isinstance(rows, type)


def fits(last: Chunk, chunk: Chunk, rows_max: int, bytes_max: int) -> bool:
    return (
        type(chunk.rows) is list
        and chunk.sequence is None
        and last.count + chunk.count <= rows_max
        and last.size + chunk.size <= bytes_max
    )


def without(chunk: Chunk, row: int) -> tuple[Chunk, Chunk]:
    """The chunk without one row, and that row alone."""
    size = chunk.size // chunk.count
    headers = chunk.headers
    rest = dataclasses.replace(
        chunk,
        rows=chunk.rows[:row] + chunk.rows[row + 1 :],
        headers=None if headers is None else headers[:row] + headers[row + 1 :],
        count=chunk.count - 1,
        size=chunk.size - size,
    )
    bad = dataclasses.replace(
        chunk, rows=[chunk.rows[row]], headers=None if headers is None else [headers[row]], count=1, size=size
    )
    return rest, bad


def row_size(row: Any) -> int:
    """The estimated bytes of a row: exact enough to bound memory, and far cheaper than encoding."""
    if isinstance(row, Mapping):
        return 16 + sum(_value_size(value) for value in row.values())
    return 16 + _value_size(row)


def _value_size(value: Any) -> int:
    if isinstance(value, (str, bytes)):
        return 8 + len(value)
    if isinstance(value, Mapping):
        return sum(_value_size(key) + _value_size(inner) for key, inner in value.items())
    if isinstance(value, (list, tuple)):
        return 8 + sum(_value_size(inner) for inner in value)
    return 8
