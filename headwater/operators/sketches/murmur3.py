"""MurmurHash3 of whole columns: the hash of 128 bits from which all sketches here take theirs.

It is the one of Apache DataSketches, with its seed, so that a sketch made here and one made there of the same values
are the same. Whole numbers of any width hash alike, and so do 1.0 and 1.0; a float is no whole number. Nulls have no
hash: callers leave them out first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
SEED = 9001
#: The seed as sketches carry it, so that those of different seeds are never mixed.
SEED_HASH = 0x93CC
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_FIVE, _N1, _N2 = np.uint64(5), np.uint64(0x52DCE729), np.uint64(0x38495AB5)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


def hashes_of(values: pa.Array, *, seed: int = SEED) -> tuple[Hashes, Hashes]:
    """Both halves of the hash of each value; none may be null.

    >>> [hex(half[0]) for half in hashes_of(pa.array([1]))]
    ['0xb430d7b96fbf22b', '0xe8ea0960d4246765']
    """
    kind = values.type
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return of_words(np.asarray(values.cast(pa.int64(), safe=False)).view(np.uint64), seed)
    if pa.types.is_floating(kind):
        plain = np.asarray(values.cast(pa.float64())).copy()
        plain[plain == 0.0] = 0.0  # there is no negative nothing
        plain[np.isnan(plain)] = np.nan
        return of_words(plain.view(np.uint64), seed)
    if pa.types.is_temporal(kind):
        if pa.types.is_timestamp(kind):
            values = values.cast(pa.timestamp("us", kind.tz))
        width = pa.int32() if values.type.bit_width == 32 else pa.int64()
        return of_words(np.asarray(values.view(width)).astype(np.int64).view(np.uint64), seed)
    if not (_is_bytes(kind) or _is_text(kind)):
        values = values.cast(pa.string())  # decimals: by what people read
    return of_bytes(values.cast(pa.large_binary()), seed)


def of_words(words: Hashes, seed: int = SEED) -> tuple[Hashes, Hashes]:
    """The hashes of values of eight bytes."""
    none = np.zeros(len(words), np.uint64)
    start = np.full(len(words), seed, np.uint64)
    return _finished(start ^ _mixed_low(words), start ^ none, np.full(len(words), 8, np.uint64))


def of_bytes(values: pa.Array, seed: int = SEED) -> tuple[Hashes, Hashes]:
    """The hashes of texts and bytes: all values of one length at a time, sixteen bytes of each at once."""
    if not len(values):
        return np.empty(0, np.uint64), np.empty(0, np.uint64)
    offsets = np.frombuffer(values.buffers()[1], np.int64)[values.offset : values.offset + len(values) + 1]
    content = values.buffers()[2]
    data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    starts, sizes = offsets[:-1], np.diff(offsets)
    low, high = np.empty(len(values), np.uint64), np.empty(len(values), np.uint64)
    order = np.argsort(sizes, kind="stable")
    lengths, begins = np.unique(sizes[order], return_index=True)
    for length, rows in zip(lengths.tolist(), np.split(order, begins[1:]), strict=True):
        low[rows], high[rows] = _of_one_length(data, starts[rows], length, seed)
    return low, high


def mixed(words: Hashes) -> Hashes:
    """Words made random: each always the same way."""
    words = words ^ (words >> np.uint64(33))
    words = words * _F1
    words = words ^ (words >> np.uint64(33))
    words = words * _F2
    return words ^ (words >> np.uint64(33))


def leading_zeros(words: Hashes) -> npt.NDArray[np.int64]:
    """How many bits before the first one.

    >>> leading_zeros(np.array([0, 1, 2**63, 2**53], np.uint64)).tolist()
    [64, 63, 0, 10]
    """
    # A float has only 53 bits, and would round up: so the halves are looked at one by one.
    upper, lower = (words >> np.uint64(32)).astype(np.float64), (words & np.uint64(0xFFFFFFFF)).astype(np.float64)
    return np.where(upper > 0, 32 - np.frexp(upper)[1], 64 - np.frexp(lower)[1]).astype(np.int64)


def is_hashable(kind: pa.DataType) -> bool:
    """Whether values of this type have a hash."""
    plain = pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or _is_bytes(kind) or _is_text(kind)
    return bool(plain and not pa.types.is_null(kind))


def _of_one_length(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], length: int, seed: int
) -> tuple[Hashes, Hashes]:
    width = -(-length // 16) * 16
    taken = np.zeros((len(starts), width), np.uint8)
    if length:
        taken[:, :length] = np.lib.stride_tricks.sliding_window_view(data, length)[starts]
    words = taken.view(np.uint64).reshape(len(starts), width // 8)
    low = np.full(len(starts), seed, np.uint64)
    high = low.copy()
    for block in range(length // 16):
        low = _rotated(low ^ _mixed_low(words[:, 2 * block]), 27) + high
        low = low * _FIVE + _N1
        high = _rotated(high ^ _mixed_high(words[:, 2 * block + 1]), 31) + low
        high = high * _FIVE + _N2
    if length % 16:
        if length % 16 > 8:
            high = high ^ _mixed_high(words[:, -1])
        low = low ^ _mixed_low(words[:, -2])
    return _finished(low, high, np.full(len(starts), length, np.uint64))


def _finished(low: Hashes, high: Hashes, sizes: Hashes) -> tuple[Hashes, Hashes]:
    low, high = low ^ sizes, high ^ sizes
    low = low + high
    high = high + low
    low, high = mixed(low), mixed(high)
    low = low + high
    return low, high + low


def _mixed_low(words: Hashes) -> Hashes:
    return _rotated(words * _C1, 31) * _C2


def _mixed_high(words: Hashes) -> Hashes:
    return _rotated(words * _C2, 33) * _C1


def _rotated(words: Hashes, by: int) -> Hashes:
    return (words << np.uint64(by)) | (words >> np.uint64(64 - by))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
