"""A range of one partition, frame by frame; frames outside a range of event times are passed over undecoded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headwater.log.embedded.frame import KIND_PUNCTUATION, TIME_NONE, Header
from headwater.log.embedded.log import EmbeddedLog
from headwater.log.embedded.reader import Decoder, PartitionReader, Projection, check_range
from headwater.log.port import Batch


class Piece(NamedTuple):
    """A batch, and when its frame was appended: punctuations take no offset and are told apart by that."""

    batch: Batch
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
) -> Iterator[Piece]:
    """The frames of one partition that hold offsets in [start, stop), and the punctuations between and behind them.

    With `since_us` and `until_us`, frames without a row in that range of event times are left out; those that remain
    may hold rows outside it.
    """
    handle = log.handle(topic)
    where = handle.partition(partition)
    check_range(where, start, where.start(), where.visible().offset)
    decoder = Decoder(handle.current, handle.schema_of, partition, Projection.of(handle.current(), columns))
    reader = PartitionReader(where, start)
    for header, payload in reader.frames(stop):
        if not _may_hold(header, since_us, until_us):
            continue
        batch = decoder.batch(header, payload, start=reader.since, stop=stop)
        if batch is not None:
            yield Piece(batch, header.appended_at_us)


def _may_hold(header: Header, since_us: int | None, until_us: int | None) -> bool:
    if header.kind == KIND_PUNCTUATION or (since_us is None and until_us is None):
        return True
    if header.time_min_us == TIME_NONE:
        return False  # no row of it has an event time
    return (since_us is None or header.time_max_us >= since_us) and (until_us is None or header.time_min_us < until_us)
