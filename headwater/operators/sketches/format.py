"""Sketches as bytes: columns of them are read and written as arrays, many sketches at once.

Sketches have the formats of Apache DataSketches (all but count-min). What they share: the third byte says which family a
sketch is of. Sketches in another of its formats are converted by its own package. An answer of a sketch is an estimate
between two bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.operators.errors import SketchInvalid
from headwater.optional import require

Bytes = npt.NDArray[np.uint8]
Int64s = npt.NDArray[np.int64]
# Any: numbers of the type that the caller names.
Numbers = npt.NDArray[Any]
THETA, HLL, FREQUENT, KLL, DIGEST = 3, 7, 10, 15, 20
#: One of our own: the places of DataSketches' count-min depend on how C++ was built.
COUNT_MIN = 200
FAMILIES = {THETA: "theta", HLL: "hll", FREQUENT: "frequent", KLL: "kll", COUNT_MIN: "count_min", DIGEST: "tdigest"}
Floats = npt.NDArray[np.float64]
#: The type of an estimate in results.
ESTIMATE = pa.struct([("estimate", pa.float64()), ("lower", pa.float64()), ("upper", pa.float64())])


@dataclass(frozen=True)
class Packed:
    """Pieces of bytes: piece i has `sizes[i]` of them, from `starts[i]` on."""

    data: Bytes
    starts: Int64s
    sizes: Int64s

    @staticmethod
    def of(column: pa.Array) -> Packed:
        """A column of bytes without nulls."""
        if not len(column):
            return Packed.empty(np.empty(0, np.int64))
        column = column.cast(pa.large_binary())
        offsets = np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column) + 1]
        content = column.buffers()[2]
        data = np.zeros(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)
        return Packed(data, offsets[:-1], np.diff(offsets))

    @staticmethod
    def empty(sizes: Int64s) -> Packed:
        """Room for pieces of these sizes, filled with zeros."""
        ends = np.cumsum(sizes)
        return Packed(np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8), ends - sizes, sizes)

    def column(self) -> pa.Array:
        offsets = np.append(self.starts, len(self.data)).astype(np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self.starts), buffers).cast(pa.binary())

    def at(self, rows: Int64s) -> Packed:
        return Packed(self.data, self.starts[rows], self.sizes[rows])

    def field(self, place: int, kind: str) -> Numbers:
        """The number of this type at this place in every piece."""
        width = np.dtype(kind).itemsize
        found = self.data[self.starts[:, None] + np.arange(place, place + width)]
        return np.ascontiguousarray(found).view(kind).reshape(-1)

    def put(self, place: int, kind: str, values: npt.ArrayLike) -> None:
        """Write a number at this place into every piece."""
        numbers = np.broadcast_to(np.asarray(values, kind), len(self.starts))
        width = np.dtype(kind).itemsize
        raw = np.ascontiguousarray(numbers).view(np.uint8).reshape(len(self.starts), width)
        self.data[self.starts[:, None] + np.arange(place, place + width)] = raw

    def block(self, place: int, width: int) -> Bytes:
        """The same stretch of every piece, as a row each."""
        found: Bytes = self.data[(self.starts + place)[:, None] + np.arange(width)]
        return found

    def lists(self, place: npt.ArrayLike, counts: Int64s, kind: str) -> Numbers:
        """`counts[i]` numbers of piece i from its place on: all of them, one piece after the other."""
        width = np.dtype(kind).itemsize
        begins = self.starts + np.asarray(place)
        if not (begins % width).any():  # whole numbers can be taken, which are fewer than their bytes
            return self.data[: len(self.data) // width * width].view(kind)[stretches(begins // width, counts)]
        return np.ascontiguousarray(self.data[stretches(begins, counts * width)]).view(kind)

    def put_lists(self, place: npt.ArrayLike, counts: Int64s, values: Numbers) -> None:
        width = values.dtype.itemsize
        begins = self.starts + np.asarray(place)
        if not (begins % width).any():
            whole = self.data[: len(self.data) // width * width].view(values.dtype)
            whole[stretches(begins // width, counts)] = values
        else:
            self.data[stretches(begins, counts * width)] = np.ascontiguousarray(values).view(np.uint8)


def stretches(starts: Int64s, counts: Int64s) -> Int64s:
    """All numbers of several ranges, one after the other.

    >>> stretches(np.array([3, 10]), np.array([2, 3])).tolist()
    [3, 4, 10, 11, 12]
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    found: Int64s = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return found


def places(sorted_numbers: Int64s) -> Int64s:
    """For each row which one of its group it is; rows of a group stand together.

    >>> places(np.array([0, 0, 4, 4, 4])).tolist()
    [0, 1, 0, 1, 2]
    """
    if not len(sorted_numbers):
        return np.empty(0, np.int64)
    begins = np.flatnonzero(np.append(True, sorted_numbers[1:] != sorted_numbers[:-1]))
    sizes = np.diff(begins, append=len(sorted_numbers))
    return np.arange(len(sorted_numbers)) - np.repeat(begins, sizes)


def check_sizes(packed: Packed, family: int, sizes: npt.ArrayLike) -> None:
    """Raise on sketches whose length differs from the length that their header says."""
    wrong = np.flatnonzero(packed.sizes != np.asarray(sizes))
    if len(wrong):
        has, needs = packed.sizes[wrong[0]], np.broadcast_to(np.asarray(sizes), len(packed.sizes))[wrong[0]]
        raise SketchInvalid(expected=FAMILIES[family], why=f"one has {has} bytes where it should have {needs}")


def check_at_least(packed: Packed, family: int, size: int) -> None:
    """Raise on sketches that are shorter than a header."""
    if len(packed.sizes) and int(packed.sizes.min()) < size:
        raise SketchInvalid(expected=FAMILIES[family], why=f"one is cut off after {int(packed.sizes.min())} bytes")


def check_family(packed: Packed, family: int) -> None:
    """Raise on bytes that are no sketch of this family."""
    wanted = FAMILIES[family]
    if not len(packed.starts):
        return
    if int(packed.sizes.min()) < 8:
        raise SketchInvalid(expected=wanted, why=f"one has {int(packed.sizes.min())} bytes, and no sketch is so short")
    found = packed.data[packed.starts + 2]
    if (found != family).any():
        number = int(found[found != family][0])
        raise SketchInvalid(expected=wanted, why=f"one is {FAMILIES.get(number, f'of family {number}')!r}")


class Estimates(NamedTuple):
    """Estimates, each with what the truth is not below and not above, at the confidence that the sketch states."""

    estimate: Floats
    lower: Floats
    upper: Floats

    def column(self) -> pa.Array:
        return pa.StructArray.from_arrays([pa.array(one) for one in self], fields=list(ESTIMATE))


def package() -> Any:
    """The package `datasketches`. Any: it has no types."""
    return require("datasketches", extra="sketches")


def hll_in_bytes(sketches: pa.Array, which: npt.NDArray[np.bool_]) -> pa.Array:
    """HLL sketches of four or six bits a register, or with gaps, as those of eight without."""
    known = package()

    def turned(data: bytes) -> bytes:
        sketch = known.hll_sketch.deserialize(data)
        union = known.hll_union(sketch.lg_config_k)
        union.update(sketch)
        return bytes(union.get_result(known.tgt_hll_type.HLL_8).serialize_compact())

    return _replaced(sketches, which, turned, "hll")


def theta_plain(sketches: pa.Array, which: npt.NDArray[np.bool_]) -> pa.Array:
    """Theta sketches that are compressed, or of an old format, as plain ones."""
    known = package()

    def turned(data: bytes) -> bytes:
        return bytes(known.compact_theta_sketch.deserialize(data).serialize())

    return _replaced(sketches, which, turned, "theta")


def _replaced(
    sketches: pa.Array, which: npt.NDArray[np.bool_], turned: Callable[[bytes], bytes], expected: str
) -> pa.Array:
    values = sketches.to_pylist()
    for row in np.flatnonzero(which).tolist():
        try:
            values[row] = turned(values[row])
        except (RuntimeError, ValueError, IndexError, TypeError) as error:
            raise SketchInvalid(expected=expected, why=str(error)) from error
    return pa.array(values, sketches.type)
