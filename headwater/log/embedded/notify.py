"""Waking readers: a writer's store to a topic's state file is seen by whoever watches that file, in any process."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

#: How long a wait sleeps at most before it looks again. A killed writer sends no signal, so that its committed
#: transaction is found within this time; live writers are always signalled at once.
LOOK_AGAIN_SECONDS_MAX = 1.0
HAS_INOTIFY = sys.platform.startswith("linux")


def wait_for(condition: Callable[[], bool], paths: Sequence[Path], *, seconds: float | None) -> bool:
    """Sleep until `condition` holds, waking whenever one of `paths` is written. False when time ran out."""
    if condition():
        return True
    deadline = None if seconds is None else time.monotonic() + seconds
    wait = _wait_by_inotify if HAS_INOTIFY else _wait_by_polling
    return wait(condition, paths, deadline)


def _remaining(deadline: float | None) -> float:
    if deadline is None:
        return LOOK_AGAIN_SECONDS_MAX
    return min(LOOK_AGAIN_SECONDS_MAX, deadline - time.monotonic())


def _wait_by_inotify(condition: Callable[[], bool], paths: Sequence[Path], deadline: float | None) -> bool:
    try:
        sleeper = _take()
    except OSError:  # the user has used up the kernel's inotify instances: slower, but right
        return _wait_by_polling(condition, paths, deadline)
    try:
        try:
            sleeper.watch(paths)
        except OSError:
            return _wait_by_polling(condition, paths, deadline)
        while not condition():
            left = _remaining(deadline)
            if left <= 0:
                return False
            sleeper.sleep(left)
        return True
    finally:
        _idle.append(sleeper)


def _take() -> _Sleeper:
    try:
        return _idle.pop()
    except IndexError:
        return _Sleeper()


class _Sleeper:
    """An inotify instance and what it watches. It is kept for the next wait: closing one takes the kernel 20 ms."""

    def __init__(self) -> None:
        from inotify_simple import INotify, flags

        # Any: `inotify_simple` has no types.
        self._inotify: Any = INotify()
        self._mask = flags.MODIFY | flags.DELETE_SELF | flags.MOVE_SELF
        self._watched: set[int] = set()

    def watch(self, paths: Sequence[Path]) -> None:
        """Be woken by these files and no others; a file that is watched already costs one cheap call."""
        wanted = {self._inotify.add_watch(path, self._mask) for path in paths}
        for gone in self._watched - wanted:
            with contextlib.suppress(OSError):  # the file was deleted, and its watch with it
                self._inotify.rm_watch(gone)
        self._watched = wanted

    def sleep(self, seconds: float) -> None:
        """Return when something was written, or after so many seconds. What was written before counts too."""
        self._inotify.read(timeout=max(1, int(seconds * 1000)))

    def close(self) -> None:
        self._inotify.close()


#: Sleepers that nobody uses now: as many as ever waited at once.
_idle: list[_Sleeper] = []


def _forget_idle() -> None:
    # A child begins with none: a shared one would take its parent's signals away.
    while _idle:
        _idle.pop().close()


atexit.register(_forget_idle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_idle)


def _wait_by_polling(condition: Callable[[], bool], _paths: Sequence[Path], deadline: float | None) -> bool:
    while not condition():
        left = _remaining(deadline)
        if left <= 0:
            return False
        time.sleep(min(0.002, left))
    return True
