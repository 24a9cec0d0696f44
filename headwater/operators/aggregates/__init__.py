"""Aggregates for `compute=`: small values that say what to make of many rows.

Arguments are names of columns or any expression of Spark's, which the JVM evaluates. Nulls are left out, as in SQL.

>>> from headwater.operators import agg
>>> agg.sum("amount")
Sum(of='amount')
>>> agg.percentile("seconds", 0.99)
Percentile(of='seconds', share=0.99)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headwater.engine import questions
from headwater.engine.aggregation import Aggregate, Argument
from headwater.operators.aggregates import sketch
from headwater.operators.aggregates.approximate import (
    ApproxCountDistinct,
    ApproxPercentile,
    ApproxTopK,
    CountsAsked,
    MergedSketches,
    Method,
    Sample,
)
from headwater.operators.aggregates.extremes import MaxN, MinN
from headwater.operators.aggregates.numbers import Count, Decayed, Mean, Stddev, Sum
from headwater.operators.aggregates.values import (
    By,
    CollectList,
    CountDistinct,
    Custom,
    First,
    Last,
    Max,
    Min,
    Percentile,
    TopK,
)
from headwater.units import Duration

__all__ = [
    "Aggregate",
    "approx_count_distinct",
    "approx_percentile",
    "approx_top_k",
    "collect_list",
    "count",
    "count_distinct",
    "count_min",
    "custom",
    "decayed_count",
    "decayed_mean",
    "decayed_sum",
    "first",
    "last",
    "max",
    "max_n",
    "mean",
    "merge_sketches",
    "min",
    "min_n",
    "percentile",
    "sample",
    "sketch",
    "stddev",
    "sum",
    "top_k",
]


def count(of: Argument = None) -> Aggregate:
    """How many rows; with an argument, how many of them have one that is not null."""
    return Count(of)


def sum(of: Argument) -> Aggregate:
    """The sum of numbers. Whole numbers and decimals stay exact."""
    return Sum(of)


def mean(of: Argument) -> Aggregate:
    """The mean of numbers."""
    return Mean(of)


def min(of: Argument) -> Aggregate:
    """The least value. Of structs it is that with the least first field, then the second: `agg.min(F.struct("at", "price"))`
    is the earliest row's price."""
    return Min(of)


def max(of: Argument) -> Aggregate:
    """The greatest value. Of structs it is that with the greatest first field, then the second:
    `agg.max(F.struct("price", "bidder"))` says who bid most."""
    return Max(of)


def min_n(of: Argument, n: int = 10) -> Aggregate:
    """The `n` least values as a list, the least first; equal values are there as often as they came."""
    return MinN(of, n)


def max_n(of: Argument, n: int = 10) -> Aggregate:
    """The `n` greatest values as a list, the greatest first: `agg.max_n(F.struct("price", "bidder"), n=3)` says who bid the
    three highest prices. Structs are compared field by field, and NaN is the greatest number, as in Spark."""
    return MaxN(of, n)


def stddev(of: Argument, *, population: bool = False) -> Aggregate:
    """The standard deviation of a sample, or of a whole population."""
    return Stddev(of, population)


def first(of: Argument, *, order: By = "time") -> Aggregate:
    """The value of the row with the earliest event time.

    With `order="arrival"`, here and for `last` and `collect_list`, rows go by their partition and offset instead: for a
    key of the topic that is the order in which they were appended, whatever their event time.
    """
    return First(of, order=order)


def last(of: Argument, *, order: By = "time") -> Aggregate:
    """The value of the row with the latest event time; with `order="arrival"`, of the row that was appended last."""
    return Last(of, order=order)


def collect_list(of: Argument, *, count_max: int | None = None, order: By = "time") -> Aggregate:
    """All values as a list, in the order of event time or of arrival; only the earliest `count_max`, where given."""
    return CollectList(of, count_max, order=order)


def count_distinct(of: Argument) -> Aggregate:
    """How many different values, exactly."""
    return CountDistinct(of)


def percentile(of: Argument, share: float = 0.5) -> Aggregate:
    """The value below which a share of all values lies, exactly: 0.5 is the median."""
    return Percentile(of, share)


def top_k(of: Argument, n: int = 10) -> Aggregate:
    """The `n` commonest values with their counts, the commonest first."""
    return TopK(of, n)


def approx_count_distinct(of: Argument, *, error: float = 0.01) -> Aggregate:
    """How many different values, nearly: a struct of `estimate`, `lower` and `upper`, which hold in 95 of 100 cases.

    `error` is one standard deviation, as a share. State is at most 1.1 / error² bytes for each group; of few values
    (1,500 with the default) it is 4 bytes each, and the answer exact.
    """
    return ApproxCountDistinct(of, error)


def approx_percentile(
    of: Argument, at: Sequence[float] = (0.5,), *, error: float = 0.0133, method: Method = "kll"
) -> Aggregate:
    """The values at several ranks, nearly: a list of structs of `at`, `estimate`, `lower` and `upper`.

    With `"kll"` the rank is wrong by `error` at most, in 99 of 100 cases; with `"tdigest"` by that in the middle and far
    less at both ends, as measured and not as proven. NaN is left out, as null is.
    """
    return ApproxPercentile(of, tuple(at), error, method)


def approx_top_k(of: Argument, n: int = 10, *, tracked: int = 1024, half_life: Duration | None = None) -> Aggregate:
    """The commonest values, nearly: a list of structs of `value`, `estimate`, `lower` and `upper`.

    The bounds are certain, and at most the number of rows divided by `tracked` apart. With a half-life, what came long
    before the latest row of the group counts for less.
    """
    return ApproxTopK(of, n, tracked, half_life)


def count_min(of: Argument, asked: Sequence[Any], *, error: float = 0.001, confidence: float = 0.99) -> Aggregate:
    """How often the values asked for came, nearly: a list of structs of `value`, `estimate`, `lower` and `upper`.

    The truth is never above the estimate, and with this confidence no more than a share `error` of all rows below it.
    """
    return CountsAsked(of, tuple(asked), error, confidence)


def sample(of: Argument, n: int = 10, *, strata: str | None = None) -> Aggregate:
    """`n` values as a list, each row as likely as any other: the same ones in a stream, a batch, and a repetition.

    For a stratified sample give a struct, and in `strata` the name of the field that tells the strata apart: there are
    `n` values of each.
    """
    return Sample(of, n, strata)


def decayed_count(of: Argument = None, *, half_life: Duration) -> Aggregate:
    """How many rows, of which those a half-life before the latest count one half."""
    return Decayed(of, half_life, "count")


def decayed_sum(of: Argument, *, half_life: Duration) -> Aggregate:
    """The sum, to which what came a half-life before the latest row adds one half of itself."""
    return Decayed(of, half_life, "sum")


def decayed_mean(of: Argument, *, half_life: Duration) -> Aggregate:
    """The mean, in which what came a half-life before the latest row weighs one half."""
    return Decayed(of, half_life, "mean")


def merge_sketches(of: Argument, *, lg_k: int = 12) -> Aggregate:
    """One sketch of a column of sketches, of whichever kind: minutes become an hour, hours a day.

    `lg_k` is how large the union of theta sketches may be: these do not say it themselves.
    """
    return MergedSketches(of, lg_k)


def custom(
    of: Argument,
    *,
    partial: Any,
    result: Any,
    lift: Callable[[pa.Table], pa.Table],
    merge: Callable[[pa.Table], pa.Table],
    finish: Callable[[pa.Table], pa.Array],
) -> Aggregate:
    """An aggregate of one's own. `lift` gets the columns `group` and `value`, `merge` gets `group` and the partial
    results; both return one row per group. `finish` gets partial results and returns their values.

    >>> from headwater.operators import agg
    >>> def product(name):
    ...     def fold(table):
    ...         found = table.group_by("group").aggregate([(name, "product")])
    ...         return found.rename_columns(["group", "product"])
    ...     return fold
    >>> agg.custom("factor", partial={"product": "int64"}, result="int64", lift=product("value"),
    ...     merge=product("product"), finish=lambda table: table["product"]).of
    'factor'
    """
    return Custom(of, partial, result, lift, merge, finish)


questions.FUNCTIONS |= {one.__name__: one for one in (count, sum, mean, min, max, stddev, count_distinct)}
