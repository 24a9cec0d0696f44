"""Stored queries as a worker holds them: a fixed set, or a topic that is followed change by change.

Every task of a batch uses the queries up to the same offsets, and so does one that is done again. A worker keeps its index
from batch to batch and reads only what is new; where it is ahead of a batch that is done again, it builds a new one.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import ColumnUnknown, QueryInvalid
from headwater.log import EmbeddedLog
from headwater.operators.percolate.alike import Alike
from headwater.operators.percolate.fields import Fields
from headwater.operators.percolate.index import Index
from headwater.operators.percolate.query import Making, Query, parse
from headwater.operators.percolate.shapes import ALIKE_MIN, SHAPES_MAX, Shape, shape_of, without_values

#: So many queries are read as trees at once; trees are large, the index is not.
ROWS_MAX = 50_000
#: Metadata comes in pieces, one for each change; more than this are made one.
PIECES_MAX = 64
METADATA_TYPE = pa.map_(pa.string(), pa.string())
_WANTED = ("id", "query", "metadata", "enabled")
Offsets = Mapping[int, int]


@dataclass(frozen=True)
class Refused:
    """A stored query that could not be used, and where it stands."""

    partition: int
    offset: int
    id: str
    query: str
    why: str


@dataclass
class Held:
    """An index, what goes with its queries, and how far it has come."""

    fields: Fields
    metadata_type: pa.DataType = METADATA_TYPE
    offsets: dict[int, int] = field(default_factory=dict)
    refused: list[Refused] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.index = Index(self.fields)
        self.making = Making(self.fields)
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
                self._refuse(rows, place, "", query, "it has no id")
            elif place not in in_groups:
                # One that another replaces at once is read, too: it may have to be refused.
                tree = None if deleted[place] or query is None else self._parsed(rows, place, query_id, query)
                if newest[query_id] == place:
                    changes[query_id] = tree, place
        self.index.change(
            [(query_id, tree) for query_id, (tree, _) in changes.items()],
            [([ids[place] for place in places], one) for places, one in groups],
        )
        kept = [place for tree, place in changes.values() if tree is not None]
        self._keep_metadata(rows, [*kept, *(place for places, _ in groups for place in places)])

    def _alike(self, queries: Mapping[int, str]) -> list[tuple[list[int], Alike]]:
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
            one = Alike.of(shape, values, self.making, self.index.terms)
            if one.is_usual.any():
                groups.append(([places[number] for number in np.flatnonzero(one.is_usual).tolist()], one.usual()))
        return groups

    def _shape(self, text: str) -> Shape | None:
        if text not in self._shapes:
            if len(self._shapes) >= SHAPES_MAX:
                self._shapes.clear()
            self._shapes[text] = shape_of(text, self.making, self.index.terms)
        return self._shapes[text]

    def _parsed(self, rows: pa.Table, place: int, query_id: str, query: str) -> Query | None:
        try:
            return parse(query, self.making)
        except QueryInvalid as error:
            self._refuse(rows, place, query_id, query, f"at {error.position}: {error.why}")
            return None

    def _refuse(self, rows: pa.Table, place: int, query_id: str, query: str | None, why: str) -> None:
        partition, offset = (
            rows.column(name)[place].as_py() if name in rows.column_names else 0 for name in ("_partition", "_offset")
        )
        self.refused.append(Refused(partition, offset, query_id, query or "", why))

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

    def check(self, log: EmbeddedLog) -> pa.DataType:
        """Refuse a topic that has no queries; returns the type of its metadata."""
        schema = log.topic(self.topic).schema
        for name in ("id", "query"):
            if name not in schema.names:
                raise ColumnUnknown(topic=self.topic, column=name, columns=", ".join(schema.names))
        return schema.field("metadata").type if "metadata" in schema.names else METADATA_TYPE

    def caught_up(self, held: Held | None, fields: Fields, log: EmbeddedLog, stop: Offsets) -> Held:
        """What the topic says up to some offsets, from what was held before where that is a beginning of it."""
        reached = held is not None and all(offset <= stop.get(number, 0) for number, offset in held.offsets.items())
        if held is None or not reached or held.index.is_worn:
            held = Held(fields, self.check(log))
        begin = {number: max(held.offsets.get(number, 0), log.start_offsets(self.topic)[number]) for number in stop}
        if any(begin[number] < stop[number] for number in stop):
            held.store(self._read(log, begin, stop))
        held.offsets = dict(stop)
        return held

    def _read(self, log: EmbeddedLog, start: Offsets, stop: Offsets) -> pa.Table:
        names = log.topic(self.topic).schema.names
        columns = [*(name for name in _WANTED if name in names), "_tombstone", "_partition", "_offset"]
        begin = {number: min(offset, stop[number]) for number, offset in start.items()}
        rows = log.read(self.topic, start=begin, stop=dict(stop), columns=columns).table()
        place = rows.schema.get_field_index("id")
        return rows.set_column(place, "id", rows.column("id").cast(pa.string()))
