"""Queries of one shape as arrays, all at once: each distinct value is looked up once, and everything else is repeated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.operators.percolate.compiling import NODE, NUMBER, TERM, Arrays, high_of, low_of
from headwater.operators.percolate.documents import Bools, Floats, Ints
from headwater.operators.percolate.query.making import Making, Wrong
from headwater.operators.percolate.query.tree import Range, Term
from headwater.operators.percolate.segment import Segment
from headwater.operators.percolate.shapes import BoundUse, Shape, TermUse
from headwater.operators.percolate.terms import Terms


@dataclass
class Alike:
    """Stored queries of one shape, with the values of each.

    `terms` has a column for each use of a term, `bounds` one for each end of a range; `is_usual` says of which queries
    the values are what the shape expects.
    """

    shape: Shape
    terms: list[Ints]
    bounds: list[Floats]
    is_usual: Bools

    @classmethod
    def of(cls, shape: Shape, values: Sequence[Sequence[str]], making: Making, terms: Terms) -> Alike:
        columns = [pa.array(column).dictionary_encode() for column in zip(*values, strict=True)]
        usual = np.ones(len(values), bool)
        numbers = [_looked_up(columns[use.hole], _term_maker(use, making, terms)) for use in shape.terms]
        ends = [_looked_up(columns[use.hole], _bound_maker(use, making)) for use in shape.bounds]
        for one in (*numbers, *ends):
            usual &= ~np.isnan(one)
        return cls(shape, [np.nan_to_num(one).astype(np.int64) for one in numbers], ends, usual)

    def usual(self) -> Alike:
        """Those whose values are what the shape expects."""
        kept = self.is_usual
        return Alike(self.shape, [one[kept] for one in self.terms], [one[kept] for one in self.bounds], kept[kept])

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


def _term_maker(use: TermUse, making: Making, terms: Terms) -> Callable[[str], float]:
    def make(value: str) -> float:
        leaf = making.phrase(use.field, value)
        return terms.term(leaf.field, leaf.value) if isinstance(leaf, Term) else np.nan

    return make


def _bound_maker(use: BoundUse, making: Making) -> Callable[[str], float]:
    is_low = use.side in ("gt", "gte")

    def make(value: str) -> float:
        try:
            leaf = making.range(use.field, **{use.side: value})
        except Wrong:
            return np.nan
        assert isinstance(leaf, Range)
        edge = low_of(leaf) if is_low else high_of(leaf)
        return np.nan if edge is None or edge.is_relative else edge.value

    return make
