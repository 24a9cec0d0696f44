"""Waiting without a thread: for changes of files, for rows behind a position, for a change of the catalogue or of a group.

One thread watches files for all calls that wait, so that a thousand tails cost one thread and no polling.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.home import is_remote
from headwater.log.clients.groups import Sign
from headwater.log.embedded.watch import Watch

if TYPE_CHECKING:
    import asyncio

    from headwater.log import Log
    from headwater.services.host import Host

#: A writer that was killed causes no event: the files are checked this often as well.
LOOK_AGAIN_SECONDS = 1.0
#: A log that is no folder has no files here: it is asked this often.
POLL_SECONDS = 0.25


class Waiter:
    """Waits for changes of some files, in the event loop that made it."""

    def __init__(self, paths: Mapping[Path, Sign]) -> None:
        import asyncio

        self.paths = dict(paths)
        self._event = asyncio.Event()
        self._signs: set[Sign] = set()

    def wake(self, touched: set[Path] | None) -> None:
        signs = {sign for path, sign in self.paths.items() if touched is None or path in touched}
        if signs:
            self._signs |= signs
            self._event.set()

    async def wait(self, *, seconds: float) -> set[Sign]:
        """Wait for a change since the last call, and return which; an empty set after so many seconds.

        Without files there are no events, so that the caller has to look again sooner.
        """
        seconds = seconds if self.paths else min(seconds, POLL_SECONDS)
        import asyncio

        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)
        self._event.clear()
        signs, self._signs = self._signs, set()
        return signs


class FileEvents:
    """Wakes waiters in event loops when files change."""

    def __init__(self) -> None:
        self._watch = Watch()
        self._lock = threading.Lock()
        self._waiters: dict[asyncio.AbstractEventLoop, set[Waiter]] = {}
        self._uses: dict[Path, int] = {}
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()

    @contextlib.contextmanager
    def waiting(self, paths: Mapping[Path, Sign]) -> Iterator[Waiter]:
        """A waiter for some files while the block runs. It misses no change from the beginning of the block on."""
        import asyncio

        loop, waiter = asyncio.get_running_loop(), Waiter(paths)
        with self._lock:
            for path, sign in paths.items():
                self._uses[path] = self._uses.get(path, 0) + 1
                if self._uses[path] == 1:
                    self._watch.add(path, sign)
            self._waiters.setdefault(loop, set()).add(waiter)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="headwater-file-events", daemon=True)
                self._thread.start()
        try:
            yield waiter
        finally:
            with self._lock:
                self._waiters[loop].discard(waiter)
                if not self._waiters[loop]:
                    del self._waiters[loop]
                for path in paths:
                    self._uses[path] -= 1
                    if not self._uses[path]:
                        del self._uses[path]
                        self._watch.forget(path)

    def wake_all(self) -> None:
        """Wake all waiters, as if all files had changed."""
        self._wake(None)

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._watch.wake()
            self._thread.join(2 * LOOK_AGAIN_SECONDS)
        self._watch.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            touched = self._watch.touched(seconds=LOOK_AGAIN_SECONDS)
            if touched is None or touched:
                self._wake(touched)

    def _wake(self, touched: set[Path] | None) -> None:
        with self._lock:
            loops = list(self._waiters)
        for loop in loops:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._wake_in, loop, touched)

    def _wake_in(self, loop: asyncio.AbstractEventLoop, touched: set[Path] | None) -> None:
        for waiter in list(self._waiters.get(loop, ())):
            waiter.wake(touched)


# -- rows, topics and groups ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WaitFor:
    """Positions to wait behind, by topic and partition; and a group whose changes matter, for consumers.

    `catalogue` and `state` (of the group) are those of the answer before.
    """

    topics: dict[str, dict[int, int]] = field(default_factory=dict)
    group: str | None = None
    catalogue: str | None = None
    state: str | None = None


@dataclass(frozen=True, kw_only=True)
class WaitResult:
    """What has happened: rows, topics, state (of the group) or members. Nothing if the time is over."""

    signs: list[Sign]
    catalogue: str = ""
    state: str = ""


async def wait_for(host: Host, wanted: WaitFor, *, seconds: float) -> WaitResult:
    """Wait until something happens, for so many seconds at most."""
    watched = Watched(host, wanted)
    await host.run(watched.check)
    signs = await watched.wait(seconds=seconds)
    return WaitResult(signs=sorted(signs), catalogue=watched.catalogue, state=watched.state)


class Watched:
    """What one call waits for."""

    def __init__(self, host: Host, wanted: WaitFor) -> None:
        self._host = host
        self._wanted = wanted
        self._follows = wanted.group is not None or wanted.catalogue is not None or not wanted.topics
        self.catalogue, self.state = "", ""

    def check(self) -> None:
        """Raise if a topic or partition does not exist, and watch for rows from now on."""
        from headwater.log.topic_rules import check_name

        if self._wanted.group is not None:
            check_name("group", self._wanted.group)
        self._rows = self._host.log.row_watch(self._wanted.topics)

    async def wait(self, *, seconds: float) -> set[Sign]:
        deadline = time.monotonic() + seconds
        with self._host.file_events.waiting(self._paths()) as waiter:
            seen: set[Sign] = set()
            while True:
                signs = await self._host.run(self._signs) | (seen & {"members"})
                left = deadline - time.monotonic()
                if signs or left <= 0 or self._host.closing:
                    return signs
                seen = await waiter.wait(seconds=min(left, LOOK_AGAIN_SECONDS))

    def _paths(self) -> dict[Path, Sign]:
        root = self._host.log.home
        paths: dict[Path, Sign] = dict.fromkeys(self._rows.paths, "rows")
        if is_remote(self._host.log.address):
            return paths
        if self._follows:
            paths[root / "topics"] = "topics"
        if self._wanted.group is not None:
            paths[root / "groups" / self._wanted.group] = "state"
            paths[root / "groups" / self._wanted.group / "members"] = "members"
        return paths

    def _signs(self) -> set[Sign]:
        """What has happened by now."""
        signs = set[Sign]()
        if self._rows.arrived():
            signs.add("rows")
        if self._follows:
            self.catalogue = _catalogue(self._host.log)
            if self.catalogue != self._wanted.catalogue:
                signs.add("topics")
        if self._wanted.group is not None:
            self.state = _group_state(self._host.log, self._wanted.group)
            if self.state != self._wanted.state:
                signs.add("state")
        return signs


async def row_paths(host: Host, topic: str) -> dict[Path, Sign]:
    """The files that change when rows of a topic come, for `FileEvents.waiting`."""
    return dict.fromkeys(await host.run(lambda: host.log.row_watch({topic: {}}).paths), "rows")


async def rows_behind(host: Host, positions: Mapping[str, dict[int, int]], *, seconds: float) -> bool:
    """Whether rows have come behind the positions in so many seconds."""
    return bool((await wait_for(host, WaitFor(topics=dict(positions)), seconds=seconds)).signs)


def _catalogue(log: Log) -> str:
    """A text that changes when topics are created, altered or deleted."""
    if is_remote(log.address):  # its folder of topics is elsewhere
        return " ".join(log.topics(internal=True))
    return _signature(log.home / "topics")


def _group_state(log: Log, group: str) -> str:
    """A text that changes with the assignment of a group."""
    if is_remote(log.address):
        return str(log.groups.describe(group).generation) if group in log.groups.names() else "none"
    return _signature(log.home / "groups" / group / "state.json")


def _signature(path: Path) -> str:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return "none"
    return f"{stat.st_ino}.{stat.st_mtime_ns}"
