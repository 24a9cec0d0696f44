"""`python -m benchmarks.latency`: how old a row is when one sees what a query made of it, at 1,000 rows a second."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.latency.map import map_
from benchmarks.latency.view import view

PARTS = {"map": map_, "view": view}

if __name__ == "__main__":
    main("latency", PARTS)
