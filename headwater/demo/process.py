"""The runner as a child process: started, killed, started again, and stopped in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

#: How long the batches at work may take to come to their end.
STOP_SECONDS_MAX = 90.0
#: How lines begin by which a library in use tells that the process has ended in a hurry.
NOISE = ("nanobind: ", " - leaked ", " - ... skipped", "See https://nanobind.")


class Company:
    """The process that runs the company on a log. What it and Spark print goes to a file."""

    def __init__(self, folder: Path, *, port: int, output: Path) -> None:
        self._folder = folder
        self._port = port
        self.output = output
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start it, after one that was killed or for the first time; its pid."""
        command = [sys.executable, "-m", "headwater.demo.running", str(self._folder), str(self._port)]
        with open(self.output, "ab") as file:
            # A group of its own: what Spark has started goes with it, and Ctrl-C reaches only who directs.
            self._process = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
        return self._process.pid

    def kill(self) -> int:
        """End it as a crash does, with `kill -9`, it and all that Spark has started for it; the pid that it had."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        return self._process.pid

    def hold(self) -> None:
        """Let it stand still, with all that Spark has started for it."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def let_go(self) -> None:
        """Let it go on after it was held."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Let the batches at work come to their end."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self.kill()

    @property
    def has_ended(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def last_words(self, *, lines: int = 12) -> str:
        """The end of what it printed, without what libraries say of their own end, which hides why it ended."""
        try:
            told = self.output.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        return "\n".join([line for line in told if not line.startswith(NOISE)][-lines:])
