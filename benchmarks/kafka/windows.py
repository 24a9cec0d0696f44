"""Windows over topics of Kafka, beside the same query in bare Spark on its connector."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.harness import Bench, Result, Sample
from benchmarks.kafka.connector import NAME, connected, from_json, missing, workbench
from benchmarks.kafka.results import beside
from benchmarks.kafka.topics import broker
from benchmarks.spark.keyed_state import fill_topic, native_windows
from benchmarks.spark.workbench import Workbench
from benchmarks.windows.kinds import compute
from headwater.operators import Tumbling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

JSON, FRAMES, NATIVE = "topic of JSON", "topic of frames", f"bare Spark on {NAME}, from_json"
COLUMNS = "user bigint, amount bigint, at timestamp"
BATCHES = 5


def tumbling(bench: Bench) -> list[Result]:
    """Sum and count per user and ten seconds. `tumbling` reads the same topic of JSON on both sides."""
    bench_spark = workbench(bench)
    rows, users = bench.size(2_000_000, 40_000), bench.size(40_000, 1_000)
    with bench.scratch("tumbling") as folder, broker(folder) as place:
        bench.say("tumbling: filling")
        for values in ("json", "frames"):
            with place.log(values) as log:
                fill_topic(log, values, rows=rows, users=users)

        def ours(values: str, span: int | None) -> Sample:
            source = bench_spark.topic(place.address, values, rows_max=rows // BATCHES)
            windows = Tumbling(size=10, time="at", by="user", compute=compute(), name=values)
            return bench_spark.run(source.transform(windows), rows=rows, span=span).sample()

        def bare() -> DataFrame:
            topic = place.kafka_topic("json")
            return native_windows(
                from_json(connected(bench_spark, place.bootstrap, topic, rows_max=rows // BATCHES), COLUMNS)
            )

        subjects: dict[str, Callable[[], Sample]] = {
            JSON: partial(ours, "json", None),
            FRAMES: partial(ours, "frames", place.span("frames")),
        }
        if not missing():
            subjects[NATIVE] = partial(_run, bench_spark, bare, rows)
        samples = bench.interleave("tumbling", subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "keys": users, "batches": BATCHES}
    return [
        *beside("tumbling", samples, ours=JSON, peer=NATIVE, about=about, least=2.0, note=missing()),
        *beside("tumbling.frames", samples, ours=FRAMES, peer=NATIVE, about=about, least=2.0, note=missing()),
    ]


def _run(bench_spark: Workbench, make: Callable[[], DataFrame], rows: int) -> Sample:
    return bench_spark.run(make(), rows=rows).sample()
