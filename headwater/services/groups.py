"""Consumer groups: who reads what, how far behind, and from where to go on."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from headwater.errors import ArgumentInvalid, NotFound
from headwater.log.clients.groups import GroupInfo, SeekStep
from headwater.log.port import Lag
from headwater.services.callers import EVERY
from headwater.services.positions import parse_position, resolve
from headwater.services.route import Service, route


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
