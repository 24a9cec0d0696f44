"""The overhead of an app: a windowed aggregation declared in an app, compared with the same one written by hand."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headwater as hw
import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, Sample, median_rate
from benchmarks.spark.keyed_state import fill, native_windows
from benchmarks.spark.workbench import Workbench, cpu_result, tree_cpu_seconds, warm_up, workbench
from headwater.apps.runner import Runner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

OURS, BARE = "app", "bare Spark"
BATCHES = 10


def native(bench: Bench) -> list[Result]:
    """Sum and count per user and ten seconds into a topic: through an app, and through `writeStream` by hand."""
    bench_spark = workbench(bench)
    rows, users = bench.size(5_000_000, 100_000), bench.size(100_000, 2_000)
    with bench.scratch("native") as folder:
        bench.say("native: filling")
        fill(folder / "log", "events", rows=rows, users=users)
        subjects = {
            OURS: lambda: through_app(bench_spark, folder, rows=rows),
            BARE: lambda: by_hand(bench_spark, folder, rows=rows),
        }
        warm_up(bench, subjects)
        samples = bench.interleave("native", subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "keys": users, "batches": BATCHES}
    return [
        Result(
            name="native",
            value=median_rate(samples[OURS]),
            unit="rows/s",
            peer=BARE,
            peer_value=median_rate(samples[BARE]),
            more=about,
            bars=[Bar(figure="ratio", least=0.95)],
        ),
        cpu_result("native.cpu", samples, ours=OURS, peer=BARE, more=about),
    ]


def through_app(bench_spark: Workbench, folder: Path, *, rows: int) -> Sample:
    """A new app each time: its output and its checkpoint are its own."""
    name = f"totals-{uuid.uuid4().hex[:8]}"
    app = hw.App(name, log=folder / "log")

    @app.topic(name=name, rows_max=rows // BATCHES)
    def totals(events: DataFrame) -> DataFrame:
        return native_windows(events)

    cpu = tree_cpu_seconds()
    runner = Runner(app, until_caught_up=True, serve=False, spark=bench_spark.spark)
    with runner.ready():
        (query,) = app.queries
        running = runner.start_version(query, runner.active(query).version)
        running.query.awaitTermination()
        sample = _sample(running.query, rows, tree_cpu_seconds() - cpu)
        runner.log.delete(name)
    shutil.rmtree(app.home)
    return sample


def by_hand(bench_spark: Workbench, folder: Path, *, rows: int) -> Sample:
    name = f"by-hand-{uuid.uuid4().hex[:8]}"
    result = native_windows(bench_spark.topic(folder / "log", "events", rows_max=rows // BATCHES))
    options = {"log": folder / "log", "topic": name, "create": "true", "checkpointLocation": bench_spark.checkpoint()}
    writer = result.writeStream.format("headwater").trigger(availableNow=True)
    for option, value in options.items():
        writer = writer.option(option, str(value))
    cpu = tree_cpu_seconds()
    query = writer.start()
    query.awaitTermination()
    sample = _sample(query, rows, tree_cpu_seconds() - cpu)
    with hwlog.open(folder / "log") as log:
        log.delete(name)
    return sample


def _sample(query: StreamingQuery, rows: int, cpu_seconds: float) -> Sample:
    # Any: a report of Spark's is JSON with a class around it.
    reports: list[Any] = list(query.recentProgress)
    read = sum(report.numInputRows for report in reports)
    if read != rows:
        raise RuntimeError(f"{rows} rows should have been read, {read} were")
    return Sample(read, sum(report.durationMs["triggerExecution"] for report in reports) / 1000, cpu_seconds)
