"""Avro records decoded column by column: NumPy reads one field of all records at a time, with a cursor for each record.

A loop over rows costs some microseconds per record; this costs about a tenth. It covers records of flat fields, structs
and `["null", X]` unions. What it does not cover, and every record that is not well formed, raises `Irregular`: the
caller decodes by rows then, which covers all of Avro and names the record that is bad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
AvroSchema = Any  # JSON: a string, a list or a mapping

#: Zero bytes behind the records, so that a word can be read at each of them.
_PADDING = bytes(16)
_BINARY_BYTES_MAX = 2**31 - 1
_ONES = np.uint64(0x0101010101010101)
_STOPS = np.uint64(0x8080808080808080)
_SEVEN = np.uint64(0x7F7F7F7F7F7F7F7F)
#: How groups of 7, 14 and 28 bits move together: mask of the upper ones, how far they move, mask of the lower ones.
_GROUPS = (
    (np.uint64(0x7F007F007F007F00), np.uint64(1), np.uint64(0x007F007F007F007F)),
    (np.uint64(0x3FFF00003FFF0000), np.uint64(2), np.uint64(0x00003FFF00003FFF)),
    (np.uint64(0x0FFFFFFF00000000), np.uint64(4), np.uint64(0x000000000FFFFFFF)),
)
#: What a number may widen to by Avro's rules.
_WIDER = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}
_NUMBERS = {"int": pa.int32(), "long": pa.int64()}
_TICKS_PER_DAY = {"time-millis": 86_400_000, "time-micros": 86_400_000_000}


class Irregular(Exception):
    """These records are not well formed, or have a type that is decoded by rows only."""


@dataclass(slots=True)
class _Records:
    """Records one behind the other, and where the next field of each of them begins."""

    data: Bytes
    at: Numbers
    ends: Numbers

    @classmethod
    def of(cls, records: Sequence[bytes]) -> _Records:
        lengths = np.fromiter(map(len, records), dtype=np.int64, count=len(records))
        ends = np.cumsum(lengths)
        return cls(np.frombuffer(b"".join(records) + _PADDING, dtype=np.uint8), ends - lengths, ends)

    def some(self, rows: Numbers) -> _Records:
        return _Records(self.data, self.at[rows], self.ends[rows])

    def words(self) -> Words:
        """The eight bytes at each cursor."""
        if len(self.at) and int(self.at.max()) > len(self.data) - len(_PADDING):
            raise Irregular("the bytes end too early")
        every: Words = np.ndarray((len(self.data) - 7,), dtype="<u8", buffer=self.data, strides=(1,))
        return every[self.at]

    def longs(self) -> Numbers:
        """Read a zigzag number of each record."""
        words = self.words()
        stops = ~words & _STOPS
        low = stops & (~stops + np.uint64(1))
        below = low - np.uint64(1)  # all ones where no byte of the word is the last one
        sizes = (((below & _ONES) * _ONES) >> np.uint64(56)).astype(np.int64)
        values = words & below & _SEVEN
        for upper, distance, lower in _GROUPS:
            values = ((values & upper) >> distance) | (values & lower)
        long = np.flatnonzero(low == 0)
        if len(long):
            self._long(values, sizes, long)
        self.at = self.at + sizes
        self._check()
        sign = -(values & np.uint64(1)).astype(np.int64)
        return (values >> np.uint64(1)).astype(np.int64) ^ sign

    def _long(self, values: Words, sizes: Numbers, rows: Numbers) -> None:
        """Add the ninth and the tenth byte of the numbers that have them."""
        ninth = self.data[self.at[rows] + 8].astype(np.uint64)
        tenth = self.data[self.at[rows] + 9].astype(np.uint64)
        more = ninth > 0x7F
        if bool((tenth[more] > 1).any()):
            raise Irregular("a number has more than 64 bits")
        tenth = np.where(more, tenth, np.uint64(0))
        values[rows] |= ((ninth & np.uint64(0x7F)) << np.uint64(56)) | (tenth << np.uint64(63))
        sizes[rows] = 9 + more

    def skip(self, sizes: Numbers | int) -> Numbers:
        """Move behind so many bytes of each record; return where they began."""
        begins = self.at
        self.at = begins + sizes
        self._check()
        return begins

    def _check(self) -> None:
        if bool((self.at > self.ends).any()):
            raise Irregular("the bytes end too early")


def decode(records: Sequence[bytes], writer: AvroSchema, reader: AvroSchema, schema: pa.Schema) -> pa.RecordBatch:
    """Decode records of the writer's schema to the columns of `schema`, whose own Avro schema is `reader`."""
    if not isinstance(writer, Mapping) or writer.get("type") != "record":
        raise Irregular("another type")
    cursor = _Records.of(records)
    arrays = _columns(cursor, writer, reader, list(schema))
    if not bool((cursor.at == cursor.ends).all()):
        raise Irregular("bytes are left over")
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _columns(records: _Records, writer: AvroSchema, reader: AvroSchema, targets: list[pa.Field]) -> list[pa.Array]:
    """The columns of a record: the writer's fields are read in its order, and the others are null."""
    places = {field["name"]: place for place, field in enumerate(reader["fields"])}
    arrays: list[pa.Array | None] = [None] * len(targets)
    for field in writer["fields"]:
        place = places.get(field["name"])
        if place is None:
            _value(records, field["type"], None, None)
            continue
        array = _value(records, field["type"], reader["fields"][place]["type"], targets[place].type)
        if array.null_count and not targets[place].nullable:
            raise Irregular("a field that is not null is null")
        arrays[place] = array
    for place, target in enumerate(targets):
        if arrays[place] is None:
            if not target.nullable:
                raise Irregular("a field that is not null has no default")
            arrays[place] = pa.nulls(len(records.at), target.type)
    return arrays


def _value(records: _Records, writer: AvroSchema, reader: AvroSchema, target: pa.DataType | None) -> pa.Array:
    """One field of all records as an array of the target's type; without a target it is read and left out."""
    if isinstance(writer, list):
        return _union(records, writer, reader, target)
    if isinstance(reader, list):
        reader = next(branch for branch in reader if branch != "null")
    kind = writer["type"] if isinstance(writer, Mapping) else writer
    if isinstance(kind, Mapping | list):
        raise Irregular("a type within a type")
    logical = _logical(writer)
    if target is not None:
        _check_resolution(kind, logical, reader)
    if kind == "record":
        fields = [] if target is None else list(target)
        arrays = _columns(records, writer, {"fields": []} if target is None else reader, fields)
        return pa.nulls(len(records.at)) if target is None else pa.StructArray.from_arrays(arrays, fields=fields)
    array = _flat(records, writer, kind, logical)
    if target is None or array.type == target:
        return array
    try:
        return _converted(array, target)
    except pa.ArrowException as error:
        raise Irregular(str(error)) from error


def _union(records: _Records, writer: list[AvroSchema], reader: AvroSchema, target: pa.DataType | None) -> pa.Array:
    if len(writer) != 2 or "null" not in writer:
        raise Irregular("a choice of types")
    present = 1 - writer.index("null")
    branches = records.longs()
    if bool(((branches != 0) & (branches != 1)).any()):
        raise Irregular("a branch that the union does not have")
    rows = np.flatnonzero(branches == present)
    if len(rows) == len(branches):
        return _value(records, writer[present], reader, target)
    some = records.some(rows)
    dense = _value(some, writer[present], reader, target)
    records.at[rows] = some.at
    places = np.zeros(len(branches), dtype=np.int64)
    places[rows] = np.arange(len(rows))
    present_bits = pa.py_buffer(np.packbits(branches == present, bitorder="little"))
    return dense.take(pa.Array.from_buffers(pa.int64(), len(places), [present_bits, pa.py_buffer(places)]))


def _check_resolution(kind: str, logical: Any, reader: AvroSchema) -> None:
    """Raise unless the reader's type is the writer's, or one that it widens to without a logical type."""
    theirs = reader["type"] if isinstance(reader, Mapping) else reader
    if logical != _logical(reader) or theirs not in (kind, *(_WIDER.get(kind, ()) if logical is None else ())):
        raise Irregular("another type")


def _logical(schema: AvroSchema) -> Any:
    """The logical type, with what says how its values are written."""
    if not isinstance(schema, Mapping) or "logicalType" not in schema:
        return None
    if schema["logicalType"] == "decimal":
        return "decimal", schema["precision"], schema.get("scale", 0)
    return schema["logicalType"]


def _flat(records: _Records, writer: AvroSchema, kind: str, logical: Any) -> pa.Array:
    """The values of a flat type, in the Arrow type that is nearest to it."""
    count = len(records.at)
    if kind == "null":
        return pa.nulls(count)
    if kind == "boolean":
        values = records.data[records.skip(1)]
        if bool((values > 1).any()):
            raise Irregular("a boolean is 0 or 1")
        return _array(np.packbits(values, bitorder="little"), pa.bool_(), count)
    if kind in _NUMBERS:
        numbers = records.longs()
        if kind == "int" and bool((numbers != numbers.astype(np.int32)).any()):
            raise Irregular("an int has more than 32 bits")
        return _logical_numbers(numbers, kind, logical)
    if kind in ("float", "double"):
        words = records.words()
        records.skip(4 if kind == "float" else 8)
        if kind == "double":
            return _array(words, pa.float64(), count)
        return _array((words & np.uint64(0xFFFFFFFF)).astype("<u4"), pa.float32(), count)
    if kind == "enum":
        symbols = pa.array(writer["symbols"], pa.string())
        chosen = records.longs()
        if bool(((chosen < 0) | (chosen >= len(symbols))).any()):
            raise Irregular("a symbol that the enum does not have")
        return symbols.take(_array(chosen, pa.int64(), count))
    if kind == "fixed":
        size = int(writer["size"])
        begins = records.skip(size)
        matrix = records.data[begins[:, None] + np.arange(size)]
        if logical is not None:
            raise Irregular("a logical type of a fixed")
        return _array(matrix, pa.binary(size), count)
    if kind in ("string", "bytes"):
        sizes = records.longs()
        if bool((sizes < 0).any()):
            raise Irregular("a size is negative")
        begins = records.skip(sizes)
        if isinstance(logical, tuple):
            return _decimals(records.data, begins, sizes, logical)
        if logical is not None:
            raise Irregular("a logical type of a text")
        return _texts(records.data, begins, sizes, pa.string() if kind == "string" else pa.binary())
    raise Irregular(f"the type {kind!r}")


# Any: numbers of any kind.
def _array(values: npt.NDArray[Any], kind: pa.DataType, count: int) -> pa.Array:
    # Not by `pa.array`: its first call imports pandas where that is installed, which takes a second.
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(np.ascontiguousarray(values))])


def _logical_numbers(numbers: Numbers, kind: str, logical: Any) -> pa.Array:
    """Numbers as what their logical type says; a time of day beyond its day is refused."""
    array = _array(numbers.astype(np.int32) if kind == "int" else numbers, _NUMBERS[kind], len(numbers))
    if logical is None:
        return array
    if logical in _TICKS_PER_DAY:
        if bool(((numbers < 0) | (numbers >= _TICKS_PER_DAY[logical])).any()):
            raise Irregular("a time of day is beyond its day")
        return array.view(pa.time32("ms") if logical == "time-millis" else pa.time64("us"))
    if logical == "date":
        return array.view(pa.date32())
    name, _, unit = str(logical).rpartition("-")
    units = {"millis": "ms", "micros": "us", "nanos": "ns"}
    if name not in ("timestamp", "local-timestamp") or unit not in units:
        raise Irregular("another logical type")
    return array.view(pa.timestamp(units[unit], tz="UTC" if name == "timestamp" else None))


def _texts(data: Bytes, begins: Numbers, sizes: Numbers, kind: pa.DataType) -> pa.Array:
    """Slices of the records, copied one behind the other."""
    offsets = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=offsets[1:])
    total = int(offsets[-1])
    if total > _BINARY_BYTES_MAX:
        raise Irregular("more text than an array holds")
    sources = np.arange(total, dtype=np.int64)
    sources += np.repeat(begins - offsets[:-1], sizes)
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data[sources])]
    array = pa.Array.from_buffers(kind, len(sizes), buffers)
    try:
        array.validate(full=True)  # whether a text is UTF-8
    except pa.ArrowInvalid as error:
        raise Irregular(str(error)) from error
    return array


def _decimals(data: Bytes, begins: Numbers, sizes: Numbers, logical: tuple[str, int, int]) -> pa.Array:
    """Numbers of any length, highest byte first, as decimals of 16 or 32 bytes, lowest byte first."""
    _, precision, scale = logical
    width = 16 if precision <= 38 else 32
    if bool(((sizes > width) | (sizes < 1)).any()):
        raise Irregular("a decimal of unusual size")
    steps = np.arange(width)
    inside = steps < sizes[:, None]
    matrix = data[np.where(inside, (begins + sizes - 1)[:, None] - steps, 0)]
    signs = np.where(data[begins] > 0x7F, np.uint8(0xFF), np.uint8(0))
    matrix = np.where(inside, matrix, signs[:, None])
    kind = pa.decimal128(precision, scale) if width == 16 else pa.decimal256(precision, scale)
    array = _array(matrix, kind, len(sizes))
    try:
        array.validate(full=True)  # whether it has no more digits than it may
    except pa.ArrowInvalid as error:
        raise Irregular(str(error)) from error
    return array


def _converted(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Values in another Arrow type of the same Avro type, such as nanoseconds that Avro knows as a long."""
    if pa.types.is_timestamp(target) and pa.types.is_timestamp(array.type):
        # A zone of the target names the same moments; a cast from UTC would keep them, but asks for the zone's rules.
        return array.cast(pa.timestamp(target.unit, tz=array.type.tz)).view(target)
    if pa.types.is_time(target) and pa.types.is_int64(array.type):
        day = {"us": 86_400_000_000, "ns": 86_400_000_000_000}[target.unit]
        if pc.any(pc.or_(pc.less(array, 0), pc.greater_equal(array, day))).as_py():
            raise Irregular("a time of day is beyond its day")
        return array.view(target)
    if pa.types.is_duration(target):
        return array.view(target)
    return array.cast(target)
