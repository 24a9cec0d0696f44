"""Membership in a consumer group without a server: a folder with locks and a state file that they protect.

    groups/<group>/gate, lock       two files that are only locked
    groups/<group>/state.json       the members, the owner of each partition, and the target of each partition
    groups/<group>/members/<id>     locked by the live member; its content is the time of the last heartbeat

Invariants:

- `state.json` changes only under the exclusive lock, by renaming, so that readers never see half of it.
- A partition has at most one owner. Only the owner releases it, unless the owner is found dead; then its target takes it.
- A commit holds the shared lock while it checks its ownership and records offsets, so that no partition changes its
  owner in between, while other members can commit.
- A process that ends in any way loses the lock on its member file at once. One that hangs is detected by its heartbeat.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import uuid
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import orjson

from headwater.clock import Clock
from headwater.filelock import is_locked, try_lock, unlock, wait_for_lock
from headwater.log.embedded.files import make_folders, open_file, replace_file
from headwater.log.errors import MemberFenced
from headwater.log.port import Place

STATE_FILE = "state.json"
MEMBERS_FOLDER = "members"


@dataclass(frozen=True, kw_only=True)
class Member:
    """A member in `state.json`."""

    id: str
    incarnation: str
    topics: tuple[str, ...]
    static: bool
    pid: int
    host: str
    session_seconds_max: float
    joined_us: int


@dataclass(kw_only=True)
class GroupState:
    """The content of `state.json`; empty for a group without members."""

    generation: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    topics: dict[str, int] = field(default_factory=dict)
    owners: dict[Place, str] = field(default_factory=dict)
    targets: dict[Place, str] = field(default_factory=dict)

    def owned_by(self, member: str) -> set[Place]:
        return {place for place, owner in self.owners.items() if owner == member}

    def to_release(self, member: str) -> set[Place]:
        """Partitions that a member owns and another member should own."""
        return {place for place in self.owned_by(member) if self.targets.get(place) != member}

    def to_take(self, member: str) -> set[Place]:
        """Partitions that a member should own and no member owns."""
        return {place for place, target in self.targets.items() if target == member and place not in self.owners}

    def remove(self, members: Iterable[str]) -> None:
        for member in members:
            del self.members[member]
        self.owners = {place: owner for place, owner in self.owners.items() if owner in self.members}

    def assign_targets(self) -> None:
        """Compute the target of each partition; drop the owners of partitions without one."""
        subscriptions = {member.id: _matching(member.topics, self.topics) for member in self.members.values()}
        self.targets = assign(subscriptions, self.topics, self.owners)
        self.owners = {place: owner for place, owner in self.owners.items() if place in self.targets}


class GroupFolder:
    """The files of one group."""

    def __init__(self, root: Path, group: str) -> None:
        self.group = group
        self.path = root / "groups" / group
        self.members = self.path / MEMBERS_FOLDER

    def make(self) -> None:
        make_folders(self.members)

    def load(self) -> GroupState:
        try:
            return _load(orjson.loads((self.path / STATE_FILE).read_bytes()))
        except FileNotFoundError:
            return GroupState()

    def store(self, state: GroupState) -> None:
        state.generation += 1
        # Not synced: after a power cut no member is alive, and an older state only has members that are found dead.
        replace_file(self.path / STATE_FILE, orjson.dumps(_dump(state)), durable=False)

    def signature(self) -> tuple[int, int] | None:
        """Changes whenever the state does; costs one `stat`."""
        try:
            stat = os.stat(self.path / STATE_FILE)
        except FileNotFoundError:
            return None
        return stat.st_ino, stat.st_mtime_ns

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Keep the owners from changing; any number of processes may do so at once."""
        with self._locked("gate", shared=True) as gate:
            lock = self._lock("lock", shared=True)
            unlock(gate)
            try:
                yield
            finally:
                os.close(lock)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Change the owners. The gate blocks new commits meanwhile, so that the change never waits for long."""
        with self._locked("gate"), self._locked("lock"):
            yield

    def is_held(self, member: str) -> bool:
        """Whether a live process holds the lock of the member's file. The caller holds the lock of the group."""
        return is_locked(self.members / member)

    def heartbeat_us(self, member: str) -> int:
        """The time of the member's last heartbeat, 0 for none."""
        try:
            return int((self.members / member).read_bytes() or b"0")
        except FileNotFoundError:
            return 0

    def is_gone(self, member: Member, *, now_us: int) -> bool:
        """Whether other members may take its partitions. A static member may return within its session."""
        silent = now_us - self.heartbeat_us(member.id) > member.session_seconds_max * 1e6
        return silent or (not member.static and not self.is_held(member.id))

    def is_alive(self, member: Member, *, now_us: int) -> bool:
        """Whether the member's process runs and sends heartbeats. The caller holds the lock of the group."""
        return self.is_held(member.id) and not self.is_gone(member, now_us=now_us)

    def _lock(self, name: str, *, shared: bool = False) -> int:
        while True:
            descriptor = open_file(self.path / name, os.O_RDONLY | os.O_CREAT)
            try:
                wait_for_lock(descriptor, self.path / name, shared=shared)
                # The group may have been deleted meanwhile: then this file has no name any more.
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(self.path / name).st_ino == os.fstat(descriptor).st_ino:
                        return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
            self.make()

    @contextlib.contextmanager
    def _locked(self, name: str, *, shared: bool = False) -> Iterator[int]:
        descriptor = self._lock(name, shared=shared)
        try:
            yield descriptor
        finally:
            os.close(descriptor)


class Membership:
    """The membership of one consumer in its group."""

    def __init__(
        self,
        folder: GroupFolder,
        *,
        clock: Clock,
        member: str | None,
        topics: tuple[str, ...],
        partitions: Callable[[bool], dict[str, int]],
        session_seconds_max: float,
        heartbeat_seconds: float,
    ) -> None:
        self.folder = folder
        self.static = member is not None
        self.id = member or f"{_host()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.owned: set[Place] = set()
        self.releasing: set[Place] = set()
        self._clock = clock
        self._topics = topics
        self._partitions = partitions
        self._session_seconds_max = session_seconds_max
        self._heartbeat_us = round(heartbeat_seconds * 1e6)
        self._incarnation = ""
        self._heart = threading.Lock()
        self._descriptor: int | None = None
        self._close: weakref.finalize[Any, Any] | None = None
        _memberships.add(self)
        self._signature: tuple[int, int] | None = None
        self._known: dict[str, int] = {}
        self._check_at_us = 0

    def join(self, begin: Callable[[set[str]], None], release: Callable[[], None] | None = None) -> None:  # noqa: ARG002
        """Join the group. `begin` commits the first offsets of topics that are new to the group.

        Nothing is taken away here while a member waits: it sees in `releasing` what it should release.
        """
        self.folder.make()
        with self.folder.exclusive():
            state = self.folder.load()
            known = self._partitions(True)
            begin(set(known) - set(state.topics))
            self._enter(state)
            self._change(state)

    def refresh(self, *, check_members: bool = False) -> None:
        """Follow changes of the group, and take part in a rebalance. Costs one `stat` when nothing changed.

        At every heartbeat, and with `check_members`, it also finds members that died or hang.
        """
        now_us = self._clock.now_us()
        check_members = check_members or now_us >= self._check_at_us
        known = self._partitions(False)
        if not check_members and self.folder.signature() == self._signature and known == self._known:
            return
        with self.folder.shared():
            signature, state = self.folder.signature(), self.folder.load()
            gone = self._gone(state, now_us) if check_members else []
        if check_members:
            self._check_at_us = now_us + self._heartbeat_us
            self.beat()
        if gone or not self._is_in(state) or self._known_by(state) != known or state.to_take(self.id):
            with self.folder.exclusive():
                state = self.folder.load()
                self._change(state)
        else:
            self._adopt(state, signature)

    def notice(self) -> None:
        """The group has changed. `refresh` detects that by itself; only a remote membership needs the call."""

    def release(self, places: set[Place]) -> None:
        """Release partitions that other members should own."""
        with self.folder.exclusive():
            state = self.folder.load()
            if self._is_in(state):
                mine = state.owned_by(self.id) & places
                state.owners = {place: owner for place, owner in state.owners.items() if place not in mine}
                self.folder.store(state)
            self._adopt(state, self.folder.signature())

    def commit(self, places: Iterable[Place], record: Callable[[], None]) -> None:
        """Record offsets if this member still owns every partition; otherwise raise `MemberFenced`."""
        with self.folder.shared():
            state = self.folder.load()
            lost = [place for place in places if not self._is_in(state) or state.owners.get(place) != self.id]
            if not lost:
                record()
                return
        self._signature = None
        raise self._fenced(f"{', '.join(map(str, sorted(lost)))} went to another member")

    def beat(self) -> None:
        """Write a heartbeat."""
        # Under a lock: a descriptor that was closed meanwhile may belong to another file.
        with self._heart:
            if self._descriptor is not None:
                os.pwrite(self._descriptor, b"%020d" % self._clock.now_us(), 0)

    def leave(self) -> None:
        """Leave the group. A static member keeps its partitions until its session ends, so that it can return."""
        try:
            if not self.static and self._descriptor is not None:
                with self.folder.exclusive():
                    state = self.folder.load()
                    if self._is_in(state):
                        state.remove([self.id])
                        state.assign_targets()
                        (self.folder.members / self.id).unlink(missing_ok=True)
                        self.folder.store(state)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release the member file without leaving the group, as a killed process does."""
        with self._heart:
            if self._close is not None:
                self._close()
            self._descriptor = None
        self.owned, self.releasing = set(), set()

    def disown(self) -> None:
        """In a forked child: close the inherited file without releasing the parent's lock."""
        self._heart = threading.Lock()
        if self._close is not None and self._close.detach() is not None and self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _change(self, state: GroupState) -> None:
        """Update members, topics and owners, and store the state. The caller holds the exclusive lock."""
        if not self._is_in(state):
            self._check_replaced(state)
            self._enter(state)
        gone = self._gone(state, self._clock.now_us())
        for member in gone:
            (self.folder.members / member).unlink(missing_ok=True)
        state.remove(gone)
        # List the topics again: another member may have added one that this member does not know yet.
        known = self._partitions(True)
        state.topics.update(known)
        for topic in self._known_by(state).keys() - known.keys():
            del state.topics[topic]  # it was deleted
        state.assign_targets()
        state.owners.update(dict.fromkeys(state.to_take(self.id), self.id))
        self.folder.store(state)
        self._adopt(state, self.folder.signature())

    def _enter(self, state: GroupState) -> None:
        self.abandon()
        path = self.folder.members / self.id
        # A new file, never the old one: a process that still holds the old one has been replaced, and is fenced.
        path.unlink(missing_ok=True)
        descriptor = open_file(path, os.O_RDWR | os.O_CREAT)
        try_lock(descriptor)  # a new file: no other process holds it
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
        self.beat()
        self._incarnation = uuid.uuid4().hex
        state.members[self.id] = Member(
            id=self.id,
            incarnation=self._incarnation,
            topics=self._topics,
            static=self.static,
            pid=os.getpid(),
            host=_host(),
            session_seconds_max=self._session_seconds_max,
            joined_us=self._clock.now_us(),
        )

    def _adopt(self, state: GroupState, signature: tuple[int, int] | None) -> None:
        self._signature = signature
        self._known = self._known_by(state)
        self.owned = state.owned_by(self.id)
        self.releasing = state.to_release(self.id)

    def _known_by(self, state: GroupState) -> dict[str, int]:
        return {topic: state.topics[topic] for topic in _matching(self._topics, state.topics)}

    def _is_in(self, state: GroupState) -> bool:
        member = state.members.get(self.id)
        return member is not None and member.incarnation == self._incarnation

    def _gone(self, state: GroupState, now_us: int) -> list[str]:
        others = [member for member in state.members.values() if member.id != self.id]
        return [member.id for member in others if self.folder.is_gone(member, now_us=now_us)]

    def _check_replaced(self, state: GroupState) -> None:
        if self.static and self.id in state.members:
            self.abandon()
            raise self._fenced("another process has joined under this member's name")

    def _fenced(self, why: str) -> MemberFenced:
        return MemberFenced(group=self.folder.group, member=self.id, why=why)


_memberships: weakref.WeakSet[Membership] = weakref.WeakSet()


def _forget_in_child() -> None:
    # A child with the parent's file open would keep its lock after the parent has died.
    for membership in list(_memberships):
        membership.disown()


os.register_at_fork(after_in_child=_forget_in_child)


def _matching(patterns: Collection[str], topics: Iterable[str]) -> list[str]:
    return [topic for topic in topics if topic in patterns or _matches(topic, patterns)]


def _matches(topic: str, patterns: Iterable[str]) -> bool:
    # Patterns do not match internal topics.
    return not topic.startswith("__") and any(fnmatchcase(topic, pattern) for pattern in patterns)


def _host() -> str:
    return "".join(char if char.isalnum() or char in "._-" else "-" for char in socket.gethostname()) or "host"


def _dump(state: GroupState) -> dict[str, Any]:
    return {
        "generation": state.generation,
        "members": {id: {**vars(member), "topics": list(member.topics)} for id, member in state.members.items()},
        "topics": state.topics,
        "owners": [[*place, owner] for place, owner in state.owners.items()],
        "targets": [[*place, target] for place, target in state.targets.items()],
    }


def _load(body: dict[str, Any]) -> GroupState:
    return GroupState(
        generation=body["generation"],
        members={id: Member(**{**member, "topics": tuple(member["topics"])}) for id, member in body["members"].items()},
        topics=body["topics"],
        owners={Place(topic, number): owner for topic, number, owner in body["owners"]},
        targets={Place(topic, number): target for topic, number, target in body["targets"]},
    )


# -- the assignment of partitions to members --------------------------------------------------------------------------


def assign(
    subscriptions: Mapping[str, Collection[str]], partitions: Mapping[str, int], owners: Mapping[Place, str]
) -> dict[Place, str]:
    """Assign each partition to one member that subscribes to its topic.

    Balanced: no partition could move to a member that has at least two fewer. Sticky: owners keep their partitions
    unless balance needs a move. The result depends only on the arguments, so all members compute the same.

    >>> assign({"a": ["t"], "b": ["t"]}, {"t": 3}, {Place("t", 0): "a", Place("t", 1): "a", Place("t", 2): "a"})
    {Place(topic='t', partition=0): 'a', Place(topic='t', partition=1): 'a', Place(topic='t', partition=2): 'b'}
    """
    readers = {topic: sorted(m for m, topics in subscriptions.items() if topic in topics) for topic in partitions}
    places = [Place(topic, number) for topic in sorted(partitions) for number in range(partitions[topic])]
    held: dict[str, set[Place]] = {member: set() for member in subscriptions}
    unowned = []
    for place in places:
        owner = owners.get(place)
        if owner is not None and owner in readers[place.topic]:
            held[owner].add(place)
        elif readers[place.topic]:
            unowned.append(place)
    # Partitions with the fewest possible owners first.
    for place in sorted(unowned, key=lambda place: (len(readers[place.topic]), place)):
        held[_emptiest(readers[place.topic], held)].add(place)
    _level(held, readers)
    result = {place: member for member, own in held.items() for place in own}
    return dict(sorted(result.items()))


def _emptiest(members: Collection[str], held: Mapping[str, Collection[Place]]) -> str:
    return min(members, key=lambda member: (len(held[member]), member))


def _level(held: dict[str, set[Place]], readers: Mapping[str, list[str]]) -> None:
    """Move single partitions from members with more to members with fewer until the assignment is balanced."""
    # The member with the most gives first; each move lowers the sum of the squares, so this ends.
    while any(_give(giver, held, readers) for giver in sorted(held, key=lambda member: (-len(held[member]), member))):
        pass


def _give(giver: str, held: dict[str, set[Place]], readers: Mapping[str, list[str]]) -> bool:
    takers = {topic: _emptiest(readers[topic], held) for topic in {place.topic for place in held[giver]}}
    able = [place for place in held[giver] if len(held[takers[place.topic]]) + 2 <= len(held[giver])]
    if not able:
        return False
    place = max(able)
    held[giver].remove(place)
    held[takers[place.topic]].add(place)
    return True
