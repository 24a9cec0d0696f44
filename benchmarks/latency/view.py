"""Topic → counts by key and window → view → a subscriber in another process, in an app that runs by itself."""

from __future__ import annotations

import subprocess
from pathlib import Path

import headwater as hw
import headwater.log as hwlog
from benchmarks.harness import Bench, Result
from benchmarks.latency.map import (
    APPEND_EVERY_MS,
    LEAD_IN_SECONDS,
    ROWS_PER_SECOND,
    SCHEMA,
    Latency,
    answer,
    bars,
    child,
    result,
)
from benchmarks.start.processes import program

START_SECONDS = 20
WARM_UP_SECONDS = 45
START_SECONDS_MAX = 120.0
#: With no change for so long, the subscriber has seen all.
IDLE_SECONDS = 15
APP = """
import headwater as hw
from headwater.operators import Tumbling, agg
from pyspark.sql import DataFrame

app = hw.App("one_view", log="./log")
app.input("rows", {"created_ns": "int64", "text": "string", "at": "timestamp"}, time=hw.EventTime("at", delay="1 second"))


@app.view(key=["text", "window_start"])
def counts(rows: DataFrame) -> DataFrame:
    counted = {"rows": agg.count(), "newest": agg.max("created_ns")}
    return rows.transform(Tumbling(size="10 seconds", by="text", compute=counted, emit="changes"))
"""


def view(bench: Bench) -> list[Result]:
    """The newest row of each change, since a change tells of all rows of its key in a batch."""
    seconds, warm_up = bench.size(45, 3), bench.size(WARM_UP_SECONDS, 3)
    with bench.scratch("view") as folder:
        (folder / "one_view.py").write_text(APP)
        with hwlog.open(folder / "log") as log:
            log.create("rows", SCHEMA, durability="os", time=hw.EventTime("at", delay="1 second"))
        with subprocess.Popen([program(), "run", "one_view.py", "-q"], cwd=folder, text=True) as run:
            try:
                bench.say(f"view: {warm_up} s to warm up, then {seconds} s")
                ages = _measure(folder, seconds=seconds, warm_up=warm_up)
            finally:
                run.terminate()
    return [result("view", Latency(ages=ages, phases={}), bars=bars())]


def _measure(folder: Path, *, seconds: float, warm_up: float) -> list[float]:
    lasting = START_SECONDS + warm_up + LEAD_IN_SECONDS + seconds
    producer = child("produce", folder / "log", "rows", lasting, ROWS_PER_SECOND, APPEND_EVERY_MS)
    subscriber = child("subscribe", folder, START_SECONDS_MAX + lasting, IDLE_SECONDS)
    answer(producer)
    found = answer(subscriber)["ages"]
    last = max(created for created, _ in found)
    return [age for created, age in found if created > last - seconds]
