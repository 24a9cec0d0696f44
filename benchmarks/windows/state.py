"""What windows keep: bounded by their length and lateness, however many have passed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.harness import Bar, Bench, Result
from benchmarks.spark.keyed_state import fill
from benchmarks.spark.workbench import workbench
from headwater.engine.state_maintenance import states
from headwater.operators import Tumbling, agg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WINDOWS = 100
SIZE_SECONDS = 10


def state(bench: Bench) -> list[Result]:
    """The bytes of state after 10 windows and after 100, of 10,000 users each of whom is in all of them."""
    bench_spark = workbench(bench)
    users = bench.size(10_000, 500)
    per_window = users * 4
    rows = per_window * WINDOWS
    with bench.scratch("state") as folder:
        bench.say("state: filling")
        fill(folder / "log", "events", rows=rows, users=users, every_us=SIZE_SECONDS * 1_000_000 // per_window)
        seen: list[int] = []
        source = bench_spark.topic(folder / "log", "events", rows_max=per_window)
        operator = Tumbling(size=SIZE_SECONDS, time="at", by="user", compute={"n": agg.count()}, name="kept")

        def look(batch: DataFrame, number: int) -> None:
            batch.write.format("noop").mode("append").save()
            found = [one for one in states(bench_spark.state) if one.operator == "kept"]
            seen.append(sum(one.bytes for one in found))
            if number % 25 == 0:
                bench.say(f"state after {number} batches: {seen[-1]:,} bytes")

        bench_spark.run_each(operator(source), look)
    early, late = max(seen[5:15]), max(seen[-10:])
    return [
        Result(
            name="state",
            value=float(late),
            unit="bytes",
            peer="after 10 windows",
            peer_value=float(early),
            more={"windows": WINDOWS, "keys": users, "most_bytes": max(seen)},
            bars=[Bar(figure="ratio", most=1.5)],
        )
    ]
