"""How fast a stream is written to a topic of Kafka exactly once, beside Spark's connector, which may write rows twice."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import Bench, Result, Sample
from benchmarks.kafka.connector import NAME, as_json, missing, workbench
from benchmarks.kafka.results import beside
from benchmarks.kafka.topics import BATCHES, COLUMNS, SCHEMA, Place, broker, events
from benchmarks.spark.workbench import CORES, Workbench

OURS, SCAN = "exactly once", "no sink"
PEER = f"{NAME}, at least once, JSON"


def sink_frames(bench: Bench) -> list[Result]:
    """Rows as frames. The connector writes the same rows as JSON: it has no frames."""
    return _sink(bench, "frames", rows=bench.size(2_000_000, 40_000))


def sink_json(bench: Bench) -> list[Result]:
    """Rows as JSON, a message each, on both sides."""
    return _sink(bench, "json", rows=bench.size(1_000_000, 40_000))


def _sink(bench: Bench, values: str, *, rows: int) -> list[Result]:
    """Both read the same Parquet files. The rows of a part with a sink include their way through the brokers."""
    bench_spark = workbench(bench)
    name = f"sink.{values}"
    with bench.scratch(name) as folder, broker(folder) as place:
        bench.say(f"{name}: filling")
        _fill(folder / "parquet", rows)
        topics = (f"out{number}" for number in itertools.count())
        subjects: dict[str, Callable[[], Sample]] = {
            OURS: lambda: _ours(bench_spark, place, folder, next(topics), values, rows),
            SCAN: lambda: _run(bench_spark, folder, rows, "noop", {}),
        }
        if not missing():
            subjects[PEER] = lambda: _theirs(bench_spark, place, folder, next(topics), rows)
        samples = bench.interleave(name, subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "batches": BATCHES}
    return beside(name, samples, ours=OURS, peer=PEER, about=about, least=0.7, note=missing())


def _fill(folder: Path, rows: int) -> None:
    """One file per core and batch; Spark takes them in the order of their times."""
    folder.mkdir()
    each = rows // BATCHES // CORES
    for number in range(BATCHES * CORES):
        path = folder / f"{number:04d}.parquet"
        pq.write_table(pa.Table.from_batches([events(number * each, each)]), path)
        os.utime(path, (1e9 + number, 1e9 + number))


def _ours(bench_spark: Workbench, place: Place, folder: Path, topic: str, values: str, rows: int) -> Sample:
    with place.log(values) as log:
        log.create(topic, SCHEMA, partitions=CORES)
        sample = _run(bench_spark, folder, rows, "headwater", {"log": place.address, "topic": topic})
        found = place.count(topic)
        log.delete(topic)
    if found != rows:
        raise RuntimeError(f"{rows} rows should have been written, {found} were")
    return sample


def _theirs(bench_spark: Workbench, place: Place, folder: Path, topic: str, rows: int) -> Sample:
    with place.log("json") as log:
        log.create(topic, SCHEMA, partitions=CORES)
        options = {"kafka.bootstrap.servers": place.bootstrap, "topic": place.kafka_topic(topic)}
        sample = _run(bench_spark, folder, rows, "kafka", options)
        found = sum(log.end_offsets(topic).values())
        log.delete(topic)
    if found < rows:
        raise RuntimeError(f"{rows} rows should have been written, {found} were")
    return sample


def _run(bench_spark: Workbench, folder: Path, rows: int, sink: str, options: Mapping[str, object]) -> Sample:
    files = bench_spark.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", CORES)
    stream = files.parquet(str(folder / "parquet"))
    stream = stream.select(as_json()) if sink == "kafka" else stream
    return bench_spark.run(stream, rows=rows, sink=sink, options=options).sample()
