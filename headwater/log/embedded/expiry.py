"""When retention will delete the segment that holds an offset."""

from __future__ import annotations

from headwater.clock import Clock
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.segment import Segment, SegmentMap
from headwater.log.embedded.tidy import expiry_us
from headwater.log.embedded.topics import TopicHandle
from headwater.log.lag import Expiry


def expiry_of(handle: TopicHandle, partition: Partition, offset: int, *, clock: Clock) -> Expiry:
    """How close the segment of `offset` is to its end, by age and by bytes."""
    try:
        return _expiry_of(handle, partition, offset, clock=clock)
    except FileNotFoundError:  # while we looked
        return Expiry(offset_next=partition.start(), oldest=True, seconds=0.0, used=1.0)


def _expiry_of(handle: TopicHandle, partition: Partition, offset: int, *, clock: Clock) -> Expiry:
    retention = handle.current().retention
    visible = partition.visible()
    chain = partition.segments()
    ends = [*(segment.base for segment in chain[1:]), visible.offset] if chain else []
    at = next((index for index, end in enumerate(ends) if offset < end), None)
    if at is None:
        return Expiry(offset_next=visible.offset, oldest=False, seconds=None, used=0.0)
    seconds, used = None, 0.0
    if retention.seconds_max is not None and not handle.topic.compact:
        limit = visible.position if chain[at].base == visible.segment else None
        due_us = expiry_us(handle, _last_appended_us(partition, chain[at], limit)) or 0
        seconds = max(0.0, (due_us - clock.now_us()) / 1e6)
        used = 1 - seconds / retention.seconds_max
    if retention.bytes_max is not None:
        # What counts is what lies behind: the segment goes when it and all that follows exceed the limit.
        used = max(used, sum(segment.path.stat().st_size for segment in chain[at:]) / retention.bytes_max)
    return Expiry(offset_next=ends[at], oldest=at == 0, seconds=seconds, used=used)


def _last_appended_us(partition: Partition, segment: Segment, limit: int | None) -> int:
    mapped = SegmentMap(segment.path)
    entries = partition.index_of(mapped, mapped.length if limit is None else limit).entries()
    return entries[-1].appended_at_us if entries else 0
