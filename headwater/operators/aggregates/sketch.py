"""Sketches as results: columns of bytes that are stored, merged later, and asked then.

>>> from headwater.operators import agg
>>> agg.sketch.hll("user")
SketchOf(of='user', family='hll', size=12, depth=1)
"""

from __future__ import annotations

from headwater.engine.aggregation import Aggregate, Argument
from headwater.errors import ArgumentInvalid
from headwater.operators.aggregates.approximate import SketchOf, at_least_one, share
from headwater.operators.sketches.frequencies import CountMin

__all__ = ["count_min", "frequent", "hll", "kll", "tdigest", "theta"]


def hll(of: Argument, *, lg_k: int = 12) -> Aggregate:
    """HyperLogLog with 2^lg_k registers: how many different values. The bytes are those of Spark's `hll_sketch_agg`."""
    return SketchOf(of, "hll", _between("lg_k", lg_k, 4, 21))


def theta(of: Argument, *, lg_k: int = 12) -> Aggregate:
    """A theta sketch of 2^lg_k hashes: how many different values, also of unions, intersections and differences."""
    return SketchOf(of, "theta", _between("lg_k", lg_k, 4, 26))


def kll(of: Argument, *, k: int = 200) -> Aggregate:
    """A KLL sketch: quantiles, equally good everywhere."""
    return SketchOf(of, "kll", _between("k", k, 8, 65_535))


def tdigest(of: Argument, *, k: int = 200) -> Aggregate:
    """A t-digest of up to k centroids: quantiles, best at both ends."""
    return SketchOf(of, "tdigest", _between("k", k, 10, 65_535))


def frequent(of: Argument, *, tracked: int = 1024) -> Aggregate:
    """Counters for up to `tracked` texts: the commonest of them."""
    return SketchOf(of, "frequent", at_least_one("tracked", tracked))


def count_min(of: Argument, *, error: float = 0.001, confidence: float = 0.99) -> Aggregate:
    """A count-min sketch: how often any value came, at most a share `error` of all rows too high."""
    size = CountMin.within(share("error", error), share("confidence", confidence))
    return SketchOf(of, "count_min", size.width, size.depth)


def _between(name: str, value: int, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ArgumentInvalid(name=name, value=value, expected=f"a whole number from {least} to {most}")
    return value
