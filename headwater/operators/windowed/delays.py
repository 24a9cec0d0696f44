"""How late rows come, as counts in buckets, and what share of a window is seen by a time if they go on like that."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from headwater.operators.agg.groups import Groups, Int64s

Floats = npt.NDArray[np.float64]
#: Where buckets end, in microseconds: rows in order, then from a millisecond to forty days, four buckets to each doubling.
EDGES: Floats = np.concatenate([[0.0], 1000.0 * 2.0 ** (np.arange(128) / 4)])
#: The least share that is told: of a window in which a row was seen, something was seen.
SHARE_MIN = 1e-6


def delays_of(at_us: Int64s, partitions: Int64s, offsets: Int64s, *, since_us: int) -> Int64s:
    """How far each row is behind the latest that came before it from its partition; time began with `since_us`.

    >>> delays_of(np.array([5, 9, 7]), np.array([0, 0, 0]), np.array([0, 1, 2]), since_us=6).tolist()
    [1, 0, 2]
    """
    order = np.lexsort([offsets, partitions])
    arrived = at_us[order]
    latest = np.empty_like(arrived)
    groups = Groups.of(partitions[order])
    for start, stop in zip(groups.starts, groups.starts + groups.sizes(), strict=True):
        np.maximum.accumulate(arrived[start:stop], out=latest[start:stop])
    delays = np.empty_like(at_us)
    delays[order] = np.maximum(latest, since_us) - arrived
    return delays


def counted(delays_us: Int64s) -> list[int]:
    """How many delays fall into each bucket; what is longer than all of them, into the last.

    >>> counts = counted(np.array([0, 0, 900, 1000, 2**60]))
    >>> counts[0], counts[1], counts[-1], sum(counts)
    (2, 2, 1, 5)
    """
    places = np.minimum(np.searchsorted(EDGES, delays_us, side="left"), len(EDGES) - 1)
    return [int(count) for count in np.bincount(places, minlength=len(EDGES))]


def share_seen(counts: Sequence[int], starts_us: Int64s, ends_us: Int64s, *, now_us: int) -> Floats:
    """The share of a window's rows that has come by now, where its rows are spread evenly over it.

    Of the rows that happened `t` ago, those are there whose delay is at most `t`; a window's share is the mean of that
    over its length.

    >>> in_order = counted(np.zeros(9, np.int64))
    >>> share_seen(in_order, np.array([0, 0]), np.array([10, 40]), now_us=20).tolist()
    [1.0, 0.5]
    """
    if not sum(counts):
        counts = counted(np.zeros(1, np.int64))  # until something else is known, rows come in order
    known = np.cumsum(np.asarray(counts, np.float64)) / sum(counts)
    seen = _summed(known, now_us - starts_us) - _summed(known, now_us - ends_us)
    shares: Floats = np.clip(seen / (ends_us - starts_us), SHARE_MIN, 1.0)
    return shares


def _summed(known: Floats, ages_us: Int64s) -> Floats:
    """The area under the line through the buckets' ends, from 0 to each age."""
    widths, rises = np.diff(EDGES), np.diff(known)
    areas = np.concatenate([[0.0], np.cumsum(widths * (known[:-1] + known[1:]) / 2)])
    ages = np.maximum(ages_us, 0).astype(np.float64)
    places = np.clip(np.searchsorted(EDGES, ages, side="right") - 1, 0, len(EDGES) - 1)
    slopes = np.append(rises / widths, 0.0)[places]
    beyond = ages - EDGES[places]
    found: Floats = areas[places] + known[places] * beyond + slopes * beyond**2 / 2
    return found
