"""Reads a range of offsets of one partition; frames outside a range of event times are skipped without decoding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwater.log.embedded.frame import KIND_PUNCTUATION, TIME_NONE, Header
from headwater.log.embedded.log import local_log
from headwater.log.embedded.partition_reader import Decoder, PartitionReader, Projection, check_range, limit_of
from headwater.log.embedded.segment import SegmentMap, walk
from headwater.log.port import Batch, Log


class Punctuation(NamedTuple):
    """A punctuation, "no row earlier than `time_us` follows", and the offset of the row behind it."""

    time_us: int
    offset: int


def read_range(
    log: Log,
    topic: str,
    partition: int,
    *,
    start: int,
    stop: int,
    columns: Sequence[str] | None = None,
    since_us: int | None = None,
    until_us: int | None = None,
    punctuations: tuple[int, int | None] | None = None,
) -> Iterator[Batch | Punctuation]:
    """The rows of one partition with offsets in [start, stop), in order.

    With `since_us` and `until_us`, frames without a row in that range of event times are skipped; the others may hold
    rows outside it.

    With `punctuations`, also yield punctuations: skip so many at `start`, and yield up to so many at `stop` (None for
    all). They take no offset, so two adjacent ranges have to divide those at their border.
    """
    handle = local_log(log).handle(topic)
    where = handle.partition(partition)
    check_range(where, start, where.start(), where.visible().offset)
    if punctuations is not None:
        last = punctuations[1] if start == stop else None
        yield from punctuations_at(log, topic, partition, start)[punctuations[0] : last]
    decoder = Decoder(handle.current, handle.schema_of, partition, Projection.of(handle.current(), columns))
    reader = PartitionReader(where, start)
    for header, payload in reader.frames(stop):
        if header.kind == KIND_PUNCTUATION:
            if punctuations is not None and start < header.offset_base < stop:
                yield Punctuation(header.time_min_us, header.offset_base)
        elif _may_hold(header, since_us, until_us):
            batch = decoder.batch(header, payload, start=reader.since, stop=stop)
            if batch is not None:
                yield batch
    if punctuations is not None and start < stop:
        yield from punctuations_at(log, topic, partition, stop)[: punctuations[1]]


def punctuations_at(log: Log, topic: str, partition: int, offset: int) -> list[Punctuation]:
    """The punctuations between the last row before an offset and the row with that offset, in order."""
    where = local_log(log).handle(topic).partition(partition)
    visible = where.visible()
    found: list[Punctuation] = []
    # The segment of the offset, and the one before it, which may end with punctuations.
    for segment in [segment for segment in where.segments() if segment.base <= offset][-2:]:
        mapped = SegmentMap(segment.path)
        limit = limit_of(segment, visible) or mapped.length
        position = where.index_of(mapped, limit).position_of(offset)
        for _, header in walk(mapped.view, position=position, stop=limit):
            if header.kind != KIND_PUNCTUATION or header.offset_base != offset:
                break
            found.append(Punctuation(header.time_min_us, offset))
    return found


def _may_hold(header: Header, since_us: int | None, until_us: int | None) -> bool:
    if since_us is None and until_us is None:
        return True
    if header.time_min_us == TIME_NONE:
        return False  # none of its rows has an event time
    return (since_us is None or header.time_max_us >= since_us) and (until_us is None or header.time_min_us < until_us)
