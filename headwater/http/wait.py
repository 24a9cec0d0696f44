"""Waiting over HTTP: for rows behind a position, for a change of the catalogue, or of a group."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request

from headwater.http.forms import Waiting
from headwater.log.clients.groups import Sign
from headwater.log.embedded import local_log
from headwater.log.port import OFFSETS_TOPIC
from headwater.services.bell import LOOK_AGAIN_SECONDS
from headwater.services.host import Host, caller_of


def router(service: Host) -> APIRouter:
    """The route that waits, over many topics at once."""
    routes = APIRouter(tags=["rows"])

    # Any: JSON.
    @routes.post("/wait")
    async def wait(request: Request, asked: Waiting) -> dict[str, Any]:
        """Wait until a partition has rows behind a position, or until the catalogue or a group has changed.

        `signs` says what has happened: rows, topics, state (of the group) or members. It is empty when the time is over.
        """
        for topic in asked.topics:
            if topic != OFFSETS_TOPIC:  # that some group has committed is no secret
                caller_of(request).require("read", topic)
        watched = Watched(service, asked)
        await service.run(watched.check)
        signs = await watched.wait(seconds=service.seconds(asked.seconds))
        return {"signs": sorted(signs), "catalogue": watched.catalogue, "state": watched.state}

    return routes


class Watched:
    """What one request waits for."""

    def __init__(self, service: Host, asked: Waiting) -> None:
        self._service = service
        self._positions = asked.topics
        self._group = asked.group
        self._known = (asked.catalogue, asked.state)
        self._follows = asked.group is not None or asked.catalogue is not None or not asked.topics
        self._places: dict[tuple[str, int], tuple[int, ...]] = {}
        self.catalogue, self.state = "", ""

    def check(self) -> None:
        """Refuse what does not exist, and see where everything stands."""
        from headwater.log.topic_rules import check_name

        if self._group is not None:
            check_name("group", self._group)
        log = self._service.log
        self._handles = {topic: local_log(log).handle(topic) for topic in self._positions}
        for topic, offsets in self._positions.items():
            for number in offsets:
                tail = self._handles[topic].partition(number).visible()
                self._places[topic, number] = tuple(tail[1:3])

    def paths(self) -> dict[Path, Sign]:
        root = self._service.log.home
        found: dict[Path, Sign] = {handle.state.path: "rows" for handle in self._handles.values()}
        if self._follows:
            found[root / "topics"] = "topics"
        if self._group is not None:
            found[root / "groups" / self._group] = "state"
            found[root / "groups" / self._group / "members"] = "members"
        return found

    def signs(self) -> set[Sign]:
        """What has happened by now."""
        root, found = self._service.log.home, set[Sign]()
        if self._have_rows():
            found.add("rows")
        if self._follows:
            self.catalogue = _signature(root / "topics")
            if self.catalogue != self._known[0]:
                found.add("topics")
        if self._group is not None:
            self.state = _signature(root / "groups" / self._group / "state.json")
            if self.state != self._known[1]:
                found.add("state")
        return found

    def _have_rows(self) -> bool:
        self._service.log.resolve_transactions()
        if any(handle.deleted for handle in self._handles.values()):
            return True
        for topic, offsets in self._positions.items():
            for number, offset in offsets.items():
                tail = self._handles[topic].partition(number).visible()
                # A punctuation takes no offset: it shows by the place where the partition ends.
                if tail.offset > offset or tuple(tail[1:3]) != self._places[topic, number]:
                    return True
        return False

    async def wait(self, *, seconds: float) -> set[Sign]:
        deadline = time.monotonic() + seconds
        with self._service.bell.waiting(self.paths()) as waiter:
            seen: set[Sign] = set()
            while True:
                found = await self._service.run(self.signs) | (seen & {"members"})
                left = deadline - time.monotonic()
                if found or left <= 0 or self._service.closing:
                    return found
                seen = await waiter.wait(seconds=min(left, LOOK_AGAIN_SECONDS))


async def waited(service: Host, positions: Mapping[str, dict[int, int]], *, seconds: float) -> bool:
    """Whether rows have come behind the positions in so many seconds."""
    watched = Watched(service, Waiting(topics=dict(positions)))
    await service.run(watched.check)
    return bool(await watched.wait(seconds=seconds))


def _signature(path: Path) -> str:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return "none"
    return f"{stat.st_ino}.{stat.st_mtime_ns}"
