"""Columns of MariaDB: their Arrow types, and how values are read from the binary log and from a query.

Both ways give the same value. Integers become the signed Arrow type that holds all of them, so that Spark can read
them. Text is decoded by the character set of its column. A date that is none ('0000-00-00') is null, as in Debezium.
TIME is text, as it may be negative and longer than a day.
"""

from __future__ import annotations

import codecs
import datetime
import decimal
import socket
import uuid
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: A decoder reads one value of a row: it takes the bytes and where the value begins, and returns it and where it ends.
# Any: a value of any type.
Decoder = Callable[[bytes, int], tuple[Any, int]]

TIMESTAMP = pa.timestamp("us", tz="UTC")
DATETIME = pa.timestamp("us")
#: The digits of the widest decimal that topics hold.
PRECISION_MAX = 38
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
_DAY_US = 86_400_000_000
#: The microseconds of one unit of a fraction that is stored in so many bytes.
_FRACTION_US = (1_000_000, 10_000, 100, 1)
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
#: MariaDB's character sets whose Python codec has another name.
_CODECS = {
    "utf8mb3": "utf-8",
    "utf8mb4": "utf-8",
    "utf8": "utf-8",
    "latin1": "cp1252",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "latin2": "iso8859-2",
    "latin5": "iso8859-9",
    "latin7": "iso8859-13",
    "greek": "iso8859-7",
    "hebrew": "iso8859-8",
    "tis620": "tis-620",
    "koi8r": "koi8-r",
    "koi8u": "koi8-u",
    "sjis": "shift-jis",
    "ujis": "euc-jp",
    "eucjpms": "euc-jp",
    "macce": "mac-latin2",
    "macroman": "mac-roman",
    "gb2312": "gb2312",
    "euckr": "euc-kr",
}


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: its name, its Arrow type, and how its values are decoded, selected and compared."""

    name: str
    type: pa.DataType
    decode: Decoder
    is_scaled: bool = False
    """Whether decoded values are integers of a decimal's smallest unit."""

    # Any: values of the column.
    def array(self, values: Sequence[Any]) -> pa.Array:
        """Decoded values as Arrow."""
        if self.is_scaled:
            return _decimals(values, self.type)
        return pa.array(values, self.type)


# -- the binary log ---------------------------------------------------------------------------------------------------


def integer(size: int, *, signed: bool) -> Decoder:
    if size == 3:
        return lambda data, at: (int.from_bytes(data[at : at + 3], "little", signed=signed), at + 3)
    letter = {1: "b", 2: "h", 4: "i", 8: "q"}[size]
    unpack = Struct("<" + (letter if signed else letter.upper())).unpack_from
    return lambda data, at: (unpack(data, at)[0], at + size)


def real(size: int) -> Decoder:
    unpack = Struct("<f" if size == 4 else "<d").unpack_from
    return lambda data, at: (unpack(data, at)[0], at + size)


def year(data: bytes, at: int) -> tuple[int, int]:
    return (data[at] + 1900 if data[at] else 0), at + 1


def codec_of(charset: str) -> str | None:
    """The Python codec of a character set; None if its values are bytes.

    >>> codec_of("utf8mb4"), codec_of("cp1251"), codec_of("binary")
    ('utf-8', 'cp1251', None)
    """
    if charset == "binary":
        return None
    name = _CODECS.get(charset, charset)
    try:
        return codecs.lookup(name).name
    except LookupError:
        return "latin-1"  # every byte stands for itself: nothing is lost, and nothing is refused


def decode_text(raw: bytes, codec: str) -> str:
    """Decode text; bytes that the character set does not have stand for themselves, as MariaDB has them in latin1.

    >>> decode_text(b"caf\\xe9 \\x81", "cp1252")
    'café \\x81'
    """
    try:
        return raw.decode(codec)
    except UnicodeDecodeError:
        if codec != "cp1252":
            return raw.decode(codec, "replace")
        return "".join(_decoded(raw[at : at + 1], codec) for at in range(len(raw)))


def _decoded(byte: bytes, codec: str) -> str:
    try:
        return byte.decode(codec)
    except UnicodeDecodeError:
        return byte.decode("latin-1")


def text(prefix: int, codec: str | None, *, is_compressed: bool = False, pad_to: int = 0) -> Decoder:
    """Text or bytes behind their length. `pad_to` brings back the zeros at the end of BINARY(n), which are not stored."""

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        begin = at + prefix
        end = begin + int.from_bytes(data[at:begin], "little")
        raw = data[begin:end]
        if is_compressed:
            raw = _inflated(raw)
        if codec is not None:
            return decode_text(raw, codec), end
        return (raw.ljust(pad_to, b"\0") if pad_to else raw), end

    def utf8(data: bytes, at: int) -> tuple[str, int]:
        begin = at + prefix
        end = begin + int.from_bytes(data[at:begin], "little")
        return data[begin:end].decode("utf-8", "replace"), end

    def short(data: bytes, at: int) -> tuple[str, int]:
        end = at + 1 + data[at]
        return data[at + 1 : end].decode("utf-8", "replace"), end

    if codec == "utf-8" and not is_compressed:
        return short if prefix == 1 else utf8
    return decode


def _inflated(raw: bytes) -> bytes:
    """The value of a COMPRESSED column: a header byte, the length, and a zlib stream; or as it is behind a zero byte."""
    if not raw:
        return raw
    if raw[0] == 0:
        return raw[1:]
    return zlib.decompress(raw[1 + (raw[0] & 7) :], wbits=-15 if raw[0] & 8 else 15)


def enumeration(size: int, names: Sequence[str]) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[str, int]:
        number = int.from_bytes(data[at : at + size], "little")
        return (names[number - 1] if number else ""), at + size  # 0 is the empty text of a value that was refused

    return decode


def members(size: int, names: Sequence[str]) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[str, int]:
        bits = int.from_bytes(data[at : at + size], "little")
        return ",".join(name for place, name in enumerate(names) if bits >> place & 1), at + size

    return decode


def bits(size: int, *, is_flag: bool) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        number = int.from_bytes(data[at : at + size], "big")
        return (bool(number) if is_flag else number), at + size

    return decode


def date(data: bytes, at: int) -> tuple[int | None, int]:
    packed = int.from_bytes(data[at : at + 3], "little")
    return _day(packed >> 9, packed >> 5 & 15, packed & 31), at + 3


def _day(years: int, months: int, days: int) -> int | None:
    try:
        return datetime.date(years, months, days).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def datetime2(digits: int) -> Decoder:
    size = (digits + 1) // 2
    unit, shift = _FRACTION_US[size], 8 * size
    mask = (1 << shift) - 1

    def decode(data: bytes, at: int) -> tuple[int | None, int]:
        end = at + 5 + size
        packed = int.from_bytes(data[at:end], "big")
        fraction = (packed & mask) * unit
        packed >>= shift
        months = packed >> 22 & 0x1FFFF
        day = _day(months // 13, months % 13, packed >> 17 & 31)
        if day is None:
            return None, end
        seconds = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
        return day * _DAY_US + seconds * 1_000_000 + fraction, end

    return decode


def timestamp2(digits: int) -> Decoder:
    size = (digits + 1) // 2
    unit = _FRACTION_US[size]

    def decode(data: bytes, at: int) -> tuple[int | None, int]:
        end = at + 4 + size
        seconds = int.from_bytes(data[at : at + 4], "big")
        if not seconds:
            return None, end  # '0000-00-00 00:00:00'
        return seconds * 1_000_000 + int.from_bytes(data[at + 4 : end], "big") * unit, end

    return decode


def time2(digits: int) -> Decoder:
    size = (digits + 1) // 2
    shift = 8 * size
    middle, mask = 0x800000 << shift, (1 << shift) - 1

    def decode(data: bytes, at: int) -> tuple[str, int]:
        end = at + 3 + size
        packed = int.from_bytes(data[at:end], "big") - middle
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        clock, fraction = packed >> shift, (packed & mask) * _FRACTION_US[size]
        shown = f"{sign}{clock >> 12 & 0x3FF:02}:{clock >> 6 & 63:02}:{clock & 63:02}"
        return (f"{shown}.{fraction:06}"[: len(shown) + 1 + digits] if digits else shown), end

    return decode


def decimals(precision: int, scale: int) -> Decoder:
    """A decimal as an integer of its smallest unit: groups of nine digits in four bytes, most significant first."""
    whole = precision - scale
    sizes = [_DIGIT_BYTES[whole % 9], *[4] * (whole // 9), *[4] * (scale // 9), _DIGIT_BYTES[scale % 9]]
    scales = [10 ** (whole % 9), *[10**9] * (whole // 9), *[10**9] * (scale // 9), 10 ** (scale % 9)]
    groups = [(size, factor) for size, factor in zip(sizes, scales, strict=True) if size]
    width = sum(sizes)

    def decode(data: bytes, at: int) -> tuple[int, int]:
        end = at + width
        is_negative = not data[at] & 0x80
        raw = bytearray(data[at:end])
        raw[0] ^= 0x80
        if is_negative:
            raw = bytearray(byte ^ 0xFF for byte in raw)
        number = place = 0
        for size, factor in groups:
            number = number * factor + int.from_bytes(raw[place : place + size], "big")
            place += size
        return (-number if is_negative else number), end

    return decode


def decimal_text(precision: int, scale: int) -> Decoder:
    """A decimal of more digits than Arrow has here, as text."""
    decode_scaled = decimals(precision, scale)

    def decode(data: bytes, at: int) -> tuple[str, int]:
        number, end = decode_scaled(data, at)
        with decimal.localcontext(prec=80):
            return f"{decimal.Decimal(number).scaleb(-scale):f}", end

    return decode


def integer_type(size: int, *, is_unsigned: bool) -> pa.DataType:
    """The signed type that holds all integers of so many bytes.

    >>> str(integer_type(4, is_unsigned=False)), str(integer_type(4, is_unsigned=True))
    ('int32', 'int64')
    """
    if is_unsigned:
        return {1: pa.int16(), 2: pa.int32(), 3: pa.int32(), 4: pa.int64(), 8: pa.decimal128(20, 0)}[size]
    return {1: pa.int16(), 2: pa.int16(), 3: pa.int32(), 4: pa.int32(), 8: pa.int64()}[size]


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """A decimal; text, if it has more digits than a topic's decimals."""
    return pa.decimal128(precision, scale) if precision <= PRECISION_MAX else pa.string()


def bit_type(width: int) -> pa.DataType:
    """The type of BIT(width): a truth value, or an integer.

    >>> [str(bit_type(width)) for width in (1, 8, 63, 64)]
    ['bool', 'int64', 'int64', 'decimal128(20, 0)']
    """
    return pa.bool_() if width == 1 else pa.int64() if width < 64 else pa.decimal128(20, 0)


def _uuid(length: int) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[str, int]:
        end = at + 1 + data[at]
        return str(uuid.UUID(bytes=data[at + 1 : end].ljust(length, b"\0"))), end

    return decode


def _address(length: int) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[str, int]:
        end = at + 1 + data[at]
        return socket.inet_ntop(
            socket.AF_INET6 if length == 16 else socket.AF_INET, data[at + 1 : end].ljust(length, b"\0")
        ), end

    return decode


#: Types that the binary log has as BINARY(n).
PACKED: dict[str, Callable[[int], Decoder]] = {"uuid": _uuid, "inet6": _address, "inet4": _address}


def _decimals(values: Sequence[int | None], kind: pa.DataType) -> pa.Array:
    """Integers of the smallest unit as a column of decimals."""
    if kind.precision <= 18:
        low = np.array([value or 0 for value in values], dtype=np.int64)
        words = np.empty((len(low), 2), dtype=np.int64)
        words[:, 0], words[:, 1] = low, low >> 63
        known = pa.array([value is not None for value in values], pa.bool_())
        return pa.Array.from_buffers(kind, len(values), [known.buffers()[1], pa.py_buffer(words.tobytes())])
    with decimal.localcontext(prec=80):
        return pa.array(
            [None if value is None else decimal.Decimal(value).scaleb(-kind.scale) for value in values], kind
        )


# -- queries ----------------------------------------------------------------------------------------------------------


def from_texts(values: Sequence[str | bytes | None], kind: pa.DataType) -> pa.Array:
    """Values as a query returns them, which is text, as Arrow.

    >>> from_texts(["2024-01-02 03:04:05.5", "0000-00-00 00:00:00", None], DATETIME).to_pylist()
    [datetime.datetime(2024, 1, 2, 3, 4, 5, 500000), None, None]
    >>> from_texts(["1.50"], pa.decimal128(10, 2)).to_pylist(), from_texts(["1", "0"], pa.bool_()).to_pylist()
    ([Decimal('1.50')], [True, False])
    """
    if pa.types.is_binary(kind) or pa.types.is_string(kind):
        return pa.array(values, kind)
    texts = pa.array(values, pa.string())
    if pa.types.is_boolean(kind):
        return pc.not_equal(texts, "0")
    if pa.types.is_temporal(kind):
        is_none = pc.match_substring_regex(texts, "^0000-|-00")
        texts = pc.if_else(is_none, pa.scalar(None, pa.string()), texts)
        if kind == TIMESTAMP:
            return pc.assume_timezone(texts.cast(DATETIME), "UTC")
    return texts.cast(kind)
