"""Bring one version of a view up to the present end of its changelog.

The order matters: first what the view's queries say they reflect, then the ends of the changelog, then the rows up to
those ends. Whatever the transactions have said by then is in these rows, so position and rows agree.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import Clock
from headwater.log import Batch, Log, Offsets, Start, Topic
from headwater.log.errors import OffsetAhead, OffsetExpired
from headwater.schema.partitioner import key_hash
from headwater.views.errors import ViewConflict, ViewRowInvalid
from headwater.views.lookup import GONE, KEYS_MAX, Hashes, Places, place_of
from headwater.views.spec import Sources, ViewPosition, ViewSpec, sources_of_metadata
from headwater.views.store import PLACE, TOMBSTONE, Delta, ViewStore

ROWS_MAX = 500_000
BYTES_MAX = 128 * 1024 * 1024


@dataclass
class MaintainedView:
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


def producers_sources(log: Log, producers: tuple[str, ...]) -> Sources:
    """What the transactions of these queries reflect by now."""
    return sources_of_metadata([log.transaction_metadata(producer) for producer in producers])


def catch_up(
    log: Log,
    store: ViewStore,
    maintained: MaintainedView,
    *,
    clock: Clock,
    told: Callable[[], None] = lambda: None,
) -> bool:
    """Apply what the changelog has; returns whether the view has changed. `told` is called after each transaction."""
    sources = producers_sources(log, maintained.spec.producers)
    topic = log.topic(maintained.spec.topic)
    _follow_schema(store, maintained, topic)
    ends = log.end_offsets(topic.name)
    fresh = _begins_anew(log, maintained, topic, ends)
    start = ViewPosition(version=maintained.spec.version, topic_id=topic.id) if fresh else maintained.position
    keeps_places = store.holds_readers and not maintained.is_large
    if maintained.places is None and not fresh and keeps_places:
        _find_places(log, maintained)
    if not fresh and start.offsets == ends and start.sources == sources:
        return False
    chunks = _Chunks(log, maintained.spec, start, ends, sources, clock)
    try:
        for number, (delta, position) in enumerate(chunks):
            begins = fresh and number == 0
            if begins:
                maintained.places = None
            doubt = partial(_doubt_places, maintained.places, delta)
            store.apply(maintained.spec, delta, position, replace=begins, before_commit=doubt)
            places = Places() if begins and keeps_places else maintained.places
            _note_places(maintained, places, delta)
            maintained.places = None if maintained.is_large else places
            maintained.position = position
            maintained.rows_applied += delta.keys.num_rows
            told()
    except (OffsetExpired, OffsetAhead):
        # Retention deleted rows before they were read: what is left is the whole table, for a changelog is compacted or complete.
        maintained.position = replace(maintained.position, topic_id="")
        return catch_up(log, store, maintained, clock=clock, told=told)
    return True


def _find_places(log: Log, maintained: MaintainedView) -> None:
    """Learn where the rows lie that the store has already: once, when the view is taken up."""
    places = Places()
    spec = replace(maintained.spec, schema=maintained.spec.key_schema)
    for batch in changelog_batches(log, spec, {}, maintained.position.offsets):
        _note_places(maintained, places, collapsed([_placed(batch)], spec))
        if maintained.is_large:
            return
    maintained.places = places


def _note_places(maintained: MaintainedView, places: Places | None, delta: Delta) -> None:
    if places is not None and delta.places is not None and delta.keys.num_rows:
        places.put(_hashes(delta), delta.places)
        if len(places) > KEYS_MAX:
            maintained.places, maintained.is_large = None, True


def _doubt_places(places: Places | None, delta: Delta) -> None:
    """Let look-ups of the keys that change ask the store while it commits.

    A reader that has seen the new rows in the store must not be sent to the places of the old ones.
    """
    if places is not None and delta.keys.num_rows:
        places.put(_hashes(delta), np.full(delta.keys.num_rows, GONE))


def _hashes(delta: Delta) -> Hashes:
    return key_hash([column.combine_chunks() for column in delta.keys.columns])


def _placed(batch: Batch) -> pa.RecordBatch:
    places = place_of(batch.partition, np.asarray(batch.data.column("_offset")))
    return batch.data.append_column(PLACE, pa.array(places))


def _begins_anew(log: Log, maintained: MaintainedView, topic: Topic, ends: Offsets) -> bool:
    position = maintained.position
    if position.topic_id != topic.id:
        return True
    starts = log.start_offsets(topic.name)
    return any(
        not starts.get(partition, 0) <= offset <= ends.get(partition, -1)
        for partition, offset in position.offsets.items()
    )


def _follow_schema(store: ViewStore, maintained: MaintainedView, topic: Topic) -> None:
    spec = maintained.spec
    if topic.key and topic.key != spec.key:
        why = f"its key is {', '.join(spec.key)}, but that of topic {topic.name!r} is {', '.join(topic.key)}"
        raise ViewConflict(view=spec.name, version=spec.version, why=why)
    if not topic.schema.equals(spec.schema):
        maintained.spec = store.declare(replace(spec, schema=topic.schema)).spec


class _Chunks:
    """The rows between two positions as transactions: large enough to be quick, small enough for memory."""

    def __init__(
        self, log: Log, spec: ViewSpec, start: ViewPosition, ends: Offsets, sources: Sources, clock: Clock
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


def changelog_batches(log: Log, spec: ViewSpec, starts: Offsets, ends: Offsets) -> Iterator[Batch]:
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
    log: Log, spec: ViewSpec, number: int, starts: Offsets, ends: Offsets, columns: list[str]
) -> Iterator[Batch]:
    start: Start = {number: starts[number]} if number in starts else "earliest"
    reader = log.read(spec.topic, start=start, stop=ends, partitions=[number], columns=columns)
    for batch in reader.batches():
        if batch.data.num_rows:
            yield batch


def _appended_at(batch: Batch) -> tuple[int, int]:
    return batch.data.column("_appended_at")[0].value, batch.partition


def collapsed(batches: Sequence[pa.RecordBatch], spec: ViewSpec) -> Delta:
    """The last row of each key, from batches in the order of the changelog that have a column `_tombstone`.

    >>> spec = ViewSpec(name="v", topic="v", key=("id",), schema=pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    >>> rows = pa.record_batch({"id": [1, 1, 2], "n": [1, 2, None], "_tombstone": [False, False, True]})
    >>> delta = collapsed([rows], spec)
    >>> delta.keys.to_pylist(), delta.rows.to_pylist()
    ([{'id': 1}, {'id': 2}], [{'id': 1, 'n': 2}])
    """
    if not batches:
        return Delta.nothing(spec)
    table = pa.Table.from_batches(batches)
    for name in spec.key:
        if table.column(name).null_count:
            raise ViewRowInvalid(
                view=spec.name, topic=spec.topic, column=name, why="is null, and it is part of the key"
            )
    last = _last_of_each_key(table.select(list(spec.key)))
    if len(last) < table.num_rows:
        table = table.combine_chunks().take(pa.array(last))
    gone = table.column(TOMBSTONE)
    rows = table.select(spec.schema.names)
    if pc.any(gone).as_py():
        rows = rows.filter(pc.invert(gone))
    places = None
    if PLACE in table.column_names:
        places = np.where(np.asarray(gone), GONE, np.asarray(table.column(PLACE)))
    return Delta(keys=table.select(list(spec.key)), rows=rows, places=places)


def _last_of_each_key(keys: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The places of the rows to keep, in order."""
    columns = {f"k{i}": _comparable(column) for i, column in enumerate(keys.columns)}
    numbered = pa.table({**columns, "row": np.arange(keys.num_rows, dtype=np.int64)})
    last = numbered.group_by(list(columns)).aggregate([("row", "max")]).column("row_max")
    return np.sort(last.to_numpy())


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # A negative zero equals zero, and one not-a-number equals another, in SQL as in the log's partitioner.
    if not pa.types.is_floating(column.type):
        return column
    zero = pa.scalar(0, column.type)
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), pc.add(column, zero))
