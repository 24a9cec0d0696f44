"""Watches on files: a watch stays open between waits, so that no change in between is missed."""

from __future__ import annotations

import contextlib
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headwater.log.clients.groups import Sign

#: Without inotify (another system, or no instances left for the user) a wait is a short sleep.
NAP_SECONDS_MAX = 0.005


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
            return {"rows", "topics", "state", "members"}
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
            return {"rows", "topics", "state", "members"}
        signs: set[Sign] = set()
        for event in self._inotify.read(timeout=milliseconds):
            if event.wd in self._signs:
                signs.add(self._signs[event.wd][1])
            elif event.wd < 0:  # the kernel's queue has overflowed: anything may have changed
                signs |= {"rows", "topics", "state", "members"}
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
