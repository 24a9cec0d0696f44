"""`python -m benchmarks.joins`: enrichment, table joins and joins within a time, ours and Spark's own in turn."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.joins.kinds import enrich, tables, within

PARTS = {"enrich": enrich, "tables": tables, "within": within}

if __name__ == "__main__":
    main("joins", PARTS)
