"""`python -m benchmarks.server`: producing, consuming and tailing over HTTP, and the console in a real browser."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.server.console import first_paint
from benchmarks.server.rows import ask, consume, produce, sql
from benchmarks.server.tails import tail

PARTS = {"produce": produce, "consume": consume, "ask": ask, "sql": sql, "tail": tail, "console": first_paint}

if __name__ == "__main__":
    main("server", PARTS)
