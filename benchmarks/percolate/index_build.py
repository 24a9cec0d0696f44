"""`python -m benchmarks.percolate.index_build 100000`: build time and memory of an index, and the number of
queries that a document is matched against."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import psutil

from benchmarks.percolate.data import NOON_US, documents, fields, stored
from headwater.operators.percolate.run.stored_queries import StoredQueries

PORTION = 50_000
DOCUMENTS = 1_000


def measured(count: int) -> dict[str, float]:
    process = psutil.Process()
    before, seconds = process.memory_info().rss, 0.0
    held = StoredQueries(fields())
    for start in range(0, count, PORTION):
        rows = stored(min(PORTION, count - start), first=start, seed=2 + start)
        began = time.perf_counter()
        held.store(rows)
        seconds += time.perf_counter() - began
    batch = documents(DOCUMENTS).combine_chunks().to_batches()[0]
    # What only the first document makes belongs to the index, too.
    began = time.perf_counter()
    held.index.match(batch.slice(0, 1), np.full(1, float(NOON_US)))
    seconds += time.perf_counter() - began
    memory = process.memory_info().rss - before
    matches, _ = held.index.match(batch, np.full(DOCUMENTS, float(NOON_US)))
    more = stored(1_000, first=count, seed=1)
    began = time.perf_counter()
    held.store(more)
    return {
        "build_seconds": seconds,
        "memory_mib": memory / 2**20,
        "arrays_mib": held.index.bytes / 2**20,
        "candidates_per_document": matches.candidates / DOCUMENTS,
        "matches_per_document": len(matches.slots) / DOCUMENTS,
        "add_1000_seconds": time.perf_counter() - began,
    }


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))
