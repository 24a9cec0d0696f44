"""Throughput of a keyed operator, compared with Spark's own stateful operators on the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, Sample, median_rate, shown
from benchmarks.spark.steps import CountRows, counts, windows
from benchmarks.spark.workbench import CORES, Ran, Workbench, cpu_result, workbench

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SCHEMA = {"user": "int64", "amount": "int64", "at": "timestamp"}
#: 50,000 events in a second of event time.
EVENT_US = 20
FRAME_ROWS = 10_000
BATCHES = 10
ENGINE = "engine"
NATIVE = "Spark windowed aggregation"
TWS = "transformWithStateInPandas"
ROWS_PER_KEY = 10


def keyed_native(bench: Bench) -> list[Result]:
    """Sum and count per user and ten seconds, by the engine and by Spark's aggregation in RocksDB.

    Five million events of 100,000 users in ten batches. Our state is synced to disk with each batch; Spark's changelog
    is on the same disk, and not synced.
    """
    bench_spark = workbench(bench)
    rows, users = bench.size(5_000_000, 200_000), bench.size(100_000, 4_000)
    with bench.scratch("keyed.native") as folder:
        bench.say("keyed.native: filling")
        fill(folder / "log", "events", rows=rows, users=users)
        fill(folder / "log", "few", rows=60_000, users=1_000, every_us=1_000)
        _check_same(bench_spark, folder)

        def source() -> DataFrame:
            return bench_spark.topic(folder / "log", "events", rows_max=rows // BATCHES)

        subjects = {
            ENGINE: lambda: bench_spark.run(source().transform(windows()), rows=rows).sample(),
            NATIVE: lambda: bench_spark.run(native_windows(source()), rows=rows).sample(),
        }
        samples = bench.interleave("keyed.native", subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "keys": users, "batches": BATCHES}
    return [
        cpu_result(
            "keyed.native",
            samples,
            ours=ENGINE,
            peer=NATIVE,
            more=about,
            bars=[Bar(figure="ratio", most=0.8)],
        ),
        Result(
            name="keyed.native.wall",
            value=median_rate(samples[ENGINE]),
            unit="rows/s",
            peer=NATIVE,
            peer_value=median_rate(samples[NATIVE]),
            more=about,
        ),
    ]


def keyed_tws(bench: Bench) -> list[Result]:
    """A count per user: how many more rows a second of work buys, so that neither pays for its start.

    Ten rows for each key, all in one batch, a small run and a large one. Spark's large run is smaller than ours, for it
    would take minutes; its cost per row does not depend on that.
    """
    bench_spark = workbench(bench)
    small = bench.size(20_000, 2_000)
    large = {ENGINE: bench.size(4_000_000, 40_000), TWS: bench.size(120_000, 6_000)}
    with bench.scratch("keyed.tws") as folder:
        for rows in {small, *large.values()}:
            fill(folder / "log", f"events-{rows}", rows=rows, users=rows // ROWS_PER_KEY)

        def run(subject: str, rows: int) -> Ran:
            source = bench_spark.topic(folder / "log", f"events-{rows}")
            made = source.transform(counts()) if subject == ENGINE else tws_counts(source)
            return bench_spark.run(made, rows=rows, mode="append" if subject == ENGINE else "update")

        samples: dict[str, list[Sample]] = {ENGINE: [], TWS: []}
        for subject in samples:
            run(subject, small)
        for number in range(rounds := bench.size(2, 1)):
            for subject, found in samples.items():
                little, much = run(subject, small), run(subject, large[subject])
                more = Sample(
                    much.rows - little.rows,
                    max(1e-3, much.batch_seconds - little.batch_seconds),
                    much.cpu_seconds - little.cpu_seconds,
                )
                found.append(more)
                bench.say(f"keyed.tws {number + 1}/{rounds} {subject}: {shown(more.rate)}/s more")
    about = {"rows_per_key": ROWS_PER_KEY, "small_rows": small, "large_rows": large}
    return [
        Result(
            name="keyed.tws",
            value=median_rate(samples[ENGINE]),
            unit="rows/s",
            peer=TWS,
            peer_value=median_rate(samples[TWS]),
            more=about,
            bars=[Bar(figure="ratio", least=30)],
        ),
        cpu_result("keyed.tws.cpu", samples, ours=ENGINE, peer=TWS, more=about),
    ]


def fill(log: Path, topic: str, *, rows: int, users: int, every_us: int = EVENT_US) -> None:
    """Events of random users in the order of time, spread over one partition per core."""
    with hwlog.open(log) as opened:
        fill_topic(opened, topic, rows=rows, users=users, every_us=every_us)


def fill_topic(log: hwlog.Log, topic: str, *, rows: int, users: int, every_us: int = EVENT_US) -> None:
    """As `fill`, in a log that is open."""
    random = np.random.default_rng(1)
    log.create(topic, SCHEMA, partitions=CORES, time="at", durability="os")
    for number, start in enumerate(range(0, rows, FRAME_ROWS)):
        count = min(FRAME_ROWS, rows - start)
        times = (np.arange(count) + start) * every_us
        columns = {
            "user": pa.array(random.integers(0, users, count)),
            "amount": pa.array(random.integers(0, 100, count)),
            "at": pa.array(times, pa.timestamp("us", "UTC")),
        }
        log.append(topic, pa.record_batch(columns), partition=number % CORES)


def native_windows(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    grouped = rows.withWatermark("at", "0 seconds").groupBy(F.window("at", "10 seconds"), "user")
    return grouped.agg(F.sum("amount").alias("total"), F.count("*").alias("count"))


def tws_counts(rows: DataFrame) -> DataFrame:
    return rows.groupBy("user").transformWithStateInPandas(
        CountRows(), outputStructType="user bigint, count bigint", outputMode="Update", timeMode="None"
    )


def _check_same(bench_spark: Workbench, folder: Path) -> None:
    """Both compute the same windows, where both have closed them: Spark closes some in a last batch without rows."""
    found: dict[str, set[tuple[int, ...]]] = {ENGINE: set(), NATIVE: set()}
    for name, made in (
        (ENGINE, lambda rows: rows.transform(windows()).selectExpr("user", "window", "total", "count")),
        (NATIVE, lambda rows: native_windows(rows).selectExpr("user", "unix_micros(window.start)", "total", "count")),
    ):

        def collect(rows: DataFrame, _number: int, name: str = name) -> None:
            found[name] |= {tuple(row) for row in rows.collect()}

        bench_spark.run_each(made(bench_spark.topic(folder / "log", "few", rows_max=20_000)), collect)
    if not found[ENGINE] or not found[ENGINE] <= found[NATIVE]:
        raise RuntimeError(f"the two do not agree: {len(found[ENGINE])} windows here, {len(found[NATIVE])} there")
