"""`python -m benchmarks.demo`: how soon the queries of the demo have results, and which processes use the processors.

Another release of Headwater can be measured in its place: `BENCH_PROGRAM=/elsewhere/.venv/bin/headwater`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import psutil

from benchmarks.harness import Bench, Result, main

#: The kind of a process, by what stands in its name (forked processes are named after their modules) or its command.
KINDS = {
    "sources": ("python_streamin",),
    "workers": ("worker ",),
    "planners": ("data_sou", "into_data"),
    "server": ("fork_server",),
    "jvm": ("java",),
}


def demo(bench: Bench) -> list[Result]:
    """Run the demo for a while, and add up the processor time of each kind of process."""
    seconds = bench.size(150, 20)
    program = os.environ.get("BENCH_PROGRAM", str(Path(sys.executable).with_name("headwater")))
    with bench.scratch("demo") as folder:
        words = [program, "demo", "--no-open", "--port", "0", "--seconds", str(seconds), "--dir", str(folder / "data")]
        began = time.monotonic()
        results: dict[str, float] = {}
        with subprocess.Popen(words, cwd=folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as run:
            listener = threading.Thread(target=_listen, args=(run, began, results, bench), daemon=True)
            listener.start()
            cpu = _cpu_by_kind(psutil.Process(run.pid), until=began + seconds)
            run.wait()
            listener.join()
    if run.returncode:
        raise RuntimeError(f"the demo ended with {run.returncode}")
    names = [name for name in results if name != "spark"]
    told = [
        Result(name="start.spark", value=results.get("spark"), unit="s"),
        Result(name="start.first", value=min(results[name] for name in names), unit="s"),
        Result(name="start.all", value=max(results[name] for name in names), unit="s", more={"queries": len(names)}),
    ]
    return told + [Result(name=f"cpu.{kind}", value=used, unit="CPU-seconds") for kind, used in sorted(cpu.items())]


def _listen(run: subprocess.Popen[str], began: float, results: dict[str, float], bench: Bench) -> None:
    assert run.stderr is not None
    for line in run.stderr:
        first = re.search(r"(\w+) has its first results", line)
        name = first[1] if first else "spark" if "Spark is up" in line else None
        if name is not None:
            results[name] = time.monotonic() - began
            bench.say(f"{name} after {results[name]:.0f} s")


def _cpu_by_kind(root: psutil.Process, *, until: float) -> dict[str, float]:
    """The processor time of a process and all below it, by kind; of one that has ended, what it had used when last seen."""
    used: dict[int, tuple[str, float]] = {}
    while time.monotonic() < until and root.is_running():
        for process in [root, *root.children(recursive=True)]:
            try:
                command, times = f"{process.name()} {' '.join(process.cmdline())} ", process.cpu_times()
            except psutil.Error:
                continue
            kind = next((kind for kind, marks in KINDS.items() if any(mark in command for mark in marks)), "driver")
            used[process.pid] = (kind, times.user + times.system)
        time.sleep(0.5)
    sums: dict[str, float] = defaultdict(float)
    for kind, seconds in used.values():
        sums[kind] += seconds
        sums["all"] += seconds
    return sums


if __name__ == "__main__":
    main("demo", {"start": demo})
