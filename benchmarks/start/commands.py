"""Commands as a newcomer types them: an app of one query until its first result, and the whole of the tutorial "A first app"."""

from __future__ import annotations

import re
import shlex
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result
from benchmarks.start.processes import Usage, program
from benchmarks.start.session import with_archive

TUTORIAL = Path(__file__).resolve().parent.parent.parent / "docs" / "tutorials" / "a-first-app.md"
WAIT_SECONDS_MAX = 120.0
ONE_QUERY = """
import headwater as hw
from pyspark.sql import DataFrame, functions as F

app = hw.App("one", log="./data")
app.input("words", {"word": "string"})


@app.topic()
def loud(words: DataFrame) -> DataFrame:
    return words.select(F.upper("word").alias("word"))
"""


@dataclass(frozen=True, kw_only=True)
class Took:
    """What one run took, until what a user waits for was there."""

    seconds: float
    cpu_seconds: float
    processes: int


def first_query(bench: Bench) -> list[Result]:
    """From `headwater run` to the first row of an app's one query; the topic has rows before."""
    return _results(bench, "first_query", _first_query, bar=Bar(figure="value", most=8))


def tutorial(bench: Bench) -> list[Result]:
    """All commands of the tutorial, one after the other."""
    return _results(bench, "tutorial", _tutorial, bar=Bar(figure="value", most=15))


def _results(bench: Bench, name: str, measure: Callable[[Path, Mapping[str, str]], Took], *, bar: Bar) -> list[Result]:
    found: list[Took] = []
    environ = with_archive(bench)
    rounds = bench.size(5, 1)
    for number in range(-1, rounds):  # the first leaves compiled files, and is not counted
        if number < 0 and bench.quick:
            continue
        with bench.scratch(f"{name}-{number}") as folder:
            took = measure(folder, environ)
        bench.say(f"{name} {number + 1}/{rounds}: {took.seconds:.1f} s, {took.cpu_seconds:.1f} CPU-s")
        if number >= 0:
            found.append(took)
    seconds = statistics.median(took.seconds for took in found)
    more = {
        "cpu_seconds": statistics.median(took.cpu_seconds for took in found),
        "processes": statistics.median(took.processes for took in found),
    }
    return [Result(name=name, value=seconds, unit="s", more=more, bars=[bar])]


def _first_query(folder: Path, environ: Mapping[str, str]) -> Took:
    (folder / "one.py").write_text(ONE_QUERY)
    with hwlog.open(folder / "data") as log:
        log.create("words", {"word": "string"})
        log.append("words", [{"word": "first"}])
        began = time.monotonic()
        words = [program(), "run", "one.py", "-q"]
        with subprocess.Popen(words, cwd=folder, env=environ, text=True) as run, Usage(run) as usage:
            try:
                _wait_for_rows(log, "loud", run)
                return Took(seconds=time.monotonic() - began, cpu_seconds=usage.cpu_seconds, processes=usage.processes)
            finally:
                run.terminate()


def _wait_for_rows(log: hwlog.Log, topic: str, run: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while topic not in log.topics() or not sum(log.end_offsets(topic).values()):
        if run.poll() is not None:
            raise RuntimeError(f"the app ended with {run.returncode}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} has no rows after {WAIT_SECONDS_MAX:.0f} s")
        time.sleep(0.02)


def _tutorial(folder: Path, environ: Mapping[str, str]) -> Took:
    text = TUTORIAL.read_text()
    (folder / "shop.py").write_text(re.findall(r"```py\n(.*?)```", text, re.DOTALL)[0])
    lines = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    seconds = cpu_seconds = 0.0
    processes = 0
    for line in lines:
        took = _command(line, folder, environ)
        seconds, cpu_seconds, processes = (
            seconds + took.seconds,
            cpu_seconds + took.cpu_seconds,
            processes + took.processes,
        )
    return Took(seconds=seconds, cpu_seconds=cpu_seconds, processes=processes)


def _command(line: str, folder: Path, environ: Mapping[str, str]) -> Took:
    words: Sequence[str] = ["sh", "-c", line.replace("headwater ", f"{shlex.quote(program())} ", 1)]
    began = time.monotonic()
    with (
        subprocess.Popen(
            words, cwd=folder, env=environ, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as run,
        Usage(run) as usage,
    ):
        run.wait(WAIT_SECONDS_MAX)
    if run.returncode:
        raise RuntimeError(f"`{line}` ended with {run.returncode}")
    return Took(seconds=time.monotonic() - began, cpu_seconds=usage.cpu_seconds, processes=usage.processes)
