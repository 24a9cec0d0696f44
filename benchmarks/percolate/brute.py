"""Brute force: each stored query is asked of each document, by walking its tree. Words are split once per document."""

from __future__ import annotations

import time
from collections.abc import Mapping

from benchmarks.percolate.data import documents, fields, queries
from headwater.operators.percolate.fields import Text
from headwater.operators.percolate.query import Making, Query, parse
from headwater.operators.percolate.query.tree import Bool, Range, Term

Document = Mapping[str, frozenset[str] | float]


def brute_rate(count: int, documents_count: int) -> float:
    """Documents a second against so many queries."""
    making = Making(fields())
    trees = [parse(one, making) for one in queries(count)]
    rows = documents(documents_count).to_pylist()
    began = time.perf_counter()
    for row in rows:
        seen = _seen(row)
        sum(_is_true(tree, seen) for tree in trees)
    return documents_count / (time.perf_counter() - began)


def _seen(row: Mapping[str, str | float]) -> Document:
    found: dict[str, frozenset[str] | float] = {}
    for name, kind in fields().kinds.items():
        value = row[name]
        if isinstance(kind, Text):
            found[name] = frozenset(term for term in kind.analyzer.terms(str(value)) if term is not None)
        else:
            found[name] = frozenset([value]) if isinstance(value, str) else value
    return found


def _is_true(query: Query, document: Document) -> bool:
    if isinstance(query, Term):
        held = document[query.field]
        return isinstance(held, frozenset) and query.value in held
    if isinstance(query, Range):
        value = document[query.field]
        return isinstance(value, float) and _low(query) <= value <= _high(query)
    assert isinstance(query, Bool)
    return (
        all(_is_true(one, document) for one in query.must)
        and not any(_is_true(one, document) for one in query.must_not)
        and (query.least == 0 or any(_is_true(one, document) for one in query.should))
    )


def _low(query: Range) -> float:
    return query.gte if isinstance(query.gte, float) else float("-inf")


def _high(query: Range) -> float:
    return query.lte if isinstance(query.lte, float) else float("inf")
