"""Consumer groups of a log on Kafka: Kafka's own groups, which its tools and other programs see and may share."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater.errors import NotFound, did_you_mean
from headwater.log.client_config import Start
from headwater.log.clients.groups import GroupInfo, MemberInfo, SeekStep, Sign, lag_of, resolve
from headwater.log.errors import GroupActive, MemberFenced, OffsetAhead, OffsetExpired
from headwater.log.kafka.administration import COORDINATOR_SECONDS
from headwater.log.kafka.catalogue import Catalogue
from headwater.log.kafka.cluster import READERS_GROUP, Cluster, is_set
from headwater.log.kafka.error_codes import AGAIN
from headwater.log.kafka.reader import numbering
from headwater.log.port import Cursor, Lag, Offsets, Place
from headwater.log.topic_rules import check_name

if TYPE_CHECKING:
    from headwater.log.kafka.log import KafkaLog

#: Groups of the adapter itself, which hold the fences of producers.
FENCES = "__headwater."
#: Kafka cannot delete single offsets of a group: one with this text counts as none.
FORGOTTEN = "headwater: forgotten"
#: How long a new member waits for its first partitions.
JOIN_SECONDS_MAX = 10.0
_LOST = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._FENCED,
    KafkaError._STATE,
}
_CLIENT = re.compile(r"headwater-(\d+)@(.+)")


class GroupOffsets:
    """The committed offsets of all groups."""

    def __init__(self, cluster: Cluster, catalogue: Catalogue) -> None:
        self._cluster = cluster
        self._catalogue = catalogue

    def group(self, name: str) -> str:
        """The name of a group on Kafka."""
        return f"{self._cluster.address.prefix}{name}"

    def commit(self, group: str, topic: str, offsets: Offsets, metadata: str) -> None:
        check_name("group", group)
        known = self._catalogue.get(topic, fresh=False)
        numbers = numbering(known)
        places = [
            TopicPartition(known.kafka, number, *numbers.committed(offset, metadata))
            for number, offset in offsets.items()
        ]
        self._alter(group, places)

    def committed(self, group: str, topic: str) -> Offsets:
        known = self._catalogue.get(topic, fresh=False)
        numbers = numbering(known)
        wanted = [TopicPartition(known.kafka, number) for number in range(known.topic.partitions)]
        found = self._list(group, wanted)
        return {
            place.partition: numbers.offset(place.offset, place.metadata)
            for place in found
            if place.topic == known.kafka and _counts(place)
        }

    def groups(self) -> dict[str, set[str]]:
        """All groups with committed offsets, and their topics."""
        places = self._places()
        found = {name: self._topics(name, places) for name in self.names()}
        return {name: topics for name, topics in found.items() if topics}

    def topics(self, group: str) -> set[str]:
        """The topics of which a group has committed offsets."""
        return self._topics(group, self._places())

    def _topics(self, group: str, places: list[TopicPartition]) -> set[str]:
        topics = {self._cluster.address.name(place.topic) for place in self._list(group, places) if _counts(place)}
        return {topic for topic in topics if topic is not None}

    def _places(self) -> list[TopicPartition]:
        """All partitions of this log."""
        return [
            TopicPartition(topic, number)
            for topic, count in self._cluster.partition_counts().items()
            if self._cluster.address.name(topic) is not None
            for number in range(count)
        ]

    def names(self) -> list[str]:
        """All groups of this log, also those without offsets."""
        prefix = self._cluster.address.prefix
        listed = self._cluster.ask_admin(
            lambda admin, seconds: {"": admin.list_consumer_groups(request_timeout=seconds)},
            lambda found: found[""].result(),
            what="the list of groups",
        )
        names = [one.group_id.removeprefix(prefix) for one in listed.valid if one.group_id.startswith(prefix)]
        return sorted(name for name in names if not name.startswith(FENCES) and name != READERS_GROUP)

    def forget(self, group: str, topic: str | None) -> None:
        if topic is None:
            self.delete(group)
            return
        known = self._catalogue.get(topic, fresh=False)
        places = [TopicPartition(known.kafka, number, 0, FORGOTTEN) for number in self.committed(group, topic)]
        self._alter(group, places)

    def delete(self, group: str) -> None:
        """Delete a group without members."""
        name = self.group(group)

        # Any: the future has no result. A group that was deleted in vain is deleted again, which changes nothing.
        def parse(found: Mapping[str, Any]) -> None:
            try:
                found[name].result()
            except KafkaException as error:
                code = error.args[0].code()
                if code == KafkaError.NON_EMPTY_GROUP:
                    raise GroupActive(group=group, members=self.members(group)) from error
                if code != KafkaError.GROUP_ID_NOT_FOUND:
                    raise

        self._cluster.ask_admin(
            lambda admin, _: admin.delete_consumer_groups([name], request_timeout=COORDINATOR_SECONDS),
            parse,
            what=f"to delete group {group!r}",
            name=group,
        )

    def members(self, group: str) -> int:
        """How many members a group has now."""
        return len(self.describe(group).members)

    # Any: librdkafka's value.
    def describe(self, group: str) -> Any:
        name = self.group(group)
        return self._cluster.ask_admin(
            lambda admin, _: admin.describe_consumer_groups([name], request_timeout=COORDINATOR_SECONDS),
            lambda found: found[name].result(),
            what=f"group {group!r}",
            name=group,
        )

    def _alter(self, group: str, places: list[TopicPartition]) -> None:
        if not places:
            return

        def question(_seconds: float) -> None:
            try:
                with self._cluster.group_client(self.group(group)) as client:
                    for place in client.commit(offsets=places, asynchronous=False) or ():
                        if place.error is not None:
                            raise KafkaException(place.error)
            except KafkaException as error:
                if error.args[0].code() in (KafkaError.NON_EMPTY_GROUP, *_LOST):
                    raise GroupActive(group=group, members=self.members(group)) from error
                raise

        # An offset that is committed again is the same.
        self._cluster.ask(question, what=f"offsets of group {group!r}", name=group)

    def _list(self, group: str, places: list[TopicPartition]) -> list[TopicPartition]:
        return self._cluster.group_offsets(self.group(group), places)


def _counts(place: TopicPartition) -> bool:
    return place.error is None and is_set(place.offset) and place.metadata != FORGOTTEN


class KafkaGroups:
    """All consumer groups of a log on Kafka."""

    def __init__(self, log: KafkaLog, offsets: GroupOffsets, cluster: Cluster) -> None:
        self._log = log
        self._offsets = offsets
        self._cluster = cluster

    def names(self) -> list[str]:
        return self._offsets.names()

    def topics(self, group: str) -> set[str]:
        """The topics that members read, and those with committed offsets."""
        own = {topic for member in self._members(group) for topic in member.topics}
        return own | self._offsets.topics(group)

    def describe(self, group: str) -> GroupInfo:
        self._check(group)
        members = self._members(group)
        # Kafka does not tell the number of rebalances.
        return GroupInfo(group=group, generation=0, members=members, partitions=self._lag(group, members))

    def lag(self, group: str | None = None) -> list[Lag]:
        if group is not None:
            self._check(group)
            return self._lag(group, self._members(group))
        return [lag for name in self.names() for lag in self._lag(name, self._members(name))]

    def seek(self, group: str, topic: str, to: Start, *, dry_run: bool = False) -> list[SeekStep]:
        """Set the committed offsets of a group without members; a group that does not exist yet is created."""
        check_name("group", group)
        steps = self._steps(group, topic, to)
        if not dry_run:
            self._log.commit_offsets(group, topic, {step.partition: step.new for step in steps})
        return steps

    def delete(self, group: str) -> None:
        self._check(group)
        self._offsets.delete(group)

    def _check(self, group: str) -> None:
        names = self.names()
        if group not in names:
            raise NotFound(kind="consumer group", name=group, near=did_you_mean(group, names))

    def _members(self, group: str) -> list[MemberInfo]:
        return [self._member(member) for member in self._offsets.describe(group).members]

    # Any: librdkafka's value.
    def _member(self, member: Any) -> MemberInfo:
        assignment: dict[str, list[int]] = {}
        for place in member.assignment.topic_partitions if member.assignment else ():
            name = self._cluster.address.name(place.topic)
            if name is not None:
                assignment.setdefault(name, []).append(place.partition)
        known = _CLIENT.fullmatch(member.client_id or "")
        return MemberInfo(
            id=member.group_instance_id or member.member_id,
            pid=int(known[1]) if known else 0,
            host=known[2] if known else member.host,
            static=bool(member.group_instance_id),
            alive=True,  # the coordinator lists no others
            topics=tuple(sorted(assignment)),
            assignment={name: sorted(numbers) for name, numbers in assignment.items()},
            # Kafka does not tell these.
            joined_us=0,
            heartbeat_us=0,
        )

    def _lag(self, group: str, members: Iterable[MemberInfo]) -> list[Lag]:
        owners = {
            Place(topic, number): member.id
            for member in members
            for topic, numbers in member.assignment.items()
            for number in numbers
        }
        topics = {place.topic for place in owners} | self._offsets.topics(group)
        known = set(self._log.topics(internal=True))
        return [
            lag
            for topic in sorted(topics & known)
            for lag in lag_of(self._log, group, topic, self._log.committed(group, topic), owners=owners)
        ]

    def _steps(self, group: str, topic: str, to: Start) -> list[SeekStep]:
        committed, starts = self._log.committed(group, topic), self._log.start_offsets(topic)
        ends = self._log.end_offsets(topic)
        offsets = resolve(self._log, topic, to)
        chosen = sorted(to) if isinstance(to, Mapping) else sorted(offsets)
        for number in chosen:
            if number not in ends:
                raise NotFound(kind="partition", name=f"{topic}/{number}")
            if offsets[number] > ends[number]:
                raise OffsetAhead(partition=f"{topic}/{number}", asked=offsets[number], end=ends[number])
            if offsets[number] < starts[number]:
                raise OffsetExpired(partition=f"{topic}/{number}", asked=offsets[number], oldest=starts[number])
        return [
            SeekStep(
                group=group,
                topic=topic,
                partition=number,
                current=committed.get(number),
                new=offsets[number],
                offset_start=starts[number],
            )
            for number in chosen
        ]


class KafkaMembership:
    """The membership of one consumer, by a client of Kafka that only joins: rows are read by cursors."""

    def __init__(
        self,
        cluster: Cluster,
        catalogue: Catalogue,
        offsets: GroupOffsets,
        group: str,
        *,
        member: str | None,
        partitions: Callable[[bool], dict[str, int]],
        session_seconds_max: float,
        heartbeat_seconds: float,
    ) -> None:
        self.group = group
        self.static = member is not None
        self.id = member or f"{_host()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.owned: set[Place] = set()
        self.releasing: set[Place] = set()
        self._cluster = cluster
        self._catalogue = catalogue
        self._offsets = offsets
        self._partitions = partitions
        self._session_ms = round(session_seconds_max * 1000)
        self._heartbeat_ms = round(heartbeat_seconds * 1000)
        self._client: Consumer | None = None
        self._subscribed: list[str] = []
        self._release: Callable[[], None] | None = None
        self._assigned = False
        self._error: KafkaError | None = None

    def join(self, begin: Callable[[set[str]], None], release: Callable[[], None]) -> None:
        known = self._partitions(True)
        fresh = {topic for topic in known if not self._offsets.committed(self.group, topic)}
        with contextlib.suppress(GroupActive):  # its members have decided where their topics begin
            begin(fresh)
        settings: dict[str, Any] = {
            "group.id": self._offsets.group(self.group),
            "client.id": f"headwater-{os.getpid()}@{_host()}",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "latest",
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": max(self._session_ms, 6_000),
            "heartbeat.interval.ms": max(self._heartbeat_ms, 50),
            "allow.auto.create.topics": False,
            "topic.metadata.refresh.interval.ms": 5_000,
        }
        if self.static:
            settings["group.instance.id"] = self.id
        self._client = self._cluster.new_consumer(**settings)
        self._release = release
        self._subscribe(known)
        deadline = time.monotonic() + JOIN_SECONDS_MAX
        while not self._assigned and time.monotonic() < deadline:
            self._poll(0.05)

    def refresh(self, *, check_members: bool = False) -> None:  # noqa: ARG002  # the brokers check them
        """Follow changes of the group, and of the topics."""
        self._subscribe(self._partitions(False))
        self._poll(0.0)

    def notice(self) -> None:
        """The client finds changes by itself."""

    def release(self, places: set[Place]) -> None:
        self.owned -= places
        self.releasing = set()

    def commit(self, offsets: Mapping[Place, int] | Iterable[Place], record: Callable[[], None]) -> None:
        """Commit as this member: the brokers refuse it once a partition has another owner."""
        client = self._client
        if client is None or not isinstance(offsets, Mapping):
            record()
            return
        lost = [place for place in offsets if place not in self.owned]
        if lost:
            raise self._fenced(f"{', '.join(map(str, sorted(lost)))} went to another member")
        places = []
        for place, offset in offsets.items():
            known = self._catalogue.get(place.topic, fresh=False)
            places.append(TopicPartition(known.kafka, place.partition, *numbering(known).committed(offset)))
        deadline = time.monotonic() + self._cluster.seconds_max
        while places:
            try:
                done = client.commit(offsets=places, asynchronous=False)
                for one in done or ():
                    if one.error is not None:
                        raise KafkaException(one.error)
                return
            except KafkaException as error:
                code = error.args[0].code()
                if code in _LOST:
                    self.owned -= set(offsets)
                    raise self._fenced(f"the group has changed: {error.args[0].str()}") from error
                if not (code in AGAIN or error.args[0].retriable()) or time.monotonic() > deadline:
                    raise self._cluster.translated(error.args[0], what="an offset", name=self.group) from error
                time.sleep(0.02)

    def beat(self) -> None:
        """The client sends heartbeats by itself."""

    def leave(self) -> None:
        self._release = None
        self.owned, self.releasing = set(), set()
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def abandon(self) -> None:
        self.leave()

    def _subscribe(self, known: Mapping[str, int]) -> None:
        topics = sorted(known)
        if topics != self._subscribed and self._client is not None and topics:
            self._subscribed = topics
            names = [self._catalogue.get(topic, fresh=False).kafka for topic in topics]
            with self._cluster.errors(what="a subscription", name=self.group):
                self._client.subscribe(
                    names, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
                )

    def _poll(self, seconds: float) -> None:
        if self._client is None:
            return
        with self._cluster.errors(what="the group", name=self.group):
            message = self._client.poll(seconds)
        error = None if message is None else message.error()
        if error is None:
            return
        if error.code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FENCED) or error.fatal():
            self.owned = set()
            raise self._fenced("another process has joined under this member's name")
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise self._cluster.translated(error, what="the group", name=self.group)

    def _on_assign(self, client: Consumer, places: list[TopicPartition]) -> None:
        self._assigned = True
        # Rows are read by cursors: this client only holds the partitions.
        client.incremental_assign(places)
        client.pause(places)
        self.owned |= self._own(places)

    def _on_revoke(self, _client: Consumer, places: list[TopicPartition]) -> None:
        self.releasing = self._own(places) & self.owned
        if self._release is not None and self.releasing:
            self._release()
        self.release(self._own(places))

    def _on_lost(self, _client: Consumer, places: list[TopicPartition]) -> None:
        self.owned -= self._own(places)

    def _own(self, places: Iterable[TopicPartition]) -> set[Place]:
        named = [(self._cluster.address.name(place.topic), place.partition) for place in places]
        return {Place(name, number) for name, number in named if name is not None}

    def _fenced(self, why: str) -> MemberFenced:
        return MemberFenced(group=self.group, member=self.id, why=why)


class KafkaWatch:
    """Waits at the brokers for rows behind the positions of cursors."""

    def __init__(self, cluster: Cluster, catalogue: Catalogue) -> None:
        self._cluster = cluster
        self._catalogue = catalogue
        self._looked = time.monotonic()
        self._closed = False

    def add_topics(self) -> None:
        """Topics are listed again at times."""

    def add_group(self, group: str) -> None:
        """The client of the membership finds changes by itself."""

    def add_rows(self, topic: str) -> None:
        """Positions come with each wait."""

    def forget_rows(self, topic: str) -> None:
        """Positions come with each wait."""

    def wait(self, *, seconds: float, cursors: Mapping[Place, Cursor]) -> set[Sign]:
        signs: set[Sign] = set()
        if time.monotonic() - self._looked > 1.0:
            self._looked = time.monotonic()
            signs.add("topics")
        if seconds <= 0:
            return signs
        positions = {}
        for place, cursor in cursors.items():
            try:
                known = self._catalogue.get(place.topic, fresh=False)
            except NotFound:
                return {"topics"}
            positions[(known.kafka, place.partition)] = numbering(known).stop(cursor.offset)
        if self._cluster.wait(positions, seconds=seconds, stopped=lambda: self._closed):
            signs.add("rows")
        return signs

    def close(self) -> None:
        self._closed = True


def _host() -> str:
    return "".join(char if char.isalnum() or char in "._-" else "-" for char in socket.gethostname()) or "host"
