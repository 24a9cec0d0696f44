"""Batches without rows, by which time passes for operators while nothing comes."""

from __future__ import annotations


class Ticks:
    """When a stream has a batch although there is nothing to read: `seconds` after the last one.

    With `count` it comes to rest: ticks go on until `rest_seconds` have passed since the last rows, then there are `count`
    more. What waits for the watermark has happened by then, for only rows move it, or that a partition has been silent for
    long enough. What waits for the clock needs them for ever, and no count.
    """

    def __init__(self, *, seconds: float | None, count: int | None = None, rest_seconds: float = 0.0) -> None:
        self._period_us = None if seconds is None else round(seconds * 1e6)
        self._count = count
        self._rest_us = round(rest_seconds * 1e6)
        self._left = count
        self._rows_at_us: int | None = None

    def rows_came(self, now_us: int) -> None:
        """Begin anew."""
        self._left = self._count
        self._rows_at_us = now_us

    def is_due(self, before_us: int, now_us: int) -> bool:
        """Whether there is a batch now, if the last one was at `before_us`; a yes is taken for that batch.

        >>> ticks = Ticks(seconds=1, count=2)
        >>> [ticks.is_due(before, before + 1_000_000) for before in (0, 1_000_000, 2_000_000)]
        [True, True, False]
        """
        if self._period_us is None or now_us - before_us < self._period_us:
            return False
        if self._left is None:
            return True
        if self._rows_at_us is None:  # rows came before this process did; so it is later than they were, which is safe
            self._rows_at_us = before_us
        if now_us - self._rows_at_us <= self._rest_us:
            return True
        if self._left == 0:
            return False
        self._left -= 1
        return True
