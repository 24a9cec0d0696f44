"""A few event rows as the payload of a frame, made and read without Arrow, which takes ten times as long for one row.

Invariant: the bytes are those that Arrow writes for the same rows. The metadata of such a message differs from that of
another one in its numbers alone, so those of a sample are replaced. A message whose metadata is another one is not read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

import pyarrow as pa

from headwater.sourcing.event_rows import SCHEMA, EventRow

#: With more rows Arrow is as fast.
ROWS_MAX = 32
_TEXT, _TEXTS, _LONG, _INT = "text", "texts", "q", "i"
_KINDS = {pa.string(): _TEXT, pa.list_(pa.string()): _TEXTS, pa.int32(): _INT}
_COLUMNS = [_KINDS.get(field.type, _LONG) for field in SCHEMA]
#: The zero bytes behind a buffer, by the rest of its size.
_PADDING = [bytes(-size % 8) for size in range(8)]
#: Pairs of the rows and nulls of a column and what it contains, and its buffers.
_Column = tuple[Sequence[int], Sequence[bytes]]


def to_payload(rows: Sequence[EventRow]) -> bytes:
    """The rows as an Arrow message."""
    count = len(rows)
    nodes: list[int] = []
    places: list[int] = []
    body: list[bytes] = []
    position = 0
    for kind, values in zip(_COLUMNS, zip(*rows, strict=True), strict=False):  # behind the columns is the offset
        if kind is _LONG or kind is _INT:
            nodes += (count, 0)
            buffers: Sequence[bytes] = (b"", struct.pack(f"<{count}{kind}", *values))
        else:
            if values.count(None) == count:
                pairs, buffers = _nulls(kind, count)
            else:
                pairs, buffers = _texts(values) if kind is _TEXT else _lists(values)
            nodes += pairs
        for buffer in buffers:
            size = len(buffer)
            places += (position, size)
            if size:
                body += (buffer, _PADDING[size & 7])
                position += (size + 7) & -8
    return b"".join((_sample().head(count, nodes, places, position), *body))


def from_payload(payload: bytes, offset: int) -> list[EventRow] | None:
    """The rows of an Arrow message, the first of them at an offset; None if it is not one that `to_payload` makes."""
    found = _sample().numbers(payload)
    if found is None:
        return None
    count, nodes, places, body = found
    columns: list[Sequence[Any]] = []
    node = buffer = 0
    for kind in _COLUMNS:
        nulls = nodes[node + 1]
        if kind is _LONG or kind is _INT:
            columns.append(struct.unpack_from(f"<{count}{kind}", payload, body + places[2 * buffer + 2]))
            node, buffer = node + 2, buffer + 2
            continue
        starts = [body + each for each in places[2 * buffer : 2 * buffer + 10 : 2]]
        if kind is _TEXT:
            columns.append((None,) * count if nulls == count else _read_texts(payload, starts, count, nulls))
            node, buffer = node + 2, buffer + 3
            continue
        if nulls == count:
            columns.append((None,) * count)
        else:
            ends = struct.unpack_from(f"<{count + 1}i", payload, starts[1])
            inner = _read_texts(payload, starts[2:], nodes[node + 2], nodes[node + 3])
            lists = [inner[first:last] for first, last in pairwise(ends)]
            columns.append(_with_nulls(lists, payload, starts[0], nulls))
        node, buffer = node + 4, buffer + 5
    return list(map(EventRow._make, zip(*columns, range(offset, offset + count), strict=True)))


def _read_texts(payload: bytes, starts: Sequence[int], count: int, nulls: int) -> list[Any]:
    """A column of texts from the places of its validity, its ends and its data."""
    ends = struct.unpack_from(f"<{count + 1}i", payload, starts[1])
    data = starts[2]
    texts = [payload[data + first : data + last].decode() for first, last in pairwise(ends)]
    return _with_nulls(texts, payload, starts[0], nulls) if nulls else texts


# Any: texts, or lists of them.
def _with_nulls(values: list[Any], payload: bytes, start: int, nulls: int) -> list[Any]:
    if not nulls:
        return values
    return [value if payload[start + place // 8] >> place % 8 & 1 else None for place, value in enumerate(values)]


def _texts(values: Sequence[str | None]) -> _Column:
    if len(values) == 1 and values[0] is not None:  # most commands make one event
        text = values[0].encode()
        return (1, 0), (b"", b"\0\0\0\0" + len(text).to_bytes(4, "little"), text)
    nulls = values.count(None)
    data = [b"" if value is None else value.encode() for value in values]
    return (len(data), nulls), (_valid(values, nulls), _ends(map(len, data), len(data)), b"".join(data))


def _lists(values: Sequence[Sequence[str] | None]) -> _Column:
    nulls = values.count(None)
    inner, buffers = _texts([text for each in values for text in each or ()])
    ends = _ends((len(each or ()) for each in values), len(values))
    return (len(values), nulls, *inner), (_valid(values, nulls), ends, *buffers)


@cache
def _nulls(kind: str, count: int) -> _Column:
    return _texts([None] * count) if kind is _TEXT else _lists([None] * count)


def _valid(values: Sequence[object], nulls: int) -> bytes:
    """One bit for each value that is not null; nothing if no value is null."""
    if not nulls:
        return b""
    bits = sum(1 << place for place, value in enumerate(values) if value is not None)
    return bits.to_bytes((len(values) + 7) // 8, "little")


def _ends(sizes: Iterable[int], count: int) -> bytes:
    return struct.pack(f"<{count + 1}i", 0, *accumulate(sizes))


class _Sample:
    """The metadata of a message, and where its numbers are. It is a FlatBuffer: tables begin with the distance to a list
    of the places of their fields."""

    def __init__(self) -> None:
        # Not made of Python's values: Arrow would import pandas at the first command of a process.
        nulls = [pa.nulls(1, field.type) for field in SCHEMA]
        message = pa.RecordBatch.from_arrays(nulls, schema=SCHEMA).serialize().to_pybytes()
        self._bytes = message[: 8 + struct.unpack_from("<i", message, 4)[0]]
        root = 8 + self._unsigned(8)
        batch = self._behind(self._field(root, 2))
        self._body = self._field(root, 3)
        self._count = self._field(batch, 0)
        nodes, buffers = self._behind(self._field(batch, 1)), self._behind(self._field(batch, 2))
        self._nodes, self._nodes_at = struct.Struct(f"<{2 * self._unsigned(nodes)}q"), nodes + 4
        self._buffers, self._buffers_at = struct.Struct(f"<{2 * self._unsigned(buffers)}q"), buffers + 4
        #: The bytes that are the same in all messages: they end where numbers begin.
        numbers = sorted(
            [
                (self._count, 8),
                (self._body, 8),
                (self._nodes_at, self._nodes.size),
                (self._buffers_at, self._buffers.size),
            ]
        )
        ends = [*(at for at, _ in numbers), len(self._bytes)]
        starts = [0, *(at + size for at, size in numbers)]
        self._same = [(start, end, self._bytes[start:end]) for start, end in zip(starts, ends, strict=True)]

    def numbers(self, message: bytes) -> tuple[int, tuple[int, ...], tuple[int, ...], int] | None:
        """The number of rows, the rows and nulls of columns, the places of buffers, and where the first of them is."""
        if any(message[start:end] != same for start, end, same in self._same):
            return None
        count = struct.unpack_from("<q", message, self._count)[0]
        nodes = self._nodes.unpack_from(message, self._nodes_at)
        return count, nodes, self._buffers.unpack_from(message, self._buffers_at), len(self._bytes)

    def head(self, count: int, nodes: Sequence[int], places: Sequence[int], body: int) -> bytearray:
        """The metadata of other rows: their number, the rows and nulls of columns, and the places of buffers."""
        made = bytearray(self._bytes)
        struct.pack_into("<q", made, self._count, count)
        struct.pack_into("<q", made, self._body, body)
        self._nodes.pack_into(made, self._nodes_at, *nodes)
        self._buffers.pack_into(made, self._buffers_at, *places)
        return made

    def _unsigned(self, at: int) -> int:
        return int(struct.unpack_from("<I", self._bytes, at)[0])

    def _behind(self, at: int) -> int:
        """The place to which a field refers."""
        return at + self._unsigned(at)

    def _field(self, table: int, number: int) -> int:
        fields = table - int(struct.unpack_from("<i", self._bytes, table)[0])
        return table + int(struct.unpack_from("<H", self._bytes, fields + 4 + 2 * number)[0])


_sample = cache(_Sample)
