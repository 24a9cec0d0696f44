"""`python -m benchmarks.status`: the lag that is shown of a query under load, beside the lag on disk.

    make bench NAME=status ARGS="--quick"    ten seconds, to see that it runs

The query's progress reports never arrive. A thread reads the end of the input and the committed offsets fifty times a
second, by code of its own. A shown number is as old as the time to the nearest moment at which it was true.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, main
from headwater.alerts.log_measures import LogMeasures
from headwater.apps.home import Home
from headwater.services import Settings, app_services, local
from headwater.services.callers import LOCAL
from headwater.services.host import Host
from headwater.services.metrics import Metrics

ROWS_PER_SECOND = 2_000
CHUNKS_PER_SECOND = 10
SAMPLE_SECONDS = 0.02
SHOW_SECONDS = 0.25
START_SECONDS_MAX = 300.0
AGE_SECONDS_MAX = 1.0


@dataclass(frozen=True)
class Truth:
    """What the disk said at one moment."""

    at: float
    lag: int
    batch: int


class Witness(threading.Thread):
    """Reads the end of the input and the checkpoint again and again."""

    def __init__(self, log: hwlog.Log, checkpoint: Path) -> None:
        super().__init__(daemon=True)
        self._log, self._checkpoint = log, checkpoint
        self._ended = threading.Event()
        self.seen: list[Truth] = []

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.seen.append(self.look())

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def look(self) -> Truth:
        folder = self._checkpoint / "commits"
        batch = max((int(path.name) for path in folder.glob("[0-9]*")), default=-1) if folder.is_dir() else -1
        committed = 0
        if batch >= 0:
            lines = (self._checkpoint / "offsets" / str(batch)).read_text().splitlines()
            committed = sum(json.loads(lines[2])["topics"]["events"].values())
        end = sum(self._log.end_offsets("events").values())
        return Truth(at=time.time(), lag=end - committed, batch=batch)


@dataclass(frozen=True)
class Shown:
    """A lag as one way shows it, and when it was asked for and had."""

    way: str
    began: float
    ended: float
    lag: int | None
    state: str = ""


def age_of(shown: Shown, seen: Sequence[Truth]) -> float:
    """How old a shown lag is: the time to the nearest moment at which it was true, or lay between two looks."""
    times = [one.at for one in seen]
    # The looks during the call, and the one before and behind it: the lag may have been any in between.
    first, last = max(0, bisect_left(times, shown.began) - 1), min(len(seen), bisect_right(times, shown.ended) + 1)
    lag = -1 if shown.lag is None else shown.lag
    if min(one.lag for one in seen[first:last]) <= lag <= max(one.lag for one in seen[first:last]):
        return 0.0
    ages = [
        max(shown.began - later.at, earlier.at - shown.ended, 0.0)
        for earlier, later in pairwise(seen)
        if min(earlier.lag, later.lag) <= lag <= max(earlier.lag, later.lag)
    ]
    return min(ages, default=float("inf"))


def status(bench: Bench) -> list[Result]:
    """Feed the app, ask all who show its lag, and compare with the disk; then stop it, and ask again."""
    seconds = bench.size(60, 10)
    with bench.scratch("status") as folder, hwlog.open(folder / "log") as log:
        home = Home(log.home / "apps" / "status")
        witness = Witness(log, home.checkpoint("copied", 1))
        with running(bench, folder) as app:
            wait_for("the first batch", lambda: "events" in log.topics() and witness.look().batch >= 0, app)
            feeder = threading.Event()
            thread = threading.Thread(target=feed, args=(log, feeder), daemon=True)
            witness.start()
            thread.start()
            shown = show(log, home, seconds=seconds)
            feeder.set()
            thread.join()
            time.sleep(AGE_SECONDS_MAX)
            witness.stop()
        append(log, 1_800)
        stopped = shown_lag(log)
        exact = witness.look().lag
    bench.say(f"stopped: {stopped} rows behind are shown, {exact} are on disk")
    return [*results(shown, witness.seen), stopped_result(stopped, exact)]


def show(log: hwlog.Log, home: Home, *, seconds: float) -> list[Shown]:
    """Ask each way in turn."""
    host = Host(log=log, settings=Settings())
    found: list[Shown] = []
    deadline = time.monotonic() + seconds
    with app_services(home) as services:

        def of_service() -> tuple[int | None, str]:
            [one] = services.queries.statuses().queries
            return one.lag_rows, one.state

        def of_alerts() -> tuple[int | None, str]:
            [one] = LogMeasures(log).query_statuses()
            return one.lag_rows, one.state

        def of_metrics() -> tuple[int | None, str]:
            lines = Metrics(host, LOCAL).scrape().splitlines()
            [value] = [line.split()[-1] for line in lines if line.startswith("headwater_query_lag_rows{")]
            return int(float(value)), ""

        ways: dict[str, Callable[[], tuple[int | None, str]]] = {
            "service": of_service,
            "alerts": of_alerts,
            "metrics": of_metrics,
        }
        while time.monotonic() < deadline:
            for way, ask in ways.items():
                began = time.time()
                lag, state = ask()
                found.append(Shown(way, began, time.time(), lag, state))
            time.sleep(SHOW_SECONDS)
    return found


def results(shown: Sequence[Shown], seen: Sequence[Truth]) -> list[Result]:
    found = []
    for way in dict.fromkeys(one.way for one in shown):
        own = [one for one in shown if one.way == way]
        ages = [age_of(one, seen) for one in own]
        # Called caught up, although at no moment around it was everything read.
        wrong = sum(one.state == "caught up" and bool(one.lag) for one in own)
        found.append(
            Result(
                name=f"status.lag.{way}",
                value=max(ages),
                unit="s old at most",
                p50=float(np.percentile(ages, 50)),
                p99=float(np.percentile(ages, 99)),
                bars=[Bar(figure="value", most=AGE_SECONDS_MAX)],
                more={
                    "asked": len(own),
                    "equal": sum(age == 0.0 for age in ages),
                    "lag_max": max(one.lag or 0 for one in own),
                    "wrongly_caught_up": wrong,
                    "batches": seen[-1].batch - seen[0].batch,
                },
            )
        )
    return found


def stopped_result(shown: int | None, exact: int) -> Result:
    difference = float("inf") if shown is None else abs(shown - exact)
    note = f"{exact:,} rows wait"
    return Result(
        name="status.lag.stopped",
        value=difference,
        unit="rows off",
        bars=[Bar(figure="value", most=0.0)],
        note=note,
    )


def shown_lag(log: hwlog.Log) -> int | None:
    [one] = local(Host(log=log, settings=Settings()), LOCAL).queries.statuses().queries
    return one.lag_rows


def feed(log: hwlog.Log, ended: threading.Event) -> None:
    """Append rows at an even rate."""
    began, chunks = time.monotonic(), 0
    while not ended.wait(max(0.0, began + chunks / CHUNKS_PER_SECOND - time.monotonic())):
        append(log, ROWS_PER_SECOND // CHUNKS_PER_SECOND)
        chunks += 1


def append(log: hwlog.Log, count: int) -> None:
    log.append("events", pa.table({"user": np.arange(count), "value": np.zeros(count)}))


@contextmanager
def running(bench: Bench, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The app as users run it, in a process of its own."""
    environ = os.environ | {"HEADWATER_LOG": str(folder / "log"), "SPARK_LOCAL_DIRS": str(folder / "spark")}
    program, file = Path(sys.executable).with_name("headwater"), Path(__file__).with_name("app.py")
    with (folder / "errors").open("wb") as errors:
        words = [str(program), "run", str(file), "--quiet"]
        app = subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=errors)
    try:
        yield app
    finally:
        app.terminate()
        try:
            app.wait(60)
        except subprocess.TimeoutExpired:
            app.kill()
            app.wait()
        if text := (folder / "errors").read_text(encoding="utf-8", errors="replace"):
            bench.say(f"the app said:\n{text[-4_000:]}")


def wait_for(what: str, holds: Callable[[], bool], app: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not holds():
        if app.poll() is not None:
            raise RuntimeError(f"the app ended before {what}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited in vain for {what}")
        time.sleep(0.1)


if __name__ == "__main__":
    main("status", {"status": status})
