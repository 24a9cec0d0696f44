"""By what stored queries are found: terms or ranges, of which a document must have one if a query is true of it.

Of a conjunction the rarest part will do, of a choice all parts are needed. What has no cover is tried with every document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from headwater.operators.percolate.compiling import (
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
from headwater.operators.percolate.documents import Floats, Ints
from headwater.operators.percolate.terms import Terms


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
