"""Reads a range of offsets of one partition; frames outside a range of event times are skipped without decoding."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headwater.log.decoder import Decoder
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.partition_reader import (
    LISTINGS_MAX,
    PartitionReader,
    check_range,
    limit_of,
)
from headwater.log.embedded.segment import SegmentMap, walk
from headwater.log.embedded.topic import TopicHandle
from headwater.log.errors import SegmentMissing
from headwater.log.frame import KIND_PUNCTUATION, TIME_NONE, Header
from headwater.log.port import Batch, EventTimes


def read_range(
    handle: TopicHandle,
    partition: int,
    *,
    start: int,
    stop: int,
    columns: Sequence[str] | None = None,
    since_us: int | None = None,
    until_us: int | None = None,
    punctuations: tuple[int, int | None] | None = None,
) -> Iterator[Batch]:
    """See `Log.read_range`."""
    where = handle.partition(partition)
    check_range(where, start, where.start(), where.visible().offset)
    decoder = Decoder(handle.current, handle.schema_of, partition, handle.projection(columns))
    if punctuations is not None:
        last = punctuations[1] if start == stop else None
        for header in punctuations_at(handle, partition, start)[punctuations[0] : last]:
            yield decoder.punctuation(header)
    reader = PartitionReader(where, start)
    for header, payload in reader.frames(stop):
        if header.kind == KIND_PUNCTUATION:
            if punctuations is not None and start < header.offset_base < stop:
                yield decoder.punctuation(header)
        elif _may_hold(header, since_us, until_us):
            batch = decoder.batch(header, payload, start=reader.since, stop=stop)
            if batch is not None:
                yield batch
    if punctuations is not None and start < stop:
        for header in punctuations_at(handle, partition, stop)[: punctuations[1]]:
            yield decoder.punctuation(header)


def punctuations_at(handle: TopicHandle, partition: int, offset: int) -> list[Header]:
    """The punctuations between the last row before an offset and the row with that offset, in order."""
    where = handle.partition(partition)
    visible = where.visible()
    found: list[Header] = []
    # The segment of the offset, and the one before it, which may end with punctuations.
    for segment in [segment for segment in where.segments() if segment.base <= offset][-2:]:
        mapped = SegmentMap(segment.path)
        limit = limit_of(segment, visible) or mapped.length
        position = where.index_of(mapped, limit).position_of(offset)
        for _, header in walk(mapped.view, position=position, stop=limit):
            if header.kind != KIND_PUNCTUATION or header.offset_base != offset:
                break
            found.append(header)
    return found


def event_times(
    handle: TopicHandle, partition: int, *, start: int, stop: int, until_us: int | None = None
) -> EventTimes:
    """See `Log.event_times`.

    Frames are not read: their headers have the latest time. Only a frame that the range cuts, or that has a time after
    `until_us`, is read, and of it one column.
    """
    where, column = handle.partition(partition), handle.current().time_column
    promised = [found.time_min_us for found in punctuations_at(handle, partition, stop)]
    latest: list[int] = []
    for header in _headers(where, start, stop):
        if header.kind == KIND_PUNCTUATION:
            promised.append(header.time_min_us)
        elif header.time_min_us != TIME_NONE and column is not None:
            is_cut = header.offset_base < start or header.offset_next > stop
            if not is_cut and (until_us is None or header.time_max_us <= until_us):
                latest.append(header.time_max_us)
            elif until_us is None or header.time_min_us <= until_us:
                first, last = max(start, header.offset_base), min(stop, header.offset_next)
                latest += _times_of(handle, partition, first, last, column, until_us)
    return EventTimes(max(latest, default=None), max(promised, default=None))


def tails(handle: TopicHandle) -> dict[int, tuple[int, int]]:
    """See `Log.tails`."""
    ends = {one.number: one.visible() for one in handle.partitions()}
    return {number: (tail.segment, tail.position) for number, tail in ends.items()}


def _headers(where: Partition, start: int, stop: int) -> list[Header]:
    """The headers of the frames with offsets in [start, stop)."""
    for _ in range(LISTINGS_MAX):
        with contextlib.suppress(FileNotFoundError):  # compaction has rewritten a segment: list the folder again
            return list(_headers_now(where, start, stop)) if start < stop else []
    raise SegmentMissing(partition=where.name, offset=start)


def _headers_now(where: Partition, start: int, stop: int) -> Iterator[Header]:
    visible, chain = where.visible(), where.segments()
    for number, segment in enumerate(chain):
        if segment.base >= stop or (number + 1 < len(chain) and chain[number + 1].base <= start):
            continue
        mapped = SegmentMap(segment.path)
        limit = limit_of(segment, visible) or mapped.length
        position = where.index_of(mapped, limit).position_of(max(start, segment.base))
        for _, header in walk(mapped.view, position=position, stop=limit):
            if header.offset_base >= stop:
                break
            yield header


def _times_of(
    handle: TopicHandle, partition: int, start: int, stop: int, column: str, until_us: int | None
) -> list[int]:
    """The latest event time of each batch of rows, of the times up to `until_us`."""
    found = []
    for batch in read_range(handle, partition, start=start, stop=stop, columns=[column]):
        values = batch.data.column(column)
        times = values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(pa.int64())
        times = times if until_us is None else times.filter(pc.less_equal(times, until_us))
        found.append(pc.max(times).as_py())
    return [one for one in found if one is not None]


def _may_hold(header: Header, since_us: int | None, until_us: int | None) -> bool:
    if since_us is None and until_us is None:
        return True
    if header.time_min_us == TIME_NONE:
        return False  # none of its rows has an event time
    return (since_us is None or header.time_max_us >= since_us) and (until_us is None or header.time_min_us < until_us)
