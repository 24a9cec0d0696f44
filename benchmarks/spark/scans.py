"""How fast a topic is read, beside Spark's own Parquet file stream over the same rows."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, Sample, median_rate
from benchmarks.log.rows import ROW_BYTES, SCHEMA, batch
from benchmarks.spark.workbench import CORES, cpu_per_million, cpu_result, warm_up, workbench

COLUMNS = "id bigint, value double, payload string"
#: Rows of one append: what a producer gathers in some ten milliseconds at full speed.
FRAME_ROWS = 10_000
FRAMES = 16
BATCHES = 5
OURS, PLACED, PEER = "topic", "topic with positions", "Parquet file stream"


def scan(bench: Bench) -> list[Result]:
    """A topic of 100-byte rows to nowhere in five batches, beside a folder of Parquet files with the same rows."""
    bench_spark = workbench(bench)
    rows = bench.size(5_000_000, 200_000)
    with bench.scratch("scan") as folder:
        bench.say("scan: filling")
        fill(folder, rows, batches=BATCHES)
        per_batch = rows // BATCHES

        def ours() -> Sample:
            return read("none")

        def placed() -> Sample:
            return read("position")

        def read(metadata: str) -> Sample:
            stream = bench_spark.topic(folder / "log", "rows", rows_max=per_batch, metadata=metadata)
            return bench_spark.run(stream, rows=rows).sample()

        def peer() -> Sample:
            files = bench_spark.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", CORES)
            return bench_spark.run(files.parquet(str(folder / "parquet")), rows=rows).sample()

        subjects = {OURS: ours, PLACED: placed, PEER: peer}
        warm_up(bench, subjects)
        samples = bench.interleave("scan", subjects, rounds=bench.size(5, 1))
    about = {"row_bytes": ROW_BYTES, "rows": rows, "batches": BATCHES}
    return [
        Result(
            name="scan",
            value=median_rate(samples[OURS]),
            unit="rows/s",
            peer=PEER,
            peer_value=median_rate(samples[PEER]),
            more=about,
            bars=[Bar(figure="ratio", least=0.8)],
        ),
        cpu_result("scan.cpu", samples, ours=OURS, peer=PEER, more=about),
        Result(
            name="scan.position",
            value=median_rate(samples[PLACED]),
            unit="rows/s",
            peer=PEER,
            peer_value=median_rate(samples[PEER]),
            more=about,
            note="with the columns `_partition` and `_offset`, which a topic has by default and a file has not",
        ),
    ]


def guard(bench: Bench) -> list[Result]:
    """What a `Guard` adds to the reading of a topic with four columns."""
    from headwater.operators import Guard

    bench_spark = workbench(bench)
    rows = bench.size(5_000_000, 200_000)
    with bench.scratch("guard") as folder:
        bench.say("guard: filling")
        with hwlog.open(folder / "log") as log:
            schema = {"user": "int64", "item": "int64", "price": "float64", "at": "timestamp"}
            log.create("events", schema, partitions=CORES, time="at", durability="os")
            for number in range(rows // FRAME_ROWS):
                log.append("events", _events(number * FRAME_ROWS), partition=number % CORES)

        def plain() -> Sample:
            return bench_spark.run(
                bench_spark.topic(folder / "log", "events", rows_max=rows // BATCHES), rows=rows
            ).sample()

        def guarded() -> Sample:
            stream = bench_spark.topic(folder / "log", "events", rows_max=rows // BATCHES)
            return bench_spark.run(stream.transform(Guard()), rows=rows).sample()

        subjects = {"guarded": guarded, "not guarded": plain}
        warm_up(bench, subjects)
        samples = bench.interleave("guard", subjects, rounds=bench.size(5, 1))
    costs = {name: cpu_per_million(found) for name, found in samples.items()}
    return [
        Result(
            name="guard",
            value=costs["guarded"] - costs["not guarded"],
            unit="CPU-s/M rows",
            more={"rows": rows, "batches": BATCHES, "whole": round(costs["guarded"], 3)},
            bars=[Bar(figure="value", most=0.3)],
        )
    ]


def _events(first: int) -> pa.Table:
    numbers = np.arange(first, first + FRAME_ROWS)
    at = pa.array(numbers * 100 + 1_767_225_600_000_000, pa.timestamp("us", "UTC"))
    columns = {"user": numbers % 1_000, "item": numbers % 77, "price": numbers / 7, "at": at}
    return pa.table(columns)


def fill(folder: Path, rows: int, *, batches: int) -> None:
    """The same rows twice: a topic of one partition per core, and as many Parquet files for each batch."""
    frames = [batch(FRAME_ROWS, seed) for seed in range(FRAMES)]
    (folder / "parquet").mkdir()
    with hwlog.open(folder / "log") as log:
        log.create("rows", SCHEMA, partitions=CORES, durability="os")
        per_file = rows // batches // CORES
        for number in range(batches * CORES):
            wanted = [frames[(number + step) % FRAMES] for step in range(per_file // FRAME_ROWS)]
            for frame in wanted:
                log.append("rows", frame, partition=number % CORES)
            path = folder / "parquet" / f"{number:04d}.parquet"
            pq.write_table(pa.Table.from_batches(wanted), path)
            os.utime(path, (1e9 + number, 1e9 + number))  # Spark takes files in the order of their times
