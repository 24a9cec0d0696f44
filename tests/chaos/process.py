"""A child process that is killed and restarted: its lives, its orders, and the processes that it leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from headwater.log import Log
from tests.chaos.kills import FOLDER, Control, Order, Strike

ROOT = Path(__file__).parents[2]
STRIKE_SECONDS_MAX = 240.0
PROGRESS_SECONDS_MAX = 240.0
EXIT_SECONDS_MAX = 60.0


class Stuck(Exception):
    """An expected event did not happen in time."""


class Child(ABC):
    """A program under load, through all its lives."""

    #: The interval at which conditions are checked.
    poll_seconds = 0.02

    def __init__(self, home: Path, log: Log) -> None:
        self.home = home
        self.log = log
        self.control = Control(home / "control")
        self.lives = 0
        self._child: subprocess.Popen[bytes] | None = None
        for folder in ("site", "tmp"):
            (home / folder).mkdir(exist_ok=True)
        # Python runs it at the start of every process, including those that Spark starts.
        customize = "from tests.chaos.kills import install_from_environment\ninstall_from_environment()\n"
        (home / "site" / "sitecustomize.py").write_text(customize)

    @abstractmethod
    def arguments(self) -> list[str]:
        """The arguments of Python that run the program."""

    @abstractmethod
    def progress(self) -> tuple[int, ...]:
        """How many batches each of its queries has committed."""

    def start(self) -> None:
        """Start the child, unless it is running."""
        if self._child is None or self._child.poll() is not None:
            (self.control.folder / "pids.json").unlink(missing_ok=True)
            self._child = self.born(self.arguments())

    def born(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        self.lives += 1
        environ = os.environ | {
            FOLDER: str(self.control.folder),
            f"{FOLDER}_LIFE": str(self.lives),
            "PYTHONPATH": f"{self.home / 'site'}{os.pathsep}{ROOT}",
            "TMPDIR": str(self.home / "tmp"),
        }
        with (self.home / "driver.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def wait(self, until: Callable[[], bool], what: str, *, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            if self._child is not None and self._child.poll() is not None:
                raise Stuck(f"the driver ended by itself, with code {self._child.returncode}, instead of: {what}")
            if time.monotonic() > deadline:
                raise Stuck(f"not within {seconds:.0f} s: {what}")
            time.sleep(self.poll_seconds)

    def wait_for_batches(self, count: int) -> None:
        """Wait until every query has committed so many batches more."""
        before = self.progress()

        def came() -> bool:
            return all(now >= then + count for now, then in zip(self.progress(), before, strict=True))

        self.wait(came, f"{count} more batches", seconds=PROGRESS_SECONDS_MAX)

    def strike(self, order: Order, *, provoke: Callable[[], None] = lambda: None) -> Strike:
        """Give an order, and wait until it is carried out and its victim has ended. `provoke` makes it reach the point."""
        self.control.arm(order)
        self.start()
        provoke()
        strike = self._struck(order)
        assert self._child is not None
        if order.victim in ("driver", "jvm") or strike.pid == self._child.pid:
            try:
                self._child.wait(EXIT_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                raise Stuck(f"the driver still runs after: {order}") from None
        else:
            if order.victim != "task":
                self.wait(lambda: not _is_alive(strike.pid), f"the end of {strike}", seconds=EXIT_SECONDS_MAX)
            self.wait_for_batches(1)
        return strike

    def _struck(self, order: Order) -> Strike:
        assert self._child is not None
        deadline = time.monotonic() + STRIKE_SECONDS_MAX
        while (strike := self.control.strike(order.number)) is None:
            if self._child.poll() is not None and self.control.strike(order.number) is None:
                raise Stuck(f"the driver ended by itself, with code {self._child.returncode}, before: {order}")
            if time.monotonic() > deadline:
                raise Stuck(f"no process reached the point: {order}")
            time.sleep(0.01)
        return strike

    def stop(self) -> None:
        """Let the child finish."""
        (self.home / "stop").touch()
        if self._child is not None and self._child.wait(60) != 0:
            raise Stuck(f"the driver ended with code {self._child.returncode}")

    def processes(self) -> list[psutil.Process]:
        """All processes of all lives."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(FOLDER) == str(self.control.folder):
                    found.append(process)
        return found

    def bury(self) -> list[str]:
        """Kill the remaining processes, and return a description of each."""
        deadline = time.monotonic() + 10
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        descriptions = []
        for process in left:
            with contextlib.suppress(psutil.Error):
                descriptions.append(f"life {process.environ()[f'{FOLDER}_LIFE']}: {' '.join(process.cmdline())[:150]}")
                process.kill()
        return descriptions


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextlib.contextmanager
def producing(log: Log, *, seed: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that appends orders, until it gets SIGTERM."""
    command = [sys.executable, "-m", "tests.chaos.producer", log.address, str(seed)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def end_producing(producer: subprocess.Popen[bytes]) -> None:
    """Let the producer append its last orders and end."""
    producer.send_signal(signal.SIGTERM)
    if producer.wait(30) != 0:
        raise Stuck(f"the producer ended with code {producer.returncode}")
