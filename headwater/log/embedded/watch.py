"""Waiting for changes of files: a watch stays open between waits, so that it misses nothing in between."""

from __future__ import annotations

import contextlib
import sys
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headwater.log.clients.groups import Sign

#: Without inotify (another system, or a user who has used up the kernel's instances) a wait is a short sleep.
NAP_SECONDS_MAX = 0.005


class Watch:
    """What has happened to the watched files since the last wait."""

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
        """From now on, a change of `path` ends a wait with `sign`; naming a path twice changes nothing."""
        if self._inotify is None or path in self._paths:
            return
        try:
            number = self._inotify.add_watch(path, _mask(sign))
        except FileNotFoundError:
            return
        except OSError:
            self.close()  # no more watches for this user: from now on, short sleeps
            return
        self._paths[path] = number
        self._signs[number] = (path, sign)

    def forget(self, path: Path) -> None:
        """Watch a path no longer; what stands there later can be added anew."""
        number = self._paths.pop(path, None)
        if number is not None:
            del self._signs[number]
            with contextlib.suppress(OSError):  # the file is gone, and its watch with it
                self._inotify.rm_watch(number)

    def wait(self, *, seconds: float) -> set[Sign]:
        """Sleep until something happens, and say what; after so many seconds, nothing."""
        if seconds <= 0:
            return self._read(0)
        if self._inotify is None:
            time.sleep(min(seconds, NAP_SECONDS_MAX))
            return {"rows", "topics", "state", "members"}
        return self._read(max(1, int(seconds * 1000)))

    def touched(self, *, seconds: float) -> set[Path] | None:
        """Sleep until something happens, and say where; None where anything may have happened."""
        inotify = self._inotify
        if inotify is None:
            time.sleep(min(seconds, NAP_SECONDS_MAX))
            return None
        events = inotify.read(timeout=max(1, int(seconds * 1000)))
        if any(event.wd < 0 for event in events):
            return None
        return {self._signs[event.wd][0] for event in events if event.wd in self._signs}

    def wake(self) -> None:
        """End the wait of another thread at once, with nothing to tell."""
        inotify = self._inotify
        if inotify is not None:
            # A watch that is removed is itself an event, with a number that means nothing any more.
            with contextlib.suppress(OSError):  # no more watches for this user: the wait ends by itself
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
            elif event.wd < 0:  # the kernel's queue overflowed: anything may have happened
                signs |= {"rows", "topics", "state", "members"}
        return signs


class LogWatch:
    """What a consumer waits for: rows of its topics, new topics, and changes of its group."""

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
        """Watch a topic no longer: one made anew under its name has another file."""
        self._watch.forget(self._state_of(topic))

    # Any: cursors by place; a log that is elsewhere needs to know how far they are.
    def wait(self, *, seconds: float, cursors: Mapping[Any, Any]) -> set[Sign]:  # noqa: ARG002
        return self._watch.wait(seconds=seconds)

    def close(self) -> None:
        self._watch.close()


def _mask(sign: Sign) -> int:
    from inotify_simple import flags

    masks: dict[Sign, int] = {
        "rows": flags.MODIFY | flags.DELETE_SELF | flags.MOVE_SELF,
        "topics": flags.MOVED_TO | flags.MOVED_FROM | flags.DELETE,
        # The state is replaced by renaming; the file that a member holds is closed when its process ends.
        "state": flags.MOVED_TO,
        "members": flags.CLOSE_WRITE | flags.DELETE,
    }
    return masks[sign]
