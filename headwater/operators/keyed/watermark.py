"""The watermark: the time before which no more rows are expected, as a pure function of what earlier batches saw.

Each partition of the operator notes, per input and source partition, the latest event time it has seen and when. The
watermark of batch n is computed from what all partitions noted up to batch n-1, so every task of batch n and every
retry of it gets the same value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

NEVER = -(2**62)
EVER = 2**62

Seen = dict[str, dict[str, tuple[int, int]]]
"""Input → source partition → (latest event time, processing time when it was seen), in microseconds."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How far rows may come out of order, and when an input no longer holds the others back."""

    late_by_us: int = 0
    idle_us: int | None = None
    ahead_us: int | None = 24 * 3600 * 1_000_000
    combine: str = "min"

    def watermark(self, seen: Iterable[Seen], *, previous_us: int, now_us: int | None) -> int:
        """The watermark that follows from what all partitions saw; it never goes back."""
        merged = merge(seen)
        inputs = [self._of_input(places, now_us) for places in merged.values() if places]
        known = [value for value in inputs if value is not None]
        if not known:
            return previous_us
        found = min(known) if self.combine == "min" else max(known)
        return max(previous_us, found - self.late_by_us)

    def bound_us(self, now_us: int | None) -> int:
        """The latest event time that may move the watermark: one clock from the far future must not close everything."""
        return EVER if self.ahead_us is None or now_us is None else now_us + self.ahead_us

    def _of_input(self, places: Mapping[str, tuple[int, int]], now_us: int | None) -> int | None:
        awake = [
            latest
            for latest, at in places.values()
            if self.idle_us is None or now_us is None or now_us - at <= self.idle_us
        ]
        return min(awake) if awake else None


def merge(seen: Iterable[Seen]) -> Seen:
    """What several partitions saw, together.

    >>> merge([{"": {"0": (5, 1)}}, {"": {"0": (7, 1), "1": (2, 1)}}])
    {'': {'0': (7, 1), '1': (2, 1)}}
    """
    merged: Seen = {}
    for one in seen:
        for name, places in one.items():
            known = merged.setdefault(name, {})
            for place, (latest, at) in places.items():
                before = known.get(place, (NEVER, NEVER))
                known[place] = (max(latest, before[0]), max(at, before[1]))
    return merged


@dataclass(frozen=True, kw_only=True)
class BatchTime:
    """What time it is for a step: the watermark in event time, and the processing time that the source recorded.

    `watermark_before_us` is the watermark of the batch before: a timer between the two is due now, and was not then.
    """

    watermark_us: int = NEVER
    watermark_before_us: int = NEVER
    processing_us: int | None = None
    batch: int | None = None
    final: bool = False
    broadcast: Mapping[str, pa.Table] = field(default_factory=dict)
