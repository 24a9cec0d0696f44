"""Consumer groups over HTTP: how far they are, where they go on, and members that other machines are.

The server holds the place of such a member in its group, as a process of this machine would; the client says that it
lives. When the client is silent, or the server ends, the group gives its partitions to others.
"""

from __future__ import annotations

import fnmatch
import hmac
import secrets
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastapi import APIRouter, Request

from headwater.errors import ArgumentInvalid, GroupNotFound, MemberFenced, ServerFull, TopicNotFound
from headwater.log import GroupInfo, Lag, Place, Start
from headwater.log.consumer import resolve
from headwater.log.membership import GroupFolder, Membership
from headwater.log.remote.wire import lag_to_json, offsets_to_json, start_from_text
from headwater.server.forms import Commit, Join, MemberCommit, OffsetsForm, Release, Seek
from headwater.server.service import TRY_AGAIN_SECONDS, Kept, Service, caller_of
from headwater.server.tokens import EVERY, Caller

#: A member is kept for so many of its sessions, so that one that was only slow finds out what has become of it.
_SILENT_SECONDS_MAX = 3_600.0


def router(service: Service) -> APIRouter:
    """The routes of groups."""
    routes = APIRouter(prefix="/groups", tags=["groups"])
    log = service.log

    def lag_seen(request: Request, group: str) -> list[Lag]:
        caller, found = caller_of(request), log.groups.lag(group)
        if not is_seen({one.topic for one in found}, caller):
            raise GroupNotFound(group=group)
        return [one for one in found if caller.sees(one.topic)]

    @routes.get("")
    def listed(request: Request) -> dict[str, Any]:
        """Every group that ever had a member or a commit, and the topics in which each has committed.

        Of all these, groups with a topic that the caller sees. One that has no topics is for those who see all.
        """
        caller = caller_of(request)
        caller.require_somewhere("read")
        committed = log.committed_groups()
        shown = [
            group
            for group in log.groups.names()
            if is_seen(committed.get(group, set()) | GroupFolder(log.path, group).load().topics.keys(), caller)
        ]
        told = {group: sorted(filter(caller.sees, committed[group])) for group in shown if group in committed}
        return {"groups": shown, "committed": told}

    @routes.get("/{group}")
    def describe(request: Request, group: str) -> dict[str, Any]:
        """Who is in a group, and how far it has come."""
        return info_to_json(seen(log.groups.describe(group), caller_of(request)))

    @routes.get("/{group}/lag")
    def lag(request: Request, group: str) -> dict[str, Any]:
        """How far a group is behind, in rows and in seconds."""
        return {"lag": [lag_to_json(one) for one in lag_seen(request, group)]}

    @routes.get("/{group}/offsets/{topic}", response_model=OffsetsForm)
    def committed(request: Request, group: str, topic: str) -> dict[str, Any]:
        """What a group has committed in a topic."""
        caller_of(request).require_sight(topic)
        return {"offsets": offsets_to_json(log.committed(group, topic))}

    @routes.post("/{group}/offsets", status_code=204)
    def commit(request: Request, group: str, asked: Commit) -> None:
        """Record how far a group has come."""
        caller_of(request).require("read", asked.topic)
        check_offsets(asked.offsets, log.topic(asked.topic).partitions)
        log.commit_offsets(group, asked.topic, asked.offsets, metadata=asked.metadata)

    @routes.delete("/{group}/offsets", status_code=204)
    def forget(request: Request, group: str, topic: str | None = None) -> None:
        """Forget what a group has committed, in one topic or in all."""
        topics = {topic} if topic is not None else log.committed_groups().get(group, set())
        _require_admin(caller_of(request), topics)
        log.forget_offsets(group, topic)

    @routes.post("/{group}/seek")
    def seek(request: Request, group: str, asked: Seek) -> dict[str, Any]:
        """Move a group that nobody reads for; with `dry_run`, only say what would happen."""
        caller_of(request).require("read" if asked.dry_run else "admin", asked.topic)
        steps = log.groups.seek(group, asked.topic, start_from_text(asked.to, name="to"), dry_run=asked.dry_run)
        return {"steps": [{**asdict(step), "rows": step.rows} for step in steps], "moved": not asked.dry_run}

    @routes.delete("/{group}", status_code=204)
    def delete(request: Request, group: str) -> None:
        """Forget a group that nobody reads for."""
        lag_seen(request, group)
        _require_admin(caller_of(request), {one.topic for one in log.groups.lag(group)})
        log.groups.delete(group)

    return routes


@dataclass(frozen=True)
class Held:
    """A member that this server speaks for."""

    name: str
    """As its client knows it; the log may know it by another, see `Caller.own`."""
    membership: Membership
    key: str
    """What only its client knows: one that joins later under its name has another."""


class Members:
    """The members that this server speaks for, by their callers."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._members: Kept[Held] = Kept(
            count_max=service.settings.members_max,
            seconds_max=_SILENT_SECONDS_MAX,
            drop=lambda one: one.membership.abandon(),
        )

    def join(self, group: str, asked: Join, caller: Caller) -> Held:
        """Become a member, for a client."""
        log = self._service.log
        from headwater.log.embedded.topics import check_name

        check_name("group", group)
        if asked.member is not None:
            check_name("member", asked.member)
        for name in asked.topics:
            if not _is_pattern(name):
                caller.require("read", name)
                log.topic(name)

        def partitions(_: bool) -> dict[str, int]:
            return _partitions(self._service, asked.topics, caller)

        membership = log.membership(
            group,
            member=None if asked.member is None else caller.own(asked.member),
            topics=tuple(asked.topics),
            partitions=partitions,
            start=start_from_text(asked.start),
            session_seconds_max=asked.session_seconds_max,
            heartbeat_seconds=asked.heartbeat_seconds,
        )
        start = start_from_text(asked.start)
        membership.join(lambda topics: self._begin(group, topics, start))
        held = Held(asked.member or membership.id, membership, secrets.token_urlsafe(16))
        if not self._members.put(_place(caller, group, held.name), held, evict=False):
            membership.leave()
            members_max = self._service.settings.members_max
            raise ServerFull(
                what="members of groups", count_max=members_max, setting="members_max", seconds=TRY_AGAIN_SECONDS
            )
        return held

    def get(self, group: str, member: str, key: str, caller: Caller) -> Held:
        found = self._members.get(_place(caller, group, member))
        if found is None:
            raise MemberFenced(group=group, member=member, why="the server has not heard of it")
        if not hmac.compare_digest(found.key.encode(), key.encode()):
            raise MemberFenced(group=group, member=member, why="another process has joined under this member's name")
        return found

    def leave(self, group: str, member: str, key: str, caller: Caller) -> None:
        self.get(group, member, key, caller).membership.leave()
        self._members.pop(_place(caller, group, member))

    def close(self) -> None:
        self._members.clear()

    def _begin(self, group: str, topics: set[str], start: Start) -> None:
        """Fix where a group begins in topics new to it, as `Consumer` does."""
        if start == "earliest":
            return
        log = self._service.log
        for topic in sorted(topics):
            offsets, committed = resolve(log, topic, start), log.committed(group, topic)
            fresh = {number: offset for number, offset in offsets.items() if number not in committed}
            log.commit_offsets(group, topic, fresh)


def member_router(service: Service, members: Members) -> APIRouter:
    """The routes of members."""
    routes = APIRouter(prefix="/groups/{group}/members", tags=["groups"])
    log = service.log

    @routes.post("", status_code=201)
    def join(request: Request, group: str, asked: Join) -> dict[str, Any]:
        """Join a group. The member must be heard of within its session, or its partitions go to others."""
        held = members.join(group, asked, caller_of(request))
        return {**_told(held), "key": held.key}

    @routes.post("/{member}/refresh")
    def refresh(request: Request, group: str, member: str, key: str, look: bool = False) -> dict[str, Any]:
        """Say that the member lives, and learn what it owns and what it shall give up."""
        caller_of(request).require_somewhere("read")
        held = members.get(group, member, key, caller_of(request))
        held.membership.beat()
        held.membership.refresh(look=look)
        return _told(held)

    @routes.post("/{member}/beat", status_code=204)
    def beat(request: Request, group: str, member: str, key: str) -> None:
        """Say that the member lives."""
        caller_of(request).require_somewhere("read")
        members.get(group, member, key, caller_of(request)).membership.beat()

    @routes.post("/{member}/release")
    def release(request: Request, group: str, member: str, key: str, asked: Release) -> dict[str, Any]:
        """Give up partitions that others wait for."""
        caller_of(request).require_somewhere("read")
        held = members.get(group, member, key, caller_of(request))
        held.membership.release({Place(topic, number) for topic, numbers in asked.places.items() for number in numbers})
        return _told(held)

    @routes.post("/{member}/commit", status_code=204)
    def commit(request: Request, group: str, member: str, key: str, asked: MemberCommit) -> None:
        """Record how far the group has come, if all of these partitions are still the member's."""
        for topic, offsets in asked.offsets.items():
            caller_of(request).require("read", topic)
            check_offsets(offsets, log.topic(topic).partitions)
        places = [Place(topic, number) for topic, offsets in asked.offsets.items() for number in offsets]

        def record() -> None:
            for topic, offsets in asked.offsets.items():
                log.commit_offsets(group, topic, offsets)

        members.get(group, member, key, caller_of(request)).membership.commit(places, record)

    @routes.delete("/{member}", status_code=204)
    def leave(request: Request, group: str, member: str, key: str) -> None:
        """Leave the group."""
        caller_of(request).require_somewhere("read")
        members.leave(group, member, key, caller_of(request))

    return routes


# Any: JSON.
def info_to_json(found: GroupInfo) -> dict[str, Any]:
    members = [{**asdict(one), "topics": list(one.topics)} for one in found.members]
    return {
        "group": found.group,
        "generation": found.generation,
        "rows": found.rows,
        "members": members,
        "partitions": [lag_to_json(one) for one in found.partitions],
    }


def is_seen(topics: Collection[str], caller: Caller) -> bool:
    """Whether a caller may know of a group that reads these topics."""
    return any(map(caller.sees, topics)) if topics else caller.sees(EVERY)


def seen(found: GroupInfo, caller: Caller) -> GroupInfo:
    """What a caller may know of a group; `GroupNotFound` where that is nothing."""
    if not is_seen({one.topic for one in found.partitions}, caller):
        raise GroupNotFound(group=found.group)
    partitions = [one for one in found.partitions if caller.sees(one.topic)]
    topics = {one.topic for one in partitions}

    def shows(name: str) -> bool:
        return bool(fnmatch.filter(topics, name)) if _is_pattern(name) else caller.sees(name)

    members = [
        replace(
            one,
            topics=tuple(filter(shows, one.topics)),
            assignment={topic: numbers for topic, numbers in one.assignment.items() if caller.sees(topic)},
        )
        for one in found.members
    ]
    return replace(found, members=members, partitions=partitions)


def _require_admin(caller: Caller, topics: Collection[str]) -> None:
    """Refuse unless all topics are the caller's to change, without a word of those that the caller may not see."""
    for topic in sorted(topics) or [EVERY]:
        caller.require("admin", topic if caller.sees(topic) else EVERY)


def _place(caller: Caller, group: str, member: str) -> str:
    return f"{caller.name}/{group}/{member}"


def _told(held: Held) -> dict[str, Any]:
    return {
        "member": held.name,
        "owned": _by_topic(held.membership.owned),
        "releasing": _by_topic(held.membership.releasing),
    }


def _by_topic(places: set[Place]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place in sorted(places):
        found.setdefault(place.topic, []).append(place.partition)
    return found


def _partitions(service: Service, names: list[str], caller: Caller) -> dict[str, int]:
    log, found = service.log, dict[str, int]()
    for name in names:
        for topic in log.topics(name) if _is_pattern(name) else [name]:
            if caller.may("read", topic):
                try:
                    found[topic] = log.topic(topic).partitions
                except TopicNotFound:
                    if not _is_pattern(name):
                        raise
    return dict(sorted(found.items()))


def _is_pattern(name: str) -> bool:
    return not frozenset("*?[").isdisjoint(name)


def check_offsets(offsets: Mapping[int, int], partitions: int) -> None:
    """Refuse offsets of partitions that do not exist."""
    for number, offset in offsets.items():
        if not 0 <= number < partitions or not 0 <= offset < 2**63:
            expected = f"partitions from 0 to {partitions - 1}, and offsets that are not negative"
            raise ArgumentInvalid(name="offsets", value=f"{number}: {offset}", expected=expected)
