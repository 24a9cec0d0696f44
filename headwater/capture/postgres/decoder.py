"""Rows of `pgoutput`, decoded column by column for many messages at once.

The messages of one relation are joined into one array of bytes. A vector holds the place of the next column in each
row; reading a column means one step of NumPy for all rows. A value is not copied until its column is gathered into an
Arrow array. So the cost in Python is per column and not per value.

    insert  I relation N tuple
    update  U relation [K tuple | O tuple] N tuple       K: the old key, O: the whole old row
    delete  D relation K tuple | O tuple
    tuple   int16 columns, then for each: n (null), u (unchanged and not sent), t int32 bytes (text), b int32 bytes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_N, _K, _O = ord("N"), ord("K"), ord("O")
_NULL, _UNCHANGED = ord("n"), ord("u")
INSERT, UPDATE, DELETE = ord("I"), ord("U"), ord("D")
#: Bytes behind the last message, so that a look at the length of a value that is not there stays inside the array.
_PADDING = 8


@dataclass(frozen=True)
class Tuples:
    """Rows whose columns are found, and not copied yet."""

    data: Bytes
    starts: tuple[Places, ...]
    ends: tuple[Places, ...]
    kinds: tuple[Bytes, ...]

    @property
    def count(self) -> int:
        return len(self.kinds[0]) if self.kinds else 0

    def text(self, column: int) -> pa.Array:
        """The values of a column as text; null where there is none, or where it was not sent."""
        starts, ends, kinds = self.starts[column], self.ends[column], self.kinds[column]
        count = len(kinds)
        if count == 0:
            return pa.array([], pa.string())
        # The values and what lies between them are the strings of one array over the messages as they are; its even
        # places are the values, and `take` copies them.
        offsets = np.empty(2 * count, np.int32)
        offsets[0::2] = starts
        offsets[1::2] = ends
        every = pa.StringArray.from_buffers(2 * count - 1, pa.py_buffer(offsets), pa.py_buffer(self.data))
        absent = (kinds == _NULL) | (kinds == _UNCHANGED)
        places = np.arange(0, 2 * count, 2)
        return every.take(pa.array(places, mask=absent if absent.any() else None))

    def unchanged(self, column: int) -> Mask:
        return np.equal(self.kinds[column], _UNCHANGED)


@dataclass(frozen=True)
class Messages:
    """Decoded messages of one relation: what each is, its new row, and its old row or key, if they have one."""

    operations: Bytes
    new_of: Places
    """The place of the new row of each message in `new`; -1 if it has none."""
    old_of: Places
    old_is_whole: Mask
    """For each of `old`: whether it is the whole row and not only the key."""
    new: Tuples
    old: Tuples

    @property
    def count(self) -> int:
        return len(self.operations)


def decode(payloads: Sequence[bytes], *, columns: int, streamed: bool = False) -> Messages:
    """Decode messages of one relation with so many columns; `streamed` ones have the id of a transaction in front."""
    lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
    return decode_joined(b"".join(payloads), lengths, columns=columns, streamed=streamed)


def decode_joined(joined: bytes, lengths: Places, *, columns: int, streamed: bool = False) -> Messages:
    data = np.frombuffer(joined + bytes(_PADDING), np.uint8)
    at = np.cumsum(lengths) - lengths
    operations = data[at]
    at = at + (9 if streamed else 5)
    marks = data[at]
    has_old = (marks == _K) | (marks == _O)
    has_new = operations != DELETE
    count = len(lengths)
    old_places = np.flatnonzero(has_old)
    old, behind = _tuples(data, at[old_places] + 1, columns)
    at[old_places] = behind
    new_places = np.flatnonzero(has_new)
    new, _ = _tuples(data, at[new_places] + 1, columns)
    return Messages(
        operations=operations,
        new_of=_index(new_places, count),
        old_of=_index(old_places, count),
        old_is_whole=marks[old_places] == _O,
        new=new,
        old=old,
    )


def transactions_of(joined: bytes, lengths: Places) -> npt.NDArray[np.uint32]:
    """The id of the (sub-)transaction of each streamed message."""
    data = np.frombuffer(joined + bytes(_PADDING), np.uint8)
    return np.asarray(_numbers(data)[np.cumsum(lengths) - lengths + 1], np.uint32)


def _tuples(data: Bytes, at: Places, columns: int) -> tuple[Tuples, Places]:
    """Find the columns of the tuples that begin at some places; return them and the places behind them."""
    starts, ends, kinds = [], [], []
    numbers = _numbers(data)
    at = at + 2  # behind the number of columns
    for _ in range(columns):
        kind = data[at]
        is_sent = (kind != _NULL) & (kind != _UNCHANGED)
        if is_sent.all():
            start = at + 5
            end = start + numbers[at + 1]
            at = end
        else:
            start = np.where(is_sent, at + 5, at)
            end = np.where(is_sent, start + numbers[at + 1], at)
            at = np.where(is_sent, end, at + 1)
        starts.append(start)
        ends.append(end)
        kinds.append(kind)
    return Tuples(data, tuple(starts), tuple(ends), tuple(kinds)), at


def _numbers(data: Bytes) -> npt.NDArray[np.uint32]:
    """The 32-bit number at each place."""
    return np.ndarray((len(data) - 3,), np.dtype(">u4"), data.data, 0, (1,))


def _index(places: Places, count: int) -> Places:
    index = np.full(count, -1, np.int64)
    index[places] = np.arange(len(places))
    return index
