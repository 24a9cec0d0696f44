"""Waiting for what another thread or process does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

#: It ends a hang; a machine may be slow.
SECONDS_MAX = 180.0
PAUSE_SECONDS = 0.02


# Any: whatever the condition gives, for those who go on with it.
def until(holds: Callable[[], Any], what: str = "it has happened", process: subprocess.Popen[Any] | None = None) -> Any:
    """Wait until a condition holds, and give what it gave. A process that ends before is told at once."""
    deadline = time.monotonic() + SECONDS_MAX
    while not (found := holds()):
        if process is not None and process.poll() is not None:
            raise AssertionError(f"it ended with {process.returncode} before: {what}")
        assert time.monotonic() < deadline, f"in {SECONDS_MAX:.0f} s not: {what}"
        time.sleep(PAUSE_SECONDS)
    return found
