"""The process that runs the company: `python -m headwater.demo.running FOLDER PORT`.

It is a process of its own, so that it can be killed while the world goes on. The server is up before Spark is. It ends
on SIGTERM, and by itself when the process that started it is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.runtime.runner import Runner

LOOK_SECONDS = 0.5


def run(folder: str, port: int) -> None:
    """Run the app on the log of a folder, until somebody asks to stop."""
    from headwater.demo.company import app
    from headwater.demo.console import served
    from headwater.runtime.runner import Runner

    runner = Runner(app, log=folder, port=port, served=served, plan_first=False)
    _end_with(runner, os.getppid())
    with runner.ready():
        runner.supervise()
    if runner.spark is not None:
        runner.spark.stop()


def _end_with(runner: Runner, parent: int) -> None:
    """Stop between two batches when asked to, and when nobody is left who could ask."""

    def asked(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        runner.request_stop()

    def watch() -> None:
        while not runner.wait_for_stop(LOOK_SECONDS):
            if os.getppid() != parent:
                runner.request_stop()

    signal.signal(signal.SIGTERM, asked)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that directs; it tells us
    threading.Thread(target=watch, name="demo-parent", daemon=True).start()


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]))
