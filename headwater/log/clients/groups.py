"""Consumer groups: their protocols, members and lag, for every kind of log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from headwater.errors import ArgumentInvalid
from headwater.log.client_config import Start
from headwater.log.port import Cursor, Lag, Log, Offsets, Place

#: What a watch reports: new rows, topics created or deleted, a change of the group's state, or a member that ended.
Sign = Literal["rows", "topics", "state", "members"]


@dataclass(frozen=True, kw_only=True)
class MemberInfo:
    """A member of a group."""

    id: str
    pid: int
    host: str
    static: bool
    alive: bool
    topics: tuple[str, ...]
    assignment: dict[str, list[int]]
    joined_us: int
    heartbeat_us: int


@dataclass(frozen=True, kw_only=True)
class GroupInfo:
    """A group with its members and its lag in each partition."""

    group: str
    generation: int
    members: list[MemberInfo]
    partitions: list[Lag]

    @property
    def rows(self) -> int:
        """The lag of the whole group."""
        return sum(lag.rows for lag in self.partitions)


@dataclass(frozen=True, kw_only=True)
class SeekStep:
    """The effect of a seek in one partition.

    >>> SeekStep(group="billing", topic="orders", partition=0, current=100, new=40).rows
    60
    """

    group: str
    topic: str
    partition: int
    current: int | None
    new: int
    offset_start: int = 0

    @property
    def rows(self) -> int:
        """How many rows will be read again; negative if rows will be skipped."""
        return max(self.current or 0, self.offset_start) - self.new


class Groups(Protocol):
    """All consumer groups of a log."""

    def names(self) -> list[str]: ...
    def topics(self, group: str) -> set[str]: ...
    def describe(self, group: str) -> GroupInfo: ...
    def lag(self, group: str | None = None) -> list[Lag]: ...
    def seek(self, group: str, topic: str, to: Start, *, dry_run: bool = False) -> list[SeekStep]: ...
    def delete(self, group: str) -> None: ...


class Membership(Protocol):
    """The membership of one consumer in its group: the partitions that it owns, and those that it must release."""

    id: str
    static: bool
    owned: set[Place]
    releasing: set[Place]

    def join(self, begin: Callable[[set[str]], None], release: Callable[[], None]) -> None:
        """Join; `release` is called where the group itself takes partitions away, while it waits for that."""

    def refresh(self, *, check_members: bool = False) -> None: ...
    def notice(self) -> None: ...
    def release(self, places: set[Place]) -> None: ...
    def commit(self, offsets: Mapping[Place, int] | Iterable[Place], record: Callable[[], None]) -> None: ...
    def beat(self) -> None: ...
    def leave(self) -> None: ...
    def abandon(self) -> None: ...


class Watch(Protocol):
    """Waits for rows of topics, for new topics, and for changes of a group."""

    def add_topics(self) -> None: ...
    def add_group(self, group: str) -> None: ...
    def add_rows(self, topic: str) -> None: ...
    def forget_rows(self, topic: str) -> None: ...
    def wait(self, *, seconds: float, cursors: Mapping[Place, Cursor]) -> set[Sign]: ...
    def close(self) -> None: ...


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """Partitions, by topic and in order."""
    found: dict[str, list[int]] = {}
    for place in sorted(places):
        found.setdefault(place.topic, []).append(place.partition)
    return found


# -- positions and lag ------------------------------------------------------------------------------------------------


def resolve(log: Log, topic: str, to: Start) -> Offsets:
    """The offsets of a position, by partition."""
    if to == "latest":
        return log.end_offsets(topic)
    starts = log.start_offsets(topic)
    if to == "earliest":
        return starts
    if isinstance(to, datetime):
        return log.offset_at(topic, to)
    if isinstance(to, Mapping):
        return {**starts, **to}
    if isinstance(to, int) and not isinstance(to, bool):
        return dict.fromkeys(starts, to)
    expected = "'earliest', 'latest', an offset, a time or {partition: offset}"
    raise ArgumentInvalid(name="start", value=to, expected=expected)


def lag_of(
    log: Log, group: str, topic: str, positions: Offsets, *, owners: Mapping[Place, str] | None = None
) -> list[Lag]:
    """The lag of a group, or of a reader at `positions`, in each partition of a topic."""
    starts, ends = log.start_offsets(topic), log.end_offsets(topic)
    lags = []
    for number, end in sorted(ends.items()):
        committed = positions.get(number)
        first = max(committed or 0, starts[number])
        seconds, expires = 0.0, None
        if first < end:
            seconds = max(0.0, (log.clock.now_us() - _appended_us(log, topic, number, first, end)) / 1e6)
            expires = log.expiry(topic, number, first).seconds
        lags.append(
            Lag(
                group=group,
                topic=topic,
                partition=number,
                committed=committed,
                offset_start=starts[number],
                offset_next=end,
                rows=log.rows_between(topic, number, first, end),
                seconds=seconds,
                member=(owners or {}).get(Place(topic, number)),
                expires_in_seconds=expires,
            )
        )
    return lags


def _appended_us(log: Log, topic: str, number: int, offset: int, end: int) -> int:
    reader = log.read(
        topic, start={number: offset}, stop={number: end}, partitions=[number], columns=["_appended_at"], limit=1
    )
    for batch in reader:
        return int(batch.column(0).cast("int64")[0].as_py())
    return log.clock.now_us()  # compaction has removed all rows behind this offset
