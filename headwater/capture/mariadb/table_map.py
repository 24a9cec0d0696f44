"""The columns of a table as the binary log describes them before its rows (binlog_row_metadata=FULL)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from headwater.capture.mariadb import values
from headwater.capture.mariadb.values import Column
from headwater.capture.port import Table

_TINY, _SHORT, _LONG, _FLOAT, _DOUBLE = 1, 2, 3, 4, 5
_LONGLONG, _INT24, _DATE, _YEAR, _NEWDATE, _VARCHAR, _BIT = 8, 9, 10, 13, 14, 15, 16
_TIMESTAMP2, _DATETIME2, _TIME2 = 17, 18, 19
_BLOB_COMPRESSED, _VARCHAR_COMPRESSED, _NEWDECIMAL, _ENUM, _SET = 140, 141, 246, 247, 248
_TINY_BLOB, _MEDIUM_BLOB, _LONG_BLOB, _BLOB, _VAR_STRING, _STRING, _GEOMETRY = 249, 250, 251, 252, 253, 254, 255
_INTEGERS = {_TINY: 1, _SHORT: 2, _INT24: 3, _LONG: 4, _LONGLONG: 8}
_NUMERIC = {*_INTEGERS, _FLOAT, _DOUBLE, _NEWDECIMAL, _YEAR}
_TEXT = {_VARCHAR, _GEOMETRY, _STRING, _VAR_STRING, _BLOB, _VARCHAR_COMPRESSED, _BLOB_COMPRESSED}
_META_BYTES = {
    _FLOAT: 1, _DOUBLE: 1, _VARCHAR: 2, _BIT: 2, _TIMESTAMP2: 1, _DATETIME2: 1, _TIME2: 1, _NEWDECIMAL: 2,
    _BLOB: 1, _GEOMETRY: 1, _STRING: 2, _VAR_STRING: 2, _ENUM: 2, _SET: 2, _VARCHAR_COMPRESSED: 2, _BLOB_COMPRESSED: 1,
}  # fmt: skip


class TypeUnknown(Exception):
    """A column has a type that cannot be read from the binary log."""


@dataclass(frozen=True, kw_only=True)
class TableMap:
    """A table as the rows of the binary log have it."""

    database: str
    table: Table
    columns: Sequence[Column]
    key_places: tuple[int, ...] = ()


@dataclass
class _Metadata:
    """What binlog_row_metadata=FULL adds to the types."""

    names: list[str] = field(default_factory=list)
    key: list[int] = field(default_factory=list)
    unsigned: list[bool] = field(default_factory=list)
    collations: dict[str, list[int]] = field(default_factory=dict)
    enums: list[list[bytes]] = field(default_factory=list)
    sets: list[list[bytes]] = field(default_factory=list)


def database_and_name(body: bytes) -> tuple[str, str]:
    """The database and the name of a table, of which a description begins with."""
    end = 9 + body[8]
    length = body[end + 1]
    return body[9:end].decode(), body[end + 2 : end + 2 + length].decode()


def parse(body: bytes, charsets: Mapping[int, str], kinds: Mapping[str, str]) -> TableMap:
    """Parse a TABLE_MAP event. `charsets` has the character set of each collation, `kinds` the declared types of columns.

    The declared types are needed only for those that the binary log does not tell apart (UUID, INET6, INET4).
    """
    database, name = database_and_name(body)
    at = 8 + 2 + len(database.encode()) + 2 + len(name.encode())
    count, at = _length(body, at)
    types = list(body[at : at + count])
    at += count
    size, at = _length(body, at)
    metas = _metas(types, body[at : at + size])
    at += size + (count + 7) // 8  # the columns that admit null: rows say it, too
    # A STRING may be an ENUM or a SET, or a CHAR whose length needs more than a byte.
    for place, (kind, meta) in enumerate(zip(types, metas, strict=True)):
        if kind == _STRING:
            types[place], metas[place] = _real_type(meta)
    known = _metadata(body[at:], types)
    if len(known.names) != count:
        raise TypeUnknown("its rows have no names of columns")
    charset = _charsets(types, known.collations, charsets)
    enums, sets, unsigned = iter(known.enums), iter(known.sets), iter(known.unsigned)
    columns = []
    for column, kind, meta, codec in zip(known.names, types, metas, charset, strict=True):
        is_unsigned = next(unsigned, False) if kind in _NUMERIC else False
        names = next(enums if kind == _ENUM else sets) if kind in (_ENUM, _SET) else []
        texts = [values.decode_text(one, codec or "latin-1") for one in names]
        columns.append(_column(column, kind, meta, codec, is_unsigned, texts, kinds.get(column, "")))
    schema = pa.schema([pa.field(one.name, one.type) for one in columns])
    table = Table(name=name, columns=schema, key=tuple(known.names[place] for place in known.key))
    return TableMap(database=database, table=table, columns=columns, key_places=tuple(known.key))


def _column(
    name: str, kind: int, meta: bytes, codec: str | None, unsigned: bool, texts: list[str], declared: str
) -> Column:
    if kind in _INTEGERS:
        size = _INTEGERS[kind]
        arrow = values.integer_type(size, is_unsigned=unsigned)
        decode = values.integer(size, signed=not unsigned)
        return Column(name=name, type=arrow, decode=decode, is_scaled=pa.types.is_decimal(arrow))
    if kind in (_FLOAT, _DOUBLE):
        return Column(name=name, type=pa.float32() if kind == _FLOAT else pa.float64(), decode=values.real(meta[0]))
    if kind == _NEWDECIMAL:
        precision, scale = meta[0], meta[1]
        arrow = values.decimal_type(precision, scale)
        if pa.types.is_string(arrow):
            return Column(name=name, type=arrow, decode=values.decimal_text(precision, scale))
        return Column(name=name, type=arrow, decode=values.decimals(precision, scale), is_scaled=True)
    if kind in (_DATE, _NEWDATE):
        return Column(name=name, type=pa.date32(), decode=values.date)
    if kind == _DATETIME2:
        return Column(name=name, type=values.DATETIME, decode=values.datetime2(meta[0]))
    if kind == _TIMESTAMP2:
        return Column(name=name, type=values.TIMESTAMP, decode=values.timestamp2(meta[0]))
    if kind == _TIME2:
        return Column(name=name, type=pa.string(), decode=values.time2(meta[0]))
    if kind == _YEAR:
        return Column(name=name, type=pa.int16(), decode=values.year)
    if kind in (_ENUM, _SET):
        make = values.enumeration if kind == _ENUM else values.members
        return Column(name=name, type=pa.string(), decode=make(meta[1], texts))
    if kind == _BIT:
        width = meta[1] * 8 + meta[0]
        arrow = values.bit_type(width)
        decode = values.bits((width + 7) // 8, is_flag=width == 1)
        return Column(name=name, type=arrow, decode=decode, is_scaled=pa.types.is_decimal(arrow))
    if kind == _GEOMETRY:
        return Column(name=name, type=pa.binary(), decode=values.text(meta[0], None))
    if kind in _TEXT:
        return _text(name, kind, meta, codec, declared)
    raise TypeUnknown(f"column {name!r} has the old type {kind}")


def _text(name: str, kind: int, meta: bytes, codec: str | None, declared: str) -> Column:
    length = int.from_bytes(meta, "little")
    prefix = meta[0] if kind in (_BLOB, _BLOB_COMPRESSED) else 2 if length > 255 else 1
    if kind == _STRING and codec is None and declared in values.PACKED:
        return Column(name=name, type=pa.string(), decode=values.PACKED[declared](length))
    decode = values.text(
        prefix,
        codec,
        is_compressed=kind in (_VARCHAR_COMPRESSED, _BLOB_COMPRESSED),
        pad_to=length if kind == _STRING and codec is None else 0,
    )
    return Column(name=name, type=pa.binary() if codec is None else pa.string(), decode=decode)


def _metas(types: Sequence[int], raw: bytes) -> list[bytes]:
    metas, at = [], 0
    for kind in types:
        size = _META_BYTES.get(kind, 0)
        metas.append(raw[at : at + size])
        at += size
    return metas


def _real_type(meta: bytes) -> tuple[int, bytes]:
    if meta[0] in (_ENUM, _SET):
        return meta[0], meta
    if meta[0] & 0x30 != 0x30:  # two bits of the length are in the type
        length = meta[1] | ((meta[0] & 0x30) ^ 0x30) << 4
        return meta[0] | 0x30, length.to_bytes(2, "little")
    return meta[0], bytes([meta[1], 0])


def _metadata(raw: bytes, types: Sequence[int]) -> _Metadata:
    known = _Metadata()
    at = 0
    while at < len(raw):
        kind = raw[at]
        size, at = _length(raw, at + 1)
        value = raw[at : at + size]
        at += size
        if kind == 1:
            numeric = sum(one in _NUMERIC for one in types)
            known.unsigned = [bool(value[place // 8] >> (7 - place % 8) & 1) for place in range(numeric)]
        elif kind in (2, 3, 10, 11):
            known.collations[{2: "default", 3: "each", 10: "set default", 11: "set each"}[kind]] = list(_lengths(value))
        elif kind == 4:
            known.names = [name.decode() for name in _strings(value)]
        elif kind in (5, 6):
            lists = known.sets if kind == 5 else known.enums
            place = 0
            while place < len(value):
                count, place = _length(value, place)
                names = []
                for _ in range(count):
                    length, place = _length(value, place)
                    names.append(value[place : place + length])
                    place += length
                lists.append(names)
        elif kind == 8:
            known.key = list(_lengths(value))
        elif kind == 9:  # of a key over the beginning of texts
            known.key = list(_lengths(value))[::2]
    return known


def _charsets(
    types: Sequence[int], collations: Mapping[str, list[int]], charsets: Mapping[int, str]
) -> list[str | None]:
    """The codec of each column; None where it holds bytes or no text."""
    found: list[str | None] = [None] * len(types)
    for prefix, kinds in (("", _TEXT), ("set ", {_ENUM, _SET})):
        places = [place for place, kind in enumerate(types) if kind in kinds]
        if (each := collations.get(prefix + "each")) is not None:
            chosen = dict(zip(places, each, strict=True))
        else:
            default, *pairs = collations.get(prefix + "default", [63])
            others = dict(zip(pairs[::2], pairs[1::2], strict=True))
            chosen = {place: others.get(number, default) for number, place in enumerate(places)}
        for place, collation in chosen.items():
            found[place] = values.codec_of(charsets.get(collation, "utf8mb4"))
    return found


def _length(raw: bytes, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and where it ends."""
    first = raw[at]
    size = {252: 2, 253: 3, 254: 8}.get(first, 0)
    if not size:
        return first, at + 1
    return int.from_bytes(raw[at + 1 : at + 1 + size], "little"), at + 1 + size


def _lengths(raw: bytes) -> Iterator[int]:
    at = 0
    while at < len(raw):
        number, at = _length(raw, at)
        yield number


def _strings(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        size, at = _length(raw, at)
        yield raw[at : at + size]
        at += size
