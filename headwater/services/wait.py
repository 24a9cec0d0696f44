"""Waiting without a thread: for rows behind a position, for a change of the catalogue, or of a group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headwater.log.clients.groups import Sign
from headwater.log.embedded import local_log
from headwater.services.file_events import LOOK_AGAIN_SECONDS
from headwater.services.host import Host


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
        self._ends: dict[tuple[str, int], tuple[int, ...]] = {}
        self.catalogue, self.state = "", ""

    def check(self) -> None:
        """Raise if a topic or partition does not exist, and note the end of each partition."""
        from headwater.log.topic_rules import check_name

        if self._wanted.group is not None:
            check_name("group", self._wanted.group)
        self._handles = {topic: local_log(self._host.log).handle(topic) for topic in self._wanted.topics}
        for topic, offsets in self._wanted.topics.items():
            for number in offsets:
                tail = self._handles[topic].partition(number).visible()
                self._ends[topic, number] = tuple(tail[1:3])

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
        paths: dict[Path, Sign] = {handle.state.path: "rows" for handle in self._handles.values()}
        if self._follows:
            paths[root / "topics"] = "topics"
        if self._wanted.group is not None:
            paths[root / "groups" / self._wanted.group] = "state"
            paths[root / "groups" / self._wanted.group / "members"] = "members"
        return paths

    def _signs(self) -> set[Sign]:
        """What has happened by now."""
        root, signs = self._host.log.home, set[Sign]()
        if self._have_rows():
            signs.add("rows")
        if self._follows:
            self.catalogue = _signature(root / "topics")
            if self.catalogue != self._wanted.catalogue:
                signs.add("topics")
        if self._wanted.group is not None:
            self.state = _signature(root / "groups" / self._wanted.group / "state.json")
            if self.state != self._wanted.state:
                signs.add("state")
        return signs

    def _have_rows(self) -> bool:
        self._host.log.resolve_transactions()
        if any(handle.deleted for handle in self._handles.values()):
            return True
        for topic, offsets in self._wanted.topics.items():
            for number, offset in offsets.items():
                tail = self._handles[topic].partition(number).visible()
                # A punctuation takes no offset: it shows by the position at which the partition ends.
                if tail.offset > offset or tuple(tail[1:3]) != self._ends[topic, number]:
                    return True
        return False


async def rows_behind(host: Host, positions: Mapping[str, dict[int, int]], *, seconds: float) -> bool:
    """Whether rows have come behind the positions in so many seconds."""
    return bool((await wait_for(host, WaitFor(topics=dict(positions)), seconds=seconds)).signs)


def _signature(path: Path) -> str:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return "none"
    return f"{stat.st_ino}.{stat.st_mtime_ns}"
