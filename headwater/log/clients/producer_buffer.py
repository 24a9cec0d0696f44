"""The buffer of a producer: rows collected in order with estimated sizes, and its limits (back-pressure)."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.log.client_config import Rows
from headwater.log.port import OFFSETS_TOPIC, Appended, Log, Offsets


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


# -- limits -----------------------------------------------------------------------------------------------------------

#: The committed offsets of the group are cached for so long below the limit. At the limit they are always read.
REFRESH_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Limit:
    """How far a producer may be ahead.

    With a `group`, `rows` counts all rows of the topic that the group has not committed, and those waiting in the
    producer; `bytes` counts the bytes of this producer that the group has not committed. Without a group, both count
    what was sent by this producer and is not yet durable.

    >>> Limit(group="billing", rows=100_000)
    Limit(group='billing', rows=100000, bytes=None)
    """

    group: str | None = None
    rows: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        if self.rows is None and self.bytes is None:
            raise ArgumentInvalid(name="limit", value=self, expected="a number of rows or bytes")
        for name in ("rows", "bytes"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ArgumentInvalid(name=name, value=value, expected="at least 1")

    def __str__(self) -> str:
        parts = [f"{self.rows} rows"] if self.rows is not None else []
        parts += [f"{self.bytes} bytes"] if self.bytes is not None else []
        return " or ".join(parts) + (f" ahead of group {self.group!r}" if self.group else " not yet on disk")

    def allows(self, *, rows_ahead: int, bytes_ahead: int, rows: int, bytes: int) -> bool:
        """Whether so many more may be sent. A send that alone exceeds the limit is allowed when nothing is ahead of it."""
        fits_rows = self.rows is None or not rows_ahead or rows_ahead + rows <= self.rows
        fits_bytes = self.bytes is None or not bytes_ahead or bytes_ahead + bytes <= self.bytes
        return fits_rows and fits_bytes


class GroupDistance:
    """How far a topic's end, and the bytes of this producer, are ahead of a group's committed offsets."""

    def __init__(self, log: Log, topic: str, group: str) -> None:
        self._log = log
        self._topic = topic
        self._group = group
        self._sent: dict[int, deque[tuple[int, int]]] = {}
        self._bytes = 0
        self._rows = 0
        self._refreshed_at = 0.0
        self._offsets_end: Offsets = {}
        # An empty commit creates the topic of offsets, to wait for it.
        log.commit_offsets(group, topic, {})
        self.refresh()

    @property
    def rows(self) -> int:
        return self._rows

    @property
    def bytes(self) -> int:
        return self._bytes

    def appended(self, ranges: dict[int, tuple[int, int]], size: int) -> None:
        """Count rows that this producer has appended."""
        count = sum(stop - start for start, stop in ranges.values()) or 1
        self._rows += sum(stop - start for start, stop in ranges.values())
        for number, (start, stop) in ranges.items():
            part = size * (stop - start) // count
            self._sent.setdefault(number, deque()).append((stop, part))
            self._bytes += part

    def refresh_if_old(self, seconds: float = REFRESH_SECONDS) -> None:
        if time.monotonic() - self._refreshed_at >= seconds:
            self.refresh()

    def refresh(self) -> None:
        """Read the committed offsets of the group."""
        # The end first: a commit in between then ends the next wait at once, but is never missed.
        self._offsets_end = self._log.end_offsets(OFFSETS_TOPIC)
        committed = self._log.committed(self._group, self._topic)
        starts, ends = self._log.start_offsets(self._topic), self._log.end_offsets(self._topic)
        self._rows = sum(end - max(committed.get(number, 0), starts[number]) for number, end in ends.items())
        for number, sent in self._sent.items():
            while sent and sent[0][0] <= committed.get(number, 0):
                self._bytes -= sent.popleft()[1]
        self._refreshed_at = time.monotonic()

    def wait(self, *, seconds: float) -> None:
        """Wait until any group commits."""
        self._log.wait({OFFSETS_TOPIC: self._offsets_end}, seconds=seconds)
