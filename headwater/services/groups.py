"""Consumer groups: their members, lag and committed offsets; and the members of consumers on other machines.

The server holds the place of such a member in its group, as a process of this machine would; the client sends heartbeats.
When the client is silent, or the server ends, the group gives its partitions to others.
"""

from __future__ import annotations

import fnmatch
import hmac
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headwater.errors import ArgumentInvalid, NotFound
from headwater.log.client_config import Start
from headwater.log.clients import groups as log_groups
from headwater.log.clients.groups import GroupInfo, Membership, SeekStep, by_topic
from headwater.log.errors import MemberFenced
from headwater.log.port import Lag, Place
from headwater.log.remote.wire import start_from_text
from headwater.services.callers import EVERY
from headwater.services.host import ExpiringCache, ServerFull
from headwater.services.positions import parse_position, resolve
from headwater.services.route import Service, route

#: A member is kept for this long, so that one that was only slow learns what has become of it.
_SILENT_SECONDS_MAX = 3_600.0
_SECONDS_MAX = 86_400.0
_TOPICS_MAX = 1_000


@dataclass(frozen=True, kw_only=True)
class GroupTopics:
    """A group, the topics that it reads, and those in which it has committed offsets."""

    group: str
    topics: list[str]
    committed: list[str]


class Groups(Service):
    """What can be done with consumer groups. A caller sees a group if they see one of its topics, and only those topics."""

    @route("GET", "/groups", scope="read")
    def list_groups(self) -> list[GroupTopics]:
        """List every group that ever had a member or a commit.

        Groups without a topic are for callers who see all topics.
        """
        committed = self.log.committed_groups()
        topics = {group: self.log.groups.topics(group) for group in self.log.groups.names()}
        return [
            GroupTopics(
                group=group,
                topics=sorted(filter(self.caller.sees, found)),
                committed=sorted(filter(self.caller.sees, committed.get(group, ()))),
            )
            for group, found in topics.items()
            if self._sees(found)
        ]

    @route("GET", "/groups/{group}")
    def describe(self, group: str) -> GroupInfo:
        """Describe a group: its members, and how far it is in each partition."""
        found = self.log.groups.describe(group)
        self._require_sight(group, {one.topic for one in found.partitions})
        partitions = [one for one in found.partitions if self.caller.sees(one.topic)]
        topics = {one.topic for one in partitions}

        def shows(name: str) -> bool:
            return bool(fnmatch.filter(topics, name)) if is_pattern(name) else self.caller.sees(name)

        members = [
            replace(
                one,
                topics=tuple(filter(shows, one.topics)),
                assignment={topic: numbers for topic, numbers in one.assignment.items() if self.caller.sees(topic)},
            )
            for one in found.members
        ]
        return replace(found, members=members, partitions=partitions)

    @route("GET", "/groups/{group}/lag")
    def lag(self, group: str) -> list[Lag]:
        """Measure how far a group is behind in each partition, in rows and in seconds."""
        found = self.log.groups.lag(group)
        self._require_sight(group, {one.topic for one in found})
        return [one for one in found if self.caller.sees(one.topic)]

    @route("POST", "/groups/{group}/seek", scope="admin:{topic}")
    def seek(
        self, group: str, topic: str, to: str, *, partitions: list[int] | None = None, dry_run: bool = False
    ) -> list[SeekStep]:
        """Move the committed offsets of a group without live members; with `dry_run`, only say what would happen.

        `to` is a position: start, end, an offset, -10 for the last rows, @time, shift:-100 from where the group is, or
        offsets such as 0:5,1:9. A group that does not exist yet is made.
        """
        position = parse_position(to, name="to", now_us=self.log.clock.now_us())
        committed = self.log.committed(group, topic) if position.shift is not None else None
        offsets = resolve(self.log, topic, position, partitions, committed=committed)
        return self.log.groups.seek(group, topic, offsets, dry_run=dry_run)

    @route("DELETE", "/groups/{group}")
    def delete(self, group: str) -> None:
        """Delete a group without live members: its members and its committed offsets."""
        topics = {one.topic for one in self.log.groups.lag(group)}
        self._require_sight(group, topics)
        self._require_admin(topics)
        self.log.groups.delete(group)

    @route("GET", "/groups/{group}/offsets/{topic}", scope="see:{topic}")
    def committed(self, group: str, topic: str) -> dict[int, int]:
        """Read the offsets that a group has committed in a topic, by partition."""
        return self.log.committed(group, topic)

    @route("POST", "/groups/{group}/offsets", scope="read:{topic}", audited=False)
    def commit(self, group: str, topic: str, offsets: dict[int, int], *, metadata: str = "") -> None:
        """Commit offsets of a group in a topic."""
        check_offsets(offsets, self.log.topic(topic).partitions)
        self.log.commit_offsets(group, topic, offsets, metadata=metadata)

    @route("DELETE", "/groups/{group}/offsets")
    def forget(self, group: str, *, topic: str | None = None) -> None:
        """Delete the committed offsets of a group, in one topic or in all."""
        self._require_admin({topic} if topic is not None else self.log.committed_groups().get(group, set()))
        self.log.forget_offsets(group, topic)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _sees(self, topics: Collection[str]) -> bool:
        return any(map(self.caller.sees, topics)) if topics else self.caller.sees(EVERY)

    def _require_sight(self, group: str, topics: Collection[str]) -> None:
        if not self._sees(topics):
            raise NotFound(kind="consumer group", name=group)

    def _require_admin(self, topics: Collection[str]) -> None:
        """Require the scope `admin` for all topics, without naming those that the caller may not see."""
        for topic in sorted(topics) or [EVERY]:
            self.caller.require("admin", topic if self.caller.sees(topic) else EVERY)


# -- members on other machines -----------------------------------------------------------------------------------------


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
        membership.join(lambda new: self._begin(group, new, begin), lambda: None)
        held = RemoteMember(member or membership.id, membership, secrets.token_urlsafe(16))
        if not self._members.put(self._name(group, held.name), held, evict=False):
            membership.leave()
            raise ServerFull(what="members of groups", count_max=self._members.count_max, setting="members_max")
        return NewMember(**vars(_assignment(held)), key=held.key)

    @route("POST", "/groups/{group}/members/{member}/refresh", scope="read", audited=False)
    def refresh(self, group: str, member: str, key: str, *, check_members: bool = False) -> Assignment:
        """Send a heartbeat, and read what the member owns and what it shall release."""
        held = self._member(group, member, key)
        held.membership.beat()
        held.membership.refresh(check_members=check_members)
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
            offsets, committed = log_groups.resolve(self.log, topic, start), self.log.committed(group, topic)
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


# -- rules ------------------------------------------------------------------------------------------------------------


def effect_of(steps: Sequence[SeekStep]) -> str:
    """What a seek means for its group, in words.

    >>> effect_of([SeekStep(group="g", topic="t", partition=0, current=100, new=40)])
    'reads 60 rows again'
    """
    again, over = sum(max(0, one.rows) for one in steps), sum(max(0, -one.rows) for one in steps)
    parts = [f"reads {_rows(again)} again"] if again else []
    parts += [f"passes {_rows(over)} over"] if over else []
    return " and ".join(parts) or "stays where it is"


def _rows(number: int) -> str:
    return f"{number:,} row{'' if number == 1 else 's'}"


def is_pattern(name: str) -> bool:
    """Whether a member reads all topics that match this name, and not one topic."""
    return not frozenset("*?[").isdisjoint(name)


def check_offsets(offsets: Mapping[int, int], partitions: int) -> None:
    """Raise unless all offsets are of partitions that exist."""
    for number, offset in offsets.items():
        if not 0 <= number < partitions or not 0 <= offset < 2**63:
            expected = f"partitions from 0 to {partitions - 1}, and offsets that are not negative"
            raise ArgumentInvalid(name="offsets", value=f"{number}: {offset}", expected=expected)
