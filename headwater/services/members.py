"""Members of consumer groups that this process speaks for: those of consumers on other machines.

The server holds the place of such a member in its group, as a process of this machine would; the client sends heartbeats.
When the client is silent, or the server ends, the group gives its partitions to others.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field

from headwater.errors import ArgumentInvalid, NotFound
from headwater.log import Place, Start
from headwater.log.clients.groups import Membership, by_topic, resolve
from headwater.log.errors import MemberFenced
from headwater.log.remote.wire import start_from_text
from headwater.services.groups import check_offsets, is_pattern
from headwater.services.host import ExpiringCache, ServerFull
from headwater.services.route import Service, route

#: A member is kept for this long, so that one that was only slow learns what has become of it.
_SILENT_SECONDS_MAX = 3_600.0
_SECONDS_MAX = 86_400.0
_TOPICS_MAX = 1_000


@dataclass(frozen=True)
class RemoteMember:
    """A member that this process speaks for."""

    #: As its client knows it; the log may know it by another name, see `Caller.own`.
    name: str
    membership: Membership
    #: A secret of its client: one that joins later under the same name has another.
    key: str


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """The partitions that a member owns, and those that it shall release, by topic."""

    member: str
    owned: dict[str, list[int]] = field(default_factory=dict)
    releasing: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NewMember(Assignment):
    """The assignment of a member that has joined, and the key that it gives with each call."""

    key: str


class Members(Service):
    """The part of consumers on other machines in their groups."""

    @route("POST", "/groups/{group}/members", status=201, audited=False)
    def join(
        self,
        group: str,
        topics: list[str],
        *,
        member: str | None = None,
        start: str = "earliest",
        session_seconds_max: float = 10.0,
        heartbeat_seconds: float = 1.0,
    ) -> NewMember:
        """Join a group. The member must send a heartbeat within its session, or its partitions go to others."""
        from headwater.log.topic_rules import check_name

        check_name("group", group)
        if member is not None:
            check_name("member", member)
        if not 1 <= len(topics) <= _TOPICS_MAX:
            raise ArgumentInvalid(name="topics", value=len(topics), expected=f"1 to {_TOPICS_MAX:,} topics")
        for name, seconds in (("session_seconds_max", session_seconds_max), ("heartbeat_seconds", heartbeat_seconds)):
            if not 0 < seconds <= _SECONDS_MAX:
                raise ArgumentInvalid(name=name, value=seconds, expected=f"more than 0, at most {_SECONDS_MAX:,.0f}")
        for topic in topics:
            if not is_pattern(topic):
                self.caller.require("read", topic)
                self.log.topic(topic)
        begin = start_from_text(start)
        membership = self.log.membership(
            group,
            member=None if member is None else self.caller.own(member),
            topics=tuple(topics),
            partitions=lambda _: self._partitions(topics),
            start=begin,
            session_seconds_max=session_seconds_max,
            heartbeat_seconds=heartbeat_seconds,
        )
        membership.join(lambda new: self._begin(group, new, begin))
        held = RemoteMember(member or membership.id, membership, secrets.token_urlsafe(16))
        if not self._members.put(self._name(group, held.name), held, evict=False):
            membership.leave()
            raise ServerFull(what="members of groups", count_max=self._members.count_max, setting="members_max")
        return NewMember(**vars(_assignment(held)), key=held.key)

    @route("POST", "/groups/{group}/members/{member}/refresh", scope="read", audited=False)
    def refresh(self, group: str, member: str, key: str, *, look: bool = False) -> Assignment:
        """Send a heartbeat, and read what the member owns and what it shall release."""
        held = self._member(group, member, key)
        held.membership.beat()
        held.membership.refresh(check_members=look)
        return _assignment(held)

    @route("POST", "/groups/{group}/members/{member}/beat", scope="read", audited=False)
    def beat(self, group: str, member: str, key: str) -> None:
        """Send a heartbeat."""
        self._member(group, member, key).membership.beat()

    @route("POST", "/groups/{group}/members/{member}/release", scope="read", audited=False)
    def release(self, group: str, member: str, key: str, places: dict[str, list[int]]) -> Assignment:
        """Release partitions that others wait for."""
        held = self._member(group, member, key)
        held.membership.release({Place(topic, number) for topic, numbers in places.items() for number in numbers})
        return _assignment(held)

    @route("POST", "/groups/{group}/members/{member}/commit", audited=False)
    def commit(self, group: str, member: str, key: str, offsets: dict[str, dict[int, int]]) -> None:
        """Commit offsets of the group, if all of these partitions are still the member's."""
        for topic, some in offsets.items():
            self.caller.require("read", topic)
            check_offsets(some, self.log.topic(topic).partitions)
        places = [Place(topic, number) for topic, some in offsets.items() for number in some]

        def record() -> None:
            for topic, some in offsets.items():
                self.log.commit_offsets(group, topic, some)

        self._member(group, member, key).membership.commit(places, record)

    @route("DELETE", "/groups/{group}/members/{member}", scope="read", audited=False)
    def leave(self, group: str, member: str, key: str) -> None:
        """Leave the group."""
        self._member(group, member, key).membership.leave()
        self._members.pop(self._name(group, member))

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _members(self) -> ExpiringCache[RemoteMember]:
        def make() -> ExpiringCache[RemoteMember]:
            return ExpiringCache(
                count_max=self.host.settings.members_max,
                seconds_max=_SILENT_SECONDS_MAX,
                drop=lambda one: one.membership.abandon(),
            )

        return self.host.share("members", make)

    def _name(self, group: str, member: str) -> str:
        return f"{self.caller.name}/{group}/{member}"

    def _member(self, group: str, member: str, key: str) -> RemoteMember:
        held = self._members.get(self._name(group, member))
        if held is None:
            raise MemberFenced(group=group, member=member, why="the server has not heard of it")
        if not hmac.compare_digest(held.key.encode(), key.encode()):
            raise MemberFenced(group=group, member=member, why="another process has joined under this member's name")
        return held

    def _begin(self, group: str, topics: set[str], start: Start) -> None:
        """Commit where a group begins in topics new to it, as `Consumer` does."""
        if start == "earliest":
            return
        for topic in sorted(topics):
            offsets, committed = resolve(self.log, topic, start), self.log.committed(group, topic)
            fresh = {number: offset for number, offset in offsets.items() if number not in committed}
            self.log.commit_offsets(group, topic, fresh)

    def _partitions(self, names: list[str]) -> dict[str, int]:
        """The partitions of the topics that a member reads, by name or pattern, as far as the caller may read them."""
        partitions: dict[str, int] = {}
        for name in names:
            for topic in self.log.topics(name) if is_pattern(name) else [name]:
                if self.caller.may("read", topic):
                    try:
                        partitions[topic] = self.log.topic(topic).partitions
                    except NotFound:
                        if not is_pattern(name):
                            raise
        return dict(sorted(partitions.items()))


def _assignment(held: RemoteMember) -> Assignment:
    membership = held.membership
    return Assignment(member=held.name, owned=by_topic(membership.owned), releasing=by_topic(membership.releasing))
