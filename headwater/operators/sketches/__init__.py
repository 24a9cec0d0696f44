"""Sketches: answers that are nearly right, in memory that does not grow. Made by `agg.sketch`, asked here."""

from headwater.operators.sketches.functions import (
    Estimate,
    count_of,
    difference,
    estimate,
    intersection,
    quantile,
    top,
    union,
)

__all__ = ["Estimate", "count_of", "difference", "estimate", "intersection", "quantile", "top", "union"]
