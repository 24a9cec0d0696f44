"""xxHash64 of many short inputs at once: the package `xxhash` takes one at a time, which is too slow for a column.

NumPy's unsigned arithmetic on arrays wraps, as the algorithm wants.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
#: One seed for all inputs, or one for each.
Seeds = np.uint64 | Hashes

_PRIME_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME_3 = np.uint64(0x165667B19E3779F9)
_PRIME_4 = np.uint64(0x85EBCA77C2B2AE63)
_PRIME_5 = np.uint64(0x27D4EB2F165667C5)


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
