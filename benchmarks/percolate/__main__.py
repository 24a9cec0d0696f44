"""`python -m benchmarks.percolate`: documents against a thousand to a million stored queries."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.percolate.kinds import adding, grammar, queries_1k, queries_1m, queries_10k, queries_100k

PARTS = {
    "queries_1k": queries_1k,
    "queries_10k": queries_10k,
    "queries_100k": queries_100k,
    "queries_1m": queries_1m,
    "adding": adding,
    "grammar": grammar,
}

if __name__ == "__main__":
    main("percolate", PARTS)
