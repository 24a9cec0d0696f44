"""The processes of this benchmark besides the one that measures: a gateway with its log, senders, and plain consumers as peers.

Each prints one line when it is ready, does its work when it reads a line, and answers with a line of JSON.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import cpu_seconds_of

MODULE = "benchmarks.gateway.children"
#: How long nothing may happen before a gateway is said to have what it gets.
QUIET_SECONDS = 2.0
STEP_SECONDS = 0.002


class Child:
    """A child process: `ask` sends a line and returns its answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.first = self._line()

    def begin(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text + "\n")
        self._process.stdin.flush()

    # Any: JSON.
    def answer(self) -> Any:
        return json.loads(self._line())

    def ask(self, text: str) -> Any:
        self.begin(text)
        return self.answer()

    @property
    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self._process.pid)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")
        return line.strip()


@contextlib.contextmanager
def child(*words: object, module: str = MODULE) -> Iterator[Child]:
    """A child process while the block runs; it ends when its input does."""
    arguments = [sys.executable, "-m", module, *map(str, words)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Child(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def gateway(folder: Path, kind: str, **settings: object) -> contextlib.AbstractContextManager[Child]:
    """A process with a gateway on the log of a folder.

    It answers `start` with the address, `counters`, `until N` with the counters when N events have arrived, and `stop`.
    """
    return child("gateway", folder, kind, *(f"{name}={value}" for name, value in settings.items()))


def _say(answer: object) -> None:
    print(json.dumps(answer), flush=True)


def _gateway(folder: str, kind: str, *settings: str) -> None:
    import headwater as hw
    from headwater.gateways import GatewayRunner
    from headwater.gateways.kinds import gateway_from_text

    runner = None
    with hw.open(folder) as log:
        print("ready", flush=True)
        for line in sys.stdin:
            match line.split():
                case ["start"]:
                    runner = GatewayRunner(log, gateway_from_text(kind, settings))
                    runner.start()
                    _say(runner.address)
                case ["stop"]:
                    assert runner is not None
                    runner.stop()
                    _say(runner.status().counters)
                case ["until", count]:
                    assert runner is not None
                    _say(_until(runner, int(count)))
                case ["counters"]:
                    assert runner is not None
                    _say(runner.status().counters)
        if runner is not None:
            runner.stop()


def _until(runner: Any, count: int) -> dict[str, int]:  # Any: a runner, imported above
    """The counters when so many events have arrived or are known to be lost, or when nothing has come for a while."""
    before, since = -1, time.monotonic()
    while True:
        counters: dict[str, int] = runner.status().counters
        done = counters["appended"] + counters["rejected"] + counters["lost"]
        if done >= count:
            return counters
        if done != before:
            before, since = done, time.monotonic()
        elif time.monotonic() - since > QUIET_SECONDS and done:
            return counters
        elif time.monotonic() - since > 60:
            raise RuntimeError(f"nothing has arrived: {runner.status()}")
        time.sleep(STEP_SECONDS)


if __name__ == "__main__":
    if sys.argv[1] != "gateway":
        raise SystemExit(__doc__)
    _gateway(*sys.argv[2:])
