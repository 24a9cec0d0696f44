"""Consumer groups of a log that is elsewhere: looked after, joined, and waited for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headwater.errors import NotFound
from headwater.log.clients.groups import GroupInfo, MemberInfo, SeekStep, Sign, by_topic
from headwater.log.errors import MemberFenced
from headwater.log.port import Cursor, Lag, Place, Start
from headwater.log.remote.connection import Connection
from headwater.log.remote.wire import lag_from_json, start_to_text

#: A poll that does not wait asks for news only this often.
NEWS_SECONDS = 0.25


class RemoteGroups:
    """All consumer groups of a log."""

    def __init__(self, connection: Connection, partitions_of: Callable[[str], int]) -> None:
        self._connection = connection
        self._partitions_of = partitions_of

    def names(self) -> list[str]:
        """Every group that ever had a member or a commit."""
        return [one["group"] for one in self._connection.get("/groups")]

    def topics(self, group: str) -> set[str]:
        """The topics that a group's members read, and those in which it has committed."""
        return {topic for one in self._connection.get("/groups") if one["group"] == group for topic in one["topics"]}

    def describe(self, group: str) -> GroupInfo:
        """Who is in the group, and how far it has come."""
        body = self._connection.get(f"/groups/{group}")
        return GroupInfo(
            group=body["group"],
            generation=body["generation"],
            members=[MemberInfo(**{**one, "topics": tuple(one["topics"])}) for one in body["members"]],
            partitions=[lag_from_json(one) for one in body["partitions"]],
        )

    def lag(self, group: str | None = None) -> list[Lag]:
        """How far one group, or every group, is behind in each partition."""
        if group is None:
            return [lag for name in self.names() for lag in self.lag(name)]
        return [lag_from_json(one) for one in self._connection.get(f"/groups/{group}/lag")]

    def seek(self, group: str, topic: str, to: Start, *, dry_run: bool = False) -> list[SeekStep]:
        """Move a group that nobody reads for; with `dry_run`, only say what would happen."""
        # A lone offset would move to the nearer end of a partition that does not hold it; one per partition is refused.
        if isinstance(to, int) and not isinstance(to, bool):
            to = dict.fromkeys(range(self._partitions_of(topic)), to)
        body = {"topic": topic, "to": start_to_text(to), "dry_run": dry_run}
        steps = self._connection.post(f"/groups/{group}/seek", body)
        return [SeekStep(**{name: value for name, value in step.items() if name != "rows"}) for step in steps]

    def delete(self, group: str) -> None:
        """Forget a group that nobody reads for: its members and its commits."""
        self._connection.delete(f"/groups/{group}")


class RemoteMembership:
    """One consumer's part in its group; the server holds its place, and hears from it that it lives."""

    def __init__(
        self,
        connection: Connection,
        group: str,
        *,
        member: str | None,
        topics: tuple[str, ...],
        start: Start,
        session_seconds_max: float,
        heartbeat_seconds: float,
    ) -> None:
        self._connection = connection
        self._group = group
        self._asked = {
            "topics": list(topics),
            "start": start_to_text(start),
            "session_seconds_max": session_seconds_max,
            "heartbeat_seconds": heartbeat_seconds,
        } | ({} if member is None else {"member": member})
        self._heartbeat_seconds = heartbeat_seconds
        self._look_at = 0.0
        self.static = member is not None
        self.id = member or ""
        self.owned: set[Place] = set()
        self.releasing: set[Place] = set()
        self._stale = False
        self._key = ""

    def join(self, begin: Callable[[set[str]], None]) -> None:  # noqa: ARG002  # the server begins for us
        """Become a member."""
        self._adopt(self._connection.post(f"/groups/{self._group}/members", self._asked))

    def refresh(self, *, look: bool = False) -> None:
        """Learn what changed in the group. Asks at every heartbeat, and when there is news."""
        now = time.monotonic()
        if not look and not self._stale and now < self._look_at:
            return
        self._stale = False
        self._look_at = now + self._heartbeat_seconds
        try:
            self._adopt(self._ask("refresh", look=look))
        except MemberFenced:
            if self.static:
                raise
            # The server has begun anew, or we were silent for too long: a new member, with what others have left.
            self.owned, self.releasing = set(), set()
            self._adopt(self._connection.post(f"/groups/{self._group}/members", self._asked))

    def notice(self) -> None:
        """Something has changed in the group: the next `refresh` asks."""
        self._stale = True

    def release(self, places: set[Place]) -> None:
        """Give up partitions that others wait for."""
        self._adopt(self._ask("release", {"places": by_topic(places)}))

    def commit(self, offsets: Mapping[Place, int] | Iterable[Place], record: Callable[[], None]) -> None:  # noqa: ARG002
        """Record positions, if every place is still this member's; otherwise record nothing."""
        if not isinstance(offsets, Mapping):
            raise TypeError("a member elsewhere must know the offsets")
        body: dict[str, dict[str, int]] = {}
        for place, offset in offsets.items():
            body.setdefault(place.topic, {})[str(place.partition)] = offset
        try:
            self._ask("commit", {"offsets": body})
        except MemberFenced:
            self._stale = True
            raise

    def beat(self) -> None:
        """Say that this member lives."""
        try:
            self._ask("beat")
        except MemberFenced:
            self._stale = True  # the next poll finds out

    def leave(self) -> None:
        """Give everything up. A static member keeps its partitions until its session ends, to come back to them."""
        if self.id and not self._connection.closed:
            with contextlib.suppress(MemberFenced):
                self._connection.delete(f"/groups/{self._group}/members/{self.id}", key=self._key)
        self.owned, self.releasing = set(), set()

    def abandon(self) -> None:
        """End without a word, as a killed process does."""
        self.owned, self.releasing = set(), set()

    # Any: JSON.
    def _ask(self, what: str, body: dict[str, Any] | None = None, **parameters: Any) -> Any:
        path = f"/groups/{self._group}/members/{self.id}/{what}"
        return self._connection.post(path, body, again=True, key=self._key, **parameters)

    def _adopt(self, told: dict[str, Any]) -> None:
        self.id = told["member"]
        self._key = told.get("key", self._key)
        self.owned = _places(told["owned"])
        self.releasing = _places(told["releasing"])


class RemoteWatch:
    """What a consumer waits for, asked of the server in calls that it holds until something happens."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._group: str | None = None
        self._catalogue: str | None = None
        self._state: str | None = None
        self._asked_at = 0.0
        self._closed = False

    def add_topics(self) -> None: ...
    def add_rows(self, topic: str) -> None: ...
    def forget_rows(self, topic: str) -> None: ...

    def add_group(self, group: str) -> None:
        self._group = group

    def wait(self, *, seconds: float, cursors: Mapping[Place, Cursor]) -> set[Sign]:
        """Wait until something happens, and say what; after so many seconds, nothing."""
        now = time.monotonic()
        if self._closed or (seconds <= 0 and now - self._asked_at < NEWS_SECONDS):
            return set()
        topics: dict[str, dict[str, int]] = {}
        for place, cursor in cursors.items() if seconds > 0 else ():
            topics.setdefault(place.topic, {})[str(place.partition)] = cursor.offset
        body: dict[str, Any] = {"topics": topics, "seconds": max(0.0, seconds), "catalogue": self._catalogue or "?"}
        if self._group is not None:
            body |= {"group": self._group, "state": self._state or "?"}
        try:
            response = self._connection.ask("POST", "/wait", json=body, again=True, patience=seconds)
        except NotFound as error:
            if error.kind != "topic":
                raise
            return {"topics"}  # one of them has been deleted
        told = response.json()
        self._asked_at = time.monotonic()
        self._catalogue, self._state = told["catalogue"], told["state"]
        signs: set[Sign] = set(told["signs"])
        return signs

    def close(self) -> None:
        self._closed = True


def _places(body: Mapping[str, list[int]]) -> set[Place]:
    return {Place(topic, number) for topic, numbers in body.items() for number in numbers}
