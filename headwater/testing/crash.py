"""Kill a process at a named durable step, and learn how far it came.

Every durable step passes a named point: `CRASH_POINTS` are the log's, `SINK_CRASH_POINTS` those of a sink's batch,
`QUERY_CRASH_POINTS` those of a streaming query's, `LETTER_CRASH_POINTS` those of dead letters put back. A child process
is told at which one to die, and at which visit; it dies by `SIGKILL`, so that nothing is flushed, closed or unlocked.
What it said before is kept.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from headwater.faults import (
    ALERT_CRASH_POINTS,
    DELIVERY_CRASH_POINTS,
    LETTER_CRASH_POINTS,
    QUERY_CRASH_POINTS,
    VIEW_CRASH_POINTS,
    install,
)
from headwater.log.embedded.faults import CRASH_POINTS, SINK_CRASH_POINTS

ENVIRONMENT_NAME = "HEADWATER_TEST_CRASH_AT"
ALL_POINTS: tuple[str, ...] = (
    *CRASH_POINTS,
    *SINK_CRASH_POINTS,
    *QUERY_CRASH_POINTS,
    *LETTER_CRASH_POINTS,
    *DELIVERY_CRASH_POINTS,
    *VIEW_CRASH_POINTS,
    *ALERT_CRASH_POINTS,
)
_COUNTER = struct.Struct("<Q")


@dataclass(frozen=True, kw_only=True)
class CrashAt:
    """Where to die: at the `visit`-th time that `point` is reached, counted from 1."""

    point: str
    visit: int = 1

    def __post_init__(self) -> None:
        if self.point not in ALL_POINTS or self.visit < 1:
            raise ValueError(
                f"{self} is no place to crash: the points are {', '.join(ALL_POINTS)}, visits count from 1"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """What people write.

        >>> CrashAt.parse("append.half:3")
        CrashAt(point='append.half', visit=3)
        """
        point, _, visit = text.partition(":")
        return cls(point=point, visit=int(visit or 1))

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self | None:
        """What `HEADWATER_TEST_CRASH_AT` says, for a child that cannot be told by an argument.

        >>> CrashAt.from_env({"HEADWATER_TEST_CRASH_AT": "roll.created"})
        CrashAt(point='roll.created', visit=1)
        """
        text = environ.get(ENVIRONMENT_NAME)
        return cls.parse(text) if text else None


class PointCounts:
    """How often each point was reached, in memory that parent and children share and that outlives `SIGKILL`."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _COUNTER.size * len(ALL_POINTS))
        self._places = {point: place * _COUNTER.size for place, point in enumerate(ALL_POINTS)}

    def add(self, point: str) -> int:
        """Count a visit and return its number."""
        place = self._places[point]
        visit: int = _COUNTER.unpack_from(self._memory, place)[0] + 1
        _COUNTER.pack_into(self._memory, place, visit)
        return visit

    def as_dict(self) -> dict[str, int]:
        return {point: _COUNTER.unpack_from(self._memory, place)[0] for point, place in self._places.items()}


def watch_points(at: CrashAt | None = None, *, counts: PointCounts | None = None) -> PointCounts:
    """From now on, count the points that this process reaches, and die at the chosen one.

    Costs a lock per point, and makes the log write each frame in two halves so that one can be torn; for tests only.
    """
    counted = counts or PointCounts()
    lock = threading.Lock()

    def hook(point: str) -> None:
        with lock:
            visit = counted.add(point)
            if at is not None and at.point == point and at.visit == visit:
                os.kill(os.getpid(), signal.SIGKILL)

    install(hook)
    return counted


def ignore_points() -> None:
    """Take the hook away: the process runs as in production again."""
    install(None)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a child came to its end."""

    signal: int
    code: int
    reached: Mapping[str, int]

    @property
    def killed(self) -> bool:
        return self.signal == signal.SIGKILL


def run_until_killed(work: Callable[[], None], *, at: CrashAt | None = None, errors: Path | None = None) -> Ended:
    """Run `work` in a forked child that dies where `at` says, and wait for it.

    A fork costs milliseconds where a fresh interpreter costs half a second. Whatever the child is to tell must go to a
    file as it happens: after `SIGKILL` it can say nothing. An exception goes to the file `errors`, or to stderr.

    >>> run_until_killed(lambda: None).code
    0
    """
    counts = PointCounts()
    child = start_child(work, at=at, counts=counts, errors=errors)
    _, status = os.waitpid(child, 0)
    return Ended(
        signal=os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0,
        code=os.WEXITSTATUS(status) if os.WIFEXITED(status) else -1,
        reached=counts.as_dict(),
    )


def start_child(
    work: Callable[[], None],
    *,
    at: CrashAt | None = None,
    counts: PointCounts | None = None,
    errors: Path | None = None,
) -> int:
    """Like `run_until_killed`, but does not wait; returns the child's process id for `os.waitpid`."""
    child = os.fork()
    if child == 0:
        _be_the_child(work, at, counts or PointCounts(), errors)
    return child


def _be_the_child(work: Callable[[], None], at: CrashAt | None, counts: PointCounts, errors: Path | None) -> None:
    # The child must never return into its parent's stack, whatever happens.
    code = 1
    try:
        watch_points(at, counts=counts)
        work()
        code = 0
    except BaseException:
        text = traceback.format_exc()
        if errors is None:
            sys.stderr.write(text)
        else:
            errors.write_text(text, encoding="utf-8")
    finally:
        os._exit(code)
