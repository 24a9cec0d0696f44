"""Administration of consumer groups: members, assignments and lag; seek and delete."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING

from headwater.errors import NotFound, did_you_mean
from headwater.log.clients.groups import GroupInfo, MemberInfo, SeekStep, by_topic
from headwater.log.clients.positions import lag_of, resolve
from headwater.log.embedded.membership import GroupFolder, GroupState
from headwater.log.errors import GroupActive, OffsetAhead, OffsetExpired
from headwater.log.port import Lag, Start
from headwater.log.topic_rules import check_name

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
        folder, state = self._find(group)
        now_us = self._log.clock.now_us()
        members = [
            MemberInfo(
                id=member.id,
                pid=member.pid,
                host=member.host,
                static=member.static,
                alive=folder.is_held(member.id) and not folder.is_gone(member, now_us=now_us),
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
            return self._lag(group, self._find(group)[1])
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
        folder, _ = self._find(group)
        folder.make()
        with folder.exclusive():
            self._refuse_if_active(folder)
            self._log.forget_offsets(group)
            shutil.rmtree(folder.path, ignore_errors=True)

    def _find(self, group: str) -> tuple[GroupFolder, GroupState]:
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
        alive = [
            member
            for member in folder.load().members.values()
            if folder.is_held(member.id) and not folder.is_gone(member, now_us=now_us)
        ]
        if alive:
            raise GroupActive(group=folder.group, members=len(alive))
