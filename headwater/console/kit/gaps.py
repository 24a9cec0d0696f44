"""Gaps in measurements: times in which nothing was measured, across which no line is drawn."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

#: Points that are closer together have no gap between them, however close the others are.
SECONDS_MIN = 30.0
#: A gap is so many times as long as the usual distance of two points.
FACTOR = 3.0


def gaps(points: Sequence[tuple[float, float]]) -> list[int]:
    """The places of the points before which there is a gap, by their times in seconds.

    >>> gaps([(0.0, 1), (2.0, 1), (4.0, 1), (100.0, 1), (102.0, 1)])
    [3]
    """
    distances = [later - earlier for (earlier, _), (later, _) in pairwise(points)]
    longest = max(SECONDS_MIN, FACTOR * statistics.median(distances)) if distances else SECONDS_MIN
    return [place for place, distance in enumerate(distances, start=1) if distance > longest]
