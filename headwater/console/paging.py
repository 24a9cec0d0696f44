"""Pages of a topic's rows, over all of its partitions at once: forwards from a place, or backwards from the end.

Rows of many partitions have no order of their own; here they are put in that of the time at which they were appended.
A page says where each partition goes on, so that going on shows every row once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from headwater.console.records import Record, records_of
from headwater.errors import OffsetExpired

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.log import EmbeddedLog, Offsets


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """One page. Going forwards, `next` has the first offset not shown; going backwards, the last one that was."""

    records: list[Record]
    next: Offsets
    is_last: bool


def page_after(log: EmbeddedLog, topic: str, after: Offsets, *, rows: int) -> Leaf:
    """The first rows at or behind some offsets, oldest first."""
    ends = log.end_offsets(topic)
    read = {
        number: _read(log, topic, number, offset, ends[number], limit=rows)
        for number, offset in after.items()
        if number in ends
    }
    shown = sorted(chain.from_iterable(read.values()), key=lambda one: one.place)[:rows]
    following = {}
    for number, records in read.items():
        fit = sum(one.partition == number for one in shown)
        if fit < len(records):
            following[number] = records[fit].offset
        else:
            following[number] = ends[number] if fit < rows else records[-1].offset + 1
    is_last = all(following[number] >= ends[number] for number in following)
    return Leaf(records=shown, next=following, is_last=is_last)


def page_before(log: EmbeddedLog, topic: str, before: Offsets, *, rows: int) -> Leaf:
    """The last rows before some offsets, newest first."""
    starts = log.start_offsets(topic)
    read = {
        number: _backwards(log, topic, number, starts[number], offset, rows)
        for number, offset in before.items()
        if number in starts
    }
    shown = sorted(chain.from_iterable(read.values()), key=lambda one: one.place, reverse=True)[:rows]
    following = {}
    for number, records in read.items():
        fit = sum(one.partition == number for one in shown)
        if fit == len(records) < rows:
            following[number] = starts[number]
        else:
            following[number] = records[-fit].offset if fit else before[number]
    is_last = all(following[number] <= starts[number] for number in following)
    return Leaf(records=shown, next=following, is_last=is_last)


def record_at(log: EmbeddedLog, topic: str, partition: int, offset: int) -> Record | None:
    """One row, whole; None where there is none at this offset: it was deleted, compacted away, or is yet to come."""
    data = _read(log, topic, partition, offset, offset + 1, whole=True)
    return data[0] if data else None


def neighbour(log: EmbeddedLog, topic: str, partition: int, offset: int, *, forwards: bool) -> int | None:
    """The offset of the row before or behind another one, over the gaps that compaction has left."""
    if forwards:
        found = _forwards(log, topic, partition, offset + 1, 1)
    else:
        start = log.start_offsets(topic).get(partition, 0)
        found = _backwards(log, topic, partition, start, offset, 1)
    return found[0].offset if found else None


def _forwards(log: EmbeddedLog, topic: str, partition: int, offset: int, rows: int) -> list[Record]:
    return _read(log, topic, partition, offset, log.end_offsets(topic).get(partition, 0), limit=rows)


def _backwards(log: EmbeddedLog, topic: str, partition: int, start: int, before: int, rows: int) -> list[Record]:
    """The last so many rows before an offset, in order; the window grows where compaction has left gaps."""
    width, found = rows, list[Record]()
    while before > start and len(found) < rows:
        begin = max(start, before - width)
        found = _read(log, topic, partition, begin, before) + found
        before, width = begin, width * 4
    return found[-rows:]


def _read(
    log: EmbeddedLog,
    topic: str,
    partition: int,
    start: int,
    stop: int,
    *,
    limit: int | None = None,
    whole: bool = False,
) -> list[Record]:
    """Rows of a range; what retention takes away meanwhile is not in it."""
    about = log.topic(topic)
    end = log.end_offsets(topic).get(partition, 0)
    start, stop = max(start, log.start_offsets(topic).get(partition, 0)), min(stop, end)
    if start >= stop:
        return []
    found: list[Record] = []
    with contextlib.suppress(OffsetExpired):
        for data in batches_of(log, topic, partition, start, stop, limit=limit):
            found += records_of(about, data, whole=whole)
    return found


def batches_of(
    log: EmbeddedLog,
    topic: str,
    partition: int,
    start: int,
    stop: int,
    *,
    limit: int | None = None,
    columns: Sequence[str] | None = None,
) -> list[pa.RecordBatch]:
    """The batches of a range of one partition."""
    return list(
        log.read(
            topic,
            start={partition: start},
            stop={partition: stop},
            partitions=[partition],
            limit=limit,
            columns=columns,
        )
    )
