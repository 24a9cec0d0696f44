"""How long the output of an app stands still when the process that runs it is killed, by each way of fail-over.

Events come all the while. The time is from the kill to the moment when an event that came after the kill is in the output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

import headwater.log as hwlog
from benchmarks.harness import Bench, Result
from benchmarks.spark.workbench import CORES

FILE = """
import headwater as hw
from headwater.operators import Dedupe

app = hw.App("shop", log="./data", conf={{"spark.sql.shuffle.partitions": {cores}}}, lease={lease!r})
app.input("events")

@app.topic
def counted(events):
    return events.transform(Dedupe(by="number", within="10 seconds", name="once"))
"""
#: Runs the command with another name of the host: the locks of a host are its own.
ELSEWHERE = "import socket; socket.gethostname = lambda: 'elsewhere'; from headwater.cli import main; main()"
LEASE = "5 seconds"
EVERY_SECONDS = 0.05
SECONDS_MAX = 180.0
#: A standby has started Spark when it uses no more of the processor than this, for so long.
IDLE_SHARE, IDLE_SECONDS = 0.1, 3.0


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way of fail-over: what else runs before the kill."""

    standby: bool = False
    elsewhere: bool = False


WAYS = {"restart": Way(), "standby": Way(standby=True), "lease": Way(standby=True, elsewhere=True)}


def failover(bench: Bench) -> list[Result]:
    """Kill the process that runs the app, with its JVM and its workers, and see how long nothing comes out."""
    rounds = bench.size(2, 1)
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(rounds):
        for name, way in WAYS.items() if not bench.quick else [("restart", WAYS["restart"])]:
            with bench.scratch(f"failover-{name}") as folder:
                found[name].append(_still(folder, way))
            bench.say(f"failover {number + 1}/{rounds} {name}: {found[name][-1]:.1f} s")
    return [
        Result(
            name=f"failover.{name}",
            value=statistics.median(seconds),
            unit="s",
            more={"seconds": [round(one, 2) for one in seconds], **({"lease": LEASE} if WAYS[name].elsewhere else {})},
        )
        for name, seconds in found.items()
        if seconds
    ]


def _still(folder: Path, way: Way) -> float:
    """The seconds from the kill to the first event in the output that came after it."""
    (folder / "shop.py").write_text(FILE.format(cores=CORES, lease=LEASE if way.elsewhere else None))
    processes: list[subprocess.Popen[bytes]] = []
    with hwlog.open(folder / "data", create=True) as log, contextlib.ExitStack() as stack:
        log.create("events", {"number": "int64", "at": "timestamp"}, time="at")
        stack.callback(_end_all, processes)
        sent = stack.enter_context(_events(log))
        processes.append(started(folder, "run", "shop.py"))
        _await(lambda: _newest(log) >= 20, processes[0])
        if way.standby:
            processes.append(started(folder, "run", "shop.py", "--standby", elsewhere=way.elsewhere))
            _await_idle(processes[1])
        _await(lambda: _newest(log) >= sent[0] - 100, processes[0])
        killed_at, last = time.monotonic(), sent[0]
        ended(processes[0])
        if not way.standby:
            processes.append(started(folder, "run", "shop.py"))
        _await(lambda: _newest(log) > last, processes[1])
        return time.monotonic() - killed_at


@contextlib.contextmanager
def _events(log: hwlog.Log) -> Iterator[list[int]]:
    """Append numbers, one after the other, while the block runs; yields the number that was appended last."""
    sent, stop = [0], threading.Event()

    def send() -> None:
        while not stop.wait(EVERY_SECONDS):
            log.append("events", [{"number": sent[0] + 1, "at": time.time_ns() // 1_000}])
            sent[0] += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()


def _newest(log: hwlog.Log) -> int:
    """The highest number in the output."""
    if "counted" not in log.topics():
        return 0
    end = log.end_offsets("counted")
    rows = log.read("counted", start={one: max(0, offset - 1) for one, offset in end.items()}, columns=["number"])
    return max(rows.table().column("number").to_pylist(), default=0)


def started(folder: Path, *arguments: str, elsewhere: bool = False) -> subprocess.Popen[bytes]:
    """Start a command of ours in a folder; what it prints is in the file `output`."""
    program = ["-c", ELSEWHERE] if elsewhere else ["-m", "headwater.cli"]
    with (folder / "output").open("ab") as output:
        words = [sys.executable, *program, *arguments]
        return subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output)


def await_rows(log: hwlog.Log, topic: str, count: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a topic has so many rows."""
    _await(lambda: topic in log.topics() and sum(log.end_offsets(topic).values()) >= count, process)


def _await(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the app ended, or did nothing for {SECONDS_MAX:.0f} s")
        time.sleep(0.01)


def _await_idle(process: subprocess.Popen[bytes]) -> None:
    """Wait until a standby has started what it needs, and rests."""
    deadline = time.monotonic() + SECONDS_MAX
    while True:
        family = _family(process.pid)
        before = _cpu_seconds(family)
        time.sleep(IDLE_SECONDS)
        used = _cpu_seconds(_family(process.pid)) - before
        if any("java" in one.name() for one in family) and used < IDLE_SHARE * IDLE_SECONDS:
            return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("the standby does not rest")


def _family(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    return []


def _cpu_seconds(family: list[psutil.Process]) -> float:
    total = 0.0
    for one in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            total += times.user + times.system
    return total


def _end_all(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        ended(process)


def ended(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that it has started at once, as a host does that loses power."""
    for one in _family(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
    process.wait()
