"""Kill a process at a named crash point, and count the points that it reached.

Every durable step passes a crash point: `CRASH_POINTS` are those of the log, `SINK_CRASH_POINTS` those of a batch of the
topic sink, `QUERY_CRASH_POINTS` those of a batch of a streaming query, `LETTER_CRASH_POINTS` those of a redrive. A child
process dies at a given point and visit by `SIGKILL`, so that nothing is flushed, closed or unlocked.
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
    CAPTURE_CRASH_POINTS,
    CRASH_POINTS,
    DELIVERY_CRASH_POINTS,
    ERASURE_CRASH_POINTS,
    KAFKA_CRASH_POINTS,
    LETTER_CRASH_POINTS,
    MIRROR_CRASH_POINTS,
    QUERY_CRASH_POINTS,
    QUEUE_CRASH_POINTS,
    RESCALE_CRASH_POINTS,
    SAGA_CRASH_POINTS,
    SINK_CRASH_POINTS,
    SOURCING_CRASH_POINTS,
    TAIL_CRASH_POINTS,
    TARGET_CRASH_POINTS,
    TWO_PHASE_CRASH_POINTS,
    VIEW_CRASH_POINTS,
    WEBHOOK_CRASH_POINTS,
    install,
)

ENVIRONMENT_NAME = "HEADWATER_TEST_CRASH_AT"
ALL_POINTS: tuple[str, ...] = (
    *CRASH_POINTS,
    *SINK_CRASH_POINTS,
    *QUERY_CRASH_POINTS,
    *LETTER_CRASH_POINTS,
    *DELIVERY_CRASH_POINTS,
    *VIEW_CRASH_POINTS,
    *ALERT_CRASH_POINTS,
    *CAPTURE_CRASH_POINTS,
    *TAIL_CRASH_POINTS,
    *WEBHOOK_CRASH_POINTS,
    *TARGET_CRASH_POINTS,
    *QUEUE_CRASH_POINTS,
    *SOURCING_CRASH_POINTS,
    *SAGA_CRASH_POINTS,
    *ERASURE_CRASH_POINTS,
    *KAFKA_CRASH_POINTS,
    *MIRROR_CRASH_POINTS,
    *RESCALE_CRASH_POINTS,
    *TWO_PHASE_CRASH_POINTS,
)
_COUNTER = struct.Struct("<Q")


@dataclass(frozen=True, kw_only=True)
class CrashAt:
    """The place to die: the `visit`-th time that `point` is reached, counted from 1."""

    point: str
    visit: int = 1

    def __post_init__(self) -> None:
        if self.point not in ALL_POINTS or self.visit < 1:
            raise ValueError(
                f"{self} is not a crash point: the points are {', '.join(ALL_POINTS)}, visits count from 1"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `point` or `point:visit`.

        >>> CrashAt.parse("append.half:3")
        CrashAt(point='append.half', visit=3)
        """
        point, _, visit = text.partition(":")
        return cls(point=point, visit=int(visit or 1))

    @classmethod
    def from_env(cls, environ: Mapping[str, str]) -> Self | None:
        """The value of `HEADWATER_TEST_CRASH_AT`, for a child that takes no argument.

        >>> CrashAt.from_env({"HEADWATER_TEST_CRASH_AT": "roll.created"})
        CrashAt(point='roll.created', visit=1)
        """
        text = environ.get(ENVIRONMENT_NAME)
        return cls.parse(text) if text else None


class PointCounts:
    """How often each point was reached, in memory that parent and children share and that survives `SIGKILL`."""

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
    """Count the points that this process reaches from now on, and die at the chosen one.

    Costs a lock per point, and makes the log write each frame in two halves, so that it can be torn; for tests only.
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
    """Remove the hook: the process runs as in production again."""
    install(None)


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a child ended."""

    signal: int
    code: int
    reached: Mapping[str, int]

    @property
    def killed(self) -> bool:
        return self.signal == signal.SIGKILL


def run_until_killed(work: Callable[[], None], *, at: CrashAt | None = None, errors: Path | None = None) -> Ended:
    """Run `work` in a forked child that dies at `at`, and wait for it.

    A fork takes milliseconds, a new interpreter half a second. The child must write its results to a file as they
    happen: after `SIGKILL` it cannot return any. An exception is written to the file `errors`, or to stderr.

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
        _run_child(work, at, counts or PointCounts(), errors)
    return child


def _run_child(work: Callable[[], None], at: CrashAt | None, counts: PointCounts, errors: Path | None) -> None:
    # The child must never return into its parent's stack.
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
