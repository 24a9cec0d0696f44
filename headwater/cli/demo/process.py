"""The company of the demo as a process: started, killed, started again, stopped in order, and observed from outside.

`python -m headwater.cli.demo.process FOLDER PORT` runs the app. It is a process of its own, so that it can be killed
while rows go on. The server is up before Spark is. The process ends on SIGTERM, and when its parent process is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import headwater
from headwater.apps.home import Home
from headwater.apps.status import QueryStatus
from headwater.capture import CaptureStore
from headwater.capture.connectors import open_source
from headwater.errors import HeadwaterError
from headwater.services import app_services
from headwater.workers import make_importable

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.apps.home import Runner as Announced
    from headwater.apps.runner import Runner
    from headwater.log import Log


APP = "company"
#: Between two looks at whether the parent process is still there.
LOOK_SECONDS = 0.5
#: How long the batches at work may take to come to their end.
STOP_SECONDS_MAX = 90.0
#: How long the company may take to answer.
ANSWER_SECONDS_MAX = 60.0
#: How lines begin by which a library in use tells that the process has ended in a hurry.
NOISE = ("nanobind: ", " - leaked ", " - ... skipped", "See https://nanobind.")


def make_company_importable() -> None:
    """Make `examples/company` importable as `company`: a wheel has it inside of the package, a checkout beside it."""
    package = Path(headwater.__file__).parent
    shipped = package / "_examples"
    make_importable(str(shipped if shipped.is_dir() else package.parent / "examples"))


def database_of(folder: Path) -> Path:
    """The file of the company's database, in the folder of the demo."""
    return folder.absolute() / "people.db"


class Company:
    """The process that runs the company on a log. What it and Spark print goes to a file."""

    def __init__(self, folder: Path, *, log: str, port: int, output: Path) -> None:
        self._arguments = [log, str(folder), str(port)]
        self.output = output
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        """Start it, after one that was killed or for the first time; its pid."""
        command = [sys.executable, "-m", "headwater.cli.demo.process", *self._arguments]
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

    def suspend(self) -> None:
        """Suspend it, with all processes that Spark has started for it."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    def stop(self) -> None:
        """Stop it between two batches."""
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


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of the company: whether the server answers, whether Spark is up, and the status of each query."""

    address: str | None = None
    spark: bool = False
    statuses: tuple[QueryStatus, ...] = ()

    @property
    def at_work(self) -> int:
        """How many queries run."""
        return sum(one.state in ("running", "caught up") for one in self.statuses)


class Follower:
    """Observes the company of a log from outside of its process."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._home = Home(Path(log.home) / "apps" / APP)
        self._with_spark: set[int] = set()

    def look(self) -> Progress:
        """Return the progress now; without an address if the process does not run."""
        runner = self._home.active_runner()
        with contextlib.suppress(HeadwaterError), app_services(self._home, seconds_max=ANSWER_SECONDS_MAX) as services:
            told = services.queries.statuses(app=APP).queries
            pid = 0 if runner is None else runner.pid
            if pid not in self._with_spark and any(one.spark for one in services.queries.apps()):
                self._with_spark.add(pid)
            address = None if runner is None else runner.address
            return Progress(address=address, spark=pid in self._with_spark, statuses=tuple(told))
        return Progress()

    def has_caught_up(self, queries: Sequence[str]) -> bool:
        """Whether these queries have committed all that their topics hold. Each must stand after those that it reads."""
        for name in queries:
            read = self._committed(name)
            if not read or any(self._log.end_offsets(topic) != ends for topic, ends in read.items()):
                return False
        return True

    def has_captured(self, capture: str) -> bool:
        """Whether all changes of a captured database are in the log."""
        store = CaptureStore(self._log)
        progress = store.progress(capture)
        if progress.position is None or not all(one.complete for one in progress.snapshot.values()):
            return False
        with contextlib.closing(open_source(store.config(capture))) as source:
            return source.health(progress.position).pending == 0

    def batches(self, query: str) -> int:
        """How many batches a query has committed. Its checkpoint knows at once; Spark's reports come later."""
        return _count(self._home.checkpoint(query, 1) / "commits")

    def in_a_batch(self, queries: Sequence[str]) -> list[str]:
        """Which of these queries have begun a batch, and not committed it."""
        return [one for one in queries if _count(self._home.checkpoint(one, 1) / "offsets") > self.batches(one)]

    def _committed(self, query: str) -> dict[str, dict[int, int]]:
        """How far a query has come in each of its topics, by the last batch that it has committed."""
        count = self.batches(query)
        if count == 0:
            return {}
        offsets = self._home.checkpoint(query, 1) / "offsets" / str(count - 1)
        found: dict[str, dict[int, int]] = {}
        for line in offsets.read_text().splitlines()[2:]:
            topics = json.loads(line).get("topics", {}) if line.startswith("{") else {}
            found |= {topic: {int(number): end for number, end in ends.items()} for topic, ends in topics.items()}
        return found

    def views_are_fresh(self, views: Sequence[str]) -> bool:
        """Whether the stores of these views have all that their topics hold."""
        with app_services(self._home, seconds_max=ANSWER_SECONDS_MAX) as services:
            return all(services.views.describe(name, app=APP).freshness == 0 for name in views)

    def rows(self, topic: str) -> pa.Table:
        """All rows of a topic, with their places."""
        return self._log.read(topic).table()

    def output(self, name: str, kind: str) -> pa.Table:
        """Return the output of a query, or the dead letters of a topic."""
        if kind != "view":
            return self.rows(name if kind == "topic" else f"{name}.dlq")
        with (
            app_services(self._home, seconds_max=ANSWER_SECONDS_MAX) as services,
            services.views.open(name, app=APP) as view,
        ):
            return view.table()


def _count(folder: Path) -> int:
    """How many batches have left a file in a folder of a checkpoint; the oldest are tidied away."""
    return max((int(path.name) + 1 for path in folder.glob("*") if path.name.isdecimal()), default=0)


# -- inside of the process --------------------------------------------------------------------------------------------


def run(log: str, folder: Path, port: int) -> None:
    """Run the app on a log, until a stop is requested."""
    from headwater.spark.java_process import start_early

    make_company_importable()
    os.environ["COMPANY_DATABASE"] = f"sqlite:///{database_of(folder)}"
    from company.topics import JAVA_OPTIONS

    start_early(JAVA_OPTIONS)
    from company.app import app

    from headwater.apps.runner import Runner

    runner = Runner(app, log=log, port=port, served=_served, plan_first=False)
    _end_with(runner, os.getppid())
    runner.start_spark_early()
    with runner.ready():
        runner.supervise()
    if runner.spark is not None:
        runner.spark.stop()


def _served(runner: Runner, *, port: int) -> contextlib.AbstractContextManager[Announced]:
    """Serve the app; the console, which takes long to import, is imported while Spark starts."""
    from headwater.console import served_with_console

    return served_with_console(runner, port=port)


def _end_with(runner: Runner, parent: int) -> None:
    """Stop between two batches on SIGTERM, and when the parent process is gone."""

    def watch() -> None:
        while not runner.wait_for_stop(LOOK_SECONDS):
            if os.getppid() != parent:
                runner.request_stop()

    signal.signal(signal.SIGTERM, lambda *_: runner.request_stop())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that directs; it tells us
    threading.Thread(target=watch, name="demo-parent", daemon=True).start()


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
