"""The harness of all benchmarks: interleaved rounds, medians, CPU time, a table for people and one JSON line for programs.

Rules that all of them follow:

- ours and the peers take turns (a b a b …) in one run, so that a slow minute of the machine slows all of them;
- a figure is the median of its rounds;
- data lies in one folder on one disk, ours and theirs, and goes after each part;
- the last line on stdout is the JSON object; everything else goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

MIB = 1024 * 1024
Figure = Literal["value", "ratio", "p50", "p99", "p99_beyond_sync", "p50_beyond_sync", "cpu_seconds"]
_BLOCK = os.urandom(MIB)
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Bar:
    """The target of a figure."""

    figure: Figure
    least: float | None = None
    most: float | None = None

    def met(self, result: Result) -> bool | None:
        """Whether the result reaches it; None where the figure was not measured."""
        found = result.figure(self.figure)
        if found is None:
            return None
        return (self.least is None or found >= self.least) and (self.most is None or found <= self.most)

    def __str__(self) -> str:
        bounds = [f"≥ {shown(self.least)}"] if self.least is not None else []
        bounds += [f"≤ {shown(self.most)}"] if self.most is not None else []
        return f"{self.figure} {' and '.join(bounds)}"


@dataclass(frozen=True, kw_only=True)
class Result:
    """One line of the report. `ratio` is ours over the peer's, whichever way is better."""

    name: str
    value: float | None
    unit: str
    peer: str | None = None
    peer_value: float | None = None
    p50: float | None = None
    p99: float | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    bars: Sequence[Bar] = ()
    note: str = ""

    @property
    def ratio(self) -> float | None:
        if self.value is None or not self.peer_value:
            return None
        return self.value / self.peer_value

    def figure(self, name: str) -> float | None:
        if name in self.more:
            return float(self.more[name])
        found: float | None = getattr(self, name)
        return found

    def as_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {"name": self.name, "value": self.value, "unit": self.unit}
        body |= {"peer": self.peer, "peer_value": self.peer_value, "ratio": self.ratio}
        if self.p50 is not None:
            body |= {"p50": self.p50, "p99": self.p99}
        body |= self.more
        if self.bars:
            body["bars"] = {str(bar): bar.met(self) for bar in self.bars}
        if self.note:
            body["note"] = self.note
        return body


@dataclass
class Sample:
    """One round: how much was done, in how long, and on how much CPU of all processes that took part."""

    count: float
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.count / self.seconds


class Stopwatch:
    """Times a block by the clock on the wall and by the CPU that this process and `processes` used."""

    def __init__(self, *processes: int) -> None:
        self._processes = processes
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    def __enter__(self) -> Self:
        self._cpu = time.process_time() + sum(map(cpu_seconds_of, self._processes))
        self._began = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._began
        self.cpu_seconds = time.process_time() + sum(map(cpu_seconds_of, self._processes)) - self._cpu

    def sample(self, count: float) -> Sample:
        return Sample(count, self.seconds, self.cpu_seconds)


def cpu_seconds_of(process: int) -> float:
    """The CPU time of another process so far, user and system."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def median_rate(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.rate for sample in samples)


def median_cpu_rate(samples: Sequence[Sample]) -> float:
    """The work per second of CPU time."""
    return statistics.median(sample.count / max(sample.cpu_seconds, 1e-9) for sample in samples)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` of all values do not exceed.

    >>> percentile([4.0, 1.0, 3.0, 2.0], 0.5)
    2.0
    """
    ordered = sorted(values)
    return ordered[max(0, round(share * len(ordered)) - 1)]


def shown(value: float | None) -> str:
    """A number as text.

    >>> shown(12_345_678), shown(0.4567), shown(3.14159), shown(None)
    ('12.3 M', '0.457', '3.14', '-')
    """
    if value is None:
        return "-"
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


class Bench:
    """One run of a benchmark: its folder, its sizes, and its progress."""

    def __init__(self, folder: Path, *, quick: bool) -> None:
        self.folder = folder
        self.quick = quick
        self._began = time.perf_counter()

    def size(self, full: int, quick: int) -> int:
        """A size for this run."""
        return quick if self.quick else full

    def say(self, text: str) -> None:
        print(f"[{time.perf_counter() - self._began:6.1f} s] {text}", file=sys.stderr, flush=True)

    @contextmanager
    def scratch(self, name: str) -> Iterator[Path]:
        """A folder on the disk that is measured, gone afterwards."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def interleave(
        self, name: str, subjects: Mapping[str, Callable[[], Sample]], *, rounds: int, warm_bytes: int = 0
    ) -> dict[str, list[Sample]]:
        """Let the subjects take turns, every other round in reverse; a first one warms up and is not counted.

        Before each turn everything dirty is written, and `warm_bytes` of memory are made ready, for all alike.
        """
        samples: dict[str, list[Sample]] = {subject: [] for subject in subjects}
        for number in range(-1, rounds):
            order = list(subjects.items())
            for subject, measure in order if number % 2 else reversed(order):
                os.sync()
                self.warm_memory(warm_bytes)
                sample = measure()
                if number >= 0:
                    samples[subject].append(sample)
                    self.say(f"{name} {number + 1}/{rounds} {subject}: {shown(sample.rate)}/s")
        return samples

    def warm_memory(self, size: int) -> None:
        """Touch memory by writing a file and deleting it.

        A virtual machine whose host takes free memory back (free page reporting) pays for the first touch of a page
        that was free for two seconds: 0.5 GB/s instead of 4. A measurement after a pause would be charged for it, so
        that every turn begins with as much memory touched just before.
        """
        if not size:
            return
        path = self.folder / "warm-up"
        with path.open("wb", buffering=0) as file:
            for _ in range(size // len(_BLOCK)):
                file.write(_BLOCK)
        path.unlink()


def run_child(module: str, *arguments: object) -> dict[str, Any]:
    """Run `python -m module …` and return the JSON object that it prints last."""
    words = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    body: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return body


Part = Callable[[Bench], list[Result]]


def main(benchmark: str, parts: Mapping[str, Part], arguments: Sequence[str] | None = None) -> None:
    """Run a benchmark's parts; a result's name begins with the name of its part."""
    options = _options(benchmark, parts, arguments)
    wanted = [name for name in (options.only or "").split(",") if name]
    chosen = {name: part for name, part in parts.items() if not wanted or any(_belongs(one, name) for one in wanted)}
    unknown = [one for one in wanted if not any(_belongs(one, name) for name in parts)]
    if unknown:
        raise SystemExit(f"There is no {', '.join(unknown)}. There are: {', '.join(parts)}.")
    results: list[Result] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix=f"headwater-bench-{benchmark}-", dir=options.dir) as folder:
        bench = Bench(Path(folder), quick=options.quick)
        where = machine(bench.folder)
        bench.say(where)
        bench.say("memory is touched before each turn, since a virtual machine's first touch of it is slow")
        for name, part in chosen.items():
            bench.say(f"{name} …")
            try:
                results += part(bench)
            except Exception as error:  # the other parts still count; the exit code says that one is missing
                traceback.print_exc()
                failed.append(name)
                results.append(Result(name=name, value=None, unit="", note=f"failed: {error}"))
    if wanted:
        exact = [result for result in results if any(_belongs(result.name, one) for one in wanted)]
        results = exact or results
    _print_table(results)
    body = {"benchmark": benchmark, "machine": where, "results": [result.as_json() for result in results]}
    print(json.dumps(body), flush=True)
    if failed:
        raise SystemExit(1)


def machine(folder: Path) -> str:
    """The machine and its load, in one line."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    free = shutil.disk_usage(folder).free / 1e9
    load = os.getloadavg()[0]
    return (
        f"{os.cpu_count()} cores, {memory:.0f} GB of memory, {free:.0f} GB of disk free, load {load:.2f}, "
        f"Linux {platform.release().split('-')[0]}, Python {platform.python_version()}"
    )


def _belongs(name: str, parent: str) -> bool:
    return name == parent or name.startswith(parent + ".")


def _options(benchmark: str, parts: Mapping[str, Part], arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{benchmark}")
    parser.add_argument("--only", metavar="NAME,…", help=f"only these: {', '.join(parts)}")
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast we are")
    parser.add_argument("--dir", metavar="FOLDER", default=str(_default_folder()), help="where the data goes meanwhile")
    return parser.parse_args(arguments)


def _default_folder() -> Path:
    # Not the system's temporary folder: on many machines that is memory, and a sync of memory costs nothing.
    folder = Path(__file__).resolve().parent.parent / "build"
    folder.mkdir(exist_ok=True)
    return folder


def _print_table(results: Sequence[Result]) -> None:
    rows = [("name", "ours", "unit", "peer", "peer's", "ratio", "p50", "p99", "bar")]
    for result in results:
        bars = "; ".join(f"{bar}: {_verdict(bar.met(result))}" for bar in result.bars)
        figures = (shown(result.peer_value), shown(result.ratio), shown(result.p50), shown(result.p99))
        rows.append((result.name, shown(result.value), result.unit, result.peer or "-", *figures, bars or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    print(file=sys.stderr)
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print(line.rstrip(), file=sys.stderr)
    for result in results:
        if result.note:
            print(f"{result.name}: {result.note}", file=sys.stderr)


def _verdict(met: bool | None) -> str:
    return "not measured" if met is None else "met" if met else "MISSED"
