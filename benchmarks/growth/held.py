"""What a batch costs while more and more keys are held, of which it touches always the same number."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, shown
from benchmarks.spark.keyed_state import SCHEMA
from benchmarks.spark.steps import counts
from benchmarks.spark.workbench import CORES, Workbench, tree_cpu_seconds, workbench

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Sixteen batches see two merges of small runs, so that what merging costs is in the mean.
BATCHES = 16
PRELOAD_ROWS = 1_000_000


@dataclass
class Held:
    """A query that holds so many keys, and what its batches have cost so far."""

    keys: int
    log: Path
    checkpoint: Path
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)

    @property
    def median_ms(self) -> float:
        return statistics.median(self.seconds) * 1000

    @property
    def mean_cpu_ms(self) -> float:
        return statistics.mean(self.cpu_seconds) * 1000


def held(bench: Bench) -> list[Result]:
    """Batches that touch 10,000 keys while 10,000, 100,000, 1 million and 5 million are held, on disk and synced."""
    bench_spark = workbench(bench)
    touched = bench.size(10_000, 1_000)
    sizes = [10_000, 100_000, 1_000_000, 5_000_000] if not bench.quick else [1_000, 10_000]
    rounds = bench.size(2, 1)
    random = np.random.default_rng(1)
    with bench.scratch("held") as folder:
        all_held = [Held(keys, folder / str(keys), bench_spark.checkpoint()) for keys in sizes]
        for one in all_held:
            bench.say(f"held: {shown(one.keys)} keys are loaded")
            _append(one.log, _every_key(one.keys, random))
            _run(bench_spark, one, rows_max=PRELOAD_ROWS)
        for number in range(-1, rounds):  # the first round warms up, and is not counted
            for one in all_held:
                _append(one.log, _some_keys(one.keys, touched, bench.size(BATCHES, 4), random))
                one.seconds, one.cpu_seconds = (one.seconds, one.cpu_seconds) if number > 0 else ([], [])
                _run(bench_spark, one, rows_max=touched)
                bench.say(f"held {number + 1}/{rounds} {shown(one.keys)} keys held: {shown(one.median_ms)} ms")
    return [result for one in all_held[1:] for result in _results(one, all_held[0], touched)]


def _results(held: Held, least: Held, touched: int) -> list[Result]:
    name, peer = f"held.{shown(held.keys).replace(' ', '').lower()}", f"{shown(least.keys)} keys held"
    about = {"keys_held": held.keys, "keys_touched": touched, "batches": len(held.seconds)}
    return [
        Result(
            name=name,
            value=held.median_ms,
            unit="ms/batch",
            peer=peer,
            peer_value=least.median_ms,
            more=about | {"mean_ms": statistics.mean(held.seconds) * 1000, "max_ms": max(held.seconds) * 1000},
            bars=[Bar(figure="ratio", most=1.3)],
        ),
        Result(
            name=f"{name}.cpu",
            value=held.mean_cpu_ms,
            unit="CPU-ms/batch",
            peer=peer,
            peer_value=least.mean_cpu_ms,
            more=about,
            bars=[Bar(figure="ratio", most=1.3)],
        ),
    ]


def _run(bench_spark: Workbench, held: Held, *, rows_max: int) -> None:
    def measure(rows: DataFrame, _number: int) -> None:
        cpu, began = tree_cpu_seconds(), time.perf_counter()
        rows.write.format("noop").mode("overwrite").save()
        held.seconds.append(time.perf_counter() - began)
        held.cpu_seconds.append(tree_cpu_seconds() - cpu)

    source = bench_spark.topic(held.log, "events", rows_max=rows_max)
    bench_spark.run_each(source.transform(counts()), measure, checkpoint=held.checkpoint)


Keys = np.ndarray[tuple[int], np.dtype[np.int64]]


def _every_key(keys: int, random: np.random.Generator) -> Iterator[Keys]:
    order = random.permutation(keys)
    for start in range(0, keys, PRELOAD_ROWS):
        yield order[start : start + PRELOAD_ROWS]


def _some_keys(keys: int, touched: int, batches: int, random: np.random.Generator) -> Iterator[Keys]:
    for _ in range(batches):
        yield random.choice(keys, touched, replace=False)


def _append(log: Path, batches: Iterator[Keys]) -> None:
    """Rows for batches of keys, each spread evenly over all partitions, so that the stream cuts them the same way."""
    with hwlog.open(log) as opened:
        if "events" not in opened.topics():
            opened.create("events", SCHEMA, partitions=CORES, durability="os")
        for keys in batches:
            for partition, part in enumerate(np.array_split(keys, CORES)):
                columns = {
                    "user": pa.array(part),
                    "amount": pa.array(np.ones(len(part), np.int64)),
                    "at": pa.array(np.zeros(len(part), np.int64), pa.timestamp("us", "UTC")),
                }
                opened.append("events", pa.record_batch(columns), partition=partition)
