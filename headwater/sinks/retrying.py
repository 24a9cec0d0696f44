"""Patience with a sink that is down: it is asked again with growing pauses, for so long and no longer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headwater.errors import ArgumentInvalid, SinkUnavailable

Answer = TypeVar("Answer")


class NotNow(Exception):
    """A sink could not be reached, or asked for patience; the same call may work later."""

    def __init__(self, why: str, *, after_seconds: float = 0.0) -> None:
        super().__init__(why)
        self.after_seconds = after_seconds


@dataclass(frozen=True, kw_only=True)
class Retry:
    """How long to go on asking. When the time is up the query fails, and nothing is lost: the batch is done again.

    Pauses double from `first_seconds` to `pause_seconds_max`, and are cut at random so that many clients of a server
    that comes back do not all knock at once.

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

    def run(self, sink: str, work: Callable[[], Answer]) -> Answer:
        """Do the work, again and again while it says `NotNow`."""
        began = time.monotonic()
        pause = self.first_seconds
        while True:
            try:
                return work()
            except NotNow as error:
                waited = time.monotonic() - began
                wait = max(pause * random.uniform(0.5, 1.0), error.after_seconds)
                if waited + wait > self.seconds_max:
                    raise SinkUnavailable(sink=sink, waited=waited, why=str(error)) from error
                time.sleep(wait)
                pause = min(pause * 2, self.pause_seconds_max)
