"""How fast topics of Kafka are read: frames beside the same rows in a log in a folder, messages beside Spark's connector."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import orjson

import headwater.log as hwlog
from benchmarks.harness import Bench, Result, Sample
from benchmarks.kafka.connector import NAME, connected, from_avro, from_json, missing, workbench
from benchmarks.kafka.results import beside
from benchmarks.kafka.topics import BATCHES, COLUMNS, SCHEMA, Place, broker, fill
from benchmarks.log.rows import ROW_BYTES, batch
from benchmarks.log.rows import SCHEMA as ROW_SCHEMA
from benchmarks.spark.scans import FRAME_ROWS, FRAMES
from benchmarks.spark.workbench import CORES, Workbench
from headwater.schema import parse_schema
from headwater.schema.encodings import avro

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

OURS, EMBEDDED = "topic on Kafka", "topic in a folder"
Decode = Callable[["DataFrame"], "DataFrame"]


def scan_frames(bench: Bench) -> list[Result]:
    """Frames of 100-byte rows on Kafka, beside the same rows in a log in a folder."""
    bench_spark = workbench(bench)
    rows = bench.size(5_000_000, 100_000)
    with bench.scratch("scan.frames") as folder, broker(folder) as place:
        bench.say("scan.frames: filling")
        frames = [batch(FRAME_ROWS, seed) for seed in range(FRAMES)]
        with place.log("frames") as theirs, hwlog.open(folder / "log") as own:
            for log in (theirs, own):
                log.create("rows", ROW_SCHEMA, partitions=CORES, durability="os")
                for number in range(rows // FRAME_ROWS):
                    log.append("rows", frames[number % FRAMES], partition=number % CORES)
        span = place.span("rows")

        def measure(log: str, span: int | None) -> Sample:
            stream = bench_spark.topic(log, "rows", rows_max=rows // BATCHES, metadata="none")
            return bench_spark.run(stream, rows=rows, span=span).sample()

        subjects = {
            OURS: partial(measure, place.address, span),
            EMBEDDED: partial(measure, str(folder / "log"), None),
        }
        samples = bench.interleave("scan.frames", subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "row_bytes": ROW_BYTES, "batches": BATCHES}
    return beside("scan.frames", samples, ours=OURS, peer=EMBEDDED, about=about, least=0.8)


def scan_json(bench: Bench) -> list[Result]:
    """A JSON object per message: our source beside the connector and `from_json`."""
    return _messages(bench, "json", lambda rows: from_json(rows, COLUMNS))


def scan_avro(bench: Bench) -> list[Result]:
    """An Avro record per message: our source beside the connector and `from_avro`."""
    schema = orjson.dumps(avro.avro_schema(parse_schema(SCHEMA))).decode()
    return _messages(bench, "avro", lambda rows: from_avro(rows, schema))


def _messages(bench: Bench, values: str, decode: Decode) -> list[Result]:
    name, peer = f"scan.{values}", f"{NAME}, from_{values}"
    bench_spark = workbench(bench)
    rows = bench.size(1_000_000, 20_000)
    with bench.scratch(name) as folder, broker(folder) as place:
        bench.say(f"{name}: filling")
        with place.log(values) as log:
            fill(log, "events", rows)

        def ours() -> DataFrame:
            return bench_spark.topic(place.address, "events", rows_max=rows // BATCHES, metadata="none")

        def theirs() -> DataFrame:
            topic = place.kafka_topic("events")
            return connected(bench_spark, place.bootstrap, topic, rows_max=rows // BATCHES)

        makers: dict[str, Callable[[], DataFrame]] = {OURS: ours}
        if not missing():
            makers |= {peer: lambda: decode(theirs()), "value only": theirs}
            _check_same(bench_spark, place, ours(), decode(theirs()))
        subjects = {one: partial(_run, bench_spark, make, rows) for one, make in makers.items()}
        samples = bench.interleave(name, subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "batches": BATCHES}
    results = beside(name, samples, ours=OURS, peer=peer, about=about, least=1.0, note=missing())
    if missing():
        return results
    note = "the peer hands the bytes of each message on, and decodes nothing"
    return [*results, *beside(f"{name}.bytes", samples, ours=OURS, peer="value only", about=about, note=note)]


def _run(bench_spark: Workbench, make: Callable[[], DataFrame], rows: int) -> Sample:
    return bench_spark.run(make(), rows=rows).sample()


def _check_same(bench_spark: Workbench, place: Place, ours: DataFrame, theirs: DataFrame) -> None:
    """Both read the same rows: number, sums, and the newest time."""
    found = [_sums(bench_spark, rows) for rows in (ours, theirs)]
    if found[0] != found[1] or found[0][0] != place.count("events"):
        raise RuntimeError(f"the two do not agree: {found}")


def _sums(bench_spark: Workbench, rows: DataFrame) -> tuple[int, int, int]:
    count = amount = newest = 0

    def collect(batch: DataFrame, _number: int) -> None:
        nonlocal count, amount, newest
        [row] = batch.selectExpr("count(*)", "sum(bigint(round(amount * 100)))", "max(unix_micros(at))").collect()
        count, amount, newest = count + row[0], amount + (row[1] or 0), max(newest, row[2] or 0)

    bench_spark.run_each(rows, collect)
    return count, amount, newest
