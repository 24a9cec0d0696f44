"""Aggregates for `compute=`: small values that say what to make of many rows.

Arguments are names of columns or any expression of Spark's, which the JVM evaluates. Nulls are left out, as in SQL.

>>> from headwater.operators import agg
>>> agg.sum("amount")
Sum(of='amount')
>>> agg.quantile("seconds", 0.99)
Quantile(of='seconds', share=0.99)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headwater.operators.agg.aggregate import Aggregate, Argument
from headwater.operators.agg.choices import Collect, First, Last, Max, Min
from headwater.operators.agg.custom import Custom
from headwater.operators.agg.numbers import Count, Mean, StdDev, Sum
from headwater.operators.agg.sets import Distinct, Quantile, Top

__all__ = [
    "Aggregate",
    "collect",
    "count",
    "custom",
    "distinct",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "quantile",
    "stddev",
    "sum",
    "top",
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
    """The least value."""
    return Min(of)


def max(of: Argument) -> Aggregate:
    """The greatest value."""
    return Max(of)


def stddev(of: Argument, *, population: bool = False) -> Aggregate:
    """The standard deviation of a sample, or of a whole population."""
    return StdDev(of, population)


def first(of: Argument) -> Aggregate:
    """The value of the row with the earliest event time."""
    return First(of)


def last(of: Argument) -> Aggregate:
    """The value of the row with the latest event time."""
    return Last(of)


def collect(of: Argument, *, count_max: int | None = None) -> Aggregate:
    """All values as a list, in the order of event time; only the earliest `count_max`, where given."""
    return Collect(of, count_max)


def distinct(of: Argument) -> Aggregate:
    """How many different values, exactly."""
    return Distinct(of)


def quantile(of: Argument, share: float = 0.5) -> Aggregate:
    """The value below which a share of all values lies, exactly: 0.5 is the median."""
    return Quantile(of, share)


def top(of: Argument, count: int = 10) -> Aggregate:
    """The commonest values with their counts, the commonest first."""
    return Top(of, count)


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
