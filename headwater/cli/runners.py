"""Run captures or syncs of this process until Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Sequence
from typing import Protocol


class Runner(Protocol):
    """Runs one thing of a name until it is asked to stop."""

    name: str

    def run(self) -> None: ...

    def request_stop(self) -> None: ...


def run_until_stopped(runners: Sequence[Runner]) -> list[BaseException]:
    """Run each in a thread until Ctrl-C, or until one of them cannot go on; return why."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def run(runner: Runner) -> None:
        try:
            runner.run()
        except BaseException as error:
            failures.append(error)
            stop.set()

    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threads = [threading.Thread(target=run, args=(runner,), name=runner.name) for runner in runners]
    for thread in threads:
        thread.start()
    with contextlib.suppress(KeyboardInterrupt):
        while not stop.wait(1.0):
            pass
    for runner in runners:
        runner.request_stop()
    for thread in threads:
        thread.join()
    return failures
