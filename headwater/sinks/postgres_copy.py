"""Arrow rows as the text that PostgreSQL's COPY reads, made by Arrow's own writer and not by a loop over rows.

In this text a null is nothing at all and a string stands in quotes, so that an empty string is not a null.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import LiteralString

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headwater.errors import SinkMisfit
from headwater.schema.encodings import json as json_lines

#: Rows of one piece of text: some megabytes, so that the server reads while the next is made.
PIECE_ROWS = 32_768

_TYPES: dict[pa.DataType, LiteralString] = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.uint8(): "smallint",
    pa.int16(): "smallint",
    pa.uint16(): "integer",
    pa.int32(): "integer",
    pa.uint32(): "bigint",
    pa.int64(): "bigint",
    pa.uint64(): "numeric(20)",
    pa.float16(): "real",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.date32(): "date",
    pa.date64(): "date",
    pa.null(): "text",
}
_OPTIONS = csv.WriteOptions(include_header=False, quoting_style="needed")


def sql_type(sink: str, column: pa.Field) -> LiteralString:
    """The type of PostgreSQL that holds a column.

    >>> sql_type("postgres", pa.field("at", pa.timestamp("us", "UTC"))), sql_type("", pa.field("m", pa.decimal128(9, 2)))
    ('timestamp with time zone', 'numeric')
    """
    kind = column.type
    if kind in _TYPES:
        return _TYPES[kind]
    by_family: dict[str, LiteralString] = {
        "number": "numeric",
        "text": "text",
        "bytes": "bytea",
        "timestamp": "timestamp with time zone" if getattr(kind, "tz", None) else "timestamp without time zone",
        "time": "time",
        "duration": "interval",
        "nested": "jsonb",
    }
    found = by_family.get(family_of(kind))
    if found is None:
        raise SinkMisfit(sink=sink, column=column.name, why=f"is {kind}, for which PostgreSQL has no type")
    return found


def family_of(kind: pa.DataType) -> str:
    """Which kind of values a type holds."""
    types = pa.types
    tests = {
        "boolean": types.is_boolean,
        "number": lambda one: types.is_integer(one) or types.is_floating(one) or types.is_decimal(one),
        "text": lambda one: types.is_string(one) or types.is_large_string(one) or types.is_null(one),
        "bytes": lambda one: types.is_binary(one) or types.is_large_binary(one) or types.is_fixed_size_binary(one),
        "date": types.is_date,
        "timestamp": types.is_timestamp,
        "time": types.is_time,
        "duration": types.is_duration,
        "nested": types.is_nested,
    }
    return next((name for name, test in tests.items() if test(kind)), "other")


def csv_of(rows: pa.Table) -> Iterator[bytes]:
    """The rows as text for `COPY … FROM STDIN (FORMAT csv)`, in pieces."""
    for batch in rows.to_batches(max_chunksize=PIECE_ROWS):
        if not batch.num_rows:
            continue
        written = pa.record_batch([_written(column) for column in batch.columns], names=batch.schema.names)
        if batch.num_columns == 1 and written.column(0).null_count:
            yield from _one_column(written.column(0))
            continue
        buffer = io.BytesIO()
        csv.write_csv(written, buffer, _OPTIONS)
        yield buffer.getvalue()


def _one_column(column: pa.Array) -> Iterator[bytes]:
    # A line with nothing on it is a null for COPY, but Arrow's writer does not write such a line.
    for text in column.cast(pa.string()).to_pylist():
        yield b"\n" if text is None else b'"' + text.replace('"', '""').encode() + b'"\n'


def _written(column: pa.Array) -> pa.Array:
    """A column whose text in CSV is what PostgreSQL reads."""
    if isinstance(column, pa.DictionaryArray):
        column = column.dictionary_decode()
    family = family_of(column.type)
    if family == "nested":
        return json_texts(column)
    if family == "bytes":
        return _hex(column)
    if family == "duration":
        micros = column.cast(pa.duration("us")).cast(pa.int64()).cast(pa.string())
        return pc.binary_join_element_wise(micros, " microseconds", "")
    return column.cast(pa.string()) if pa.types.is_float16(column.type) else column


def _hex(column: pa.Array) -> pa.Array:
    return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())


def json_texts(column: pa.Array) -> pa.Array:
    """Nested values as JSON; a null stays a null."""
    lines = json_lines.encode_rows(pa.record_batch({"v": column}))
    texts = pa.array([line[5:-1].decode() for line in lines], pa.string())  # {"v":…}
    return pc.if_else(column.is_valid(), texts, pa.scalar(None, pa.string()))
