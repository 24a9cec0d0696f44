"""Ranges of offsets: workers take and acknowledge messages that follow each other, so that one entry stands for many."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

#: Offsets from `start` up to and without `stop`.
Range = tuple[int, int]


class LeaseRange(NamedTuple):
    """Deliveries of one call that follow each other: all have the same token."""

    partition: int
    token: int
    start: int
    stop: int


def lease_ranges(leases: Iterable[tuple[int, int, int]]) -> list[LeaseRange]:
    """Leases (partition, offset, token) as ranges, each lease once.

    >>> lease_ranges([(0, 7, 5), (0, 8, 5), (0, 8, 5), (0, 9, 6)])
    [LeaseRange(partition=0, token=5, start=7, stop=9), LeaseRange(partition=0, token=6, start=9, stop=10)]
    """
    offsets: dict[tuple[int, int], list[int]] = {}
    for partition, offset, token in leases:
        try:
            offsets[partition, token].append(offset)
        except KeyError:
            offsets[partition, token] = [offset]
    return [LeaseRange(*place, *each) for place, numbers in offsets.items() for each in ranges_of(numbers)]


def ranges_of(offsets: Sequence[int]) -> list[Range]:
    """Offsets in any order as ranges in order.

    >>> ranges_of([4, 1, 2, 9, 3])
    [(1, 5), (9, 10)]
    """
    ordered = sorted(set(offsets))
    if ordered and ordered[-1] - ordered[0] == len(ordered) - 1:
        return [(ordered[0], ordered[-1] + 1)]
    return merged((offset, offset + 1) for offset in ordered)


def merged(ranges: Iterable[Range]) -> list[Range]:
    """Ranges in order, those that touch as one.

    >>> merged([(1, 3), (3, 4), (6, 7)])
    [(1, 4), (6, 7)]
    """
    result: list[Range] = []
    for start, stop in ranges:
        if result and result[-1][1] == start:
            result[-1] = (result[-1][0], stop)
        else:
            result.append((start, stop))
    return result


def gaps(start: int, stop: int, ranges: Iterable[Range]) -> Iterator[Range]:
    """What ranges in order leave of a range.

    >>> list(gaps(0, 10, [(0, 2), (5, 12)]))
    [(2, 5)]
    """
    for first, behind in ranges:
        if first > start:
            yield start, min(first, stop)
        start = max(start, behind)
    if start < stop:
        yield start, stop
