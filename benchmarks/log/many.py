"""Many segments, many topics, and the time to start."""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, run_child, shown
from benchmarks.log.rows import BATCH_ROWS, SCHEMA, batches


def open_log(bench: Bench) -> list[Result]:
    """Open a log of 1,000 segments and ask for its ends, in a fresh process."""
    segments = bench.size(1_000, 20)
    with bench.scratch("open") as folder:
        with hwlog.open(folder / "ours") as log:
            log.create("rows", SCHEMA, durability="os", segment_bytes_max=256 * 1024)
            appends = 2 * segments
            for number in range(appends):
                log.append("rows", batches()[number % len(batches())])
        found = len(list((folder / "ours").rglob("*.log")))
        bench.say(f"open: {found} segments")
        opened = [_opened(folder / "ours", appends * BATCH_ROWS) for _ in range(bench.size(9, 1))]
        # As after a power cut: the file that says where the ends are is not there.
        lost = []
        for _ in range(bench.size(5, 1)):
            (folder / "ours" / "topics" / "rows" / "state").unlink()
            lost.append(_opened(folder / "ours", appends * BATCH_ROWS))
    return [
        Result(
            name=name,
            value=statistics.median(run[0] for run in runs),
            unit="s",
            more={"segments": found, "with_interpreter_and_imports": statistics.median(run[1] for run in runs)},
            bars=[Bar(figure="value", most=0.5)],
        )
        for name, runs in (("open", opened), ("open.after_power_cut", lost))
    ]


def topics(bench: Bench) -> list[Result]:
    """Ten thousand topics: make them, list them, append to and read from any of them."""
    count = bench.size(10_000, 100)
    names = [f"topic-{number:05d}" for number in range(count)]
    chosen = random.Random(7).choices(names, k=count)
    row = batches()[0].slice(0, 1)
    with bench.scratch("topics") as folder:
        with hwlog.open(folder / "ours") as log:
            rates = {"create": _rate(bench, "create", count, lambda: _each(names, lambda name: _create(log, name)))}
        with hwlog.open(folder / "ours") as log:  # opened again: nothing is cached
            rates["list"] = _rate(bench, "list", count, lambda: _check(len(log.topics()) == count))
            rates["append"] = _rate(bench, "append", count, lambda: _each(chosen, lambda name: log.append(name, row)))
            rates["read"] = _rate(bench, "read", count, lambda: _each(chosen, lambda name: log.read(name).table()))
            written = sum(log.read(name).count() for name in set(chosen))
            _check(written == count)
    return [Result(name=f"topics.{count}.{act}", value=rate, unit="topics/s") for act, rate in rates.items()]


def start_cli(bench: Bench) -> list[Result]:
    """How long a command takes from start to end."""
    program = shutil.which("headwater", path=str(Path(sys.executable).parent))
    results = []
    with bench.scratch("start") as folder:
        hwlog.open(folder / "data").close()
        for command in (["version"], ["topic", "list"]):
            name = f"start.cli.{'_'.join(command)}"
            # The first run compiles the modules that an installation has compiled already; it is not counted.
            times = bench.size(11, 2)
            seconds = [_wall(program, command, folder) for _ in range(times)][1:] if program else [None]
            known = [second for second in seconds if second is not None]
            results.append(
                Result(
                    name=name,
                    value=statistics.median(known) if known else None,
                    unit="s",
                    bars=[Bar(figure="value", most=0.4)],
                    note="" if known else "skipped: the command is not there",
                )
            )
    return results


def _opened(folder: Path, rows: int) -> tuple[float, float]:
    began = time.perf_counter()
    found = run_child("benchmarks.log.children", "open", folder)
    whole = time.perf_counter() - began
    _check(found["rows"] == rows)
    return found["seconds"], whole


def _create(log: hwlog.Log, name: str) -> None:
    log.create(name, SCHEMA, durability="os")


def _each(names: list[str], act: Callable[[str], object]) -> None:
    for name in names:
        act(name)


def _rate(bench: Bench, act: str, count: int, work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    rate = count / (time.perf_counter() - began)
    bench.say(f"topics {act}: {shown(rate)}/s")
    return rate


def _check(holds: bool) -> None:
    if not holds:
        raise RuntimeError("The log did not answer what was written.")


def _wall(program: str, command: list[str], folder: Path) -> float | None:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    began = time.perf_counter()
    done = subprocess.run([program, *command], cwd=folder, env=environment, capture_output=True)
    return time.perf_counter() - began if done.returncode == 0 else None
