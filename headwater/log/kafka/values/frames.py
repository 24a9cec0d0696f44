"""Frames of rows as values: what the embedded log has in its files, many rows in one message.

About ten times cheaper to write and to read than a message per row. Other programs need Arrow to read them, and a
topic of them cannot be compacted, since a message has no key.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller

import pyarrow as pa

from headwater.log.drafts import select
from headwater.log.errors import RowTooLarge
from headwater.log.frame import (
    FLAG_HEADERS,
    FLAG_TOMBSTONES,
    HEADER_BYTES,
    HEADERS_TYPE,
    KIND_ROWS,
    Header,
    decode,
    draft_rows,
    payload_is_whole,
    payload_schema,
    read_header,
)
from headwater.log.kafka.errors import ValueUnreadable
from headwater.log.kafka.values.port import Decoded, Incoming, Messages, Outgoing, Values
from headwater.log.topic import Topic
from headwater.schema import RowBatch, conform, stored_schema


class Frames(Values):
    """Rows as Arrow frames, whose headers have the version of the schema and the bounds of the event time."""

    format = "frames"
    per_row = False

    def __init__(self, topic: Topic, schema_of: Callable[[int], pa.Schema]) -> None:
        self._topic = topic
        self._schema_of = schema_of
        self._stored = stored_schema(topic.schema)

    def encode(self, rows: RowBatch, *, bytes_max: int) -> list[Outgoing]:
        count = rows.data.num_rows
        if not count:
            return []
        draft = draft_rows(
            rows.data,
            schema_version=self._topic.schema_version,
            codec=self._topic.codec,
            time=self._topic.time_column,
            headers=rows.headers,
            tombstones=rows.tombstones,
        )
        size = HEADER_BYTES + draft.payload_size
        if size <= bytes_max:
            head = draft.header(offset=0, appended_at_us=0)
            return [Outgoing(b"".join((head, draft.payload)), rows=count)]
        if count == 1:
            raise RowTooLarge(topic=self._topic.name, size=size, size_max=bytes_max)
        step = max(1, min(count // 2, count * bytes_max // size))
        pieces = [select(rows, methodcaller("slice", start, step)) for start in range(0, count, step)]
        return [message for piece in pieces for message in self.encode(piece, bytes_max=bytes_max)]

    def decode(self, messages: Messages) -> Decoded:
        decoded = [self._decoded(message) for message in messages]
        batches = [batch for batch, _ in decoded]
        flags = 0
        for _, header in decoded:
            flags |= header.flags
        user = [batch if batch.schema.equals(self._stored) else self._user(batch) for batch in batches]
        if len(user) == 1:  # not copied
            data = user[0]
        else:
            data = pa.concat_batches(user) if user else pa.RecordBatch.from_pylist([], schema=self._stored)
        return Decoded(
            data,
            [batch.num_rows for batch in batches],
            _extra(batches, "_headers", HEADERS_TYPE) if flags & FLAG_HEADERS else None,
            _extra(batches, "_tombstone", pa.bool_()) if flags & FLAG_TOMBSTONES else None,
        )

    def times(self, message: Incoming) -> tuple[int, int]:
        """The earliest and the latest event time of a frame's rows, without reading them; see `TIME_NONE`."""
        header = self._header(message)
        return header.time_min_us, header.time_max_us

    def _user(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        own = batch.select([name for name in batch.schema.names if not name.startswith("_")])
        return own if own.schema.equals(self._stored) else conform(own, self._stored)

    def _header(self, message: Incoming) -> Header:
        header = None if message.value is None else read_header(message.value, 0)
        if header is None:
            raise self._unreadable(message, "it does not begin with the header of a frame")
        return header

    def _decoded(self, message: Incoming) -> tuple[pa.RecordBatch, Header]:
        header = self._header(message)
        value = memoryview(message.value or b"")
        payload = value[HEADER_BYTES:]
        if header.kind != KIND_ROWS or not payload_is_whole(header, payload):
            raise self._unreadable(message, "its checksum differs from that of its rows")
        try:
            schema = payload_schema(self._schema_of(header.schema_version), header.flags)
            return decode(pa.py_buffer(payload), schema), header
        except (LookupError, pa.ArrowException) as error:
            raise self._unreadable(message, f"version {header.schema_version} of the schema: {error}") from error

    def _unreadable(self, message: Incoming, why: str) -> ValueUnreadable:
        return ValueUnreadable(topic=self._topic.name, offset=message.offset, format=self.format, why=why)


def _extra(batches: list[pa.RecordBatch], name: str, kind: pa.DataType) -> pa.Array:
    """A system column of all frames; null, or false, for frames without it."""
    parts = []
    for batch in batches:
        if name in batch.schema.names:
            parts.append(batch.column(name))
        else:
            nothing = pa.scalar(False if kind == pa.bool_() else None, kind)
            parts.append(pa.repeat(nothing, batch.num_rows))
    return pa.concat_arrays(parts)
