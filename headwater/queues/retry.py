"""When a worker's failed message is delivered again."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import ArgumentInvalid
from headwater.units import Duration, parse_seconds


@dataclass(frozen=True, kw_only=True)
class Retry:
    """Deliver a failed message up to `attempts` times, with pauses that grow from `delay` by `factor`.

    >>> retry = Retry(attempts=5, delay="1 second", delay_max="3 seconds")
    >>> [retry.delay_seconds(attempt) for attempt in (1, 2, 3)]
    [1.0, 2.0, 3.0]
    """

    attempts: int = 5
    delay: Duration = 1.0
    factor: float = 2.0
    delay_max: Duration = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ArgumentInvalid(name="attempts", value=self.attempts, expected="at least 1")
        if self.factor < 1:
            raise ArgumentInvalid(name="factor", value=self.factor, expected="at least 1")
        for name in ("delay", "delay_max"):
            object.__setattr__(self, name, parse_seconds(getattr(self, name), name=name))

    def delay_seconds(self, attempt: int) -> float:
        """The pause after the failure of an attempt, counted from 1."""
        longest = parse_seconds(self.delay_max)
        return min(parse_seconds(self.delay) * self.factor ** min(attempt - 1, 64), longest)
