"""The partition of a key: xxHash64 (seed 0) of the key's canonical bytes, modulo the number of partitions.

Invariant: the partition of a key never changes, in any release, on any machine, and not when its column is widened, since
all rows of one key must be in one partition. Tests pin golden values. The canonical bytes of a value are:

- any integer, and a boolean column as one byte 0 or 1: integers as 8 bytes, little-endian, two's complement
  (a uint64 above 2**63 - 1 as its unsigned 8 bytes), so that int8 5 and int64 5 agree
- a float: as float64, 8 bytes, little-endian; -0.0 is 0.0, and every NaN is the one with bits 0x7ff8000000000000
- text: UTF-8; bytes: themselves
- a date, a timestamp: microseconds since 1970 in UTC as an integer (nanoseconds are rounded down), so a date and its
  midnight agree; a time of day, a duration: microseconds as an integer
- a decimal: its digits as text without an exponent or trailing zeros, "1.5", "-3", "0"
- null: the 4 bytes "\\0nul"
- a key of several columns: for each, the length of its canonical bytes as 4 bytes little-endian, then the bytes; a
  length of 0xffffffff and no bytes for null
"""

from __future__ import annotations

import decimal
import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from headwater.errors import ArgumentInvalid

NULL = b"\0nul"
_NAN = np.uint64(0x7FF8000000000000)
Hashes = npt.NDArray[np.uint64]
#: One seed for all inputs, or one for each.
Seeds = np.uint64 | Hashes
_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)


def partition_of(keys: Sequence[pa.Array], partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each row, from the columns of its key.

    Costs about 20 ns per row for integers; for text, one hash per distinct value.

    >>> partition_of([pa.array([1, 2, 3, 1])], 4).tolist()
    [1, 0, 1, 1]
    """
    if partitions == 1:
        return np.zeros(len(keys[0]) if keys else 0, dtype=np.int32)
    if partitions < 1:
        raise ArgumentInvalid(name="partitions", value=partitions, expected="at least 1")
    return (key_hash(keys) % np.uint64(partitions)).astype(np.int32)


def partition_of_text(key: str, partitions: int) -> int:
    """The partition of one row whose key is a text, without the cost of an Arrow array.

    >>> partition_of_text("a", 8), partition_of([pa.array(["a"])], 8).tolist()
    (3, [3])
    """
    return xxhash.xxh64_intdigest(key.encode()) % partitions


def key_hash(keys: Sequence[pa.Array]) -> Hashes:
    """The 64-bit hash of each row's key.

    >>> [f"{value:016x}" for value in key_hash([pa.array(["a", None])])]
    ['d24ec4f1a98c6e5b', '1001cce85ebbe3c1']
    """
    if not keys:
        raise ArgumentInvalid(name="keys", value=keys, expected="at least one key column")
    if len(keys) > 1:
        return _hash_texts(_composite(keys))
    array = _plain(keys[0])
    words = _words(array)
    if words is None:
        return _hash_distinct(array)
    hashes = hash_words(words)
    if array.null_count:
        hashes[np.asarray(array.is_null())] = xxhash.xxh64_intdigest(NULL)
    return hashes


def _plain(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.DictionaryArray):
        array = array.dictionary_decode()
    if pa.types.is_nested(array.type):
        raise ArgumentInvalid(name="key", value=str(array.type), expected="a column of numbers, text, bytes or times")
    return array


def _words(array: pa.Array) -> Hashes | None:
    """The canonical bytes of each value as one word, or None for types whose canonical form is not 8 bytes."""
    kind = array.type
    if pa.types.is_integer(kind):
        return _integers(array)
    if pa.types.is_floating(kind):
        floats = np.asarray(array.cast(pa.float64()).fill_null(0.0)) + 0.0
        words = floats.view(np.uint64)
        return np.where(np.isnan(floats), _NAN, words)
    if pa.types.is_temporal(kind):
        return _integers(_microseconds(array))
    return None


def _integers(array: pa.Array) -> Hashes:
    wide = pa.uint64() if pa.types.is_uint64(array.type) else pa.int64()
    if array.type != wide:
        array = array.cast(wide)
    if array.null_count:
        array = array.fill_null(0)
    words: Hashes = array.to_numpy(zero_copy_only=False).view(np.uint64)
    return words


def _microseconds(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_date32(kind):
        return pc.multiply(array.cast(pa.int32()).cast(pa.int64()), 86_400_000_000)
    if pa.types.is_date64(kind):
        return pc.multiply(array.cast(pa.int64()), 1_000)
    whole = array.cast(pa.int32()).cast(pa.int64()) if pa.types.is_time32(kind) else array.cast(pa.int64())
    if kind.unit == "ns":
        # Arrow divides towards zero; times before 1970 must be rounded down, as in Python.
        return pa.array(whole.fill_null(0).to_numpy(zero_copy_only=False) // 1_000, mask=np.asarray(whole.is_null()))
    return pc.multiply(whole, {"s": 1_000_000, "ms": 1_000, "us": 1}[kind.unit])


def _hash_distinct(array: pa.Array) -> Hashes:
    """Hash each distinct value once."""
    encoded = array.dictionary_encode()
    distinct = _hash_texts([NULL if value is None else value for value in _texts(encoded.dictionary)])
    hashes = np.append(distinct, np.uint64(xxhash.xxh64_intdigest(NULL)))
    indices = encoded.indices
    if indices.null_count:
        indices = indices.fill_null(len(distinct))
    taken: Hashes = hashes[indices.to_numpy(zero_copy_only=False)]
    return taken


def _hash_texts(texts: Sequence[bytes]) -> Hashes:
    return np.fromiter(map(xxhash.xxh64_intdigest, texts), dtype=np.uint64, count=len(texts))


def _texts(array: pa.Array) -> list[bytes | None]:
    """The canonical bytes of each value, None for null."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        array, kind = array.cast(pa.large_binary()), pa.large_binary()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return list(array.to_pylist())
    if pa.types.is_boolean(kind):
        return [None if value is None else bytes([value]) for value in array.to_pylist()]
    if pa.types.is_decimal(kind):
        return [None if value is None else _decimal_text(value) for value in array.to_pylist()]
    words = _words(array)
    if words is None:
        raise ArgumentInvalid(name="key", value=str(kind), expected="a column of numbers, text, bytes or times")
    packed = words.astype("<u8").tobytes()
    nulls = array.is_null().to_pylist()
    return [None if null else packed[8 * i : 8 * i + 8] for i, null in enumerate(nulls)]


def _decimal_text(value: decimal.Decimal) -> bytes:
    text = f"{value:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return b"0" if text in {"-0", "0"} else text.encode("ascii")


def _composite(keys: Sequence[pa.Array]) -> list[bytes]:
    columns = [_texts(_plain(key)) for key in keys]
    if len({len(column) for column in columns}) > 1:
        raise ArgumentInvalid(name="keys", value=[len(column) for column in columns], expected="columns of one length")
    return [b"".join(map(_prefixed, row)) for row in zip(*columns, strict=True)]


def _prefixed(part: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if part is None else struct.pack("<I", len(part)) + part


def hash_words(words: Hashes, seeds: Seeds = np.uint64(0)) -> Hashes:  # noqa: B008 - a number
    """The hashes of inputs of 8 bytes.

    >>> import xxhash
    >>> int(hash_words(np.array([7], np.uint64))[0]) == xxhash.xxh64_intdigest((7).to_bytes(8, "little"))
    True
    """
    mixed = _rotated(words * _PRIME_2, 31) * _PRIME_1
    return _finished(_rotated(mixed ^ (seeds + (_PRIME_5 + np.uint64(8))), 27) * _PRIME_1 + _PRIME_4)


def hash_half_words(halves: npt.NDArray[np.uint32], seeds: Seeds = np.uint64(0)) -> Hashes:  # noqa: B008 - a number
    """The hashes of inputs of 4 bytes.

    >>> import xxhash
    >>> int(hash_half_words(np.array([7], np.uint32))[0]) == xxhash.xxh64_intdigest((7).to_bytes(4, "little"))
    True
    """
    mixed = halves.astype(np.uint64) * _PRIME_1
    return _finished(_rotated(mixed ^ (seeds + (_PRIME_5 + np.uint64(4))), 23) * _PRIME_2 + _PRIME_3)


def _finished(values: Hashes) -> Hashes:
    values ^= values >> np.uint64(33)
    values *= _PRIME_2
    values ^= values >> np.uint64(29)
    values *= _PRIME_3
    values ^= values >> np.uint64(32)
    return values


def _rotated(values: Hashes, bits: int) -> Hashes:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))
