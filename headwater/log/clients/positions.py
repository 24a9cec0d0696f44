"""Positions in topics: the offsets of a start, and the lag of a reader."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from headwater.errors import ArgumentInvalid
from headwater.log.port import Lag, Offsets, Place, Start

if TYPE_CHECKING:
    from headwater.log.port import Log


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
    return [
        _lag(log, group, topic, number, positions.get(number), starts[number], ends[number], owners or {})
        for number in sorted(ends)
    ]


def _lag(
    log: Log,
    group: str,
    topic: str,
    number: int,
    committed: int | None,
    start: int,
    end: int,
    owners: Mapping[Place, str],
) -> Lag:
    first = max(committed or 0, start)
    seconds, expires = 0.0, None
    if first < end:
        seconds = max(0.0, (log.clock.now_us() - _appended_us(log, topic, number, first, end)) / 1e6)
        expires = log.expiry(topic, number, first).seconds
    return Lag(
        group=group,
        topic=topic,
        partition=number,
        committed=committed,
        offset_start=start,
        offset_next=end,
        seconds=seconds,
        member=owners.get(Place(topic, number)),
        expires_in_seconds=expires,
    )


def _appended_us(log: Log, topic: str, number: int, offset: int, end: int) -> int:
    reader = log.read(
        topic, start={number: offset}, stop={number: end}, partitions=[number], columns=["_appended_at"], limit=1
    )
    for batch in reader:
        return int(batch.column(0).cast("int64")[0].as_py())
    return log.clock.now_us()  # compaction has removed all rows behind this offset
