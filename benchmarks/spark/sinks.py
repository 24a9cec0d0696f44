"""How fast a stream is written to a topic and committed, beside Spark's own Parquet sink."""

from __future__ import annotations

import itertools
import statistics
from pathlib import Path

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, Sample, median_rate
from benchmarks.log.rows import ROW_BYTES, SCHEMA
from benchmarks.spark.scans import BATCHES, COLUMNS, fill
from benchmarks.spark.workbench import CORES, cpu_result, warm_up, workbench
from headwater.config import Durability

OURS, SYNCED, PEER, SCAN = "topic", "topic, synced", "Parquet sink", "no sink"


def sink(bench: Bench) -> list[Result]:
    """A stream of 100-byte rows into a topic, beside the same stream into Parquet files.

    Both read Parquet files. Spark's sink does not sync what it has written, so that the topic it is compared with does
    not either; what syncing costs is told beside it.
    """
    bench_spark = workbench(bench)
    rows = bench.size(5_000_000, 200_000)
    numbers = itertools.count()
    with bench.scratch("sink") as folder:
        bench.say("sink: filling")
        fill(folder, rows, batches=BATCHES)

        def measure(sink: str, **options: object) -> Sample:
            files = bench_spark.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", CORES)
            return bench_spark.run(
                files.parquet(str(folder / "parquet")), rows=rows, sink=sink, options=options
            ).sample()

        def topic(durability: Durability) -> Sample:
            with bench.scratch(f"sink-{next(numbers)}") as target:
                with hwlog.open(target / "log") as log:
                    log.create("out", SCHEMA, partitions=CORES, durability=durability)
                sample = measure("headwater", log=target / "log", topic="out")
                _check(target / "log", rows)
                return sample

        def parquet() -> Sample:
            with bench.scratch(f"sink-{next(numbers)}") as target:
                return measure("parquet", path=target / "out")

        subjects = {
            OURS: lambda: topic("os"),
            PEER: parquet,
            SCAN: lambda: measure("noop"),
            SYNCED: lambda: topic("fsync"),
        }
        warm_up(bench, subjects)
        # Both write new files: what they fill with memory is touched before, for both.
        samples = bench.interleave("sink", subjects, rounds=bench.size(5, 1), warm_bytes=2 * rows * ROW_BYTES)
    about = {"row_bytes": ROW_BYTES, "rows": rows, "batches": BATCHES}
    beyond = {name: _beyond(found, samples[SCAN]) for name, found in samples.items() if name != SCAN}
    return [
        Result(
            name="sink",
            value=median_rate(samples[OURS]),
            unit="rows/s",
            peer=PEER,
            peer_value=median_rate(samples[PEER]),
            more=about | {"seconds_beyond_reading": beyond},
            bars=[Bar(figure="ratio", least=0.7)],
        ),
        cpu_result("sink.cpu", samples, ours=OURS, peer=PEER, more=about),
        Result(
            name="sink.fsync",
            value=median_rate(samples[SYNCED]),
            unit="rows/s",
            peer=PEER,
            peer_value=median_rate(samples[PEER]),
            more=about,
            note="the topic syncs each commit; the Parquet sink does not",
        ),
    ]


def _check(log: Path, rows: int) -> None:
    with hwlog.open(log, read_only=True) as opened:
        found = sum(opened.end_offsets("out").values())
    if found != rows:
        raise RuntimeError(f"{rows} rows should have been written, {found} were")


def _beyond(samples: list[Sample], scans: list[Sample]) -> float:
    """What the sink adds to a query that only reads."""
    return statistics.median(one.seconds for one in samples) - statistics.median(one.seconds for one in scans)
