"""How far readers are behind, and how long what they have not read will still be there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.log.assignment import Place
from headwater.log.port import Lag, Offsets

if TYPE_CHECKING:
    from headwater.log.embedded.log import EmbeddedLog

#: From this part of its life on, the oldest segment counts as about to be deleted.
NEAR_EXPIRY = 0.8


class NearExpiry(UserWarning):
    """A reader's next row will soon be deleted by retention: speed the reader up, or keep rows for longer."""


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """What retention will do next to the segment that holds an offset."""

    offset_next: int
    oldest: bool
    seconds: float | None
    used: float


def lag_of(
    log: EmbeddedLog, group: str, topic: str, positions: Offsets, *, owners: Mapping[Place, str] | None = None
) -> list[Lag]:
    """The lag of a group, or of a reader at `positions`, in each partition of a topic."""
    starts, ends = log.start_offsets(topic), log.end_offsets(topic)
    return [
        _lag(log, group, topic, number, positions.get(number), starts[number], ends[number], owners or {})
        for number in sorted(ends)
    ]


def _lag(
    log: EmbeddedLog,
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


def _appended_us(log: EmbeddedLog, topic: str, number: int, offset: int, end: int) -> int:
    reader = log.read(
        topic, start={number: offset}, stop={number: end}, partitions=[number], columns=["_appended_at"], limit=1
    )
    for batch in reader:
        return int(batch.column(0).cast("int64")[0].as_py())
    return log.clock.now_us()  # compaction has left no row behind this offset
