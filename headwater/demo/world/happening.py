"""What happens now, and what is on its way: rows wait for the moment at which they reach the log."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

# Any: values of rows.
Row = dict[str, Any]
Rows = dict[str, list[Row]]


@dataclass(kw_only=True)
class Happening:
    """One source of chance and numbers for all parts of the world, and the rows that have not reached the log yet."""

    chance: random.Random
    _count: int = 0
    _waiting: list[tuple[datetime, int, str, Row]] = field(default_factory=list)

    def number(self) -> int:
        self._count += 1
        return self._count

    def comes(self, topic: str, row: Row, *, at: datetime, after: float = 0.0) -> None:
        """Let a row reach the log at a moment, or so many seconds after it."""
        heapq.heappush(self._waiting, (at + timedelta(seconds=after), self.number(), topic, row))

    def until(self, end: datetime) -> Iterator[tuple[str, Row]]:
        """What reaches the log before a moment, in that order."""
        while self._waiting and self._waiting[0][0] < end:
            _, _, topic, row = heapq.heappop(self._waiting)
            yield topic, row

    def is_so(self, share: float) -> bool:
        return self.chance.random() < share

    def seconds(self, least: float, most: float) -> float:
        return self.chance.uniform(least, most)

    # Any: one of whatever is given.
    def one_of(self, several: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
        return self.chance.choice(several) if weights is None else self.chance.choices(several, weights)[0]


class Part(Protocol):
    """A part of the world: so often per second something happens in it."""

    per_second: float

    def begin(self, now: datetime, /) -> Rows:
        """What was there before anything happened."""
        ...

    def happens(self, at: datetime) -> None: ...
