"""Many stored queries differ in nothing but their words and numbers. Such a shape is read once, for all that have it.

A shape is the text of a query with holes where words, numbers and dates stood. It is read by the same parser as every
query, with makers that leave the holes open. Whatever does more with a hole than look a value up is refused here, and
those queries are read one by one; so is each query whose values are not what the shape expects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headwater.errors import QueryInvalid
from headwater.operators.percolate.compiling import ALWAYS, NODE, NUMBER, TERM, Arrays, Compiler, Literal
from headwater.operators.percolate.fields import Date, Keyword, Number, Text
from headwater.operators.percolate.query import Making, Query, parse_string
from headwater.operators.percolate.query.making import Wrong
from headwater.operators.percolate.query.tree import Bound, Range, Term
from headwater.operators.percolate.terms import Terms

#: Stands for a hole, with its number behind it. Queries that have this sign themselves have no shape.
SIGN = "\ue000"
#: Fewer queries than this are read one by one.
ALIKE_MIN = 8
SHAPES_MAX = 10_000
_HOLE = re.compile(
    r"(?:(?<![^\s(\[{:<>=])|(?<=[\s(][+\-])|(?<=\A[+\-]))"  # what stands before a value, with or without a sign
    r"(?!(?:AND|OR|NOT|TO)\b)(\d{4}-\d\d-\d\d|\w++(?:\.\d++)?+)(?=[\s)\]}]|\Z)"
)
_SIDES = ("gt", "gte", "lt", "lte")


class Hole(str):
    """A value that is not known yet."""

    @property
    def number(self) -> int:
        return int(self[1:])


class TermUse(NamedTuple):
    """A term of a field, whose word is in a hole."""

    field: str
    hole: int


class BoundUse(NamedTuple):
    """One end of a range, whose value is in a hole."""

    range: int
    field: str
    side: str
    hole: int


@dataclass(frozen=True)
class Shape:
    """A query with holes: its arrays, where the holes are, and by which literals it may be found.

    A literal for a term in a hole has the index `-1 - n`, where `n` is the number of its use.
    """

    arrays: Arrays
    terms: Sequence[TermUse]
    bounds: Sequence[BoundUse]
    #: Each is enough by itself: places of literals that all find the query.
    covers: Sequence[Sequence[int]]


def without_values(text: str) -> tuple[str, list[str]] | None:
    """The shape of a query string, and its values; None where it is not a query string.

    >>> shape, values = without_values("+price:[10 TO 20] -title:java")
    >>> shape.replace(SIGN, "_"), values
    ('+price:[_ TO _] -title:_', ['10', '20', 'java'])
    """
    if SIGN in text or text.lstrip().startswith("{"):
        return None
    parts = _HOLE.split(text)
    return SIGN.join(parts[::2]), parts[1::2]


def shape_of(text: str, making: Making, terms: Terms) -> Shape | None:
    """Read a shape; None where its queries must be read one by one."""
    literals = text.split(SIGN)
    numbered = "".join(f"{part}{SIGN}{number}" for number, part in enumerate(literals[:-1])) + literals[-1]
    try:
        query = parse_string(numbered, _Open(making.fields))
    except QueryInvalid:
        return None
    compiler = _ShapeCompiler(terms)
    compiler.add(query)
    covers = _covers(compiler.arrays)
    if covers is None or compiler.arrays.calendars or compiler.arrays.nested:
        return None
    return Shape(compiler.arrays, compiler.term_uses, compiler.bound_uses, covers)


@dataclass(frozen=True)
class _Open(Making):
    """Makes leaves with holes in them, of the simplest kinds."""

    def phrase(self, name: str, text: str, slop: int = 0) -> Query:
        hole = _hole(text)
        if hole is None:
            return super().phrase(name, text, slop)
        kind = self.kind(name)
        if slop or not isinstance(kind, Text | Keyword | Number | Date):
            raise Wrong("a hole is a single value")
        return Term(name, hole) if isinstance(kind, Text | Keyword) else Range(name, gte=hole, lte=hole)

    def range(self, name: str, **bounds: str | None) -> Query:
        holes = {side: hole for side, text in bounds.items() if text is not None and (hole := _hole(text)) is not None}
        if holes and not isinstance(self.kind(name), Number | Date):
            raise Wrong("a hole is a single value")
        known = super().range(name, **{side: text for side, text in bounds.items() if side not in holes})
        assert isinstance(known, Range)
        return _with(known, holes)

    def prefix(self, name: str, value: str) -> Query:
        return super().prefix(name, _closed(value))

    def wildcard(self, name: str, pattern: str) -> Query:
        return super().wildcard(name, _closed(pattern))

    def fuzzy(self, name: str, value: str, fuzziness: object = "AUTO", prefix_length: int = 0) -> Query:
        return super().fuzzy(name, _closed(value), fuzziness, prefix_length)

    def regex(self, name: str, pattern: str) -> Query:
        return super().regex(name, _closed(pattern))


def _with(query: Range, bounds: Mapping[str, Bound]) -> Range:
    sides = {side: bounds.get(side, getattr(query, side)) for side in _SIDES}
    return Range(query.field, **sides, boost=query.boost)


def _hole(text: str) -> Hole | None:
    if SIGN not in text:
        return None
    if not text.startswith(SIGN) or not text[1:].isdecimal():
        raise Wrong("a hole is a single value")
    return Hole(text)


def _closed(text: str) -> str:
    if SIGN in text:
        raise Wrong("a hole is a single value")
    return text


class _ShapeCompiler(Compiler):
    """Compiles a query with holes, and notes where they are."""

    def __init__(self, terms: Terms) -> None:
        super().__init__(terms)
        self.term_uses: list[TermUse] = []
        self.bound_uses: list[BoundUse] = []

    def _literal(self, query: Query, weight: float) -> Literal:
        if isinstance(query, Term) and isinstance(query.value, Hole):
            self.term_uses.append(TermUse(query.field, query.value.number))
            return Literal(TERM, -len(self.term_uses), weight * query.boost)
        return super()._literal(query, weight)

    def _range(self, query: Range, weight: float) -> Literal:
        holes = {side: bound for side in _SIDES if isinstance(bound := getattr(query, side), Hole)}
        literal = super()._range(_with(query, dict.fromkeys(holes, 0.0)), weight)
        for side, hole in holes.items():
            self.bound_uses.append(BoundUse(literal.number, query.field, side, hole.number))
        return literal


def _covers(arrays: Arrays) -> list[list[int]] | None:
    """The clauses by which a query of this shape may be found; None where that differs from one to the other."""
    if set(arrays.kinds) - {TERM, NUMBER, ALWAYS, NODE} or any(arrays.low_is_relative) or any(arrays.high_is_relative):
        return None
    found = []
    root = arrays.roots[0]
    for clause in range(arrays.node_starts[root], arrays.node_starts[root + 1]):
        least = arrays.clause_least[clause]
        places = list(range(arrays.clause_starts[clause], arrays.clause_starts[clause + 1]))
        positive = [place for place in places if not arrays.negated[place]]
        if least == 0 or not positive:
            continue
        if least > 1 or any(arrays.kinds[place] not in (TERM, NUMBER) for place in positive):
            return None
        if positive == places:
            found.append(places)
    return found or None
