"""`python -m benchmarks.start`: how long a user waits until something runs, and which processes use the processors meanwhile."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.start.commands import first_query, tutorial
from benchmarks.start.demo import demo
from benchmarks.start.session import session

PARTS = {"session": session, "first_query": first_query, "tutorial": tutorial, "demo": demo}

if __name__ == "__main__":
    main("start", PARTS)
