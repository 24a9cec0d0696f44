"""Time, injectable: production reads the system's clock, tests advance a manual one."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """Where the present comes from, as microseconds since 1970 in UTC."""

    def now_us(self) -> int: ...


class SystemClock:
    """The machine's own clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000


class ManualClock:
    """A clock that moves only when told, so that tests never sleep.

    >>> clock = ManualClock(start_us=1_000_000)
    >>> clock.advance(seconds=2.5)
    >>> clock.now_us()
    3500000
    """

    def __init__(self, *, start_us: int = 1_700_000_000_000_000) -> None:
        self._now_us = start_us
        self._lock = threading.Lock()

    def now_us(self) -> int:
        return self._now_us

    def advance(self, *, seconds: float) -> None:
        with self._lock:
            self._now_us += round(seconds * 1_000_000)


def time_us(moment: datetime | int) -> int:
    """A time as microseconds since 1970; one without a time zone is in UTC.

    >>> time_us(datetime(1970, 1, 1, 0, 0, 1))
    1000000
    """
    if isinstance(moment, datetime):
        # Whole numbers, to the last digit: a float of seconds has not enough of them.
        passed = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - EPOCH
        return (passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds
    return int(moment)
