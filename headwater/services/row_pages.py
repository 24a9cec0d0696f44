"""Pages of rows, as Arrow batches: from a position on, or the last ones before it, over all partitions of a topic.

Rows of several partitions are ordered by the times at which they were appended. A page has the next offset of each
partition, so that all pages together have every row once.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from headwater.log.client_config import Start
from headwater.log.errors import OffsetExpired, partition_not_found
from headwater.log.port import Batch, Cursor, Log, Offsets
from headwater.schema import conform

if TYPE_CHECKING:
    from headwater.services.host import ExpiringCache

#: Rows that a cursor reads at once, before the bound in bytes is checked.
CURSOR_ROWS_MAX = 16_384
BYTES_MAX = 2**63 - 1


@dataclass(frozen=True, kw_only=True)
class BatchPage:
    """Rows of a topic as batches, the offsets to go on from, and whether the range has more."""

    schema: pa.Schema
    batches: list[Batch]
    next: Offsets
    more: bool
    topic_id: str = ""


def read_page(
    log: Log,
    topic: str,
    *,
    start: Start,
    stop: Start | None = None,
    partitions: Sequence[int] | None = None,
    columns: Sequence[str] | None = None,
    rows_max: int,
    bytes_max: int = BYTES_MAX,
    archived: bool = False,
    ordered: bool = True,
) -> BatchPage:
    """Read rows from a position on, up to a number of rows or about a number of bytes.

    Rows of several partitions come in the order in which they were appended. With `ordered=False` one partition comes
    after the other, in batches as they are stored, which is faster.
    """
    check_partitions(log.topic(topic).partitions, topic, partitions)
    reader = log.read(
        topic, start=start, stop=stop, partitions=partitions, columns=columns, limit=rows_max, archived=archived
    )
    ranges = reader.ranges
    filled = {number: span for number, span in ranges.items() if span[0] < span[1]}
    stream = reader.batches()
    if ordered and len(filled) > 1:
        wanted = None if columns is None else with_place(columns)
        readers = [
            log.read(
                topic,
                start={number: first},
                stop={number: end},
                partitions=[number],
                columns=wanted,
                limit=rows_max,
                archived=archived,
            )
            for number, (first, end) in filled.items()
        ]
        stream = in_append_order([one.batches() for one in readers])
    following = {number: first for number, (first, _) in ranges.items()}
    batches, rows, size = list[Batch](), 0, 0
    for found in stream:
        batch = found if found.data.num_rows <= rows_max - rows else cut(found, rows_max - rows)[0]
        following[batch.partition] = max(following[batch.partition], batch.offset_next)
        rows, size = rows + batch.data.num_rows, size + batch.data.nbytes
        batches.append(batch)
        if rows >= rows_max or size >= bytes_max:
            break
    else:
        # All was read: offsets whose rows compaction has deleted count as read, too.
        following = {number: max(end, following[number]) for number, (_, end) in ranges.items()}
    more = any(following[number] < end for number, (_, end) in ranges.items())
    return BatchPage(
        schema=reader.schema, batches=[selected(one, columns) for one in batches], next=following, more=more
    )


@dataclass(frozen=True, kw_only=True)
class RangePage:
    """A part of a range of one partition, and where to go on: the offset, and how many punctuations there were returned."""

    batches: list[Batch]
    offset: int
    told: int
    more: bool
    topic_id: str

    @property
    def schema(self) -> pa.Schema:
        return self.batches[0].data.schema if self.batches else pa.schema([])


def read_range_page(
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
    rows_max: int,
    bytes_max: int = BYTES_MAX,
) -> RangePage:
    """Read the beginning of a range, up to a number of rows or about a number of bytes; see `Log.read_range`."""
    about = log.topic(topic)
    check_partitions(about.partitions, topic, [partition])
    offset, told = start, 0 if punctuations is None else punctuations[0]
    batches, rows, size = list[Batch](), 0, 0
    for found in log.read_range(
        topic,
        partition,
        start=start,
        stop=stop,
        columns=columns,
        since_us=since_us,
        until_us=until_us,
        punctuations=punctuations,
    ):
        batch = found if found.data.num_rows <= rows_max - rows else cut(found, rows_max - rows)[0]
        if batch.punctuation_us is None:
            offset, told = batch.offset_next, 0
        else:
            offset, told = batch.offset, told + 1 if batch.offset == offset else 1
        rows, size = rows + batch.data.num_rows, size + batch.data.nbytes
        batches.append(batch)
        if rows >= rows_max or size >= bytes_max:
            return RangePage(batches=batches, offset=offset, told=told, more=True, topic_id=about.id)
    return RangePage(batches=batches, offset=offset, told=told, more=False, topic_id=about.id)


def read_on(
    log: Log,
    cursors: ExpiringCache[Cursor],
    name: str,
    topic: str,
    partition: int,
    offset: int,
    *,
    topic_id: str | None = None,
    columns: Sequence[str] | None = None,
    rows_max: int,
    bytes_max: int,
) -> BatchPage:
    """Read one partition on with a cursor that is kept under a name; a new one is made if it was dropped."""
    known = f"{topic}/{partition}/{name}"
    # Removed while it is used: two requests at once must not share it.
    cursor = cursors.pop(known)
    identity = log.topic(topic).id
    if topic_id is not None and topic_id != identity:
        return BatchPage(schema=pa.schema([]), batches=[], next={partition: offset}, more=False, topic_id=identity)
    if cursor is None or cursor.offset != offset or cursor.deleted:
        cursor = log.cursor(topic, partition, offset, columns=columns)
    batches: list[Batch] = []
    left, room = rows_max, bytes_max
    while left > 0 and room > 0 and (some := cursor.read(rows_max=min(left, CURSOR_ROWS_MAX))):
        batches += some
        left -= sum(batch.data.num_rows for batch in some)
        room -= sum(batch.data.nbytes for batch in some)
    cursors.put(known, cursor)
    schema = batches[0].data.schema if batches else pa.schema([])
    if any(not batch.data.schema.equals(schema) for batch in batches):  # the topic was altered in between
        batches = [replace(batch, data=conform(batch.data, schema)) for batch in batches]
    return BatchPage(
        schema=schema, batches=batches, next={partition: cursor.offset}, more=bool(batches), topic_id=identity
    )


# -- positions --------------------------------------------------------------------------------------------------------


def within(log: Log, topic: str, offsets: Mapping[int, int]) -> Offsets:
    """The offsets of partitions that exist; one outside its partition moves to the nearer end."""
    starts, ends = log.start_offsets(topic), log.end_offsets(topic)
    return {number: min(max(at, starts[number]), ends[number]) for number, at in offsets.items() if number in ends}


def last_offsets(log: Log, topic: str, before: Mapping[int, int], *, rows: int) -> Offsets:
    """The offsets at which the last `rows` rows before some offsets begin, by append time."""
    starts = log.start_offsets(topic)
    places = {number: last_places(log, topic, number, stop, rows=rows) for number, stop in before.items()}
    newest = sorted((place for some in places.values() for place in some), reverse=True)[:rows]
    counts = dict.fromkeys(before, 0)
    for _, number, _ in newest:
        counts[number] += 1
    begins = {}
    for number, stop in before.items():
        count, found = counts[number], places[number]
        if count == len(found) < rows:  # all rows of the partition
            begins[number] = min(starts[number], stop)
        else:
            begins[number] = found[-count][2] if count else stop
    return begins


def last_places(log: Log, topic: str, partition: int, before: int, *, rows: int) -> list[tuple[int, int, int]]:
    """Append time, partition and offset of the last `rows` rows of a partition before an offset, in order."""
    start, found, width = log.start_offsets(topic)[partition], list[tuple[int, int, int]](), rows
    while before > start and len(found) < rows:
        begin = max(start, before - width)
        some: list[tuple[int, int, int]] = []
        with contextlib.suppress(OffsetExpired):  # retention has deleted them meanwhile
            for batch in log.read(
                topic,
                start={partition: begin},
                stop={partition: before},
                partitions=[partition],
                columns=["_appended_at", "_offset"],
            ):
                times, offsets = _times(batch), np.asarray(batch.column("_offset"))
                some += [(int(time), partition, int(offset)) for time, offset in zip(times, offsets, strict=True)]
        # Compaction leaves offsets without rows: read further back, in larger steps.
        found, before, width = some + found, begin, width * 4
    return found[-rows:] if rows else []


def check_partitions(count: int, topic: str, partitions: Iterable[int] | None) -> None:
    for number in partitions or ():
        if not 0 <= number < count:
            raise partition_not_found(topic=topic, partition=number, partitions=count)


# -- batches ----------------------------------------------------------------------------------------------------------


def in_append_order(streams: Sequence[Iterator[Batch]]) -> Iterator[Batch]:
    """Merge the batches of several partitions, which have `_appended_at` and `_offset`, by append time.

    A batch is cut where rows of another partition come between its own. Nothing is copied.
    """
    if len(streams) == 1:
        yield from streams[0]
        return
    heads: list[_Head] = []
    for stream in streams:
        yield from _advance(heads, stream)
    while heads:
        head = heapq.heappop(heads)
        if heads:
            other = heads[0]
            side: Any = "right" if head.partition < other.partition else "left"
            stop = int(np.searchsorted(head.times, other.time, side=side))
        else:
            stop = head.batch.data.num_rows
        if stop < head.batch.data.num_rows:
            first, rest = cut(head.batch, stop)
            heapq.heappush(heads, _Head(int(head.times[stop]), head.partition, rest, head.times[stop:], head.stream))
            yield first
        else:
            yield head.batch
            yield from _advance(heads, head.stream)


@dataclass(frozen=True, slots=True)
class _Head:
    """The next rows of one partition in a merge."""

    time: int
    partition: int
    batch: Batch
    # Any: numpy's array of 64-bit integers.
    times: Any
    stream: Iterator[Batch]

    def __lt__(self, other: _Head) -> bool:
        return (self.time, self.partition) < (other.time, other.partition)


def _advance(heads: list[_Head], stream: Iterator[Batch]) -> Iterator[Batch]:
    """Put the next rows of a stream into a merge; yield the punctuations before them at once."""
    for batch in stream:
        if batch.data.num_rows:
            times = _times(batch.data)
            heapq.heappush(heads, _Head(int(times[0]), batch.partition, batch, times, stream))
            return
        yield batch


# Any: numpy's array of 64-bit integers.
def _times(data: pa.RecordBatch) -> Any:
    return np.asarray(data.column("_appended_at").view(pa.int64()))


def cut(batch: Batch, rows: int) -> tuple[Batch, Batch]:
    """Split a batch after so many rows."""
    head, tail = batch.data.slice(0, rows), batch.data.slice(rows)
    is_dense = batch.offset_next - batch.offset == batch.data.num_rows
    middle = batch.offset + rows
    if not is_dense and "_offset" in batch.data.schema.names:
        middle = tail.column("_offset")[0].as_py() if tail.num_rows else batch.offset_next
    return replace(batch, offset_next=middle, data=head), replace(batch, offset=middle, data=tail)


def with_place(columns: Sequence[str]) -> list[str]:
    """The columns, and those of the append time and the offset."""
    return list(dict.fromkeys([*columns, "_appended_at", "_offset"]))


def selected(batch: Batch, columns: Sequence[str] | None) -> Batch:
    """A batch with only these columns."""
    if columns is None or batch.data.schema.names == list(columns):
        return batch
    return replace(batch, data=batch.data.select(list(columns)))


def joined(batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Join the rows into few batches, however small the appends were: encoding and matching cost time per batch."""
    known = list(batches)
    return pa.Table.from_batches(known).combine_chunks().to_batches() if len(known) > 1 else known
