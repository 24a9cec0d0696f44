"""Arrow rows as what PostgreSQL's COPY reads, made by Arrow and NumPy and not by a loop over rows.

The binary form costs both sides half of what text does. It must be of exactly the type of the column, so what is not (a
number for a `numeric`, text for a `uuid`) goes as text instead. In the text a null is nothing at all and a string stands
in quotes, so that an empty string is not a null.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import LiteralString

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from headwater.schema.encodings import json as json_lines

#: Rows of one piece: some megabytes, so that the server reads while the next is made.
PIECE_ROWS = 32_768

# -- types ------------------------------------------------------------------------------------------------------------

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


def sql_type(kind: pa.DataType) -> LiteralString | None:
    """Return the type of PostgreSQL that holds an Arrow type; None where there is none.

    >>> sql_type(pa.timestamp("us", "UTC")), sql_type(pa.decimal128(9, 2)), sql_type(pa.list_(pa.int8()))
    ('timestamp with time zone', 'numeric', 'jsonb')
    """
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
    return by_family.get(family_of(kind))


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


# -- text -------------------------------------------------------------------------------------------------------------


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


# -- bytes ------------------------------------------------------------------------------------------------------------

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
Convert = Callable[[pa.Array], pa.Array]

_BEGIN = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_END = b"\xff\xff"
#: PostgreSQL counts from the year 2000.
_EPOCH_DAYS = 10_957
_EPOCH_MICROSECONDS = _EPOCH_DAYS * 86_400_000_000

#: The type of a column, the types of Arrow that go into it without loss, and their form in the bytes.
_NUMBERS: dict[str, tuple[Callable[[pa.DataType], bool], pa.DataType, str]] = {
    "smallint": (pa.types.is_integer, pa.int16(), ">i2"),
    "integer": (pa.types.is_integer, pa.int32(), ">i4"),
    "bigint": (pa.types.is_integer, pa.int64(), ">i8"),
    "real": (pa.types.is_float32, pa.float32(), ">f4"),
    "double precision": (pa.types.is_floating, pa.float64(), ">f8"),
}


@dataclass(frozen=True, kw_only=True)
class Fixed:
    """A column whose values have one size: a row of bytes each."""

    bytes: Bytes
    valid: npt.NDArray[np.bool_]

    @property
    def sizes(self) -> Numbers:
        return np.where(self.valid, self.bytes.shape[1], 0).astype(np.int64)

    def scatter(self, into: Bytes, at: Numbers) -> None:
        into[at[self.valid][:, None] + np.arange(self.bytes.shape[1])] = self.bytes[self.valid]


@dataclass(frozen=True, kw_only=True)
class Varying:
    """A column whose values have their own sizes: one after the other, nulls being nothing."""

    bytes: Bytes
    sizes: Numbers
    valid: npt.NDArray[np.bool_]

    def scatter(self, into: Bytes, at: Numbers) -> None:
        begins = np.cumsum(self.sizes) - self.sizes
        into[np.repeat(at - begins, self.sizes) + np.arange(len(self.bytes))] = self.bytes


Encode = Callable[[pa.Array], Fixed | Varying]


def encoders(columns: pa.Schema, types: Mapping[str, str]) -> list[Encode] | None:
    """How to encode each column for a table with these types; None where one of them has to go as text."""
    found = [_encoder(column.type, types.get(column.name, "")) for column in columns]
    known = [one for one in found if one is not None]
    return known if len(known) == len(found) else None


def binary_of(rows: pa.Table, encode: Sequence[Encode]) -> Iterator[bytes]:
    """The rows for `COPY … FROM STDIN (FORMAT binary)`, in pieces; ArrowInvalid where a value does not fit."""
    yield _BEGIN
    for batch in rows.to_batches(max_chunksize=PIECE_ROWS):
        if batch.num_rows:
            yield _piece([one(column) for one, column in zip(encode, batch.columns, strict=True)], batch.num_rows)
    yield _END


def _piece(columns: Sequence[Fixed | Varying], count: int) -> bytes:
    """Rows side by side: the number of fields, then the size and the bytes of each. A null has the size -1."""
    size = np.full(count, 2 + 4 * len(columns), dtype=np.int64)
    for column in columns:
        size += column.sizes
    place = np.cumsum(size) - size
    out = np.empty(int(size.sum()), dtype=np.uint8)
    out[place[:, None] + np.arange(2)] = np.frombuffer(len(columns).to_bytes(2, "big"), np.uint8)
    place += 2
    for column in columns:
        told = np.where(column.valid, column.sizes, -1).astype(">i4").view(np.uint8).reshape(count, 4)
        out[place[:, None] + np.arange(4)] = told
        place += 4
        column.scatter(out, place)
        place += column.sizes
    return out.tobytes()


def _encoder(kind: pa.DataType, type: str) -> Encode | None:
    types = pa.types
    if type in _NUMBERS:
        fits, exact, form = _NUMBERS[type]
        return (lambda column: _fixed(column, column.cast(exact), form)) if fits(kind) else None
    if type == "boolean" and types.is_boolean(kind):
        return lambda column: _fixed(column, column.cast(pa.uint8()), ">u1")
    if type == "date" and types.is_date32(kind):
        return lambda column: _fixed(column, column.cast(pa.int32()), ">i4", minus=_EPOCH_DAYS)
    if type.startswith("timestamp ") and types.is_timestamp(kind) and ("without" in type) == (kind.tz is None):
        exact = pa.timestamp("us", kind.tz)
        return lambda column: _fixed(column, column.cast(exact).cast(pa.int64()), ">i8", minus=_EPOCH_MICROSECONDS)
    if type == "jsonb" and types.is_nested(kind):
        return lambda column: _varying(pc.binary_join_element_wise("\x01", json_texts(column), ""))
    if (type == "text" or type.startswith("character varying")) and types.is_string(kind):
        return _varying
    return _varying if type == "bytea" and types.is_binary(kind) else None


def _fixed(column: pa.Array, values: pa.Array, form: str, *, minus: int = 0) -> Fixed:
    numbers = np.asarray(values.fill_null(0) if values.null_count else values)
    if minus:
        numbers = numbers - minus
    width = np.dtype(form).itemsize
    return Fixed(bytes=numbers.astype(form).view(np.uint8).reshape(len(column), width), valid=_valid(column))


def _varying(column: pa.Array) -> Varying:
    """The offsets and bytes of a column as Arrow has them; what lies under a null is left out."""
    wide = column.cast(pa.large_binary())
    if wide.null_count:
        wide = wide.fill_null(b"")
    _, offsets, data = wide.buffers()
    places = np.frombuffer(offsets, np.int64)[wide.offset : wide.offset + len(wide) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return Varying(bytes=raw[places[0] : places[-1]], sizes=np.diff(places), valid=_valid(column))


def _valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.asarray(column.is_valid())
    return found
