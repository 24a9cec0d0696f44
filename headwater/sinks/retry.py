"""Retry with exponential back-off up to a deadline. Sinks wait in it; alerts take its pauses for their deliveries."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headwater.errors import ArgumentInvalid
from headwater.sinks.errors import SinkUnavailable

Answer = TypeVar("Answer")


class RetryLater(Exception):
    """A sink could not be reached, or asked to wait; the same call may work later."""

    def __init__(self, why: str, *, after_seconds: float = 0.0) -> None:
        super().__init__(why)
        self.after_seconds = after_seconds


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How long to retry. After `seconds_max` the query fails, and nothing is lost: the batch is done again.

    Pauses double from `first_seconds` to `pause_seconds_max`. In `run` they are cut at random, so that many clients of a
    server that comes back do not all call at once.

    >>> [Retry(first_seconds=1, pause_seconds_max=5).pause_seconds(attempts) for attempts in range(4)]
    [1, 2, 4, 5]
    >>> Retry(seconds_max=-1)
    Traceback (most recent call last):
    headwater.errors.ArgumentInvalid: `seconds_max` is -1. Give 0 or more.
    """

    seconds_max: float = 60.0
    first_seconds: float = 0.1
    pause_seconds_max: float = 5.0

    def __post_init__(self) -> None:
        for name in ("seconds_max", "first_seconds", "pause_seconds_max"):
            if getattr(self, name) < 0:
                raise ArgumentInvalid(name=name, value=getattr(self, name), expected="0 or more")

    def pause_seconds(self, attempts: int) -> float:
        """How long to wait after so many failed attempts before the last one."""
        return min(self.first_seconds * (1 << min(attempts, 30)), self.pause_seconds_max)

    def run(self, sink: str, work: Callable[[], Answer]) -> Answer:
        """Do the work, again while it raises `RetryLater`; raise `SinkUnavailable` at the deadline."""
        began = time.monotonic()
        attempts = 0
        while True:
            try:
                return work()
            except RetryLater as error:
                waited = time.monotonic() - began
                wait = max(self.pause_seconds(attempts) * random.uniform(0.5, 1.0), error.after_seconds)
                if waited + wait > self.seconds_max:
                    raise SinkUnavailable(sink=sink, waited=waited, why=str(error)) from error
                time.sleep(wait)
                attempts += 1
