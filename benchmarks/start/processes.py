"""What a command and all processes below it used, by kind of process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

#: The kind of a process, by what stands in its name (forked processes are named after their modules) or its command.
KINDS = {
    "sources": ("python_streamin",),
    "workers": ("worker ",),
    "planners": ("data_sou", "into_data"),
    "server": ("fork_server",),
    "jvm": ("java",),
}
LOOK_EVERY_SECONDS = 0.1


def program() -> str:
    """The `headwater` command; that of another release, if `BENCH_PROGRAM` names it."""
    return os.environ.get("BENCH_PROGRAM", str(Path(sys.executable).with_name("headwater")))


class Usage:
    """Looks at a process and all below it ten times a second, until it has ended.

    Of a process that has ended counts what it had used when last seen; one that lived for less than a tenth of a second may
    not be seen at all.
    """

    def __init__(self, run: subprocess.Popen[str]) -> None:
        self._root = psutil.Process(run.pid)
        self._used: dict[tuple[int, float], tuple[str, float]] = {}
        self._ended = threading.Event()
        self._looking = threading.Thread(target=self._look_often, daemon=True)

    def __enter__(self) -> Self:
        self._looking.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._looking.join()

    @property
    def processes(self) -> int:
        """How many processes there have been."""
        return len(self._used)

    @property
    def cpu_seconds(self) -> float:
        return sum(seconds for _, seconds in list(self._used.values()))

    def by_kind(self) -> Mapping[str, float]:
        """CPU-seconds of each kind of process so far."""
        sums: dict[str, float] = defaultdict(float)
        for kind, seconds in list(self._used.values()):
            sums[kind] += seconds
        return sums

    def _look_often(self) -> None:
        while not self._ended.wait(LOOK_EVERY_SECONDS):
            self._look()

    def _look(self) -> None:
        try:
            below = self._root.children(recursive=True)
        except psutil.Error:
            return
        for process in [self._root, *below]:
            try:
                command, times = f"{process.name()} {' '.join(process.cmdline())} ", process.cpu_times()
                started = process.create_time()
            except psutil.Error:
                continue
            kind = next((kind for kind, marks in KINDS.items() if any(mark in command for mark in marks)), "driver")
            self._used[process.pid, started] = (kind, times.user + times.system)
