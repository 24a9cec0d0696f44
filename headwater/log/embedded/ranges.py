"""A range of one partition, frame by frame; frames outside a range of event times are passed over undecoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwater.log.embedded.frame import KIND_PUNCTUATION, TIME_NONE, Header
from headwater.log.embedded.log import EmbeddedLog
from headwater.log.embedded.partition import Partition
from headwater.log.embedded.reader import Decoder, PartitionReader, Projection, check_range, limit_of
from headwater.log.embedded.segment import SegmentMap, walk
from headwater.log.port import Batch


class Punctuation(NamedTuple):
    """A promise in a partition: what it says, which offset follows it, and when it was appended.

    Punctuations take no offset of their own, so that those at one offset are told apart by when they came.
    """

    time_us: int
    offset: int
    appended_at_us: int


def read_range(
    log: EmbeddedLog,
    topic: str,
    partition: int,
    *,
    start: int,
    stop: int,
    columns: Sequence[str] | None = None,
    since_us: int | None = None,
    until_us: int | None = None,
) -> Iterator[Batch | Punctuation]:
    """The rows of one partition with offsets in [start, stop), in order, with the punctuations among and behind them.

    With `since_us` and `until_us`, frames without a row in that range of event times are left out; those that remain
    may hold rows outside it.
    """
    handle = log.handle(topic)
    where = handle.partition(partition)
    check_range(where, start, where.start(), where.visible().offset)
    decoder = Decoder(handle.current, handle.schema_of, partition, Projection.of(handle.current(), columns))
    reader = PartitionReader(where, start)
    for header, payload in reader.frames(stop):
        if header.kind == KIND_PUNCTUATION:
            if header.offset_base < stop:
                yield _punctuation(header)
        elif _may_hold(header, since_us, until_us):
            batch = decoder.batch(header, payload, start=reader.since, stop=stop)
            if batch is not None:
                yield batch
    yield from _punctuations_at(where, stop)


def _punctuations_at(partition: Partition, offset: int) -> Iterator[Punctuation]:
    """Those between the last row before an offset and the row that has it, if there is one yet."""
    visible = partition.visible()
    chain = [segment for segment in partition.segments() if segment.base <= offset]
    if not chain:
        return
    mapped = SegmentMap(chain[-1].path)
    limit = limit_of(chain[-1], visible) or mapped.length
    position = partition.index_of(mapped, limit).position_of(offset)
    for _, header in walk(mapped.view, position=position, stop=limit):
        if header.kind != KIND_PUNCTUATION:
            return
        yield _punctuation(header)


def _punctuation(header: Header) -> Punctuation:
    return Punctuation(header.time_min_us, header.offset_base, header.appended_at_us)


def _may_hold(header: Header, since_us: int | None, until_us: int | None) -> bool:
    if since_us is None and until_us is None:
        return True
    if header.time_min_us == TIME_NONE:
        return False  # no row of it has an event time
    return (since_us is None or header.time_max_us >= since_us) and (until_us is None or header.time_min_us < until_us)
