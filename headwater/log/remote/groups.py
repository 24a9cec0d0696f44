"""Consumer groups of a remote log: administration, membership, and waiting for changes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headwater.errors import NotFound
from headwater.log.client_config import Start
from headwater.log.clients.groups import GroupInfo, MemberInfo, SeekStep, Sign, by_topic
from headwater.log.errors import MemberFenced
from headwater.log.port import Cursor, Lag, Place
from headwater.log.remote.connection import Connection
from headwater.log.remote.wire import lag_from_json, start_to_text

#: A poll that does not wait asks the server for changes at most this often.
POLL_SECONDS = 0.25


class RemoteGroups:
    """All consumer groups of a log."""

    def __init__(self, connection: Connection, partitions_of: Callable[[str], int]) -> None:
        self._connection = connection
        self._partitions_of = partitions_of

    def names(self) -> list[str]:
        """All groups with a member or a committed offset."""
        return [one["group"] for one in self._connection.get("/groups")]

    def topics(self, group: str) -> set[str]:
        """The topics that a group's members subscribe to, and those with committed offsets."""
        return {topic for one in self._connection.get("/groups") if one["group"] == group for topic in one["topics"]}

    def describe(self, group: str) -> GroupInfo:
        """The members of a group, and its lag in each partition."""
        body = self._connection.get(f"/groups/{group}")
        return GroupInfo(
            group=body["group"],
            generation=body["generation"],
            members=[MemberInfo(**{**one, "topics": tuple(one["topics"])}) for one in body["members"]],
            partitions=[lag_from_json(one) for one in body["partitions"]],
        )

    def lag(self, group: str | None = None) -> list[Lag]:
        """The lag of one group, or of every group, in each partition."""
        if group is None:
            return [lag for name in self.names() for lag in self.lag(name)]
        return [lag_from_json(one) for one in self._connection.get(f"/groups/{group}/lag")]

    def seek(self, group: str, topic: str, to: Start, *, dry_run: bool = False) -> list[SeekStep]:
        """Set the committed offsets of a group without live members; with `dry_run`, only return the changes."""
        # The server moves a single offset into the range of each partition; one per partition raises if it is outside.
        if isinstance(to, int) and not isinstance(to, bool):
            to = dict.fromkeys(range(self._partitions_of(topic)), to)
        body = {"topic": topic, "to": start_to_text(to), "dry_run": dry_run}
        steps = self._connection.post(f"/groups/{group}/seek", body)
        return [SeekStep(**{name: value for name, value in step.items() if name != "rows"}) for step in steps]

    def delete(self, group: str) -> None:
        """Delete a group without live members: its members and its committed offsets."""
        self._connection.delete(f"/groups/{group}")


class RemoteMembership:
    """The membership of one consumer in its group. The server is the member, and receives the heartbeats."""

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
        self._refresh_at = 0.0
        self.static = member is not None
        self.id = member or ""
        self.owned: set[Place] = set()
        self.releasing: set[Place] = set()
        self._stale = False
        self._key = ""

    def join(self, begin: Callable[[set[str]], None], release: Callable[[], None] | None = None) -> None:  # noqa: ARG002
        """Join the group. The server commits the first offsets, and takes nothing away while a member waits."""
        self._adopt(self._connection.post(f"/groups/{self._group}/members", self._asked))

    def refresh(self, *, check_members: bool = False) -> None:
        """Follow changes of the group. Asks the server at every heartbeat, and after `notice`."""
        now = time.monotonic()
        if not check_members and not self._stale and now < self._refresh_at:
            return
        self._stale = False
        self._refresh_at = now + self._heartbeat_seconds
        try:
            self._adopt(self._ask("refresh", check_members=check_members))
        except MemberFenced:
            if self.static:
                raise
            # The server was restarted, or the session has expired: join again as a new member.
            self.owned, self.releasing = set(), set()
            self._adopt(self._connection.post(f"/groups/{self._group}/members", self._asked))

    def notice(self) -> None:
        """The group has changed: the next `refresh` asks the server."""
        self._stale = True

    def release(self, places: set[Place]) -> None:
        """Release partitions that other members should own."""
        self._adopt(self._ask("release", {"places": by_topic(places)}))

    def commit(self, offsets: Mapping[Place, int] | Iterable[Place], record: Callable[[], None]) -> None:  # noqa: ARG002
        """Commit offsets if this member still owns every partition; otherwise raise `MemberFenced`."""
        if not isinstance(offsets, Mapping):
            raise TypeError("a remote membership needs the offsets")
        body: dict[str, dict[str, int]] = {}
        for place, offset in offsets.items():
            body.setdefault(place.topic, {})[str(place.partition)] = offset
        try:
            self._ask("commit", {"offsets": body})
        except MemberFenced:
            self._stale = True
            raise

    def beat(self) -> None:
        """Send a heartbeat."""
        try:
            self._ask("beat")
        except MemberFenced:
            self._stale = True  # the next poll raises or joins again

    def leave(self) -> None:
        """Leave the group. A static member keeps its partitions until its session ends, so that it can return."""
        if self.id and not self._connection.closed:
            with contextlib.suppress(MemberFenced):
                self._connection.delete(f"/groups/{self._group}/members/{self.id}", key=self._key)
        self.owned, self.releasing = set(), set()

    def abandon(self) -> None:
        """Forget the assignment without leaving the group, as a killed process does."""
        self.owned, self.releasing = set(), set()

    # Any: JSON.
    def _ask(self, what: str, body: dict[str, Any] | None = None, **parameters: Any) -> Any:
        path = f"/groups/{self._group}/members/{self.id}/{what}"
        return self._connection.post(path, body, again=True, key=self._key, **parameters)

    def _adopt(self, body: dict[str, Any]) -> None:
        self.id = body["member"]
        self._key = body.get("key", self._key)
        self.owned = _places(body["owned"])
        self.releasing = _places(body["releasing"])


class RemoteWatch:
    """A consumer's watch: calls that the server holds until there are rows, new topics or changes of the group."""

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
        """Wait for a change; return the signs, or none after so many seconds."""
        now = time.monotonic()
        if self._closed or (seconds <= 0 and now - self._asked_at < POLL_SECONDS):
            return set()
        topics: dict[str, dict[str, int]] = {}
        for place, cursor in cursors.items() if seconds > 0 else ():
            topics.setdefault(place.topic, {})[str(place.partition)] = cursor.offset
        body: dict[str, Any] = {"topics": topics, "seconds": max(0.0, seconds), "catalogue": self._catalogue or "?"}
        if self._group is not None:
            body |= {"group": self._group, "state": self._state or "?"}
        try:
            response = self._connection.ask("POST", "/wait", json=body, again=True, wait_seconds=seconds)
        except NotFound as error:
            if error.kind != "topic":
                raise
            return {"topics"}  # one of them was deleted
        answer = response.json()
        self._asked_at = time.monotonic()
        self._catalogue, self._state = answer["catalogue"], answer["state"]
        signs: set[Sign] = set(answer["signs"])
        return signs

    def close(self) -> None:
        self._closed = True


def _places(body: Mapping[str, list[int]]) -> set[Place]:
    return {Place(topic, number) for topic, numbers in body.items() for number in numbers}
