"""Many stored queries differ in nothing but their words and numbers. Such a shape is parsed once, for all that have it.

A shape is the text of a query with holes where words, numbers and dates stood. It is parsed by the same parser as every
query, with builders that leave the holes open. Whatever does more with a hole than look a value up has no shape, and
those queries are parsed one by one; so is each query whose values are not what the shape expects. Queries of one shape
become arrays all at once: each distinct value is looked up once, and everything else is repeated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headwater.operators.errors import QueryInvalid
from headwater.operators.percolate.index.compiler import (
    ALWAYS,
    NODE,
    NUMBER,
    TERM,
    Arrays,
    Compiler,
    Literal,
    high_of,
    low_of,
)
from headwater.operators.percolate.index.documents import Bools, Floats, Ints
from headwater.operators.percolate.index.segment import Segment
from headwater.operators.percolate.index.terms import Terms
from headwater.operators.percolate.query import Query, QueryBuilder, parse_string
from headwater.operators.percolate.query.builder import LeafInvalid
from headwater.operators.percolate.query.fields import Date, Keyword, Number, Text
from headwater.operators.percolate.query.tree import Bound, Range, Term

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


def shape_of(text: str, builder: QueryBuilder, terms: Terms) -> Shape | None:
    """Read a shape; None where its queries must be read one by one."""
    literals = text.split(SIGN)
    numbered = "".join(f"{part}{SIGN}{number}" for number, part in enumerate(literals[:-1])) + literals[-1]
    try:
        query = parse_string(numbered, _Open(builder.fields))
    except QueryInvalid:
        return None
    compiler = _ShapeCompiler(terms)
    compiler.add(query)
    covers = _covers(compiler.arrays)
    if covers is None or compiler.arrays.calendars or compiler.arrays.nested:
        return None
    return Shape(compiler.arrays, compiler.term_uses, compiler.bound_uses, covers)


@dataclass(frozen=True)
class _Open(QueryBuilder):
    """Makes leaves with holes in them, of the simplest kinds."""

    def phrase(self, name: str, text: str, slop: int = 0) -> Query:
        hole = _hole(text)
        if hole is None:
            return super().phrase(name, text, slop)
        kind = self.kind(name)
        if slop or not isinstance(kind, Text | Keyword | Number | Date):
            raise LeafInvalid("a hole is a single value")
        return Term(name, hole) if isinstance(kind, Text | Keyword) else Range(name, gte=hole, lte=hole)

    def range(self, name: str, **bounds: str | None) -> Query:
        holes = {side: hole for side, text in bounds.items() if text is not None and (hole := _hole(text)) is not None}
        if holes and not isinstance(self.kind(name), Number | Date):
            raise LeafInvalid("a hole is a single value")
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
        raise LeafInvalid("a hole is a single value")
    return Hole(text)


def _closed(text: str) -> str:
    if SIGN in text:
        raise LeafInvalid("a hole is a single value")
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


@dataclass
class ShapeQueries:
    """Stored queries of one shape, with the values of each.

    `terms` has a column for each use of a term, `bounds` one for each end of a range; `is_usual` says of which queries
    the values are what the shape expects.
    """

    shape: Shape
    terms: list[Ints]
    bounds: list[Floats]
    is_usual: Bools

    @classmethod
    def of(cls, shape: Shape, values: Sequence[Sequence[str]], builder: QueryBuilder, terms: Terms) -> ShapeQueries:
        columns = [pa.array(column).dictionary_encode() for column in zip(*values, strict=True)]
        usual = np.ones(len(values), bool)
        numbers = [_looked_up(columns[use.hole], _term_maker(use, builder, terms)) for use in shape.terms]
        ends = [_looked_up(columns[use.hole], _bound_maker(use, builder)) for use in shape.bounds]
        for one in (*numbers, *ends):
            usual &= ~np.isnan(one)
        return cls(shape, [np.nan_to_num(one).astype(np.int64) for one in numbers], ends, usual)

    def usual(self) -> ShapeQueries:
        """Those whose values are what the shape expects."""
        kept = self.is_usual
        return ShapeQueries(
            self.shape, [one[kept] for one in self.terms], [one[kept] for one in self.bounds], kept[kept]
        )

    @property
    def size(self) -> int:
        return len(self.is_usual)

    def indexes(self) -> Ints:
        """What the literals ask for, a row for each query."""
        arrays = self.shape.arrays
        base = np.array(arrays.indexes, np.int64)
        kinds, rows = np.array(arrays.kinds), np.arange(self.size)[:, None]
        found: Ints = np.tile(base, (self.size, 1))
        found[:, kinds == NUMBER] += rows * len(arrays.lows)
        found[:, kinds == NODE] += rows * (len(arrays.node_starts) - 1)
        for place in np.flatnonzero((kinds == TERM) & (base < 0)).tolist():
            found[:, place] = self.terms[-1 - base[place]]
        return found

    def asked(self) -> Ints:
        """The terms that these queries ask for."""
        return self.indexes()[:, np.array(self.shape.arrays.kinds) == TERM].ravel()

    def segment(self, slots: Ints, frequency: Floats, range_cost: float) -> Segment:
        indexes, (lows, highs) = self.indexes(), self._ends()
        covers = self._covers(indexes, lows, highs, frequency, range_cost)
        laid = _laid_out(self.shape.arrays, self.size)
        laid |= {"indexes": indexes.ravel().astype(np.int32), "lows": lows.ravel(), "highs": highs.ravel()}
        return Segment(slots=slots, calendars=[], nested=[], **laid, **covers)

    def _ends(self) -> tuple[Floats, Floats]:
        arrays = self.shape.arrays
        lows, highs = (np.tile(np.array(held, np.float64), (self.size, 1)) for held in (arrays.lows, arrays.highs))
        for use, values in zip(self.shape.bounds, self.bounds, strict=True):
            (lows if use.side in ("gt", "gte") else highs)[:, use.range] = values
        return lows, highs

    def _covers(
        self, indexes: Ints, lows: Floats, highs: Floats, frequency: Floats, range_cost: float
    ) -> dict[str, Any]:
        """The cheapest cover of each query. Any: arrays of several types."""
        arrays, shape = self.shape.arrays, self.shape
        costs = [
            sum(
                frequency[indexes[:, place]] if arrays.kinds[place] == TERM else np.full(self.size, range_cost)
                for place in places
            )
            for places in shape.covers
        ]
        best = np.argmin(np.stack(costs), axis=0)
        none, nothing = np.zeros(0, np.int64), np.zeros(0)
        terms, ranges = [(none, none)], [(none, nothing, nothing, none)]
        for number, places in enumerate(shape.covers):
            rows = np.flatnonzero(best == number)
            for place in places:
                if arrays.kinds[place] == TERM:
                    terms.append((indexes[rows, place], rows))
                    continue
                index = arrays.indexes[place]
                field = np.full(len(rows), arrays.number_fields[index], np.int64)
                ranges.append((field, lows[rows, index], highs[rows, index], rows))
        names = (
            "cover_terms",
            "cover_term_queries",
            "cover_fields",
            "cover_lows",
            "cover_highs",
            "cover_range_queries",
        )
        columns = [*zip(*terms, strict=True), *zip(*ranges, strict=True)]
        joined = {name: np.concatenate(parts) for name, parts in zip(names, columns, strict=True)}
        return {**joined, "open": none}


def _laid_out(arrays: Arrays, count: int) -> dict[str, Any]:
    """What is the same in all queries of a shape, once for each of them."""
    rows = np.arange(count)[:, None]
    found: dict[str, Any] = {
        name: np.tile(np.array(held), count)
        for name, held in vars(arrays).items()
        if name not in ("calendars", "nested")
    }
    for name in ("negated", "low_is_relative", "high_is_relative"):
        found[name] = found[name].astype(bool)
    for name, step in (("node_starts", len(arrays.clause_least)), ("clause_starts", len(arrays.kinds))):
        starts = np.array(getattr(arrays, name))[1:] + step * rows
        found[name] = np.concatenate([[0], starts.ravel()]).astype(np.int32)
    nodes = len(arrays.node_starts) - 1
    found["roots"] = (arrays.roots[0] + nodes * rows).ravel().astype(np.int32)
    found["phrase_starts"] = np.zeros(1, np.int32)
    return found


def _looked_up(column: pa.DictionaryArray, make: Callable[[str], float]) -> Floats:
    """What is made of each value; not a number where it is not what the shape expects."""
    made = np.array([make(value) for value in column.dictionary.to_pylist()], np.float64)
    found: Floats = made[np.asarray(column.indices)]
    return found


def _term_maker(use: TermUse, builder: QueryBuilder, terms: Terms) -> Callable[[str], float]:
    def make(value: str) -> float:
        leaf = builder.phrase(use.field, value)
        return terms.term(leaf.field, leaf.value) if isinstance(leaf, Term) else np.nan

    return make


def _bound_maker(use: BoundUse, builder: QueryBuilder) -> Callable[[str], float]:
    is_low = use.side in ("gt", "gte")

    def make(value: str) -> float:
        try:
            leaf = builder.range(use.field, **{use.side: value})
        except LeafInvalid:
            return np.nan
        assert isinstance(leaf, Range)
        edge = low_of(leaf) if is_low else high_of(leaf)
        return np.nan if edge is None or edge.is_relative else edge.value

    return make
