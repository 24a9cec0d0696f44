"""Wait for writers: a store to a topic's state file wakes every process that watches the file."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

#: The longest sleep between two checks. The transaction of a killed writer sends no signal and is found by a check; other
#: writes wake the reader at once.
CHECK_SECONDS_MAX = 1.0
HAS_INOTIFY = sys.platform.startswith("linux")


def wait_for(condition: Callable[[], bool], paths: Sequence[Path], *, seconds: float | None) -> bool:
    """Sleep until `condition` holds, checked whenever one of `paths` is written. Return False on timeout."""
    if condition():
        return True
    deadline = None if seconds is None else time.monotonic() + seconds
    wait = _wait_by_inotify if HAS_INOTIFY else _wait_by_polling
    return wait(condition, paths, deadline)


def _remaining(deadline: float | None) -> float:
    if deadline is None:
        return CHECK_SECONDS_MAX
    return min(CHECK_SECONDS_MAX, deadline - time.monotonic())


def _wait_by_inotify(condition: Callable[[], bool], paths: Sequence[Path], deadline: float | None) -> bool:
    try:
        sleeper = _take()
    except OSError:  # the user has no inotify instances left: polling is slower, but correct
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
    """An inotify instance and its watches. It is reused by the next wait: closing one takes the kernel 20 ms."""

    def __init__(self) -> None:
        from inotify_simple import INotify, flags

        # Any: `inotify_simple` has no types.
        self._inotify: Any = INotify()
        self._mask = flags.MODIFY | flags.DELETE_SELF | flags.MOVE_SELF
        self._watched: set[int] = set()

    def watch(self, paths: Sequence[Path]) -> None:
        """Watch these files and no others; for a file that is watched already this is one cheap call."""
        wanted = {self._inotify.add_watch(path, self._mask) for path in paths}
        for gone in self._watched - wanted:
            with contextlib.suppress(OSError):  # the file was deleted, and its watch with it
                self._inotify.rm_watch(gone)
        self._watched = wanted

    def sleep(self, seconds: float) -> None:
        """Return after a write to a watched file, also an earlier one, or after so many seconds."""
        self._inotify.read(timeout=max(1, int(seconds * 1000)))

    def close(self) -> None:
        self._inotify.close()


#: Unused instances: as many as ever waited at the same time.
_idle: list[_Sleeper] = []


def _forget_idle() -> None:
    # A forked child starts with none: it would consume the events of its parent.
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
