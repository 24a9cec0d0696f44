"""Waking readers: a writer's store to a topic's state file is seen by whoever watches that file, in any process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

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
    from inotify_simple import INotify, flags

    try:
        watcher = INotify()
    except OSError:  # the user has used up the kernel's inotify instances: slower, but right
        return _wait_by_polling(condition, paths, deadline)
    with watcher:
        try:
            for path in paths:
                watcher.add_watch(path, flags.MODIFY | flags.DELETE_SELF | flags.MOVE_SELF)
        except OSError:
            return _wait_by_polling(condition, paths, deadline)
        while not condition():
            left = _remaining(deadline)
            if left <= 0:
                return False
            watcher.read(timeout=max(1, int(left * 1000)))
        return True


def _wait_by_polling(condition: Callable[[], bool], _paths: Sequence[Path], deadline: float | None) -> bool:
    while not condition():
        left = _remaining(deadline)
        if left <= 0:
            return False
        time.sleep(min(0.002, left))
    return True
