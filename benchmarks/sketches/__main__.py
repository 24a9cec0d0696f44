"""`python -m benchmarks.sketches`: each approximate aggregate beside its exact one, and beside Spark's sketches."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.sketches.aggregates import few_groups, many_groups, operators
from benchmarks.sketches.streams import streams

PARTS = {"few": few_groups, "many": many_groups, "operators": operators, "streams": streams}

if __name__ == "__main__":
    main("sketches", PARTS)
