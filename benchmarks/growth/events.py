"""What an event costs while more and more of them pass, and with more and more keys."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.growth import page
from benchmarks.harness import Bar, Bench, Result, shown
from benchmarks.spark.keyed_state import fill
from benchmarks.spark.workbench import Workbench, tree_cpu_seconds, workbench
from headwater.operators import Tumbling, agg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCH_ROWS = 500_000
#: How much more an event may cost than in the smallest run.
RISE_MAX = 1.3
#: Batches that warm the JVM up are not counted.
WARM_BATCHES = 4


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run has taken up to a batch: rows, seconds and CPU-seconds."""

    rows: int
    seconds: float
    cpu_seconds: float

    def minus(self, earlier: Cost) -> Cost:
        return Cost(
            rows=self.rows - earlier.rows,
            seconds=self.seconds - earlier.seconds,
            cpu_seconds=self.cpu_seconds - earlier.cpu_seconds,
        )

    @property
    def us_per_row(self) -> float:
        return self.seconds / self.rows * 1e6

    @property
    def cpu_us_per_row(self) -> float:
        return self.cpu_seconds / self.rows * 1e6


def events(bench: Bench, *, docs: bool = False) -> list[Result]:
    """Counts and sums of 100,000 users in windows of ten seconds, after 1, 3, 10 and 30 million events of one run."""
    bench_spark = workbench(bench)
    sizes = [1_000_000, 3_000_000, 10_000_000, 30_000_000] if not bench.quick else [10_000, 20_000]
    rows_max = bench.size(BATCH_ROWS, 5_000)
    users = bench.size(100_000, 1_000)
    with bench.scratch("events") as folder:
        bench.say("events: filling")
        fill(folder / "log", "events", rows=sizes[-1] + WARM_BATCHES * rows_max, users=users)
        run = costs(bench_spark, folder / "log", windows, rows_max)
    begun = run[WARM_BATCHES - 1]
    steps = per_step(run[WARM_BATCHES - 1 :])
    page.BUILD.mkdir(exist_ok=True)
    (page.BUILD / "growth-events.json").write_text(json.dumps(steps), encoding="utf-8")
    if docs:
        bench.say(f"wrote {page.draw_costs(steps)}")
    found = [run[WARM_BATCHES - 1 + size // rows_max].minus(begun) for size in sizes]
    return [result for cost in found[1:] for result in results("events", cost, found[0], cost.rows, "events")]


def per_step(run: list[Cost]) -> list[dict[str, float]]:
    """What an event has cost in each of some thirty parts of a run."""
    size = max(1, (len(run) - 1) // 30)
    found = []
    for place in range(size, len(run), size):
        cost = run[place].minus(run[place - size])
        events = run[place].rows - run[0].rows
        found.append({"events": events, "us": cost.us_per_row, "cpu_us": cost.cpu_us_per_row})
    return found


def keys(bench: Bench) -> list[Result]:
    """The same over five million events of 10,000, 100,000, 1 million and 5 million users.

    Events of few users are combined before they reach the state, and those of many are not: so this is what combining is
    worth, too. `held` has batches of as many keys each.
    """
    bench_spark = workbench(bench)
    sizes = [10_000, 100_000, 1_000_000, 5_000_000] if not bench.quick else [100, 1_000]
    rows = bench.size(5_000_000, 20_000)
    rows_max = bench.size(BATCH_ROWS, 5_000)
    found: dict[int, Cost] = {}
    for users in [sizes[0], *sizes]:  # the first run warms up
        with bench.scratch(f"keys-{users}") as folder:
            fill(folder / "log", "events", rows=rows, users=users)
            run = costs(bench_spark, folder / "log", windows, rows_max)
        found[users] = run[-1].minus(run[0])
        bench.say(f"keys: {shown(users)} users: {found[users].us_per_row:.3g} us an event")
    least = found[sizes[0]]
    return [result for users in sizes[1:] for result in results("keys", found[users], least, users, "keys")]


def windows(rows: DataFrame) -> DataFrame:
    """Count and sum of each user in windows of ten seconds."""
    compute = {"count": agg.count(), "total": agg.sum("amount")}
    return rows.transform(Tumbling(size="10 seconds", by="user", compute=compute, name="windows"))


def costs(bench_spark: Workbench, log: Path, operator: Callable[[DataFrame], DataFrame], rows_max: int) -> list[Cost]:
    """What a run has taken at the end of each of its batches."""
    found: list[Cost] = []
    cpu, began = tree_cpu_seconds(), time.perf_counter()

    def measure(rows: DataFrame, number: int) -> None:
        rows.write.format("noop").mode("overwrite").save()
        seconds, cpu_seconds = time.perf_counter() - began, tree_cpu_seconds() - cpu
        found.append(Cost(rows=(number + 1) * rows_max, seconds=seconds, cpu_seconds=cpu_seconds))

    bench_spark.run_each(operator(bench_spark.topic(log, "events", rows_max=rows_max)), measure)
    return found


def results(name: str, cost: Cost, least: Cost, size: int, unit: str) -> list[Result]:
    """The cost of an event by the clock and by the CPU, beside that of the smallest run."""
    label = f"{name}.{shown(size).replace(' ', '').lower()}"
    peer = f"{shown(least.rows if name == 'events' else size)} {unit}" if name == "events" else "the fewest keys"
    bars = [Bar(figure="ratio", most=RISE_MAX)]
    about = {"events": cost.rows, unit: size}
    return [
        Result(
            name=label, value=cost.us_per_row, unit="us/event", peer=peer, peer_value=least.us_per_row, more=about,
            bars=bars,
        ),
        Result(
            name=f"{label}.cpu", value=cost.cpu_us_per_row, unit="CPU-us/event", peer=peer,
            peer_value=least.cpu_us_per_row, more=about, bars=bars,
        ),
    ]  # fmt: skip
