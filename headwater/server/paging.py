"""One answer's worth of rows: as many as fit, and where to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headwater.errors import PartitionNotFound
from headwater.log import Batch, Offsets, Start
from headwater.schema import conform
from headwater.server.service import Service

#: Rows that a cursor is asked for at once, so that the bound in bytes is looked at now and then.
CURSOR_ROWS_MAX = 16_384


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a request wants to read."""

    topic: str
    start: Start
    stop: Start | None
    partitions: Sequence[int] | None
    columns: Sequence[str] | None
    limit: int
    bytes_max: int
    archived: bool = False
    #: The name of a place that a client reads on from, again and again, and the topic that it is in.
    cursor: str | None = None
    topic_id: str | None = None

    def going_on(self, offsets: Offsets) -> Page:
        return replace(self, start=offsets)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What an answer says."""

    schema: pa.Schema
    batches: list[Batch]
    next: Offsets
    more: bool
    topic_id: str = ""


def read_page(service: Service, page: Page) -> Found:
    """Rows from a place on, up to the bounds of the page."""
    if page.cursor is not None and isinstance(page.start, dict) and len(page.start) == 1:
        return _by_cursor(service, page, page.cursor)
    log = service.log
    count = log.topic(page.topic).partitions
    for number in page.partitions or ():
        if not 0 <= number < count:
            raise PartitionNotFound(topic=page.topic, partition=number, partitions=count)
    reader = log.read(
        page.topic,
        start=page.start,
        stop=page.stop,
        partitions=page.partitions,
        columns=page.columns,
        limit=page.limit,
        archived=page.archived,
    )
    following = {number: start for number, (start, _) in reader.ranges.items()}
    size, rows, batches = 0, 0, []
    for batch in reader.batches():
        batches.append(batch)
        following[batch.partition] = max(following[batch.partition], batch.offset_next)
        size += batch.data.nbytes
        rows += batch.data.num_rows
        if size >= page.bytes_max:
            break
    if size < page.bytes_max and rows < page.limit:
        # All was read: offsets that compaction has left without rows count as read, too.
        following = {number: max(stop, following[number]) for number, (_, stop) in reader.ranges.items()}
    more = any(following[number] < stop for number, (_, stop) in reader.ranges.items())
    return Found(schema=reader.schema, batches=batches, next=following, more=more)


def _by_cursor(service: Service, page: Page, name: str) -> Found:
    [(number, offset)] = page.start.items() if isinstance(page.start, dict) else []
    known = f"{page.topic}/{number}/{name}"
    # Taken out while it is used: two requests at once must not share it.
    cursor = service.cursors.pop(known)
    identity = service.log.topic(page.topic).id
    if page.topic_id is not None and page.topic_id != identity:
        return Found(schema=pa.schema([]), batches=[], next={number: offset}, more=False, topic_id=identity)
    if cursor is None or cursor.offset != offset or cursor.deleted:
        cursor = service.log.cursor(page.topic, number, offset, columns=page.columns)
    batches: list[Batch] = []
    left, room = page.limit, page.bytes_max
    while left > 0 and room > 0 and (some := cursor.read(rows_max=min(left, CURSOR_ROWS_MAX))):
        batches += some
        left -= sum(batch.data.num_rows for batch in some)
        room -= sum(batch.data.nbytes for batch in some)
    service.cursors.put(known, cursor)
    schema = batches[0].data.schema if batches else pa.schema([])
    if any(not batch.data.schema.equals(schema) for batch in batches):  # the topic was altered in between
        batches = [replace(batch, data=conform(batch.data, schema)) for batch in batches]
    return Found(schema=schema, batches=batches, next={number: cursor.offset}, more=bool(batches), topic_id=identity)
