"""`python -m benchmarks.server`: producing, consuming and tailing over HTTP."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.server.rows import ask, consume, produce
from benchmarks.server.tails import tail

PARTS = {"produce": produce, "consume": consume, "ask": ask, "tail": tail}

if __name__ == "__main__":
    main("server", PARTS)
