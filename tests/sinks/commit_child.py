"""A commit in a process of its own that is killed at a crash point: for sinks whose packages do not survive a fork."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from headwater.faults import install

ROOT = Path(__file__).parents[2]


# Any: the sink, the method to call, and its arguments.
def call_until_killed(sink: Any, method: str, *arguments: Any, point: str) -> None:
    """Call a method of a sink in a child, which must end by SIGKILL at the point."""
    given = pickle.dumps((sink, method, arguments, point))
    done = subprocess.run(
        [sys.executable, "-m", "tests.sinks.commit_child"],
        input=given, capture_output=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr.decode(errors="replace")[-4000:]


def main() -> None:
    sink, method, arguments, point = pickle.load(sys.stdin.buffer)
    install(lambda reached: os.kill(os.getpid(), signal.SIGKILL) if reached == point else None)
    getattr(sink, method)(*arguments)


if __name__ == "__main__":
    main()
