"""Consumer groups of the embedded log: members, lag, seek and delete, and the table of committed offsets."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headwater.errors import NotFound, did_you_mean
from headwater.faults import reach
from headwater.log.client_config import Start
from headwater.log.clients.groups import GroupInfo, MemberInfo, SeekStep, by_topic, lag_of, resolve
from headwater.log.embedded.membership import GroupFolder, GroupState
from headwater.log.errors import GroupActive, OffsetAhead, OffsetExpired
from headwater.log.port import OFFSETS_TOPIC, Lag, Offsets
from headwater.log.topic import Topic
from headwater.log.topic_rules import check_name
from headwater.schema import parse_schema

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog


class EmbeddedGroups:
    """All consumer groups of a log in a folder."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log

    def names(self) -> list[str]:
        """All groups with a member or a committed offset."""
        folder = self._log.path / "groups"
        joined = {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()
        return sorted(joined | self._log.committed_groups().keys())

    def topics(self, group: str) -> set[str]:
        """The topics that a group's members subscribe to, and those with committed offsets."""
        return self._topics(group, GroupFolder(self._log.path, group).load())

    def describe(self, group: str) -> GroupInfo:
        """The members of a group, and its lag in each partition."""
        folder, state = self._load(group)
        now_us = self._log.clock.now_us()
        members = [
            MemberInfo(
                id=member.id,
                pid=member.pid,
                host=member.host,
                static=member.static,
                alive=folder.is_alive(member, now_us=now_us),
                topics=member.topics,
                assignment=by_topic(state.owned_by(member.id)),
                joined_us=member.joined_us,
                heartbeat_us=folder.heartbeat_us(member.id),
            )
            for member in state.members.values()
        ]
        return GroupInfo(group=group, generation=state.generation, members=members, partitions=self._lag(group, state))

    def lag(self, group: str | None = None) -> list[Lag]:
        """The lag of one group, or of every group, in each partition."""
        if group is not None:
            return self._lag(group, self._load(group)[1])
        return [lag for name in self.names() for lag in self.lag(name)]

    def seek(self, group: str, topic: str, to: Start, *, dry_run: bool = False) -> list[SeekStep]:
        """Set the committed offsets of a group without live members; with `dry_run`, only return the changes.

        A group that does not exist yet is created.
        """
        check_name("group", group)
        folder = GroupFolder(self._log.path, group)
        if dry_run and not folder.path.is_dir():
            return self._steps(group, topic, to)
        folder.make()
        with folder.exclusive():
            steps = self._steps(group, topic, to)
            if not dry_run:
                self._refuse_if_active(folder)
                self._log.commit_offsets(group, topic, {step.partition: step.new for step in steps})
        return steps

    def delete(self, group: str) -> None:
        """Delete a group without live members: its members and its committed offsets."""
        folder, _ = self._load(group)
        folder.make()
        with folder.exclusive():
            self._refuse_if_active(folder)
            self._log.forget_offsets(group)
            shutil.rmtree(folder.path, ignore_errors=True)

    def _load(self, group: str) -> tuple[GroupFolder, GroupState]:
        folder = GroupFolder(self._log.path, group)
        names = self.names()
        if group not in names:
            raise NotFound(kind="consumer group", name=group, near=did_you_mean(group, names))
        return folder, folder.load()

    def _topics(self, group: str, state: GroupState) -> set[str]:
        return self._log.committed_groups().get(group, set()) | state.topics.keys()

    def _lag(self, group: str, state: GroupState) -> list[Lag]:
        return [
            lag
            for topic in sorted(self._topics(group, state))
            if topic in self._log.topics(topic, internal=True)  # it may have been deleted
            for lag in lag_of(self._log, group, topic, self._log.committed(group, topic), owners=state.owners)
        ]

    def _steps(self, group: str, topic: str, to: Start) -> list[SeekStep]:
        committed, starts, ends = (
            self._log.committed(group, topic),
            self._log.start_offsets(topic),
            self._log.end_offsets(topic),
        )
        offsets = resolve(self._log, topic, to)
        chosen = sorted(to) if isinstance(to, Mapping) else sorted(offsets)
        for number in chosen:
            self._log.handle(topic).partition(number)  # raises if it does not exist
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

    def _refuse_if_active(self, folder: GroupFolder) -> None:
        now_us = self._log.clock.now_us()
        alive = [member for member in folder.load().members.values() if folder.is_alive(member, now_us=now_us)]
        if alive:
            raise GroupActive(group=folder.group, members=len(alive))


OFFSETS_SCHEMA = parse_schema(
    "group string not null, topic string not null, partition int32 not null, offset int64 not null, "
    "metadata string, at timestamp"
)


class OffsetTable:
    """The committed offsets of all groups: rows of an internal, compacted topic, so that transactions can include them.

    The table that the topic represents is kept in memory; each query reads the new rows first.
    """

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._table: dict[tuple[str, str], Offsets] = {}
        self._next = 0
        self._created_us = -1

    def make(self) -> None:
        """Create the topic unless it exists."""
        if self._current() is not None:
            return
        self._log.create_internal(
            Topic(
                name=OFFSETS_TOPIC,
                id="0ff5e75" + "0" * 25,
                schema=OFFSETS_SCHEMA,
                key=("group", "topic", "partition"),
                compact=True,
                tombstone_seconds_max=3_600.0,
                segment_bytes_max=8 * 1024 * 1024,
                created_us=self._log.clock.now_us(),
            )
        )

    def rows(self, group: str, topic: str, offsets: Offsets, metadata: str) -> list[dict[str, Any]]:
        """The rows that commit offsets of a group."""
        check_name("group", group)
        at = datetime.fromtimestamp(self._log.clock.now_us() / 1e6, tz=UTC)
        return [
            {"group": group, "topic": topic, "partition": partition, "offset": offset, "metadata": metadata, "at": at}
            for partition, offset in offsets.items()
        ]

    def commit(self, rows: Sequence[dict[str, Any]]) -> None:
        self.make()
        if rows:
            self._log.append(OFFSETS_TOPIC, rows)
            reach("offsets.appended")

    def committed(self, group: str, topic: str) -> Offsets:
        with self._lock:
            self._catch_up()
            return dict(self._table.get((group, topic), {}))

    def groups(self) -> dict[str, set[str]]:
        with self._lock:
            self._catch_up()
            found: dict[str, set[str]] = {}
            for (group, topic), offsets in self._table.items():
                if offsets:
                    found.setdefault(group, set()).add(topic)
            return found

    def forget(self, group: str, topic: str | None) -> None:
        topics = self.groups().get(group, set()) if topic is None else {topic}
        rows = [
            {"group": group, "topic": name, "partition": partition, "_tombstone": True}
            for name in sorted(topics)
            for partition in self.committed(group, name)
        ]
        self.commit(rows)

    def forget_topic(self, topic: str) -> None:
        """Delete the offsets of every group in a deleted topic: a later topic of its name has other rows."""
        for group, topics in self.groups().items():
            if topic in topics:
                self.forget(group, topic)

    def _current(self) -> Topic | None:
        try:
            return self._log.topic(OFFSETS_TOPIC)
        except NotFound:
            return None

    def _catch_up(self) -> None:
        topic = self._current()
        created_us = -1 if topic is None else topic.created_us
        if created_us != self._created_us:  # the table is of a deleted topic
            self._table.clear()
            self._next, self._created_us = 0, created_us
        if topic is None:
            return
        start = self._log.start_offsets(OFFSETS_TOPIC)[0]
        columns = ["group", "topic", "partition", "offset", "_tombstone"]
        for batch in self._log.read(OFFSETS_TOPIC, start=max(self._next, start), columns=columns).batches():
            for row in batch.rows():
                offsets = self._table.setdefault((row["group"], row["topic"]), {})
                if row["_tombstone"]:
                    offsets.pop(row["partition"], None)
                else:
                    offsets[row["partition"]] = row["offset"]
            self._next = batch.offset_next
