"""Search bytes for many values at once: as text, in JSON, in UTF-16, in base64, and in compressed frames.

A needle is found by eight (or four) bytes from its middle: numpy looks at all positions of a block for such words, and
only needles whose word is there are searched for. So the time depends little on the number of needles.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

#: Shorter texts are found everywhere by chance, and so are shorter numbers and shorter pieces of base64.
TEXT_BYTES_MIN = 4
NUMBER_BYTES_MIN = 7
BASE64_BYTES_MIN = 8
_BLOCK_BYTES = 8 * 1024 * 1024
_TABLE_BITS = 20
_MULTIPLIER = 0x9E3779B97F4A7C15
#: What stands before the cipher text of a personal value: short texts are found in cipher texts by chance.
_SEALED = re.compile(rb'\[\d+,\\*"[A-Za-z0-9+/=]*\Z')
_SEALED_BYTES_MAX = 64 * 1024


# Any: JSON.
def needles_of(value: Any) -> tuple[set[bytes], int]:
    """How a value may stand in a file, and how many of its parts are too short to be searched for.

    >>> found, _ = needles_of("Zoë Lovelace")
    >>> "Zoë Lovelace".encode("utf-16-le") in found, b'Zo\\\\u00eb Lovelace' in found
    (True, True)
    >>> needles_of(["Ada", 7])
    (set(), 2)
    """
    found: set[bytes] = set()
    too_short = 0
    for part in _parts(value):
        if isinstance(part, str):
            if len(part.encode()) < TEXT_BYTES_MIN:
                too_short += 1
                continue
            found |= _text_forms(part)
        else:
            text = orjson.dumps(part)
            if len(text) < NUMBER_BYTES_MIN:
                too_short += 1
                continue
            found |= {text, struct.pack("<d", part)}
            if isinstance(part, int) and -(2**63) <= part < 2**63:
                found.add(struct.pack("<q", part))
    return found, too_short


# Any: JSON.
def _parts(value: Any) -> Iterator[str | int | float]:
    if isinstance(value, dict):
        for each in value.values():
            yield from _parts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _parts(each)
    elif value is not None and not isinstance(value, bool):
        yield value


def _text_forms(text: str) -> set[bytes]:
    plain = text.encode()
    forms = {plain, orjson.dumps(text)[1:-1], json.dumps(text)[1:-1].encode()}
    forms |= {text.encode("utf-16-le"), text.encode("utf-16-be")}
    for shift in range(3):
        # Characters that neighbours of the text have a part in are left out.
        start = (0, 2, 3)[shift]
        stop = (shift + len(plain)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            piece = encode(bytes(shift) + plain)[start:stop]
            if len(piece) >= BASE64_BYTES_MIN:
                forms.add(piece)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return forms
    if len(text) > len("2026-01-01"):
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        forms.add(struct.pack("<q", round(at.timestamp() * 1e6)))
    return forms


class ByteSearch:
    """Needles with the names of whom they belong to.

    >>> search = ByteSearch({b"Ada Lovelace": {"c-1"}, b"Grace": {"c-2"}})
    >>> sorted(search.find(b"... Ada Lovelace ..."))
    ['c-1']
    """

    def __init__(self, needles: Mapping[bytes, set[str]]) -> None:
        self._needles = needles
        self._longest = max(map(len, needles), default=0)
        self._words = {width: _Words(width) for width in (8, 4)}
        for needle in needles:
            self._words[8 if len(needle) >= 8 else 4].add(needle)

    def __bool__(self) -> bool:
        return bool(self._needles)

    def find(self, data: bytes | memoryview) -> set[str]:
        """The names whose needles are in the data."""
        found: set[str] = set()
        for needle in self.needles_in(data):
            found |= self._needles[needle]
        return found

    def needles_in(self, data: bytes | memoryview) -> set[bytes]:
        """The needles that are in the data."""
        found: set[bytes] = set()
        view = memoryview(data)
        for start in range(0, len(view), _BLOCK_BYTES):
            block = view[start : start + _BLOCK_BYTES + self._longest]
            candidates = {needle for words in self._words.values() for needle in words.candidates(block)} - found
            if candidates:
                piece = bytes(block)
                found |= {needle for needle in candidates if _is_in(needle, piece)}
        return found

    # Any: rows as plain values.
    def find_in_values(self, value: Any) -> set[str]:
        """The names whose needles are in a value, written as JSON."""
        return self.find(orjson.dumps(value, default=_text, option=orjson.OPT_NON_STR_KEYS))

    def find_in_table(self, table: pa.Table) -> set[str]:
        """The names whose needles are in the values of a table."""
        found: set[str] = set()
        for batch in table.to_batches(max_chunksize=65_536):
            found |= self.find_in_values(batch.to_pylist())
        return found


def _is_in(needle: bytes, data: bytes) -> bool:
    at = data.find(needle)
    if len(needle) >= BASE64_BYTES_MIN:
        return at >= 0
    while at >= 0:
        if _SEALED.search(data, max(0, at - _SEALED_BYTES_MAX), at) is None:
            return True
        at = data.find(needle, at + 1)
    return False


# Any: a value that JSON does not have.
def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


class _Words:
    """Words of one width from the middles of needles."""

    def __init__(self, width: int) -> None:
        self._width, self._kind = width, np.dtype(f"<u{width}")
        self._by_word: dict[int, list[bytes]] = defaultdict(list)
        self._table = np.zeros(2**_TABLE_BITS, dtype=bool)

    def add(self, needle: bytes) -> None:
        start = (len(needle) - self._width) // 2
        word = int.from_bytes(needle[start : start + self._width], "little")
        self._by_word[word].append(needle)
        self._table[self._hashes(np.array([word], dtype=self._kind))] = True

    def candidates(self, block: memoryview) -> Iterator[bytes]:
        """The needles whose words are in a block."""
        if not self._by_word:
            return
        seen: set[int] = set()
        for shift in range(min(self._width, max(0, len(block) - self._width + 1))):
            count = (len(block) - shift) // self._width
            words = np.frombuffer(block, dtype=self._kind, offset=shift, count=count)
            hits = words[self._table[self._hashes(words)]]
            if len(hits):
                seen.update(np.unique(hits).tolist())
        for word in seen & self._by_word.keys():
            yield from self._by_word[word]

    def _hashes(self, words: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return (words.astype(np.uint64, copy=False) * np.uint64(_MULTIPLIER)) >> np.uint64(64 - _TABLE_BITS)


def union(needles: Iterable[tuple[str, set[bytes]]]) -> dict[bytes, set[str]]:
    """Needles with the names that have them."""
    found: dict[bytes, set[str]] = defaultdict(set)
    for name, some in needles:
        for each in some:
            found[each].add(name)
    return found
