"""Queries as arrays. A tree becomes a node: clauses that must all hold, each true if enough of its literals are.

A literal asks one thing of a document: has it this term, has it a number in this range, …; or it asks for another node,
so that every tree fits, however deep. Literals may be negated, and have a weight in the score.
"""

from __future__ import annotations

import math
from array import array
from typing import NamedTuple

from headwater.operators.percolate.index.terms import Terms
from headwater.operators.percolate.query.tree import (
    All,
    Bool,
    Bound,
    Exists,
    Fuzzy,
    GeoDistance,
    Moment,
    Nested,
    Nothing,
    Phrase,
    Prefix,
    Query,
    Range,
    Regex,
    Term,
    Wildcard,
)

# What a literal asks for. Cheap ones have small numbers, and are asked first.
NUMBER, TERM, ALWAYS, POINT, NODE, PHRASE, CALENDAR, NESTED = range(8)
EARTH_RADIUS_METRES = 6_371_008.7714


class Literal(NamedTuple):
    kind: int
    number: int
    weight: float
    negated: bool = False


class Clause(NamedTuple):
    least: int
    literals: list[Literal]


class Arrays:
    """Nodes that grow one by one, in plain arrays."""

    def __init__(self) -> None:
        self.roots = array("i")
        self.node_starts = array("i", [0])
        self.clause_starts = array("i", [0])
        self.clause_least = array("i")
        self.kinds = array("b")
        self.indexes = array("i")
        self.negated = array("b")
        self.weights = array("f")
        self.number_fields = array("i")
        self.lows = array("d")
        self.highs = array("d")
        self.low_is_relative = array("b")
        self.high_is_relative = array("b")
        self.point_fields = array("i")
        self.latitudes = array("d")
        self.longitudes = array("d")
        self.metres = array("d")
        self.phrase_starts = array("i", [0])
        self.phrase_terms = array("i")
        self.phrase_places = array("i")
        self.phrase_slops = array("i")
        self.calendars: list[tuple[int, Range]] = []
        self.nested: list[tuple[str, int]] = []


class Compiler:
    """Puts queries into arrays, one after the other."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.arrays = Arrays()

    def add(self, query: Query) -> None:
        """One more stored query."""
        self.arrays.roots.append(self._node(self._clauses(query, 1.0)))

    # -- nodes --------------------------------------------------------------------------------------------------------

    def _clauses(self, query: Query, weight: float) -> list[Clause]:
        """What must hold for a query to be true."""
        if isinstance(query, Bool):
            return self._of_bool(query, weight * query.boost)
        return [Clause(1, [self._literal(query, weight)])]

    def _of_bool(self, query: Bool, weight: float) -> list[Clause]:
        clauses = [clause for one in query.must for clause in self._clauses(one, weight)]
        clauses += [clause for one in query.filter for clause in self._clauses(one, 0.0)]
        clauses += [Clause(1, [self._literal(one, 0.0)._replace(negated=True)]) for one in query.must_not]
        if query.should or query.least > 0:
            literals = [literal for one in query.should for literal in self._any(one, weight, query.least)]
            clauses.append(Clause(query.least, literals))
        return clauses

    def _any(self, query: Query, weight: float, least: int) -> list[Literal]:
        """The literals of an alternative: of one that is itself a choice, its own."""
        if least == 1 and isinstance(query, Bool) and _is_choice(query):
            return [literal for one in query.should for literal in self._any(one, weight * query.boost, 1)]
        return [self._literal(query, weight)]

    def _node(self, clauses: list[Clause]) -> int:
        arrays = self.arrays
        for clause in sorted(clauses, key=_price):
            arrays.clause_least.append(clause.least)
            for literal in clause.literals:
                arrays.kinds.append(literal.kind)
                arrays.indexes.append(literal.number)
                arrays.negated.append(literal.negated)
                arrays.weights.append(literal.weight)
            arrays.clause_starts.append(len(arrays.kinds))
        arrays.node_starts.append(len(arrays.clause_least))
        return len(arrays.node_starts) - 2

    # -- literals -----------------------------------------------------------------------------------------------------

    def _literal(self, query: Query, weight: float) -> Literal:
        if isinstance(query, Nothing):
            return Literal(ALWAYS, 0, 0.0, negated=True)
        if isinstance(query, Bool):
            clauses = self._of_bool(query, 1.0)
            return Literal(NODE, self._node(clauses), weight * query.boost)
        weight *= query.boost
        if isinstance(query, Term):
            return Literal(TERM, self.terms.term(query.field, query.value), weight)
        if isinstance(query, Range):
            return self._range(query, weight)
        if isinstance(query, Prefix | Wildcard | Fuzzy | Regex):
            return Literal(TERM, self.terms.pattern(query), weight)
        if isinstance(query, Phrase):
            return Literal(PHRASE, self._phrase(query), weight)
        if isinstance(query, Exists):
            return Literal(TERM, self.terms.existing(query.field), weight)
        if isinstance(query, GeoDistance):
            return Literal(POINT, self._point(query), weight)
        if isinstance(query, Nested):
            node = self._node(self._clauses(query.query, 1.0))
            self.arrays.nested.append((query.path, node))
            return Literal(NESTED, len(self.arrays.nested) - 1, weight)
        assert isinstance(query, All)
        return Literal(ALWAYS, 0, weight)

    def _range(self, query: Range, weight: float) -> Literal:
        if self.terms.is_words(query):
            return Literal(TERM, self.terms.pattern(query), weight)
        field = self.terms.number(query.field)
        low, high = low_of(query), high_of(query)
        if low is None or high is None or low.is_relative or high.is_relative:
            self.terms.existing(query.field)  # by which such a query is found
        if low is None or high is None:
            self.arrays.calendars.append((field, query))
            return Literal(CALENDAR, len(self.arrays.calendars) - 1, weight)
        arrays = self.arrays
        arrays.number_fields.append(field)
        arrays.lows.append(low.value)
        arrays.highs.append(high.value)
        arrays.low_is_relative.append(low.is_relative)
        arrays.high_is_relative.append(high.is_relative)
        return Literal(NUMBER, len(arrays.lows) - 1, weight)

    def _phrase(self, query: Phrase) -> int:
        arrays = self.arrays
        for place, term in query.words:
            arrays.phrase_terms.append(self.terms.term(query.field, term))
            arrays.phrase_places.append(place)
        arrays.phrase_starts.append(len(arrays.phrase_terms))
        arrays.phrase_slops.append(query.slop)
        return len(arrays.phrase_slops) - 1

    def _point(self, query: GeoDistance) -> int:
        arrays = self.arrays
        arrays.point_fields.append(self.terms.point(query.field))
        arrays.latitudes.append(query.latitude)
        arrays.longitudes.append(query.longitude)
        arrays.metres.append(query.metres)
        self.terms.number(f"{query.field}#lat")
        return len(arrays.metres) - 1


def _is_choice(query: Bool) -> bool:
    return query.least == 1 and bool(query.should) and not (query.must or query.must_not or query.filter)


def _price(clause: Clause) -> int:
    return max((literal.kind for literal in clause.literals), default=0)


class Edge(NamedTuple):
    """An end of a range that belongs to it, to be added to now where it is relative."""

    value: float
    is_relative: bool = False


def low_of(query: Range) -> Edge | None:
    """The lowest value that a range has; None where only the calendar knows."""
    if query.gt is not None:
        return _edge(query.gt, beyond=1)
    return _edge(query.gte) if query.gte is not None else Edge(-math.inf)


def high_of(query: Range) -> Edge | None:
    """The highest value that a range has; None where only the calendar knows."""
    if query.lt is not None:
        return _edge(query.lt, beyond=-1)
    return _edge(query.lte) if query.lte is not None else Edge(math.inf)


def _edge(bound: Bound, *, beyond: int = 0) -> Edge | None:
    if isinstance(bound, Moment):
        fixed = bound.fixed_us
        return None if fixed is None else Edge(fixed + beyond, is_relative=True)
    value = float(bound)
    return Edge(math.nextafter(value, beyond * math.inf) if beyond else value)
