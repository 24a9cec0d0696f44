"""Decodes frames into batches of the columns that a reader selects, whatever schema version they were written with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.errors import ColumnUnknown
from headwater.log.frame import (
    FLAG_HEADERS,
    FLAG_OFFSETS,
    FLAG_TIMES,
    FLAG_TOMBSTONES,
    HEADERS_TYPE,
    KIND_PUNCTUATION,
    TIME_TYPE,
    Header,
    decode,
    payload_schema,
)
from headwater.log.port import SYSTEM_COLUMNS, Batch
from headwater.log.topic import Topic
from headwater.schema import conform, stored_schema

CONSTANT_ROWS_MAX = 65_536
SYSTEM_FIELDS = {
    "_partition": pa.field("_partition", pa.int32()),
    "_offset": pa.field("_offset", pa.int64()),
    "_appended_at": pa.field("_appended_at", TIME_TYPE),
    "_sent_at": pa.field("_sent_at", TIME_TYPE),
    "_headers": pa.field("_headers", HEADERS_TYPE),
    "_tombstone": pa.field("_tombstone", pa.bool_()),
}


@dataclass(frozen=True)
class Projection:
    """The columns that a reader selects, in order, and the schema of its batches."""

    schema: pa.Schema
    names: tuple[str, ...]
    output: pa.Schema
    #: How frames of the topic are projected, by schema version and flags; all decoders of this projection share it.
    layouts: dict[tuple[int, int], _Layout] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def of(topic: Topic, columns: Sequence[str] | None) -> Projection:
        """The given columns, or all columns of a topic and the system columns."""
        if columns is None:
            columns = all_columns(topic.schema, tombstones=topic.compact)
        return Projection.under(topic.schema, columns, topic=topic.name)

    @staticmethod
    def under(schema: pa.Schema, names: Sequence[str], *, topic: str) -> Projection:
        """The given columns of rows under one version of a topic's schema."""
        base = stored_schema(schema)
        fields = []
        for name in names:
            if name in SYSTEM_FIELDS:
                fields.append(SYSTEM_FIELDS[name])
            elif name in base.names:
                fields.append(base.field(name))
            else:
                raise ColumnUnknown(topic=topic, column=name, columns=", ".join([*base.names, *SYSTEM_FIELDS]))
        return Projection(base, tuple(names), pa.schema(fields))


def all_columns(schema: pa.Schema, *, tombstones: bool) -> list[str]:
    """The columns of a schema and the system columns."""
    return [*stored_schema(schema).names, *SYSTEM_COLUMNS, *(["_tombstone"] if tombstones else [])]


class _Layout(NamedTuple):
    """How payloads of one schema version and one set of flags are projected; computed once, used for each frame."""

    schema: pa.Schema
    #: The index of each selected column in the payload (-1 for a system column); None if rows must be conformed first.
    places: tuple[int, ...] | None
    #: Whether a payload is already the result.
    ready: bool

    @staticmethod
    def of(written: pa.Schema, wanted: Projection) -> _Layout:
        user = pa.schema([field for field in written if field.name not in SYSTEM_FIELDS])
        if not user.equals(wanted.schema):
            return _Layout(written, None, False)
        places = tuple(-1 if name in SYSTEM_FIELDS else written.get_field_index(name) for name in wanted.names)
        return _Layout(written, places, written.equals(wanted.output))


class Decoder:
    """Decodes frames into batches of the reader's schema, whatever schema version they were written with."""

    def __init__(
        self, topic: Callable[[], Topic], schema_of: Callable[[int], pa.Schema], partition: int, projection: Projection
    ) -> None:
        self._topic = topic
        self._schema_of = schema_of
        self._partition = partition
        self._projection = projection

    def batch(self, header: Header, payload: pa.Buffer, *, start: int, stop: int | None) -> Batch | None:
        """The rows of a frame with offsets in [start, stop); None if there are none."""
        if header.kind == KIND_PUNCTUATION:
            return self.punctuation(header)
        layout = self._layout(header)
        data = decode(payload, layout.schema)
        offsets = data.column("_offset") if header.flags & FLAG_OFFSETS else None
        first, last = _row_range(header, offsets, start, stop)
        if first >= last:
            return None
        batch = data
        if not layout.ready:
            columns = self._columns(header, layout, data, offsets)
            batch = pa.RecordBatch.from_arrays(columns, schema=self._projection.output)
        if first or last < header.rows:
            batch = batch.slice(first, last - first)
        offset = max(start, header.offset_base)
        offset_next = header.offset_next if stop is None else min(stop, header.offset_next)
        return Batch(
            topic=self._topic().name,
            partition=self._partition,
            offset=offset,
            offset_next=offset_next,
            data=batch,
            producer=header.producer,
        )

    def _layout(self, header: Header) -> _Layout:
        key = (header.schema_version, header.flags)
        layouts = self._projection.layouts
        layout = layouts.get(key)
        if layout is None:
            written = payload_schema(self._schema_of(header.schema_version), header.flags)
            layout = layouts[key] = _Layout.of(written, self._projection)
        return layout

    def punctuation(self, header: Header) -> Batch:
        """A punctuation as a batch without rows."""
        return Batch(
            topic=self._topic().name,
            partition=self._partition,
            offset=header.offset_base,
            offset_next=header.offset_base,
            data=_empty(self._projection.output),
            punctuation_us=header.time_min_us,
            producer=header.producer,
        )

    def _columns(
        self, header: Header, layout: _Layout, data: pa.RecordBatch, offsets: pa.Array | None
    ) -> list[pa.Array]:
        if layout.places is None:
            user = data.select([name for name in data.schema.names if name not in SYSTEM_FIELDS])
            data_of = conform(user, self._projection.schema).column
        else:
            data_of = data.column
        places = layout.places or self._projection.names
        return [
            self._system_column(name, header, data, offsets) if name in SYSTEM_FIELDS else data_of(place)
            for name, place in zip(self._projection.names, places, strict=True)
        ]

    def _system_column(self, name: str, header: Header, data: pa.RecordBatch, offsets: pa.Array | None) -> pa.Array:
        count = header.rows
        if name == "_partition":
            return _constant(self._partition, count)
        if name == "_offset":
            return offsets if offsets is not None else _range(header.offset_base, count)
        if name in ("_appended_at", "_sent_at"):
            if header.flags & FLAG_TIMES:
                return data.column(name)
            return _time(header.appended_at_us if name == "_appended_at" else header.sent_at_us, count)
        if name == "_headers":
            return data.column(name) if header.flags & FLAG_HEADERS else _nulls(count)
        return data.column(name) if header.flags & FLAG_TOMBSTONES else _false(count)


def _row_range(header: Header, offsets: pa.Array | None, start: int, stop: int | None) -> tuple[int, int]:
    if start <= header.offset_base and (stop is None or stop >= header.offset_next):
        return 0, header.rows
    if offsets is None:
        last = header.rows if stop is None else min(header.rows, stop - header.offset_base)
        return max(0, start - header.offset_base), last
    values = np.asarray(offsets)
    last = header.rows if stop is None else int(np.searchsorted(values, stop))
    return int(np.searchsorted(values, start)), last


def _numbers(values: npt.NDArray[np.generic], kind: pa.DataType) -> pa.Array:
    # Not by `pa.array`: its first call imports pandas where that is installed, which takes a second.
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _range(first: int, count: int) -> pa.Array:
    return _numbers(np.arange(first, first + count, dtype=np.int64), pa.int64())


def _time(value_us: int, count: int) -> pa.Array:
    return _numbers(np.full(count, value_us, dtype=np.int64), TIME_TYPE)


@lru_cache(maxsize=256)
def _partition_numbers(partition: int) -> pa.Array:
    return _numbers(np.full(CONSTANT_ROWS_MAX, partition, dtype=np.int32), pa.int32())


def _constant(partition: int, count: int) -> pa.Array:
    if count <= CONSTANT_ROWS_MAX:
        return _partition_numbers(partition).slice(0, count)
    return _numbers(np.full(count, partition, dtype=np.int32), pa.int32())


@lru_cache(maxsize=1)
def _many_nulls() -> pa.Array:
    return pa.nulls(CONSTANT_ROWS_MAX, HEADERS_TYPE)


def _nulls(count: int) -> pa.Array:
    return _many_nulls().slice(0, count) if count <= CONSTANT_ROWS_MAX else pa.nulls(count, HEADERS_TYPE)


def _false(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bytes(count // 8 + 1))])


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], type=field.type) for field in schema], schema=schema)
