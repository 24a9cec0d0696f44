"""Queries as trees. Both languages are read into these, with their words analysed; nothing here knows of an index.

What a tree means is said here, and a naive matcher in the tests is written from it:

- a field holds values; text is split into terms, each with a place; a list has all values of its elements;
- a leaf is true of a document if one of the field's terms, words or values is as it says;
- terms and phrases look at terms (stemmed), patterns (prefix, wildcard, fuzzy, regular expression) at words as written,
  in lower case.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from headwater.operators.percolate.query.moments import Moment

Bound: TypeAlias = "float | str | Moment"


@dataclass(frozen=True, slots=True)
class All:
    """Every document."""

    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Nothing:
    """No document: what is left of a query of which nothing remains after analysis."""


@dataclass(frozen=True, slots=True)
class Term:
    """The field has this term."""

    field: str
    value: str
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Phrase:
    """The field has these terms at these places, relative to each other, give or take `slop`.

    There is an occurrence of each word, no two words at one, so that (its place less the word's own) differs by at most
    `slop` between any two.
    """

    field: str
    words: tuple[tuple[int, str], ...]
    slop: int = 0
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Prefix:
    """A word begins so."""

    field: str
    value: str
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A word is so from end to end: `*` stands for any letters, `?` for one, a backslash takes a sign as it is."""

    field: str
    pattern: str
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Fuzzy:
    """A word is at most `distance` letters inserted, deleted, replaced, or swapped with their neighbour, away."""

    field: str
    value: str
    distance: int
    prefix_length: int = 0
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Regex:
    """A word matches from end to end."""

    field: str
    pattern: str
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Range:
    """A value lies between bounds: numbers, times in microseconds, times relative to now, or strings."""

    field: str
    gt: Bound | None = None
    gte: Bound | None = None
    lt: Bound | None = None
    lte: Bound | None = None
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Exists:
    """The field has a value."""

    field: str
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class GeoDistance:
    """A point lies within so many metres, on a sphere of the Earth's mean radius."""

    field: str
    latitude: float
    longitude: float
    metres: float
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Nested:
    """One element of the list at `path` satisfies the whole query by itself."""

    path: str
    query: Query
    boost: float = 1.0


@dataclass(frozen=True, slots=True)
class Bool:
    """All of `must` and `filter`, none of `must_not`, and at least so many of `should`.

    `minimum_should_match` is 1 by itself where there is nothing in `must` and `filter`, else 0.
    Without anything but `must_not` it is true of all documents of which none of these is.
    """

    must: tuple[Query, ...] = ()
    should: tuple[Query, ...] = ()
    must_not: tuple[Query, ...] = ()
    filter: tuple[Query, ...] = ()
    minimum_should_match: int | None = None
    boost: float = 1.0

    @property
    def least(self) -> int:
        """How many of `should` must be true."""
        if self.minimum_should_match is not None:
            return self.minimum_should_match
        return 1 if self.should and not self.must and not self.filter else 0


Leaf: TypeAlias = "Term | Phrase | Prefix | Wildcard | Fuzzy | Regex | Range | Exists | GeoDistance"
Query: TypeAlias = "All | Nothing | Leaf | Nested | Bool"
