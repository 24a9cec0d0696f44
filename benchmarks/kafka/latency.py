"""How old a row is when it can be read behind a query from topic to topic on Kafka, at 1,000 rows a second."""

from __future__ import annotations

from benchmarks.harness import Bench, Result
from benchmarks.kafka.connector import workbench
from benchmarks.kafka.topics import broker
from benchmarks.latency.map import SCHEMA, WARM_UP_BATCHES, measure, result


def latency(bench: Bench) -> list[Result]:
    """Topic → map → topic: a row of frames goes through the brokers to the query and, exactly once, back."""
    bench_spark = workbench(bench)
    seconds, warm_up = bench.size(45, 3), bench.size(WARM_UP_BATCHES, 3)
    with bench.scratch("latency") as folder, broker(folder) as place:
        with place.log("frames") as log:
            for topic in ("in", "out"):
                log.create(topic, SCHEMA)
        bench.say(f"latency: {seconds} s")
        found = measure(bench_spark, place.address, seconds=seconds, warm_up=warm_up)
    return [result("latency", found, note="one broker; each batch is a transaction")]
