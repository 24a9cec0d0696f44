"""When retention will delete the segment that holds an offset."""

from __future__ import annotations

from headwater.clock import Clock
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.tidy import expiry_us, last_appended_us
from headwater.log.embedded.topics import TopicHandle
from headwater.log.lag import Expiry


def expiry_of(handle: TopicHandle, partition: Partition, offset: int, *, clock: Clock) -> Expiry:
    """How close the segment of `offset` is to its end, by age and by bytes."""
    retention = handle.current().retention
    chain = partition.segments()
    visible = partition.visible().offset
    ends = [*(segment.base for segment in chain[1:]), visible] if chain else []
    at = next((index for index, end in enumerate(ends) if offset < end), None)
    if at is None:
        return Expiry(offset_next=visible, oldest=False, seconds=None, used=0.0)
    seconds, used = None, 0.0
    if retention.seconds_max is not None and not handle.topic.compact:
        last = last_appended_us(chain[at])
        due_us = expiry_us(handle, last) or 0
        seconds = max(0.0, (due_us - clock.now_us()) / 1e6)
        used = 1 - seconds / retention.seconds_max
    if retention.bytes_max is not None:
        # What counts is what lies behind: the segment goes when it and all that follows exceed the limit.
        used = max(used, sum(segment.path.stat().st_size for segment in chain[at:]) / retention.bytes_max)
    return Expiry(offset_next=ends[at], oldest=at == 0, seconds=seconds, used=used)
