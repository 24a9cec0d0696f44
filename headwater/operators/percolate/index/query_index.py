"""The index of stored queries: one large segment, and small ones beside it for what has changed since.

A changed query is a new one; the old one is dead, and no longer found once its segment is merged. Segments are merged
when a new one is as large as the one before it, so that there are few, and each query is moved seldom.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headwater.operators.percolate.index.compiler import Compiler
from headwater.operators.percolate.index.documents import Bools, Documents, Floats, Ints, documents_of
from headwater.operators.percolate.index.matcher import Matcher, Pairs, tried
from headwater.operators.percolate.index.segment import Frequency, Segment, asked_in, merged, range_cost, segment_of
from headwater.operators.percolate.index.shapes import ShapeQueries
from headwater.operators.percolate.index.terms import Terms
from headwater.operators.percolate.query.fields import Fields
from headwater.operators.percolate.query.tree import Query
from headwater.operators.percolate.run.highlights import QueryWords, asked_by

#: How many dead queries an index keeps beside as many living ones.
DEAD_MIN = 100_000
#: Of how many queries it is remembered what they ask for.
ASKED_MAX = 100_000


@dataclass(frozen=True)
class Matches:
    """Pairs of documents and stored queries (by slot) that match, by document and then by slot."""

    documents: Ints
    slots: Ints
    scores: Floats
    candidates: int = 0


@dataclass
class Work:
    """What queries have cost since the index was made, by slot."""

    candidates: Ints
    rounds: Ints
    matches: Ints
    seconds: Floats

    @classmethod
    def nothing(cls) -> Work:
        none = np.zeros(0, np.int64)
        return cls(none, none.copy(), none.copy(), np.zeros(0))

    def grow(self, size: int) -> None:
        for name, held in vars(self).items():
            if len(held) < size:
                setattr(self, name, np.concatenate([held, np.zeros(max(size, 2 * len(held)) - len(held), held.dtype)]))


class Index:
    """Stored queries by their id; `change` them, and `match` documents against all that are there."""

    def __init__(self, fields: Fields) -> None:
        self.terms = Terms(fields)
        self.ids: list[str] = []
        self.work = Work.nothing()
        self._segments: list[Segment] = []
        self._slots: dict[str, int] = {}
        self._asked: dict[int, QueryWords] = {}
        self._alive: Bools = np.zeros(0, bool)
        self._frequency = Frequency(self.terms)

    def __len__(self) -> int:
        return len(self._slots)

    def slot(self, query_id: str) -> int | None:
        return self._slots.get(query_id)

    @property
    def slots(self) -> int:
        """How many have been given out: the next query gets this one."""
        return len(self.ids)

    @property
    def segments(self) -> Sequence[Segment]:
        """The parts, the oldest first."""
        return tuple(self._segments)

    @property
    def bytes(self) -> int:
        """What the arrays of all segments take; the names of queries and terms come on top."""
        return sum(segment.bytes for segment in self._segments)

    @property
    def is_worn(self) -> bool:
        """Whether most of it is dead, and it is time to build a new one."""
        return len(self.ids) - len(self) > max(DEAD_MIN, len(self))

    # -- changes ------------------------------------------------------------------------------------------------------

    def change(
        self, changes: Sequence[tuple[str, Query | None]], alike: Sequence[tuple[Sequence[str], ShapeQueries]] = ()
    ) -> None:
        """Store queries, put them in the place of those of the same id, or delete them (None). The last one counts.

        `alike` are further ones, of other ids, many of one shape; they get their slots after the others.
        """
        newest = dict(changes)
        compiler = Compiler(self.terms)
        first = len(self.ids)
        for query_id, query in newest.items():
            self._remove(query_id)
            if query is not None:
                self._add(query_id)
                compiler.add(query)
        of_trees = len(self.ids) - first
        for ids, _ in alike:
            for query_id in ids:
                self._remove(query_id)
                self._add(query_id)
        if len(self.ids) > first:
            self._grow()
            self._alive[first : len(self.ids)] = True
            self._segments.append(self._compiled(compiler, first, of_trees, [one for _, one in alike]))
            self._merge()

    def _remove(self, query_id: str) -> None:
        old = self._slots.pop(query_id, None)
        if old is not None:
            self._alive[old] = False

    def _add(self, query_id: str) -> None:
        self._slots[query_id] = len(self.ids)
        self.ids.append(query_id)

    def _compiled(self, compiler: Compiler, first: int, of_trees: int, alike: Sequence[ShapeQueries]) -> Segment:
        """The newest queries as one segment: those that were compiled as trees, and then those of each shape."""
        self._frequency.count(np.concatenate([asked_in(compiler.arrays), *(one.asked() for one in alike)]))
        costs, of_range = self._frequency.costs(), range_cost(len(self))
        parts = []
        if of_trees:
            slots = np.arange(first, first + of_trees)
            parts.append(segment_of(compiler.arrays, slots, self.terms, costs, of_range))
        first += of_trees
        for one in alike:
            parts.append(one.segment(np.arange(first, first + one.size), costs, of_range))
            first += one.size
        return merged(parts, self._alive) if len(parts) > 1 else parts[0]

    def _grow(self) -> None:
        size = len(self.ids)
        if len(self._alive) < size:
            grown = np.zeros(max(size, 2 * len(self._alive)), bool)
            grown[: len(self._alive)] = self._alive
            self._alive = grown
        self.work.grow(size)

    def _merge(self) -> None:
        segments = self._segments
        while len(segments) > 1 and 2 * segments[-1].size >= segments[-2].size:
            segments[-2:] = [merged(segments[-2:], self._alive)]

    def asked_by(self, slot: int) -> QueryWords:
        """What a stored query asks for in so many words."""
        found = self._asked.get(slot)
        if found is None:
            if len(self._asked) >= ASKED_MAX:
                self._asked.clear()
            segment = next(one for one in self._segments if one.slots[0] <= slot <= one.slots[-1])
            root = int(segment.roots[np.searchsorted(segment.slots, slot)])
            found = self._asked[slot] = asked_by(segment, root)
        return found

    # -- documents ----------------------------------------------------------------------------------------------------

    def match(self, batch: pa.RecordBatch, now_us: Floats, *, scores: bool = True) -> tuple[Matches, Documents]:
        """All matches of a batch, and the documents as they were seen."""
        documents = documents_of(batch, self.terms, now_us)
        found = [self._matched(segment, documents, scores=scores) for segment in self._segments]
        empty = np.zeros(0, np.int64)
        owners = np.concatenate([empty, *(one.documents for one in found)])
        slots = np.concatenate([empty, *(one.slots for one in found)])
        values = np.concatenate([np.zeros(0), *(one.scores for one in found)])
        order = np.lexsort((slots, owners))
        candidates = sum(one.candidates for one in found)
        return Matches(owners[order], slots[order], values[order], candidates), documents

    def _matched(self, segment: Segment, documents: Documents, *, scores: bool) -> Matches:
        owners, slots, values, candidates = [], [], [], 0
        asked, rounds, spent = [], [], 0.0
        matcher = Matcher(segment, documents)
        for pairs, seconds in _timed(tried(segment, documents, self._alive)):
            good = np.flatnonzero(pairs.matched)
            owners.append(pairs.documents[good])
            slots.append(segment.slots[pairs.queries[good]])
            roots = segment.roots[pairs.queries[good]].astype(np.int64)
            values.append(matcher.scores(owners[-1], roots) if scores else np.zeros(len(good)))
            candidates += len(pairs.queries)
            asked.append(pairs.queries)
            rounds.append(pairs.rounds)
            spent += seconds
        if asked:
            self._count(segment.slots[np.concatenate(asked)], np.concatenate(rounds), np.concatenate(slots), spent)
        empty = np.zeros(0, np.int64)
        return Matches(
            np.concatenate([empty, *owners]),
            np.concatenate([empty, *slots]),
            np.concatenate([np.zeros(0), *values]),
            candidates,
        )

    def _count(self, slots: Ints, rounds: Ints, matched: Ints, seconds: float) -> None:
        """Share what documents have cost among the queries, by the questions that each of them asked."""
        size = len(self.work.seconds)
        asked = np.bincount(slots, rounds, size)
        self.work.candidates += np.bincount(slots, minlength=size)
        self.work.rounds += asked.astype(np.int64)
        self.work.matches += np.bincount(matched, minlength=size)
        self.work.seconds += asked * (seconds / max(1.0, asked.sum()))


# Portions are timed here, so that matching itself knows no clock.
def _timed(portions: Iterator[Pairs]) -> Iterator[tuple[Pairs, float]]:
    while True:
        began = time.perf_counter()
        one = next(portions, None)
        if one is None:
            return
        yield one, time.perf_counter() - began
