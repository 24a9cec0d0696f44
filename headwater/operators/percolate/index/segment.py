"""A part of an index that no longer changes: queries as arrays, and the covers by which each of them is found.

A cover of a query is a set of terms and ranges of which every document that matches has one. Ranges are filed in a tree
over the values' order: a range is the union of few of its nodes, and a value lies in one node of each level.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from headwater.operators.percolate.index.compiler import (
    ALWAYS,
    CALENDAR,
    EARTH_RADIUS_METRES,
    NESTED,
    NODE,
    NUMBER,
    PHRASE,
    POINT,
    TERM,
    Arrays,
)
from headwater.operators.percolate.index.documents import Bools, Floats, Ints, distinct, expanded
from headwater.operators.percolate.index.terms import Terms
from headwater.operators.percolate.query.tree import Range

Small = npt.NDArray[np.int32]
#: Leaves of the tree that ranges are filed in.
LEAVES_COUNT = 1024
#: What each array counts on from: the length of another in the segments before.
_SHIFTS = {
    "roots": "nodes", "node_starts": "clause_least", "clause_starts": "kinds", "phrase_starts": "phrase_terms",
    "cover_term_queries": "slots", "cover_range_queries": "slots", "open": "slots",
}  # fmt: skip
_SHIFTS_BY_KIND = {
    NUMBER: "lows", POINT: "metres", NODE: "nodes", PHRASE: "phrase_slops", CALENDAR: "calendars", NESTED: "nested",
}  # fmt: skip


@dataclass(frozen=True)
class Postings:
    """Queries by what they are found by: those of `names[n]` are `queries[starts[n]:starts[n + 1]]`."""

    names: Ints
    starts: Ints
    queries: Small

    @classmethod
    def of(cls, names: Ints, queries: Ints) -> Postings:
        order = np.argsort(names, kind="stable")
        unique, firsts = distinct(names[order])
        return cls(unique, np.append(firsts, len(names)).astype(np.int64), queries[order].astype(np.int32))

    def counts(self, names: Ints) -> tuple[Ints, Ints]:
        """For each name where its queries begin, and how many there are."""
        at = np.minimum(np.searchsorted(self.names, names), max(0, len(self.names) - 1))
        if not len(self.names):
            return at, np.zeros(len(names), np.int64)
        counts = np.where(self.names[at] == names, self.starts[at + 1] - self.starts[at], 0)
        return self.starts[at], counts


@dataclass(frozen=True)
class RangeTree:
    """Ranges of one field. Node 1 is the root, node `n` has the children `2n` and `2n + 1`."""

    edges: Floats
    filed: Postings

    @classmethod
    def of(cls, lows: Floats, highs: Floats, queries: Ints) -> RangeTree:
        bounds = np.concatenate([lows, highs])
        bounds = np.unique(bounds[np.isfinite(bounds)])
        if len(bounds) >= LEAVES_COUNT:
            bounds = bounds[np.linspace(0, len(bounds) - 1, LEAVES_COUNT - 1).astype(np.int64)]
        nodes, which = _canonical(np.searchsorted(bounds, lows, "right"), np.searchsorted(bounds, highs, "right"))
        return cls(bounds, Postings.of(nodes, queries[which]))

    def nodes(self, values: Floats) -> tuple[Ints, Ints]:
        """The nodes that values lie in, and which value each belongs to."""
        leaves = np.searchsorted(self.edges, values, "right") + LEAVES_COUNT
        levels = np.arange(LEAVES_COUNT.bit_length())
        return (leaves[:, None] >> levels).ravel(), np.repeat(np.arange(len(values)), len(levels))


def _canonical(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """The fewest nodes that cover the leaves from `first` to `last`, and which range each is of."""
    low, high = first + LEAVES_COUNT, last + LEAVES_COUNT + 1
    nodes, which = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    while (active := np.flatnonzero(low < high)).size:
        odd = active[(low[active] & 1) == 1]
        nodes.append(low[odd])
        which.append(odd)
        low[odd] += 1
        odd = active[(high[active] & 1) == 1]
        high[odd] -= 1
        nodes.append(high[odd])
        which.append(odd)
        low, high = low >> 1, high >> 1
    return np.concatenate(nodes), np.concatenate(which)


@dataclass(frozen=True)
class FirstRanges:
    """A field with numbers of each query, and the bounds; -1 where it asks for something else."""

    fields: Small
    lows: Floats
    highs: Floats

    @classmethod
    def none(cls, count: int) -> FirstRanges:
        return cls(np.full(count, -1, np.int32), np.full(count, -np.inf), np.full(count, np.inf))


@dataclass
class Segment:
    """Queries that were compiled together. `slots` says which stored query each root is."""

    slots: Ints
    roots: Small
    node_starts: Small
    clause_starts: Small
    clause_least: Small
    kinds: npt.NDArray[np.int8]
    indexes: Small
    negated: Bools
    weights: npt.NDArray[np.float32]
    number_fields: Small
    lows: Floats
    highs: Floats
    low_is_relative: Bools
    high_is_relative: Bools
    point_fields: Small
    latitudes: Floats
    longitudes: Floats
    metres: Floats
    phrase_starts: Small
    phrase_terms: Small
    phrase_places: Small
    phrase_slops: Small
    calendars: list[tuple[int, Range]]
    nested: list[tuple[str, int]]
    #: Terms that queries are found by, and the query of each.
    cover_terms: Ints
    cover_term_queries: Ints
    #: Ranges that queries are found by: the field, its bounds, and the query.
    cover_fields: Ints
    cover_lows: Floats
    cover_highs: Floats
    cover_range_queries: Ints
    #: Queries that are tried with every document.
    open: Ints

    # What follows is made when documents are first matched: a segment that is merged before never needs it.

    @cached_property
    def by_term(self) -> Postings:
        return Postings.of(self.cover_terms, self.cover_term_queries)

    @cached_property
    def by_range(self) -> dict[int, RangeTree]:
        found = {}
        for number in np.unique(self.cover_fields).tolist():
            of = self.cover_fields == number
            found[number] = RangeTree.of(self.cover_lows[of], self.cover_highs[of], self.cover_range_queries[of])
        return found

    @cached_property
    def found_twice(self) -> Bools:
        """Queries that more than one part of their cover may find."""
        covers = np.concatenate([self.cover_term_queries, self.cover_range_queries])
        # A field may have several values, of which more than one may lie in a range.
        ranged = np.bincount(self.cover_range_queries, minlength=len(self.slots)) > 0
        found: Bools = (np.bincount(covers, minlength=len(self.slots)) > 1) | ranged
        return found

    @cached_property
    def first_ranges(self) -> FirstRanges:
        """What queries ask first, where that is a range: most pairs fail there."""
        found = FirstRanges.none(self.size)
        queries = np.flatnonzero(self.node_starts[self.roots + 1] > self.node_starts[self.roots])
        clauses = self.node_starts[self.roots[queries]]
        places = self.clause_starts[clauses]
        good = (self.clause_starts[clauses + 1] - places == 1) & (self.clause_least[clauses] == 1)
        queries, places = queries[good], places[good]
        good = (self.kinds[places] == NUMBER) & ~self.negated[places]
        queries, indexes = queries[good], self.indexes[places[good]]
        good = ~(self.low_is_relative[indexes] | self.high_is_relative[indexes])
        queries, indexes = queries[good], indexes[good]
        found.fields[queries] = self.number_fields[indexes]
        found.lows[queries], found.highs[queries] = self.lows[indexes], self.highs[indexes]
        return found

    @cached_property
    def other_terms(self) -> Small:
        """Two terms of each query, the same twice or -1 for none: it needs one of them, besides what it is found by."""
        found_by = np.full(self.size, -1, np.int64)
        found_by[self.cover_term_queries] = self.cover_terms
        which, first, last = self._needed_terms()
        other = (first != found_by[which]) & (last != found_by[which])
        which, first, last = which[other], first[other], last[other]
        frequency = np.bincount(self.indexes[self.kinds == TERM])
        costs = (frequency[first] + np.where(first == last, 0, frequency[last])).astype(np.float64)
        least = np.full(self.size, np.inf)
        np.minimum.at(least, which, costs)
        chosen = costs == least[which]
        found: Small = np.full((self.size, 2), -1, np.int32)
        found[which[chosen]] = np.column_stack([first[chosen], last[chosen]])
        return found

    def _needed_terms(self) -> tuple[Ints, Ints, Ints]:
        """Clauses that ask for one or for either of two terms: the query, and the terms."""
        begins = self.node_starts[self.roots].astype(np.int64)
        which, within = expanded(self.node_starts[self.roots + 1] - begins)
        clauses = begins[which] + within
        first, last = self.clause_starts[clauses], self.clause_starts[clauses + 1] - 1
        good = (self.clause_least[clauses] == 1) & (first <= last) & (last <= first + 1)
        which, first, last = which[good], first[good], last[good]
        good = (self.kinds[first] == TERM) & (self.kinds[last] == TERM) & ~(self.negated[first] | self.negated[last])
        return which[good], self.indexes[first[good]].astype(np.int64), self.indexes[last[good]].astype(np.int64)

    @cached_property
    def has_relative(self) -> bool:
        """Whether any range moves with the time."""
        return bool(self.low_is_relative.any() or self.high_is_relative.any())

    @property
    def size(self) -> int:
        return len(self.slots)

    @property
    def bytes(self) -> int:
        """What its arrays take."""
        held = [getattr(self, one.name) for one in fields(self)]
        filed = [self.by_term, *(tree.filed for tree in self.by_range.values())]
        held += [part for one in filed for part in (one.names, one.starts, one.queries)]
        held += [*vars(self.first_ranges).values(), self.other_terms]
        return sum(one.nbytes for one in held if isinstance(one, np.ndarray))


def segment_of(arrays: Arrays, slots: Ints, terms: Terms, frequency: Floats, range_cost: float) -> Segment:
    """What was compiled, and what it is found by."""
    covers = Covers(arrays, terms, frequency.tolist(), range_cost)
    # Any: arrays of several types.
    plain: dict[str, Any] = {
        name: np.array(held) for name, held in vars(arrays).items() if name not in ("calendars", "nested")
    }
    for name in ("negated", "low_is_relative", "high_is_relative"):
        plain[name] = plain[name].astype(bool)
    return Segment(slots=slots, calendars=arrays.calendars, nested=arrays.nested, **plain, **covers.chosen())


def merged(segments: list[Segment], alive: Bools) -> Segment:
    """Several segments as one, without what finds queries that are gone."""
    parts = [_shifted(segments, number) for number in range(len(segments))]
    joined: dict[str, Any] = {
        name: [one for part in parts for one in part[name]]
        if isinstance(parts[0][name], list)
        else np.concatenate([part[name] for part in parts])
        for name in parts[0]
    }
    slots = joined["slots"]
    for queries, others in (
        ("cover_term_queries", ("cover_terms",)),
        ("cover_range_queries", ("cover_fields", "cover_lows", "cover_highs")),
        ("open", ()),
    ):
        kept = alive[slots[joined[queries]]] if len(slots) else np.zeros(0, bool)
        for name in (queries, *others):
            joined[name] = joined[name][kept]
    return Segment(**joined)


def _shifted(segments: list[Segment], number: int) -> dict[str, Any]:
    """The arrays of one of several segments, as they count behind those before it."""
    one, before = segments[number], segments[:number]

    def length(name: str) -> int:
        if name == "nodes":
            return sum(len(segment.node_starts) - 1 for segment in before)
        return sum(len(getattr(segment, name)) for segment in before)

    found: dict[str, Any] = {each.name: getattr(one, each.name) for each in fields(one)}
    for name, what in _SHIFTS.items():
        found[name] = found[name] + found[name].dtype.type(length(what))
    for name in ("node_starts", "clause_starts", "phrase_starts"):
        found[name] = found[name][1 if number else 0 :]
    shifts = np.zeros(8, np.int32)
    for kind, what in _SHIFTS_BY_KIND.items():
        shifts[kind] = length(what)
    found["indexes"] = found["indexes"] + shifts[found["kinds"]]
    nodes = length("nodes")
    found["nested"] = [(path, node + nodes) for path, node in one.nested]
    return found


class Frequency:
    """How many stored queries ask for each term: a measure of how many it would find, for documents are alike."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._asked: Ints = np.zeros(1, np.int64)

    def count(self, asked: Ints) -> None:
        """More queries ask for these terms."""
        size = max(1, self._terms.size)
        if len(self._asked) < size:
            self._asked = np.concatenate([self._asked, np.zeros(size - len(self._asked), np.int64)])
        self._asked += np.bincount(asked, minlength=len(self._asked))

    def costs(self) -> Floats:
        """What it costs to find a query by each term."""
        patterns = ~self._terms.are_terms()
        found: Floats = self._asked.astype(np.float64)
        found[: len(patterns)][patterns] = 10 * found[: len(patterns)][patterns] + 10  # a pattern fits many words
        return found


def asked_in(arrays: Arrays) -> Ints:
    """The terms that queries ask for, once for each literal and each word of a phrase."""
    kinds, indexes = np.array(arrays.kinds), np.array(arrays.indexes, np.int64)
    return np.concatenate([indexes[kinds == TERM], np.array(arrays.phrase_terms, np.int64)])


def range_cost(count: int) -> float:
    """What it costs to find one of so many queries by a range. What it finds is not known; most terms are better."""
    return count / 10 + 100


@dataclass(frozen=True)
class Cover:
    """By what a query is found, and how much it is expected to cost."""

    cost: float
    terms: tuple[int, ...] = ()
    ranges: tuple[tuple[int, float, float], ...] = ()


class Covers:
    """Chooses the covers of queries that were compiled together: terms that few of them have are the best."""

    def __init__(self, arrays: Arrays, terms: Terms, frequency: list[float], range_cost: float) -> None:
        self._arrays = arrays
        self._terms = terms
        self._frequency = frequency
        self._range_cost = range_cost

    def chosen(self) -> dict[str, Any]:
        cover_terms: list[int] = []
        term_queries: list[int] = []
        ranges: list[tuple[int, float, float]] = []
        range_queries: list[int] = []
        open_: list[int] = []
        for query, node in enumerate(self._arrays.roots):
            cover = self._node(node)
            if cover is None:
                open_.append(query)
                continue
            different = set(cover.terms)
            cover_terms += different
            term_queries += [query] * len(different)
            ranges += cover.ranges
            range_queries += [query] * len(cover.ranges)
        bounds = np.array(ranges, np.float64).reshape(-1, 3)
        return {
            "cover_terms": np.array(cover_terms, np.int64),
            "cover_term_queries": np.array(term_queries, np.int64),
            "cover_fields": bounds[:, 0].astype(np.int64),
            "cover_lows": bounds[:, 1].copy(),
            "cover_highs": bounds[:, 2].copy(),
            "cover_range_queries": np.array(range_queries, np.int64),
            "open": np.array(open_, np.int64),
        }

    def _node(self, node: int) -> Cover | None:
        arrays = self._arrays
        best: Cover | None = None
        for clause in range(arrays.node_starts[node], arrays.node_starts[node + 1]):
            start, stop = arrays.clause_starts[clause], arrays.clause_starts[clause + 1]
            least = arrays.clause_least[clause]
            if least > 0:
                found = self._literal(start) if stop == start + 1 == start + least else self._clause(start, stop, least)
                if found is not None and (best is None or found.cost < best.cost):
                    best = found
        return best

    def _clause(self, start: int, stop: int, least: int) -> Cover | None:
        """Any `count - least + 1` of the literals will do: one of those is true if `least` are."""
        needed = stop - start - least + 1
        if needed <= 0:
            return Cover(0.0)  # it is never true
        found = [cover for place in range(start, stop) if (cover := self._literal(place)) is not None]
        if len(found) < needed:
            return None
        chosen = sorted(found, key=lambda cover: cover.cost)[:needed]
        return Cover(
            sum(cover.cost for cover in chosen),
            tuple(term for cover in chosen for term in cover.terms),
            tuple(one for cover in chosen for one in cover.ranges),
        )

    def _literal(self, place: int) -> Cover | None:
        arrays = self._arrays
        kind, index = arrays.kinds[place], arrays.indexes[place]
        if arrays.negated[place]:
            return Cover(0.0) if kind == ALWAYS else None
        if kind == TERM:
            return self._term(index)
        if kind == NUMBER:
            return self._number(index)
        if kind == PHRASE:
            terms = arrays.phrase_terms[arrays.phrase_starts[index] : arrays.phrase_starts[index + 1]]
            return min((self._term(term) for term in terms), key=lambda cover: cover.cost)
        if kind == POINT:
            return self._point(index)
        if kind == NODE:
            return self._node(index)
        if kind == NESTED:
            return self._node(arrays.nested[index][1])
        return self._term(self._terms.existing(arrays.calendars[index][1].field)) if kind == CALENDAR else None

    def _term(self, number: int) -> Cover:
        return Cover(self._frequency[number] if number < len(self._frequency) else 1.0, (number,))

    def _number(self, index: int) -> Cover:
        arrays = self._arrays
        number = arrays.number_fields[index]
        if arrays.low_is_relative[index] or arrays.high_is_relative[index]:
            path = next(path for path, one in self._terms.numbers.items() if one == number)
            return self._term(self._terms.existing(path))
        return Cover(self._range_cost, ranges=((number, arrays.lows[index], arrays.highs[index]),))

    def _point(self, index: int) -> Cover:
        """Points within a distance lie between two latitudes."""
        arrays = self._arrays
        path = next(path for path, one in self._terms.points.items() if one == arrays.point_fields[index])
        away = np.degrees(arrays.metres[index] / EARTH_RADIUS_METRES) * (1 + 1e-9) + 1e-9
        low, high = arrays.latitudes[index] - away, arrays.latitudes[index] + away
        return Cover(self._range_cost / 2, ranges=((self._terms.number(f"{path}#lat"), low, high),))
