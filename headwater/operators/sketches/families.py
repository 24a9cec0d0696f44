"""Which kind of sketch some bytes are, and what merges that kind."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from headwater.errors import SketchInvalid
from headwater.operators.sketches.count_min import CountMin
from headwater.operators.sketches.frequent import Frequent
from headwater.operators.sketches.hll import Hll
from headwater.operators.sketches.kll import Kll
from headwater.operators.sketches.packed import COUNT_MIN, DIGEST, FAMILIES, FREQUENT, HLL, KLL, THETA, Int64s, Packed
from headwater.operators.sketches.tdigest import Digest
from headwater.operators.sketches.theta import Theta

ANY = "mergeable"


class Kernel(Protocol):
    """Makes and merges sketches of one kind, for many groups at once."""

    def lift(self, values: pa.Array, numbers: Int64s, count: int) -> pa.Array: ...
    def merge(self, sketches: pa.Array, numbers: Int64s, count: int) -> pa.Array: ...


def family_of(sketches: pa.Array) -> int:
    """The family of all these sketches; there must be one at least, and none may be null."""
    packed = Packed.of(sketches)
    if int(packed.sizes.min()) < 8:
        raise SketchInvalid(expected=ANY, why=f"one has {int(packed.sizes.min())} bytes, and no sketch is so short")
    families = packed.field(2, "u1")
    unlike = families != families[0]
    if unlike.any():
        kinds = " and ".join(repr(_name(int(one))) for one in (families[0], families[unlike][0]))
        raise SketchInvalid(expected=ANY, why=f"there are {kinds}, and only sketches of one kind can be merged")
    if int(families[0]) not in FAMILIES:
        raise SketchInvalid(expected=ANY, why=f"one is {_name(int(families[0]))}")
    return int(families[0])


def kernel_of(sketches: pa.Array, *, lg_k: int = 12) -> Kernel:
    """What merges these sketches. Theta sketches do not say how large they may grow: `lg_k` does."""
    family = family_of(sketches)
    first = Packed.of(sketches.slice(0, 1))
    if family == HLL:
        return Hll()
    if family == THETA:
        return Theta(lg_k)
    if family == KLL:
        return Kll(int(first.field(4, "<u2")[0]))
    if family == DIGEST:
        return Digest(int(first.field(3, "<u2")[0]))
    if family == FREQUENT:
        return Frequent(3 * 2 ** int(first.field(3, "u1")[0]) // 4)
    assert family == COUNT_MIN
    return CountMin(1, 1)


def _name(family: int) -> str:
    return FAMILIES.get(family, f"of family {family}")
