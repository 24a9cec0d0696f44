"""How soon the queries of the demo have results, and which processes use the processors, at the start and afterwards."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from collections.abc import Mapping

from benchmarks.harness import Bar, Bench, Result
from benchmarks.start.processes import Usage, program
from benchmarks.start.session import with_archive

#: Once all queries are at work, this long is left for what they still compile, before the steady use is taken.
SETTLE_SECONDS = 60
STEADY_SECONDS = 60
START_SECONDS_MAX = 240


def demo(bench: Bench) -> list[Result]:
    """Run the demo until all queries have results, and then for a while."""
    settle, steady = bench.size(SETTLE_SECONDS, 5), bench.size(STEADY_SECONDS, 5)
    environ = with_archive(bench)
    with bench.scratch("demo") as folder:
        lasting = ["--seconds", str(START_SECONDS_MAX + settle + steady)]
        words = [program(), "demo", "--no-open", "--port", "0", *lasting, "--dir", str(folder / "data")]
        began = time.monotonic()
        with subprocess.Popen(
            words, cwd=folder, env=environ, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        ) as run:
            firsts = _Firsts(run, bench, began)
            with Usage(run) as usage:
                firsts.wait_until_quiet()
                started, processes = dict(usage.by_kind()), usage.processes
                run_for(settle, run)
                before = usage.cpu_seconds
                run_for(steady, run)
                used = usage.cpu_seconds - before
            run.terminate()
    return [*_start(firsts.seconds, started, processes), _steady(used / steady)]


def run_for(seconds: float, run: subprocess.Popen[str]) -> None:
    """Let it run; an error if it ends meanwhile."""
    try:
        run.wait(seconds)
    except subprocess.TimeoutExpired:
        return
    raise RuntimeError(f"the demo ended with {run.returncode}")


def _start(seconds: Mapping[str, float], cpu: Mapping[str, float], processes: int) -> list[Result]:
    queries = {name: value for name, value in seconds.items() if name != "spark"}
    return [
        Result(name="demo.spark", value=seconds.get("spark"), unit="s"),
        Result(name="demo.first", value=min(queries.values()), unit="s"),
        Result(
            name="demo.all",
            value=max(queries.values()),
            unit="s",
            more={"queries": len(queries), "cpu_seconds": sum(cpu.values()), "processes": processes},
            bars=[Bar(figure="value", most=30), Bar(figure="cpu_seconds", most=45)],
        ),
        *(Result(name=f"demo.cpu.{kind}", value=used, unit="CPU-s") for kind, used in sorted(cpu.items())),
    ]


def _steady(cores: float) -> Result:
    note = "the demo with its feeds and console, after the start"
    return Result(name="demo.steady", value=cores, unit="cores", bars=[Bar(figure="value", most=0.6)], note=note)


class _Firsts:
    """When Spark was up, and when each query had its first results, as the demo says it."""

    def __init__(self, run: subprocess.Popen[str], bench: Bench, began: float) -> None:
        self.seconds: dict[str, float] = {}
        self._run = run
        self._bench = bench
        self._began = began
        self._all = threading.Event()
        threading.Thread(target=self._listen, daemon=True).start()

    def wait_until_quiet(self) -> None:
        """Until all queries have had results."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._all.wait(0.1):
            if self._run.poll() is not None:
                raise RuntimeError(f"the demo ended with {self._run.returncode}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"after {START_SECONDS_MAX} s only these had results: {', '.join(self.seconds)}")

    def _listen(self) -> None:
        assert self._run.stderr is not None
        for line in self._run.stderr:
            first = re.search(r"(\w+) has its first results", line)
            name = first[1] if first else "spark" if "Spark is up" in line else None
            if name is not None:
                self.seconds[name] = time.monotonic() - self._began
                self._bench.say(f"{name} after {self.seconds[name]:.0f} s")
            if "queries have had results" in line:
                self._all.set()
