"""A frame: 104 bytes of header, then one Arrow IPC record batch. `docs/reference/log-format.md` specifies every byte.

Invariants: a frame begins at a multiple of 8; its two CRC32C checksums cover every byte after the first eight; offsets
and times of its rows are known from the header, without the payload.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from google_crc32c import value as crc32c

from headwater.schema import stored_schema

MAGIC = b"HWF1"
ALIGNMENT = 8
TIME_NONE = -(2**63)

FLAG_HEADERS = 1
FLAG_OFFSETS = 2
FLAG_TIMES = 4
FLAG_TOMBSTONES = 8
FLAG_TRANSACTION = 16
FLAG_MORE = 32

KIND_ROWS = 0
KIND_PUNCTUATION = 1

CODECS = ("none", "lz4", "zstd")

_HEADER = struct.Struct("<4sIIIqIIIHBBqqqqQqIIQ")
_COVERED = struct.Struct("<IIqIIIHBBqqqqQqIIQ")
_PREFIX = struct.Struct("<4sI")
_SIZE = struct.Struct("<4s8xI")
HEADER_BYTES = _HEADER.size

HEADERS_TYPE = pa.map_(pa.string(), pa.binary())
TIME_TYPE = pa.timestamp("us", tz="UTC")


class Header(NamedTuple):
    """The header of a frame."""

    magic: bytes
    header_crc: int
    payload_crc: int
    payload_size: int
    offset_base: int
    offset_span: int
    rows: int
    schema_version: int
    flags: int
    kind: int
    codec: int
    appended_at_us: int
    sent_at_us: int
    time_min_us: int
    time_max_us: int
    producer: int
    sequence: int
    epoch: int
    reserved: int
    transaction: int

    @property
    def offset_next(self) -> int:
        return self.offset_base + self.offset_span

    @property
    def size(self) -> int:
        return HEADER_BYTES + aligned(self.payload_size)


@dataclass(slots=True)
class Draft:
    """A frame without its position: offset, append time and producer are assigned under the append lock."""

    payload: pa.Buffer | bytes
    payload_crc: int
    payload_size: int
    rows: int
    span: int
    schema_version: int
    flags: int = 0
    kind: int = KIND_ROWS
    codec: int = 0
    sent_at_us: int = 0
    time_min_us: int = TIME_NONE
    time_max_us: int = TIME_NONE

    @property
    def size(self) -> int:
        return HEADER_BYTES + aligned(self.payload_size)

    def header(
        self,
        *,
        offset: int,
        appended_at_us: int,
        producer: int = 0,
        sequence: int = 0,
        epoch: int = 0,
        transaction: int = 0,
        more: bool = False,
    ) -> bytes:
        """The bytes of the header at this position; `more` if the next frame belongs to the same append."""
        flags = self.flags | (FLAG_TRANSACTION if transaction else 0) | (FLAG_MORE if more else 0)
        covered = _COVERED.pack(
            self.payload_crc,
            self.payload_size,
            offset,
            self.span,
            self.rows,
            self.schema_version,
            flags,
            self.kind,
            self.codec,
            appended_at_us,
            self.sent_at_us,
            self.time_min_us,
            self.time_max_us,
            producer,
            sequence,
            epoch,
            0,
            transaction,
        )
        return _PREFIX.pack(MAGIC, crc32c(covered)) + covered


def aligned(size: int) -> int:
    """`size` rounded up to the next multiple of 8."""
    return (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1)


def padding(size: int) -> bytes:
    """The zero bytes that bring `size` to a multiple of 8."""
    return bytes(-size % ALIGNMENT)


def read_header(buffer: memoryview | bytes, position: int) -> Header | None:
    """The header at `position`; None if it is incomplete or does not match its checksum."""
    if position + HEADER_BYTES > len(buffer):
        return None
    header = Header._make(_HEADER.unpack_from(buffer, position))
    if header.magic != MAGIC:
        return None
    if crc32c(bytes(buffer[position + 8 : position + HEADER_BYTES])) != header.header_crc:
        return None
    return header


def size_at(buffer: memoryview | bytes, position: int) -> int:
    """The size of the frame at `position` without checking its checksums; 0 if no frame begins there."""
    if position + HEADER_BYTES > len(buffer):
        return 0
    magic, payload_size = _SIZE.unpack_from(buffer, position)
    return HEADER_BYTES + aligned(payload_size) if magic == MAGIC else 0


def draft_rows(
    data: pa.RecordBatch,
    *,
    schema_version: int,
    codec: str = "none",
    time: str | None = None,
    sent_at_us: int = 0,
    headers: pa.Array | None = None,
    tombstones: pa.Array | None = None,
    offsets: pa.Array | None = None,
    appended_at: pa.Array | None = None,
    sent_at: pa.Array | None = None,
    span: int | None = None,
) -> Draft:
    """Encode rows. System columns whose values differ within the frame are stored beside the user's columns."""
    time_min, time_max = _time_bounds(data, time)
    flags = 0
    if headers is not None or tombstones is not None or offsets is not None or appended_at is not None:
        data, flags = _with_extras(data, headers, tombstones, offsets, appended_at, sent_at)
    payload = _encode(data, codec)
    size = len(payload)
    return Draft(
        payload,
        crc32c(payload),
        size,
        data.num_rows,
        data.num_rows if span is None else span,
        schema_version,
        flags,
        KIND_ROWS,
        CODECS.index(codec),
        sent_at_us,
        time_min,
        time_max,
    )


def draft_of(header: Header, payload: pa.Buffer | bytes) -> Draft:
    """The draft of a frame, to write it at another position."""
    return Draft(
        payload,
        header.payload_crc,
        header.payload_size,
        header.rows,
        header.offset_span,
        header.schema_version,
        header.flags,
        header.kind,
        header.codec,
        header.sent_at_us,
        header.time_min_us,
        header.time_max_us,
    )


def draft_punctuation(time_us: int, *, schema_version: int, sent_at_us: int) -> Draft:
    """A frame without rows: no row earlier than `time_us` follows from this producer."""
    return Draft(
        b"",
        0,
        0,
        0,
        0,
        schema_version,
        kind=KIND_PUNCTUATION,
        sent_at_us=sent_at_us,
        time_min_us=time_us,
        time_max_us=time_us,
    )


def payload_schema(schema: pa.Schema, flags: int) -> pa.Schema:
    """The schema of a payload: the topic's columns, then the system columns in `flags`."""
    extras = []
    if flags & FLAG_HEADERS:
        extras.append(pa.field("_headers", HEADERS_TYPE))
    if flags & FLAG_TOMBSTONES:
        extras.append(pa.field("_tombstone", pa.bool_()))
    if flags & FLAG_OFFSETS:
        extras.append(pa.field("_offset", pa.int64()))
    if flags & FLAG_TIMES:
        extras += [pa.field("_appended_at", TIME_TYPE), pa.field("_sent_at", TIME_TYPE)]
    base = stored_schema(schema)
    return pa.schema([*base, *extras]) if extras else base


def decode(payload: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a payload whose schema is `payload_schema(...)`; without a copy unless it is compressed."""
    return pa.ipc.read_record_batch(payload, schema)


def payload_is_whole(header: Header, payload: pa.Buffer | bytes | memoryview) -> bool:
    """Whether a payload matches its size and checksum."""
    if isinstance(payload, memoryview):
        payload = pa.py_buffer(payload)  # the checksum takes buffers and bytes only; this copies nothing
    return len(payload) == header.payload_size and crc32c(payload) == header.payload_crc


def _with_extras(
    data: pa.RecordBatch,
    headers: pa.Array | None,
    tombstones: pa.Array | None,
    offsets: pa.Array | None,
    appended_at: pa.Array | None,
    sent_at: pa.Array | None,
) -> tuple[pa.RecordBatch, int]:
    flags = (
        (FLAG_HEADERS if headers is not None else 0)
        | (FLAG_TOMBSTONES if tombstones is not None else 0)
        | (FLAG_OFFSETS if offsets is not None else 0)
        | (FLAG_TIMES if appended_at is not None else 0)
    )
    extras = [array for array in (headers, tombstones, offsets, appended_at, sent_at) if array is not None]
    schema = payload_schema(data.schema, flags)
    return pa.RecordBatch.from_arrays([*data.columns, *extras], schema=schema), flags


def _encode(data: pa.RecordBatch, codec: str) -> pa.Buffer:
    if codec == "none":
        return data.serialize()
    # `serialize` cannot compress, but a stream writer can: it writes the schema's message, the batch, and 8 bytes of end.
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, data.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(data)
    stream = sink.getvalue()
    preamble = data.schema.serialize().size
    return stream.slice(preamble, stream.size - preamble - 8)


def _time_bounds(data: pa.RecordBatch, time: str | None) -> tuple[int, int]:
    if time is None or data.num_rows == 0:
        return TIME_NONE, TIME_NONE
    column = data.column(time)
    if column.type != TIME_TYPE:
        column = column.cast(TIME_TYPE)
    if column.null_count:
        column = column.drop_null()
        if len(column) == 0:
            return TIME_NONE, TIME_NONE
    values = np.asarray(column.view(pa.int64()))
    return int(values.min()), int(values.max())
