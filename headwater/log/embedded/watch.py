"""Watches on files: a watch stays open between waits, so that no change in between is missed."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

from headwater.log.clients.groups import Sign

#: Without inotify (another system, or no instances left for the user) a wait is a short sleep.
NAP_SECONDS_MAX = 0.005
_SIGNS: tuple[Sign, ...] = get_args(Sign)


class Watch:
    """Changes of the watched files since the last wait."""

    def __init__(self) -> None:
        # Any: `inotify_simple` has no types, and exists on Linux only.
        self._inotify: Any = None
        self._signs: dict[int, tuple[Path, Sign]] = {}
        self._paths: dict[Path, int] = {}
        if sys.platform == "linux":
            from inotify_simple import INotify

            try:
                self._inotify = INotify()
            except OSError:
                return
            weakref.finalize(self, self._inotify.close)

    def add(self, path: Path, sign: Sign) -> None:
        """Watch `path`: a change ends a wait with `sign`. Idempotent."""
        if self._inotify is None or path in self._paths:
            return
        try:
            number = self._inotify.add_watch(path, _mask(sign))
        except FileNotFoundError:
            return
        except OSError:
            self.close()  # no watches left for the user: sleep from now on
            return
        self._paths[path] = number
        self._signs[number] = (path, sign)

    def forget(self, path: Path) -> None:
        """Stop watching a path, so that a new file at the path can be added."""
        number = self._paths.pop(path, None)
        if number is not None:
            del self._signs[number]
            with contextlib.suppress(OSError):  # the file was removed, and its watch with it
                self._inotify.rm_watch(number)

    def wait(self, *, seconds: float) -> set[Sign]:
        """Sleep until a watched file changes; return the signs, or none after so many seconds."""
        if seconds <= 0:
            return self._read(0)
        if self._inotify is None:
            time.sleep(min(seconds, NAP_SECONDS_MAX))
            return set(_SIGNS)
        return self._read(max(1, int(seconds * 1000)))

    def touched(self, *, seconds: float) -> set[Path] | None:
        """Sleep until a watched file changes; return the paths, or None if any of them may have changed."""
        inotify = self._inotify
        if inotify is None:
            time.sleep(min(seconds, NAP_SECONDS_MAX))
            return None
        events = inotify.read(timeout=max(1, int(seconds * 1000)))
        if any(event.wd < 0 for event in events):
            return None
        return {self._signs[event.wd][0] for event in events if event.wd in self._signs}

    def wake(self) -> None:
        """End the wait of another thread at once, without a sign."""
        inotify = self._inotify
        if inotify is not None:
            # The removal of a watch is an event, whose number is no longer known.
            with contextlib.suppress(OSError):  # no watches left for the user: the wait ends by its timeout
                inotify.rm_watch(inotify.add_watch("/", _mask("state")))

    def close(self) -> None:
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None
            self._signs.clear()
            self._paths.clear()

    def _read(self, milliseconds: int) -> set[Sign]:
        if self._inotify is None:
            return set(_SIGNS)
        signs: set[Sign] = set()
        for event in self._inotify.read(timeout=milliseconds):
            if event.wd in self._signs:
                signs.add(self._signs[event.wd][1])
            elif event.wd < 0:  # the kernel's queue has overflowed: anything may have changed
                signs.update(_SIGNS)
        return signs


class LogWatch:
    """A consumer's watch: rows of its topics, new topics, and changes of its group."""

    def __init__(self, root: Path, state_of: Callable[[str], Path]) -> None:
        self._root = root
        self._state_of = state_of
        self._watch = Watch()

    def add_topics(self) -> None:
        self._watch.add(self._root / "topics", "topics")

    def add_group(self, group: str) -> None:
        self._watch.add(self._root / "groups" / group, "state")
        self._watch.add(self._root / "groups" / group / "members", "members")

    def add_rows(self, topic: str) -> None:
        self._watch.add(self._state_of(topic), "rows")

    def forget_rows(self, topic: str) -> None:
        """Stop watching a deleted topic: a new topic of its name has another file."""
        self._watch.forget(self._state_of(topic))

    # Any: cursors by place, which only the remote log needs.
    def wait(self, *, seconds: float, cursors: Mapping[Any, Any]) -> set[Sign]:  # noqa: ARG002
        return self._watch.wait(seconds=seconds)

    def close(self) -> None:
        self._watch.close()


def _mask(sign: Sign) -> int:
    from inotify_simple import flags

    masks: dict[Sign, int] = {
        "rows": flags.MODIFY | flags.DELETE_SELF | flags.MOVE_SELF,
        "topics": flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE,
        # The state is replaced by renaming; the file of a member is closed when its process ends.
        "state": flags.MOVED_TO,
        "members": flags.CLOSE_WRITE | flags.DELETE,
    }
    return masks[sign]


# -- one wait of a reader -----------------------------------------------------------------------------------------------

#: The longest sleep between two checks. The transaction of a killed writer sends no signal and is found by a check; other
#: writes wake the reader at once.
CHECK_SECONDS_MAX = 1.0
POLL_SECONDS = 0.002


def wait_for(condition: Callable[[], bool], paths: Sequence[Path], *, seconds: float | None) -> bool:
    """Sleep until `condition` holds, checked whenever one of `paths` is written. Return False on timeout."""
    if condition():
        return True
    deadline = None if seconds is None else time.monotonic() + seconds
    sleeper = _sleeper_of(paths)
    try:
        while not condition():
            left = CHECK_SECONDS_MAX
            if deadline is not None:
                left = min(left, deadline - time.monotonic())
            if left <= 0:
                return False
            if sleeper is None:
                time.sleep(min(POLL_SECONDS, left))
            else:
                sleeper.sleep(left)
        return True
    finally:
        if sleeper is not None:
            _idle.append(sleeper)


class _Sleeper:
    """An inotify instance and its watches. It is reused by the next wait: closing one takes the kernel 20 ms."""

    def __init__(self) -> None:
        from inotify_simple import INotify

        # Any: `inotify_simple` has no types.
        self._inotify: Any = INotify()
        self._mask = _mask("rows")
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


def _sleeper_of(paths: Sequence[Path]) -> _Sleeper | None:
    """An instance that watches these files; None if that is not possible: polling is slower, but correct."""
    if sys.platform != "linux":
        return None
    sleeper: _Sleeper | None = None
    try:
        with contextlib.suppress(IndexError):
            sleeper = _idle.pop()
        sleeper = sleeper or _Sleeper()
        sleeper.watch(paths)
    except OSError:  # the user has no inotify instances left, or a file is missing
        if sleeper is not None:
            _idle.append(sleeper)
        return None
    return sleeper


def _forget_idle() -> None:
    # A forked child starts with none: it would consume the events of its parent.
    while _idle:
        _idle.pop().close()


atexit.register(_forget_idle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_idle)
