"""What the sizing page needs and no other benchmark measures: how many small queries a core carries, and bytes on disk."""

from __future__ import annotations

import statistics
import threading
import time

import numpy as np
import psutil
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.cluster.failover import await_rows, ended, started
from benchmarks.harness import Bench, Result, percentile
from benchmarks.spark.workbench import CORES, tree_cpu_seconds

FILE = """
import headwater as hw
from headwater.operators import Tumbling, agg

app = hw.App("many", log="./data", conf={{"spark.sql.shuffle.partitions": {cores}}})
app.input("events")

def query(number):
    def windows(events):
        kept = events.where(f"user % {count} = {{number}}")
        return kept.transform(Tumbling(size="1 second", by="user", compute={{"n": agg.count()}}, name=f"w{{number}}"))
    windows.__name__ = f"windows{{number}}"
    return windows

for number in range({count} - 1):
    app.topic(query(number))

@app.topic
def ages(events):
    return events.select("created_ns")
"""
SCHEMA = {"user": "int64", "created_ns": "int64", "at": "timestamp"}
ROWS_PER_SECOND = 100
EVERY_SECONDS = 0.1
QUERIES = (1, 4, 16)
#: So long the app runs before anything counts.
WARM_UP_SECONDS = 30


def queries(bench: Bench) -> list[Result]:
    """Apps of more and more small queries over 100 rows a second: processor, memory, and the age of rows behind one of them."""
    return [_measured(bench, count) for count in (QUERIES if not bench.quick else (2,))]


def _measured(bench: Bench, count: int) -> Result:
    seconds = bench.size(40, 5)
    with bench.scratch(f"queries-{count}") as folder, hwlog.open(folder / "data", create=True) as log:
        (folder / "shop.py").write_text(FILE.format(count=count, cores=CORES))
        log.create("events", SCHEMA, time="at", key="user", durability="os")
        stop = threading.Event()
        thread = threading.Thread(target=_send, args=(log, stop))
        thread.start()
        process = started(folder, "run", "shop.py")
        try:
            await_rows(log, "ages", 1, process)
            time.sleep(bench.size(WARM_UP_SECONDS, 2))
            begin = log.end_offsets("ages")
            cpu, began = tree_cpu_seconds(process.pid), time.perf_counter()
            ages = _ages(log, begin, seconds)
            share = (tree_cpu_seconds(process.pid) - cpu) / (time.perf_counter() - began)
            memory = _memory(process.pid)
        finally:
            stop.set()
            thread.join()
            ended(process)
    bench.say(f"queries {count}: {share:.2f} cores, {memory / 1e6:.0f} MB, {statistics.median(ages):.0f} ms")
    return Result(
        name=f"queries.{count}",
        value=share,
        unit="cores",
        p50=percentile(ages, 0.5),
        p99=percentile(ages, 0.99),
        more={"memory_mb": round(memory / 1e6), "rows_per_second": ROWS_PER_SECOND, "seconds": seconds},
    )


def _send(log: hwlog.Log, stop: threading.Event) -> None:
    count = round(ROWS_PER_SECOND * EVERY_SECONDS)
    number = 0
    while not stop.wait(EVERY_SECONDS):
        now = time.time_ns()
        rows = [{"user": number + one, "created_ns": time.monotonic_ns(), "at": now // 1_000} for one in range(count)]
        log.append("events", rows)
        number = (number + count) % 1_000


def _ages(log: hwlog.Log, offsets: dict[int, int], seconds: float) -> list[float]:
    """How old rows are, in milliseconds, when they can be read behind the query."""
    found: list[float] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if log.wait("ages", after=offsets, seconds=1):
            for data in log.read("ages", start=offsets, columns=["created_ns", "_partition", "_offset"]):
                now = time.monotonic_ns()
                found += [(now - one) / 1e6 for one in data.column("created_ns").to_pylist()]
            offsets = log.end_offsets("ages")
    return found


def _memory(pid: int) -> int:
    """The memory of a process and all below it; what several share counts once."""
    root = psutil.Process(pid)
    return sum(one.memory_full_info().pss for one in [root, *root.children(recursive=True)] if one.is_running())


def disk(bench: Bench) -> list[Result]:
    """Bytes on disk for each row of a topic: three numbers, and a row of 100 bytes."""
    rows = bench.size(1_000_000, 10_000)
    chance = np.random.default_rng(1)
    numbers = {
        "user": pa.array(chance.integers(0, 100_000, rows)),
        "amount": pa.array(chance.integers(0, 1_000, rows)),
        "at": pa.array(np.arange(rows) * 20).cast(pa.timestamp("us", "UTC")),
    }
    texts = {**numbers, "text": pa.array(["x" * 72] * rows)}
    results = []
    for name, columns in (("numbers", numbers), ("texts", texts)):
        with bench.scratch(f"disk-{name}") as folder, hwlog.open(folder / "log", create=True) as log:
            table = pa.table(columns)
            log.create("events", table.schema, durability="os")
            for first in range(0, rows, 1_000):
                log.append("events", table.slice(first, 1_000))
            size = log.describe("events").bytes
        results.append(Result(name=f"disk.{name}", value=size / rows, unit="bytes/row", more={"rows": rows}))
    return results
