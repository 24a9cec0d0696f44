"""Other processes for tests: each runs a piece of Python, says what it did line by line, and can be killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREAMBLE = """
import sys
import headwater.log
log = headwater.log.open(sys.argv[1])
def say(*words):
    print(*words, flush=True)
"""


class Child:
    """A process that has opened the log."""

    def __init__(self, path: Path, code: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PREAMBLE + code, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line that the child says; empty at its end."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def lines(self) -> list[str]:
        """All that the child still says before it ends."""
        assert self.process.stdout is not None
        return self.process.stdout.read().split("\n")[:-1]

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self.process.communicate()


@contextmanager
def child(path: Path, code: str) -> Iterator[Child]:
    """Run `code` in another process, which is over at the end of the block at the latest."""
    started = Child(path, code)
    try:
        yield started
    finally:
        started.end()
