"""A real query over many small batches: what its checkpoint, its state and its log have on the disk.

Topic to windows to topic, exactly once, each batch with a row that is late. The topics keep ten seconds of rows, and
Spark keeps a hundred batches in its checkpoint, as by default: what still rises would rise for ever.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.growth.samples import Sample, compared, usage
from benchmarks.growth.week import LATE_US
from benchmarks.harness import Bench, Result
from benchmarks.spark.keyed_state import SCHEMA
from benchmarks.spark.workbench import workbench
from headwater.operators import Tumbling, agg

BATCHES = 1_000
#: A sample every so many batches.
EVERY = 20
ROWS = 100
USERS = 1_000
BATCH_US = 1_000_000
# Any: whatever `Log.create` takes.
KEEP: Mapping[str, Any] = {
    "durability": "os",
    "retention": "10 seconds",
    "segment_bytes_max": "1 MiB",
    "segment_seconds_max": "5 seconds",
}


def stream(bench: Bench) -> list[Result]:
    """Files, bytes and time of a batch, in the last tenth of the run beside the second."""
    bench_spark = workbench(bench)
    batches = bench.size(BATCHES, 100)
    random = np.random.default_rng(1)
    samples: list[Sample] = []
    with bench.scratch("stream") as folder, hwlog.open(folder / "log") as log:
        log.create("events", SCHEMA, time="at", **KEEP)
        log.create("counts", {"user": "int64", "window_start": "timestamp", "count": "int64"}, **KEEP)
        operator = Tumbling(size="10 seconds", by="user", compute={"count": agg.count()}, name="stream")
        rows = bench_spark.topic(folder / "log", "events").transform(operator)
        checkpoint = folder / "checkpoint"
        writer = rows.select("user", "window_start", "count").writeStream.format("headwater")
        for option, value in {"log": folder / "log", "topic": "counts", "checkpointLocation": checkpoint}.items():
            writer = writer.option(option, str(value))
        query = writer.start()
        state = bench_spark.state / str(query.id)
        took: list[float] = []
        try:
            for number in range(batches):
                began = time.perf_counter()
                log.append("events", rows_of(number, random))
                query.processAllAvailable()
                took.append(time.perf_counter() - began)
                if len(took) == EVERY:
                    samples.append(sampled(number + 1, (checkpoint, state, folder / "log"), took))
                    took = []
                    if len(samples) % 10 == 0:
                        bench.say(f"stream: {samples[-1]}")
        finally:
            query.stop()
            shutil.rmtree(state, ignore_errors=True)
    return compared("stream", samples)


def sampled(batches: int, folders: tuple[Path, ...], took: list[float]) -> Sample:
    counts = [usage(folder) for folder in folders]
    names = ("checkpoint", "state", "log")
    return {
        "batches": batches,
        "files": sum(files for files, _ in counts),
        "bytes": sum(size for _, size in counts),
        "ms": statistics.median(took) * 1_000,
        **{f"{name}_files": files for name, (files, _) in zip(names, counts, strict=True)},
    }


def rows_of(batch: int, random: np.random.Generator) -> pa.Table:
    """The rows of a second of event time, the first an hour behind."""
    at = batch * BATCH_US + np.arange(ROWS) * (BATCH_US // ROWS) + 10 * LATE_US
    at[0] -= LATE_US
    columns = {
        "user": pa.array(random.integers(0, USERS, ROWS)),
        "amount": pa.array(random.integers(0, 100, ROWS)),
        "at": pa.array(at, pa.timestamp("us", "UTC")),
    }
    return pa.table(columns)
