"""`python -m benchmarks.percolate.grammar 200 2000`: random queries over the whole grammar, the slowest of them."""

from __future__ import annotations

import json
import random
import sys
import time
import warnings

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.operators.percolate.index.query_index import Index
from tests.operators.percolate.strategies import FIELDS, Written, batch_of, documents, now_us, queries


def drawn(strategy: st.SearchStrategy[object], count: int) -> list[object]:
    """So many examples of a strategy."""
    found: list[object] = []

    @settings(max_examples=count, database=None, deadline=None, derandomize=True)
    @given(strategy)
    def take(one: object) -> None:
        found.append(one)

    take()
    return found


def measured(count: int, documents_count: int) -> dict[str, object]:
    warnings.simplefilter("ignore")
    rows = [row for row in drawn(documents, 200) if isinstance(row, dict)]
    picked = random.Random(7).choices(rows, k=documents_count)
    batch, now = batch_of(picked), now_us(documents_count)
    rates: list[tuple[float, str]] = []
    for one in drawn(queries, count):
        assert isinstance(one, Written)
        index = Index(FIELDS)
        index.change([("", one.tree)])
        index.match(batch, now)
        began = time.perf_counter()
        index.match(batch, now)
        rates.append((documents_count / (time.perf_counter() - began), json.dumps(one.json)))
    rates.sort()
    slowest, query = rates[0]
    return {"slowest": slowest, "query": query, "more": {"queries": len(rates), "median": rates[len(rates) // 2][0]}}


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]), int(sys.argv[2]))))
