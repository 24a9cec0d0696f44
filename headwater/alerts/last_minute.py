"""How much a count that only grows has grown in the last minute: of what the measures remember of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from headwater.units import MINUTE


class LastMinute:
    """Remembers a minute of counts by name; names that are no longer given are forgotten.

    >>> counts = LastMinute()
    >>> counts.growth({"a": 5}, now_us=0), counts.growth({"a": 8}, now_us=30_000_000), counts.growth({"a": 2}, now_us=31_000_000)
    ({'a': 0}, {'a': 3}, {'a': 2})
    """

    def __init__(self) -> None:
        self._points: dict[str, deque[tuple[int, int]]] = {}

    def growth(self, counts: Mapping[str, int], *, now_us: int) -> dict[str, int]:
        """How much each count has grown since a minute ago, or since it was first given. One that is smaller began again at 0."""
        before, self._points = self._points, {}
        grown = {}
        for name, count in counts.items():
            points = before.get(name, deque())
            if points and count < points[-1][1]:
                points = deque([(now_us, 0)])
            points.append((now_us, count))
            while points[0][0] < now_us - round(MINUTE * 1e6):
                points.popleft()
            self._points[name] = points
            grown[name] = count - points[0][1]
        return grown
