"""Arrow rows as the bytes that PostgreSQL's binary COPY reads, made by NumPy and not by a loop over rows.

The server takes these bytes as they are, which costs both sides half of what text does. They must be of exactly the
type of the column, so that what is not (a number for a `numeric`, text for a `uuid`) goes as text instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headwater.sinks.postgres_copy import PIECE_ROWS, json_texts

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
