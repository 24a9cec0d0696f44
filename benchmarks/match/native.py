"""Each pattern beside Spark's own keyed aggregation on the same rows: what order and state cost over a plain sum.

Five million events of 100,000 users, in one batch and in ten, everything on disk. Our state is synced with each batch;
Spark's changelog is on the same disk, and not synced. The rate is taken over the batches, without the query's start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Bench, Result, Sample
from benchmarks.match.events import LATE_BY, PATTERNS, fill
from benchmarks.spark.keyed_state import native_windows
from benchmarks.spark.workbench import Workbench, rate_result, warm_up, workbench
from headwater import EventTime
from headwater.operators import Match

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NATIVE = "Spark windowed aggregation"
BATCHES = 10


def abc_native(bench: Bench) -> list[Result]:
    """A, B, C within ten seconds, in one batch."""
    return beside_native(bench, "abc.native", {"abc.native": "abc"}, batches=1, bars={"abc.native": 1.0})


def abc_native10(bench: Bench) -> list[Result]:
    """The same in ten batches."""
    return beside_native(bench, "abc.native10", {"abc.native10": "abc"}, batches=BATCHES, bars={"abc.native10": 1.5})


def others(bench: Bench) -> list[Result]:
    """The other two patterns, in ten batches."""
    return beside_native(
        bench, "patterns", {"small_big.native10": "small_big", "rising.native10": "rising"}, batches=BATCHES, bars={}
    )


def beside_native(
    bench: Bench, name: str, patterns: Mapping[str, str], *, batches: int, bars: Mapping[str, float]
) -> list[Result]:
    bench_spark = workbench(bench)
    rows, users = bench.size(5_000_000, 100_000), bench.size(100_000, 2_000)
    with bench.scratch(name) as folder:
        bench.say(f"{name}: filling")
        fill(folder / "log", "events", rows=rows, users=users)
        subjects = {
            one: _subject(bench_spark, folder, matching(pattern), rows, batches) for one, pattern in patterns.items()
        }
        subjects[NATIVE] = _subject(bench_spark, folder, native_windows, rows, batches)
        warm_up(bench, subjects)
        samples = bench.interleave(name, subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "keys": users, "batches": batches}
    return [rate_result(one, samples, peer=NATIVE, about=about, least=bars.get(one)) for one in patterns]


def matching(pattern: str) -> Match:
    return Match(PATTERNS[pattern], time=EventTime("at", delay=LATE_BY), by="user", name=pattern)


def _subject(
    bench_spark: Workbench, folder: Path, operator: Callable[[DataFrame], DataFrame], rows: int, batches: int
) -> Callable[[], Sample]:
    def measure() -> Sample:
        source = bench_spark.topic(folder / "log", "events", rows_max=-(-rows // batches))
        return bench_spark.run(operator(source), rows=rows).sample()

    return measure
