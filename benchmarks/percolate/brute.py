"""`python -m benchmarks.percolate.brute 100000 2000 20`: the index beside brute force, each on one core, without Spark.

Two kinds of brute force ask every query of every document: one walks the trees of the queries, the other asks all pairs
at once, over the same arrays and by the same code as the index does with the few that it picks. All three begin with
words that were split and looked up in the same way; the time for that counts on every side.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from benchmarks.percolate.data import NOON_US, documents, fields, queries, stored
from headwater.operators.percolate.index.compiler import EARTH_RADIUS_METRES, high_of, low_of
from headwater.operators.percolate.index.documents import documents_of
from headwater.operators.percolate.index.matcher import Matcher, asked
from headwater.operators.percolate.index.query_index import Index
from headwater.operators.percolate.query import Query, QueryBuilder, parse
from headwater.operators.percolate.query.fields import Date, Geo, Text
from headwater.operators.percolate.query.tree import Bool, GeoDistance, Range, Term
from headwater.operators.percolate.run.stored_queries import StoredQueries

Value = frozenset[str] | float | tuple[float, float]
Document = Mapping[str, Value]
#: Documents that are asked together; of brute force the best is taken.
TOGETHER = 1_000
TOGETHER_BRUTE = (1, 2, 5)


def measured(count: int, documents_count: int, brute_documents: int) -> dict[str, float]:
    """Documents a second: by the index, by all pairs over arrays, by walking trees; and that all found the same."""
    held = StoredQueries(fields())
    held.store(stored(count))
    batch = documents(documents_count).combine_chunks().to_batches()[0]
    some = batch.slice(0, brute_documents)
    indexed, _ = _indexed(held.index, some, TOGETHER)
    found = [_all_pairs(held.index, some, together) for together in TOGETHER_BRUTE]
    walked, walked_rate = _walked(count, some)
    if {indexed, walked, *(matches for matches, _ in found)} != {indexed}:
        raise RuntimeError("the index and brute force do not find the same")
    rates = [_indexed(held.index, batch, TOGETHER)[1] for _ in range(3)]
    return {"indexed": sorted(rates)[1], "arrays": max(rate for _, rate in found), "walked": walked_rate}


def _indexed(index: Index, batch: pa.RecordBatch, together: int) -> tuple[int, float]:
    matches, began = 0, time.perf_counter()
    for start in range(0, batch.num_rows, together):
        part = batch.slice(start, together)
        matches += len(index.match(part, np.full(part.num_rows, float(NOON_US)))[0].slots)
    return matches, batch.num_rows / (time.perf_counter() - began)


def _all_pairs(index: Index, batch: pa.RecordBatch, together: int) -> tuple[int, float]:
    matches, began = 0, time.perf_counter()
    seen = documents_of(batch, index.terms, np.full(batch.num_rows, float(NOON_US)))
    for segment in index.segments:
        matcher = Matcher(segment, seen)
        for start in range(0, batch.num_rows, together):
            stop = min(batch.num_rows, start + together)
            owners = np.repeat(np.arange(start, stop), segment.size)
            pairs = asked(segment, seen, matcher, owners, np.tile(np.arange(segment.size), stop - start))
            matches += int(pairs.matched.sum())
    return matches, batch.num_rows / (time.perf_counter() - began)


def _walked(count: int, batch: pa.RecordBatch) -> tuple[int, float]:
    builder = QueryBuilder(fields())
    trees = [parse(one, builder) for one in queries(count)]
    matches, began = 0, time.perf_counter()
    for row in batch.to_pylist():
        seen = _seen(row)
        matches += sum(_is_true(tree, seen) for tree in trees)
    return matches, batch.num_rows / (time.perf_counter() - began)


# Any: a row as Arrow gives it.
def _seen(row: Mapping[str, object]) -> Document:
    found: dict[str, Value] = {}
    for name, kind in fields().kinds.items():
        value = row[name]
        if isinstance(kind, Text):
            found[name] = frozenset(term for term in kind.analyzer.terms(str(value)) if term is not None)
        elif isinstance(kind, Geo):
            assert isinstance(value, Mapping)
            found[name] = (value["lat"], value["lon"])
        elif isinstance(kind, Date):
            found[name] = np.datetime64(str(value).removesuffix("+00:00"), "us").astype(float)
        else:
            found[name] = frozenset([value]) if isinstance(value, str) else float(str(value))
    return found


def _is_true(query: Query, document: Document) -> bool:
    if isinstance(query, Bool):
        return (
            all(_is_true(one, document) for one in query.must)
            and all(_is_true(one, document) for one in query.filter)
            and not any(_is_true(one, document) for one in query.must_not)
            and (query.least == 0 or any(_is_true(one, document) for one in query.should))
        )
    assert isinstance(query, Term | Range | GeoDistance)
    held = document[query.field]
    if isinstance(query, Term):
        return isinstance(held, frozenset) and query.value in held
    if isinstance(query, Range):
        low, high = low_of(query), high_of(query)
        assert isinstance(held, float)
        assert low is not None
        assert high is not None
        return low.value <= held <= high.value
    assert isinstance(held, tuple)
    return _metres(held, (query.latitude, query.longitude)) <= query.metres


def _metres(one: tuple[float, float], other: tuple[float, float]) -> float:
    first, second = math.radians(one[0]), math.radians(other[0])
    half = math.sin((second - first) / 2) ** 2
    half += math.cos(first) * math.cos(second) * math.sin(math.radians(other[1] - one[1]) / 2) ** 2
    return 2 * EARTH_RADIUS_METRES * math.asin(math.sqrt(half))


if __name__ == "__main__":
    print(json.dumps(measured(*map(int, sys.argv[1:]))))
