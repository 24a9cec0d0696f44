"""Bring one version of a view up to the present end of its changelog.

The order matters: first what the view's queries say they reflect, then the ends of the changelog, then the rows up to
those ends. Whatever the transactions have said by then is in these rows, so position and rows agree.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headwater.clock import Clock
from headwater.errors import OffsetAhead, OffsetExpired, ViewConflict
from headwater.log import Batch, EmbeddedLog, Offsets, Start, Topic
from headwater.schema.partitioner import key_hash
from headwater.views.collapse import PLACE, TOMBSTONE, Delta, collapsed
from headwater.views.places import KEYS_MAX, Places, place_of
from headwater.views.spec import Sources, ViewPosition, ViewSpec, sources_of_metadata
from headwater.views.store import ViewStore

ROWS_MAX = 500_000
BYTES_MAX = 128 * 1024 * 1024


@dataclass
class Upkeep:
    """A version of a view that is being kept, and where it stands."""

    spec: ViewSpec
    active: bool
    position: ViewPosition
    problem: Exception | None = None
    retry_at: float = 0.0
    rows_applied: int = 0
    #: Where the row of each key lies in the changelog; None until it is known, and for views that are too large.
    places: Places | None = None
    is_large: bool = False


def producers_sources(log: EmbeddedLog, producers: tuple[str, ...]) -> Sources:
    """What the transactions of these queries reflect by now."""
    return sources_of_metadata([log.transaction_metadata(producer) for producer in producers])


def catch_up(
    log: EmbeddedLog, store: ViewStore, upkeep: Upkeep, *, clock: Clock, told: Callable[[], None] = lambda: None
) -> bool:
    """Apply what the changelog has; returns whether the view has changed. `told` is called after each transaction."""
    sources = producers_sources(log, upkeep.spec.producers)
    topic = log.topic(upkeep.spec.topic)
    _follow_schema(store, upkeep, topic)
    ends = log.end_offsets(topic.name)
    fresh = _begins_anew(log, upkeep, topic, ends)
    start = ViewPosition(version=upkeep.spec.version, topic_id=topic.id) if fresh else upkeep.position
    keeps_places = store.holds_readers and not upkeep.is_large
    if upkeep.places is None and not fresh and keeps_places:
        _find_places(log, upkeep)
    if not fresh and start.offsets == ends and start.sources == sources:
        return False
    chunks = _Chunks(log, upkeep.spec, start, ends, sources, clock)
    try:
        for number, (delta, position) in enumerate(chunks):
            begins = fresh and number == 0
            if begins:
                upkeep.places = None
            store.apply(upkeep.spec, delta, position, replace=begins)
            if begins and keeps_places:
                upkeep.places = Places()
            _note_places(upkeep, upkeep.places, delta)
            upkeep.position = position
            upkeep.rows_applied += delta.keys.num_rows
            told()
    except (OffsetExpired, OffsetAhead):
        # Retention was quicker than we: what is left is the whole table, for a changelog is compacted or complete.
        upkeep.position = replace(upkeep.position, topic_id="")
        return catch_up(log, store, upkeep, clock=clock, told=told)
    return True


def _find_places(log: EmbeddedLog, upkeep: Upkeep) -> None:
    """Learn where the rows lie that the store has already: once, when the view is taken up."""
    places = Places()
    spec = replace(upkeep.spec, schema=upkeep.spec.key_schema)
    for batch in changelog_batches(log, spec, {}, upkeep.position.offsets):
        _note_places(upkeep, places, collapsed([_placed(batch)], spec))
        if upkeep.is_large:
            return
    upkeep.places = places


def _note_places(upkeep: Upkeep, places: Places | None, delta: Delta) -> None:
    if places is not None and delta.places is not None and delta.keys.num_rows:
        places.put(key_hash([column.combine_chunks() for column in delta.keys.columns]), delta.places)
        if len(places) > KEYS_MAX:
            upkeep.places, upkeep.is_large = None, True


def _placed(batch: Batch) -> pa.RecordBatch:
    places = place_of(batch.partition, np.asarray(batch.data.column("_offset")))
    return batch.data.append_column(PLACE, pa.array(places))


def _begins_anew(log: EmbeddedLog, upkeep: Upkeep, topic: Topic, ends: Offsets) -> bool:
    position = upkeep.position
    if position.topic_id != topic.id:
        return True
    starts = log.start_offsets(topic.name)
    return any(
        not starts.get(partition, 0) <= offset <= ends.get(partition, -1)
        for partition, offset in position.offsets.items()
    )


def _follow_schema(store: ViewStore, upkeep: Upkeep, topic: Topic) -> None:
    spec = upkeep.spec
    if topic.key and topic.key != spec.key:
        why = f"its key is {', '.join(spec.key)}, but that of topic {topic.name!r} is {', '.join(topic.key)}"
        raise ViewConflict(view=spec.name, version=spec.version, why=why)
    if not topic.schema.equals(spec.schema):
        upkeep.spec = store.declare(replace(spec, schema=topic.schema)).spec


class _Chunks:
    """The rows between two positions as transactions: large enough to be quick, small enough for memory."""

    def __init__(
        self, log: EmbeddedLog, spec: ViewSpec, start: ViewPosition, ends: Offsets, sources: Sources, clock: Clock
    ) -> None:
        self._log = log
        self._spec = spec
        self._position = start
        self._ends = ends
        self._sources = sources
        self._clock = clock

    def __iter__(self) -> Iterator[tuple[Delta, ViewPosition]]:
        offsets = {partition: self._position.offsets.get(partition, 0) for partition in self._ends}
        rows: list[pa.RecordBatch] = []
        count = size = 0
        for batch in changelog_batches(self._log, self._spec, self._position.offsets, self._ends):
            offsets[batch.partition] = batch.offset_next
            rows.append(_placed(batch))
            count, size = count + batch.data.num_rows, size + batch.data.nbytes
            if count >= ROWS_MAX or size >= BYTES_MAX:
                # The sources are reflected only by the last row before the end.
                yield collapsed(rows, self._spec), self._at(offsets, self._position.sources)
                rows, count, size = [], 0, 0
        yield collapsed(rows, self._spec), self._at(self._ends, self._sources)

    def _at(self, offsets: Offsets, sources: Sources) -> ViewPosition:
        return ViewPosition(
            version=self._spec.version,
            topic_id=self._position.topic_id,
            offsets=dict(offsets),
            sources=sources,
            applied_at_us=self._clock.now_us(),
        )


def changelog_batches(log: EmbeddedLog, spec: ViewSpec, starts: Offsets, ends: Offsets) -> Iterator[Batch]:
    """The rows of a changelog between two positions, each partition in order, and among them by the time of append.

    A key has one partition, unless partitions were added: then the time says which row is newer.
    """
    oldest = log.start_offsets(spec.topic)
    behind = [number for number, end in ends.items() if starts.get(number, oldest.get(number, 0)) < end]
    columns = [*spec.schema.names, TOMBSTONE, "_offset"]
    if len(behind) < 2:
        for number in behind:
            yield from _partition_batches(log, spec, number, starts, ends, columns)
        return
    streams = [_partition_batches(log, spec, number, starts, ends, [*columns, "_appended_at"]) for number in behind]
    yield from heapq.merge(*streams, key=_appended_at)


def _partition_batches(
    log: EmbeddedLog, spec: ViewSpec, number: int, starts: Offsets, ends: Offsets, columns: list[str]
) -> Iterator[Batch]:
    start: Start = {number: starts[number]} if number in starts else "earliest"
    reader = log.read(spec.topic, start=start, stop=ends, partitions=[number], columns=columns)
    for batch in reader.batches():
        if batch.data.num_rows:
            yield batch


def _appended_at(batch: Batch) -> tuple[int, int]:
    return batch.data.column("_appended_at")[0].value, batch.partition
