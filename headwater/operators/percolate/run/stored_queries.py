"""The stored queries of a worker: follow their topic, keep them in an index, and count what each of them costs."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.engine.state_folder import SUFFIX, Folder, open_folder
from headwater.errors import ColumnUnknown
from headwater.log import Log
from headwater.operators.errors import QueryInvalid
from headwater.operators.percolate.index.query_index import Index
from headwater.operators.percolate.index.shapes import (
    ALIKE_MIN,
    SHAPES_MAX,
    Shape,
    ShapeQueries,
    shape_of,
    without_values,
)
from headwater.operators.percolate.query import Query, QueryBuilder, parse
from headwater.operators.percolate.query.fields import Fields

#: So many queries are read as trees at once; trees are large, the index is not.
ROWS_MAX = 50_000
#: Metadata comes in pieces, one for each change; more than this are made one.
PIECES_MAX = 64
METADATA_TYPE = pa.map_(pa.string(), pa.string())
_WANTED = ("id", "query", "metadata", "enabled")
Offsets = Mapping[int, int]
COSTS_SCHEMA = pa.schema(
    {
        "query_id": pa.string(),
        "candidates": pa.int64(),
        "checks": pa.int64(),
        "matches": pa.int64(),
        "seconds": pa.float64(),
    }
)
FOLDER = "costs"
#: One name per process: the number of a process may come again.
_WORKER = {"pid": 0, "name": ""}


@dataclass(frozen=True)
class InvalidQuery:
    """A stored query that could not be used, and where it stands."""

    partition: int
    offset: int
    id: str
    query: str
    why: str


@dataclass
class StoredQueries:
    """An index, what goes with its queries, and how far it has come."""

    fields: Fields
    metadata_type: pa.DataType = METADATA_TYPE
    offsets: dict[int, int] = field(default_factory=dict)
    invalid: list[InvalidQuery] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.index = Index(self.fields)
        self.builder = QueryBuilder(self.fields)
        self._metadata: list[pa.Array] = []
        self._shapes: dict[str, Shape | None] = {}

    @property
    def version(self) -> int:
        """How many changes it has seen: it only ever grows."""
        return sum(self.offsets.values())

    def store(self, rows: pa.Table) -> None:
        """Take changes in: columns `id`, `query`, and where there are any `metadata`, `enabled`, `_tombstone`."""
        with without_pauses():
            for start in range(0, rows.num_rows, ROWS_MAX):
                self._store(rows.slice(start, ROWS_MAX))

    def _store(self, rows: pa.Table) -> None:
        names = rows.column_names
        columns = [rows.column(name).to_pylist() for name in ("id", "query")]
        gone = [
            *([pc.fill_null(rows.column("_tombstone"), False).to_pylist()] if "_tombstone" in names else []),
            *([pc.invert(pc.fill_null(rows.column("enabled"), True)).to_pylist()] if "enabled" in names else []),
        ]
        deleted = [any(marks) for marks in zip(*gone, strict=True)] if gone else [False] * rows.num_rows
        ids, queries = columns
        newest = {query_id: place for place, query_id in enumerate(ids)}
        stored = {
            place: queries[place]
            for query_id, place in newest.items()
            if query_id is not None and queries[place] is not None and not deleted[place]
        }
        groups = self._alike(stored)
        in_groups = {place for places, _ in groups for place in places}
        changes: dict[str, tuple[Query | None, int]] = {}
        for place, (query_id, query) in enumerate(zip(ids, queries, strict=True)):
            if query_id is None:
                self._add_invalid(rows, place, "", query, "it has no id")
            elif place not in in_groups:
                # One that another replaces at once is read, too: it may be invalid.
                tree = None if deleted[place] or query is None else self._parsed(rows, place, query_id, query)
                if newest[query_id] == place:
                    changes[query_id] = tree, place
        self.index.change(
            [(query_id, tree) for query_id, (tree, _) in changes.items()],
            [([ids[place] for place in places], one) for places, one in groups],
        )
        kept = [place for tree, place in changes.values() if tree is not None]
        self._keep_metadata(rows, [*kept, *(place for places, _ in groups for place in places)])

    def _alike(self, queries: Mapping[int, str]) -> list[tuple[list[int], ShapeQueries]]:
        """Queries of which many have one shape, by their places."""
        by_shape: dict[str, tuple[list[int], list[list[str]]]] = {}
        for place, query in queries.items():
            found = without_values(query)
            if found is not None:
                places, values = by_shape.setdefault(found[0], ([], []))
                places.append(place)
                values.append(found[1])
        groups = []
        for text, (places, values) in by_shape.items():
            shape = self._shape(text) if len(places) >= ALIKE_MIN else None
            if shape is None:
                continue
            one = ShapeQueries.of(shape, values, self.builder, self.index.terms)
            if one.is_usual.any():
                groups.append(([places[number] for number in np.flatnonzero(one.is_usual).tolist()], one.usual()))
        return groups

    def _shape(self, text: str) -> Shape | None:
        if text not in self._shapes:
            if len(self._shapes) >= SHAPES_MAX:
                self._shapes.clear()
            self._shapes[text] = shape_of(text, self.builder, self.index.terms)
        return self._shapes[text]

    def _parsed(self, rows: pa.Table, place: int, query_id: str, query: str) -> Query | None:
        try:
            return parse(query, self.builder)
        except QueryInvalid as error:
            self._add_invalid(rows, place, query_id, query, f"at {error.position}: {error.why}")
            return None

    def _add_invalid(self, rows: pa.Table, place: int, query_id: str, query: str | None, why: str) -> None:
        partition, offset = (
            rows.column(name)[place].as_py() if name in rows.column_names else 0 for name in ("_partition", "_offset")
        )
        self.invalid.append(InvalidQuery(partition, offset, query_id, query or "", why))

    def _keep_metadata(self, rows: pa.Table, kept: list[int]) -> None:
        if not kept:
            return
        if "metadata" in rows.column_names:
            chosen = rows.column("metadata").take(pa.array(kept)).combine_chunks()
            chosen = pa.concat_arrays(chosen.chunks) if isinstance(chosen, pa.ChunkedArray) else chosen
        else:
            chosen = pa.nulls(len(kept), self.metadata_type)
        self._metadata.append(chosen.cast(self.metadata_type))
        if len(self._metadata) > PIECES_MAX:
            self._metadata = [pa.concat_arrays(self._metadata)]

    def metadata(self, slots: pa.Array) -> pa.Array:
        """What goes with queries, by their slots."""
        if len(self._metadata) > 1:
            self._metadata = [pa.concat_arrays(self._metadata)]
        return self._metadata[0].take(slots) if self._metadata else pa.nulls(len(slots), self.metadata_type)


@contextmanager
def without_pauses() -> Iterator[None]:
    """Trees hold no cycles, nor do matches; looking for some among all that a worker holds takes longer than the work."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@dataclass(frozen=True, kw_only=True)
class TopicQueries:
    """A topic with stored queries."""

    log: str
    topic: str

    def check(self, log: Log) -> pa.DataType:
        """Return the type of the metadata of a topic of queries; raise if the topic holds none."""
        schema = log.topic(self.topic).schema
        for name in ("id", "query"):
            if name not in schema.names:
                raise ColumnUnknown(topic=self.topic, column=name, columns=", ".join(schema.names))
        return schema.field("metadata").type if "metadata" in schema.names else METADATA_TYPE

    def caught_up(self, held: StoredQueries | None, fields: Fields, log: Log, stop: Offsets) -> StoredQueries:
        """What the topic says up to some offsets, from what was held before where that is a beginning of it."""
        reached = held is not None and all(offset <= stop.get(number, 0) for number, offset in held.offsets.items())
        if held is None or not reached or held.index.is_worn:
            held = StoredQueries(fields, self.check(log))
        begin = {number: max(held.offsets.get(number, 0), log.start_offsets(self.topic)[number]) for number in stop}
        if any(begin[number] < stop[number] for number in stop):
            held.store(self._read(log, begin, stop))
        held.offsets = dict(stop)
        return held

    def _read(self, log: Log, start: Offsets, stop: Offsets) -> pa.Table:
        names = log.topic(self.topic).schema.names
        columns = [*(name for name in _WANTED if name in names), "_tombstone", "_partition", "_offset"]
        begin = {number: min(offset, stop[number]) for number, offset in start.items()}
        rows = log.read(self.topic, start=begin, stop=dict(stop), columns=columns).table()
        place = rows.schema.get_field_index("id")
        return rows.set_column(place, "id", rows.column("id").cast(pa.string()))


def stored_ids(log: Log, topic: str) -> list[str]:
    """The ids of the queries that a topic holds: the newest row of each is enabled and has a query."""
    queries = TopicQueries(log=log.address, topic=topic)
    queries.check(log)
    rows = queries._read(log, log.start_offsets(topic), log.end_offsets(topic))
    newest: dict[str, bool] = {}
    for row in rows.to_pylist():
        is_gone = row["query"] is None or row["_tombstone"] or row.get("enabled") is False
        if row["id"] is not None:
            newest[row["id"]] = not is_gone
    return [query_id for query_id, is_stored in newest.items() if is_stored]


def count(log: Log, topic: str) -> int:
    """How many queries a topic holds, without those that are deleted or switched off. It reads the whole topic.

    >>> import tempfile
    >>> from headwater import open as open_log
    >>> log = open_log(tempfile.mkdtemp())
    >>> _ = log.create("searches", {"id": "string", "query": "string"}, key="id")
    >>> _ = log.append("searches", [{"id": "ann", "query": "garden"}, {"id": "ben", "query": "lake"}])
    >>> count(log, "searches"), clear(log, "searches"), count(log, "searches")
    (2, 2, 0)
    """
    return len(stored_ids(log, topic))


def clear(log: Log, topic: str) -> int:
    """Delete all queries that a topic holds, and return how many these were. Queries that come later stay.

    The deletions are rows of the topic, so they count from the next batch of each stream on.
    """
    key = log.topic(topic).key
    gone: dict[str, object] = {"_tombstone": True} if key == ("id",) else {"query": None}
    ids = stored_ids(log, topic)
    log.append(topic, [{"id": query_id, **gone} for query_id in ids])
    return len(ids)


@dataclass(frozen=True)
class QueryCost:
    """What one stored query has cost in all workers: documents tried, clauses looked at, matches, and seconds."""

    query_id: str
    candidates: int
    checks: int
    matches: int
    seconds: float


def costs_of(index: Index) -> pa.Table:
    """The queries that were tried at all, with what they cost since the index was made."""
    work, count = index.work, index.slots
    tried = np.flatnonzero(work.candidates[:count])
    columns = [
        pa.array([index.ids[slot] for slot in tried.tolist()], pa.string()),
        *(pa.array(held[tried]) for held in (work.candidates, work.rounds, work.matches, work.seconds)),
    ]
    return pa.table(columns, schema=COSTS_SCHEMA)


def write_costs(folder: Folder, index: Index, *, number: int) -> None:
    """Put down what this worker's index has cost; a worker that builds a new one begins a new file."""
    folder.within(FOLDER).write(f"{_worker()}-{number}", costs_of(index))


def costs(state: str | Path, name: str) -> list[QueryCost]:
    """What the stored queries of the operator called `name` have cost so far, the dearest first.

    `state` is the folder that the session keeps its state in. Work that was done twice, because a batch was done again,
    counts twice: it is what was spent. Workers write every ten seconds, so that the newest work may not be in yet.

    >>> costs("./nowhere", "alerts")
    []
    """
    tables = list(_tables(open_folder(state), name))
    if not tables:
        return []
    total = (
        pa.concat_tables(tables).group_by("query_id").aggregate([(column, "sum") for column in COSTS_SCHEMA.names[1:]])
    )
    rows = sorted(total.to_pylist(), key=lambda row: -row["seconds_sum"])
    return [QueryCost(row["query_id"], *(row[f"{column}_sum"] for column in COSTS_SCHEMA.names[1:])) for row in rows]


def _tables(state: Folder, name: str) -> Iterator[pa.Table]:
    for query in state.folders():
        folder = state.within(query).within(name).within(FOLDER)
        for file in folder.names():
            table = folder.map_if_there(file.removesuffix(SUFFIX))
            if table is not None:  # otherwise its worker was just about to replace it
                yield table


def _worker() -> str:
    if _WORKER["pid"] != os.getpid():
        _WORKER.update(pid=os.getpid(), name=uuid.uuid4().hex)
    return str(_WORKER["name"])
