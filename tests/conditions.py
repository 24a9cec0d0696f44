"""Wait for a condition that another thread or process fulfils, with a deadline."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

#: Generous, since a machine may be slow: it only ends a hang.
SECONDS_MAX = 180.0
PAUSE_SECONDS = 0.02


# Any: the result of the condition.
def until(holds: Callable[[], Any], what: str = "it has happened", process: subprocess.Popen[Any] | None = None) -> Any:
    """Wait until a condition holds, and return its result. Fail at once if the process ends before."""
    deadline = time.monotonic() + SECONDS_MAX
    while not (result := holds()):
        if process is not None and process.poll() is not None:
            raise AssertionError(f"it ended with {process.returncode} before: {what}")
        assert time.monotonic() < deadline, f"in {SECONDS_MAX:.0f} s not: {what}"
        time.sleep(PAUSE_SECONDS)
    return result
