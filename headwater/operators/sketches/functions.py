"""Functions over sketches: over columns of a DataFrame, and in Python over bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, overload

import numpy as np
import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.operators.errors import SketchInvalid
from headwater.operators.sketches import kll, tdigest, theta
from headwater.operators.sketches.format import (
    COUNT_MIN,
    DIGEST,
    ESTIMATE,
    FAMILIES,
    FREQUENT,
    HLL,
    KLL,
    THETA,
    Estimates,
    Int64s,
    Packed,
    places,
)
from headwater.operators.sketches.frequencies import CountMin, Frequent, counts_of, open_frequent
from headwater.operators.sketches.hll import Hll
from headwater.operators.sketches.kll import Kll
from headwater.operators.sketches.tdigest import Digest
from headwater.operators.sketches.theta import Theta

if TYPE_CHECKING:
    from pyspark.sql import Column

    ColumnLike = str | Column

#: Sketches without nulls to answers, row by row.
Ask = Callable[..., pa.Array]
COUNTED = pa.struct([("value", pa.string()), ("estimate", pa.int64()), ("lower", pa.int64()), ("upper", pa.int64())])
ANY = "mergeable"


class Estimate(NamedTuple):
    """An answer, with what the truth is not below and not above at the confidence that the sketch states."""

    estimate: float
    lower: float
    upper: float


@overload
def estimate(sketch: bytes) -> Estimate: ...


@overload
def estimate(sketch: ColumnLike) -> Column: ...


def estimate(sketch: bytes | ColumnLike) -> Estimate | Column:
    """How many different values an HLL or theta sketch stands for: a struct of `estimate`, `lower` and `upper`.

    Of a column a column, of bytes a value.

    >>> import datasketches
    >>> sketch = datasketches.hll_sketch(12)
    >>> for word in ("to", "be", "or", "not", "to", "be"): sketch.update(word)
    >>> round(estimate(sketch.serialize_compact()).estimate)
    4
    """
    if isinstance(sketch, bytes):
        return Estimate(**_estimates(_one(sketch))[0].as_py())
    return _column(_estimates, ESTIMATE, sketch)


@overload
def quantile(sketch: bytes, at: float = 0.5) -> Estimate: ...


@overload
def quantile(sketch: ColumnLike, at: float = 0.5) -> Column: ...


def quantile(sketch: bytes | ColumnLike, at: float = 0.5) -> Estimate | Column:
    """The value at a rank of a KLL sketch or t-digest; null, and in Python NaN, where it has seen none."""
    if not 0 <= at <= 1:
        raise ArgumentInvalid(name="at", value=at, expected="a share between 0 and 1")
    if isinstance(sketch, bytes):
        return Estimate(**_quantiles(_one(sketch), at)[0].as_py())

    def ask(sketches: pa.Array) -> pa.Array:
        found = _quantiles(sketches, at)
        nothing = np.isnan(np.asarray(found.field(0)))
        return found.take(pa.array(np.arange(len(found)), mask=nothing))

    return _column(ask, ESTIMATE, sketch)


@overload
def count_of(sketch: bytes, value: Any) -> Estimate: ...


@overload
def count_of(sketch: ColumnLike, value: Any) -> Column: ...


def count_of(sketch: bytes | ColumnLike, value: Any) -> Estimate | Column:
    """How often a value came, by a count-min sketch. The value must be of the type of the column it was made of."""

    def ask(sketches: pa.Array) -> pa.Array:
        return Estimates(*(one.reshape(-1) for one in counts_of(sketches, pa.array([value])))).column()

    if isinstance(sketch, bytes):
        return Estimate(**ask(_one(sketch))[0].as_py())
    return _column(ask, ESTIMATE, sketch)


def top(sketch: bytes | ColumnLike, k: int = 10) -> Any:
    """The commonest texts of a `frequent` sketch: a list of structs of `value`, `estimate`, `lower` and `upper`."""
    if isinstance(sketch, bytes):
        return _tops(_one(sketch), k)[0].as_py()
    return _column(lambda sketches: _tops(sketches, k), pa.list_(COUNTED), sketch)


@overload
def union(left: bytes, right: bytes) -> bytes: ...


@overload
def union(left: ColumnLike, right: ColumnLike) -> Column: ...


def union(left: Any, right: Any) -> bytes | Column:
    """The theta sketch of the values that are in either."""
    return _both(theta.union, left, right)


@overload
def intersection(left: bytes, right: bytes) -> bytes: ...


@overload
def intersection(left: ColumnLike, right: ColumnLike) -> Column: ...


def intersection(left: Any, right: Any) -> bytes | Column:
    """The theta sketch of the values that are in both."""
    return _both(theta.intersection, left, right)


@overload
def difference(left: bytes, right: bytes) -> bytes: ...


@overload
def difference(left: ColumnLike, right: ColumnLike) -> Column: ...


def difference(left: Any, right: Any) -> bytes | Column:
    """The theta sketch of the values that are in the left and not in the right."""
    return _both(theta.difference, left, right)


# -- over arrays ------------------------------------------------------------------------------------------------------


def _estimates(sketches: pa.Array) -> pa.Array:
    if not len(sketches):
        return pa.array([], ESTIMATE)
    family = family_of(sketches)
    if family not in (HLL, THETA):
        raise SketchInvalid(expected="hll", why=f"they are {FAMILIES[family]!r}")
    return (Hll().estimates(sketches) if family == HLL else theta.Theta().estimates(sketches)).column()


def _quantiles(sketches: pa.Array, at: float) -> pa.Array:
    if not len(sketches):
        return pa.array([], ESTIMATE)
    family = family_of(sketches)
    if family not in (KLL, DIGEST):
        raise SketchInvalid(expected="kll", why=f"they are {FAMILIES[family]!r}")
    found = (kll.quantiles if family == KLL else tdigest.quantiles)(sketches, np.array([at]))
    return Estimates(*(one.reshape(-1) for one in found)).column()


def _tops(sketches: pa.Array, k: int) -> pa.Array:
    found, _ = open_frequent(sketches)
    lower = np.asarray(found.counts).astype(np.int64)
    order = np.lexsort([-lower, found.numbers])
    rows = order[places(found.numbers) < k]
    numbers = found.numbers[rows]
    upper = pa.array(lower[rows] + np.asarray(found.missed).astype(np.int64)[numbers])
    columns = [found.values.take(pa.array(rows)), upper, pa.array(lower[rows]), upper]
    offsets = np.append(0, np.cumsum(np.bincount(numbers, minlength=len(sketches)))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.StructArray.from_arrays(columns, fields=list(COUNTED)))


def _one(sketch: bytes) -> pa.Array:
    return pa.array([sketch], pa.binary())


def _both(ask: Ask, left: Any, right: Any) -> bytes | Column:
    if isinstance(left, bytes) and isinstance(right, bytes):
        found: bytes = ask(_one(left), _one(right))[0].as_py()
        return found
    return _column(ask, pa.binary(), left, right)


def _column(ask: Ask, kind: pa.DataType, *columns: ColumnLike) -> Column:
    """A Spark column that asks whole batches at once; null where a sketch is null."""
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    def run(*sketches: pa.Array) -> pa.Array:
        return _where_there(ask, kind, *sketches)

    def run_one(sketches: pa.Array) -> pa.Array:
        return run(sketches)

    def run_two(left: pa.Array, right: pa.Array) -> pa.Array:
        return run(left, right)

    # Spark counts the parameters of a function, and knows its kind by their types.
    chosen = run_one if len(columns) == 1 else run_two
    made = arrow_udf(chosen, from_arrow_type(kind))  # type: ignore[call-overload] # mypy wants the kind as well
    column: Column = made(*columns)
    return column


def _where_there(ask: Ask, kind: pa.DataType, *sketches: pa.Array) -> pa.Array:
    there = np.logical_and.reduce([np.asarray(one.is_valid()) for one in sketches])
    if there.all():
        return ask(*sketches)
    rows = np.where(there, np.cumsum(there) - 1, 0)
    kept = [one.filter(pa.array(there)).cast(pa.binary()) for one in sketches]
    if not there.any():
        return pa.nulls(len(there), kind)
    return ask(*kept).take(pa.array(rows, mask=~there))


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
