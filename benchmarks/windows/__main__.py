"""`python -m benchmarks.windows`: tumbling, sliding, sessions and panes, ours and Spark's own in turn."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.windows.kinds import native_column, own_windows, tumbling
from benchmarks.windows.state import state

PARTS = {"tumbling": tumbling, "tumbling.native": native_column, "own": own_windows, "state": state}

if __name__ == "__main__":
    main("windows", PARTS)
