"""`python -m benchmarks.soak`: an app under a steady load, and whether its memory, its files or its disk grow.

    make bench NAME=soak ARGS="--minutes 30 --docs"    write the picture and the table of the documentation, too
    make bench NAME=soak ARGS="--quick"                a minute, to see that it runs

The samples stay in `build/soak.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, machine, main
from benchmarks.soak import page
from benchmarks.soak.app import SAMPLE_SECONDS, SAMPLES
from benchmarks.soak.samples import MEASURES, Sample, sample, trend

ROWS_PER_SECOND = 2_000
CHUNKS_PER_SECOND = 10
USERS = 1_000
START_SECONDS_MAX = 300.0
END_SECONDS_MAX = 300.0
BUILD = Path(__file__).resolve().parent.parent.parent / "build"
#: What is flat may vary by this share from the second third of the run to the last.
RISE_MAX = 1.1


def soak(bench: Bench, *, minutes: float, docs: bool) -> list[Result]:
    """Feed the app, sample it every few seconds, and compare its totals with the input."""
    seconds = 60.0 if bench.quick else minutes * 60
    samples: list[Sample] = []
    with bench.scratch("soak") as folder, hwlog.open(folder / "log") as log, running(bench, folder) as app:
        wait_for("the app to make its topics", lambda: "events" in log.topics(), app, seconds=START_SECONDS_MAX)
        feeder = Feeder(log)
        feeder.start()
        wait_for("the first totals", lambda: total(log) > 0, app, seconds=START_SECONDS_MAX)
        bench.say("the app counts")
        began = time.monotonic()
        root = psutil.Process(app.pid)
        while (passed := time.monotonic() - began) < seconds:
            check(app, feeder)
            paths = {"log": folder / "log", "scratch": folder / "spark", "jvm": folder / "jvm.jsonl"}
            samples.append(sample(root, **paths, seconds=passed))
            if len(samples) % 12 == 1:
                bench.say(told(samples[-1], behind=feeder.rows - total(log)))
            time.sleep(max(0.0, began + len(samples) * SAMPLE_SECONDS - time.monotonic()))
        feeder.stop()
        rows = feeder.rows
        wait_for(f"totals of {rows} rows", lambda: total(log) >= rows, app, seconds=END_SECONDS_MAX)
        if total(log) != rows:
            raise RuntimeError(f"{rows} rows were fed, {total(log)} were counted")
    BUILD.mkdir(exist_ok=True)
    (BUILD / "soak.json").write_text(json.dumps(samples), encoding="utf-8")
    if docs:
        for path in page.write(samples, rows=rows, rate=ROWS_PER_SECOND, machine=machine(BUILD)):
            bench.say(f"wrote {path}")
    return results(samples, rows=rows, minutes=seconds / 60)


@contextmanager
def running(bench: Bench, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The app as users run it, in a process of its own."""
    environ = os.environ | {
        "HEADWATER_LOG": str(folder / "log"),
        "SPARK_LOCAL_DIRS": str(folder / "spark"),
        SAMPLES: str(folder / "jvm.jsonl"),
    }
    program = Path(sys.executable).with_name("headwater")
    file = Path(__file__).with_name("app.py")
    errors = folder / "errors"
    with errors.open("wb") as stream:
        words = [str(program), "run", str(file), "--quiet"]
        app = subprocess.Popen(words, env=environ, stdout=subprocess.DEVNULL, stderr=stream)
    try:
        yield app
    finally:
        app.terminate()
        try:
            app.wait(60)
        except subprocess.TimeoutExpired:
            app.kill()
            app.wait()
        text = errors.read_text(encoding="utf-8", errors="replace")
        if text:
            bench.say(f"the app said:\n{text[-4_000:]}")


class Feeder(threading.Thread):
    """Appends rows at an even rate, with the time of now."""

    def __init__(self, log: hwlog.Log) -> None:
        super().__init__(daemon=True)
        self._log = log
        self._ended = threading.Event()
        self._random = np.random.default_rng(1)
        self.rows = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        began, chunks = time.monotonic(), 0
        try:
            while not self._ended.wait(max(0.0, began + chunks / CHUNKS_PER_SECOND - time.monotonic())):
                self._append(ROWS_PER_SECOND // CHUNKS_PER_SECOND)
                chunks += 1
        except BaseException as error:
            self.error = error

    def _append(self, count: int) -> None:
        users = pa.array([f"user-{number}" for number in self._random.integers(0, USERS, count)])
        now = pa.array([datetime.now(UTC)] * count, pa.timestamp("us", tz="UTC"))
        rows = pa.table({"user": users, "value": self._random.random(count), "at": now})
        self._log.append("events", rows)
        self.rows += count

    def stop(self) -> None:
        self._ended.set()
        self.join()
        if self.error is not None:
            raise self.error


def check(app: subprocess.Popen[bytes], feeder: Feeder | None = None) -> None:
    """Raise if the app or its producer has ended."""
    if app.poll() is not None:
        raise RuntimeError(f"the app ended with {app.returncode}")
    if feeder is not None and feeder.error is not None:
        raise feeder.error


def wait_for(what: str, holds: Callable[[], bool], app: subprocess.Popen[bytes], *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        check(app)
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:.0f} seconds for {what}")
        time.sleep(0.5)


def total(log: hwlog.Log) -> int:
    """How many rows the view has counted, by the changelog that is its truth."""
    if "totals" not in log.topics():
        return 0
    newest: dict[str, int] = {}
    for row in log.read("totals", columns=["user", "n"]).rows():
        newest[row["user"]] = row["n"] or 0
    return sum(newest.values())


def told(values: Sample, *, behind: int) -> str:
    parts = [f"{measure.name} {values[measure.name]:,.0f}" for measure in MEASURES]
    return f"{', '.join(parts)}; {behind} rows behind"


def results(samples: list[Sample], *, rows: int, minutes: float) -> list[Result]:
    """A line for each measure: its median in the last third beside the one in the second."""
    found = []
    for measure in MEASURES:
        went = trend(samples, measure.name)
        found.append(
            Result(
                name=f"soak.{measure.name}",
                value=went.last,
                unit=measure.unit,
                peer="second third",
                peer_value=went.middle,
                more={"highest": went.highest, "per_hour": went.per_hour, "rows": rows, "minutes": minutes},
                bars=[Bar(figure="ratio", most=RISE_MAX)],
            )
        )
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--docs", action="store_true")
    own, rest = parser.parse_known_args()
    main("soak", {"soak": partial(soak, minutes=own.minutes, docs=own.docs)}, rest)
