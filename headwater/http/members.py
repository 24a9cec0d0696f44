"""Members of consumer groups over HTTP, for consumers on other machines.

The server holds the place of such a member in its group, as a process of this machine would; the client says that it
lives. When the client is silent, or the server ends, the group gives its partitions to others.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request

from headwater.errors import NotFound
from headwater.http.forms import Join, MemberCommit, Release
from headwater.log import Place, Start
from headwater.log.clients.groups import Membership, resolve
from headwater.log.errors import MemberFenced
from headwater.log.remote.wire import start_from_text
from headwater.services.callers import Caller
from headwater.services.groups import check_offsets, is_pattern
from headwater.services.host import TRY_AGAIN_SECONDS, Host, Kept, ServerFull, caller_of

#: A member is kept for so many of its sessions, so that one that was only slow finds out what has become of it.
_SILENT_SECONDS_MAX = 3_600.0


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

    def __init__(self, service: Host) -> None:
        self._service = service
        self._members: Kept[Held] = Kept(
            count_max=service.settings.members_max,
            seconds_max=_SILENT_SECONDS_MAX,
            drop=lambda one: one.membership.abandon(),
        )

    def join(self, group: str, asked: Join, caller: Caller) -> Held:
        """Become a member, for a client."""
        log = self._service.log
        from headwater.log.topic_rules import check_name

        check_name("group", group)
        if asked.member is not None:
            check_name("member", asked.member)
        for name in asked.topics:
            if not is_pattern(name):
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


def router(service: Host, members: Members) -> APIRouter:
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
        held.membership.refresh(check_members=look)
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


def _partitions(service: Host, names: list[str], caller: Caller) -> dict[str, int]:
    log, found = service.log, dict[str, int]()
    for name in names:
        for topic in log.topics(name) if is_pattern(name) else [name]:
            if caller.may("read", topic):
                try:
                    found[topic] = log.topic(topic).partitions
                except NotFound:
                    if not is_pattern(name):
                        raise
    return dict(sorted(found.items()))
