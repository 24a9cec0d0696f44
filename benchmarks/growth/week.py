"""A hundred thousand batches of an operator, without Spark: the engine and its state store as a task drives them.

At a batch every six seconds that is a week. A thousand users are counted and summed in windows of ten seconds; and ten
thousand users are counted for ever. Each batch has a hundred rows, and one that is late where there are windows.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.growth import page
from benchmarks.growth.samples import Sample, compared, usage
from benchmarks.harness import Bench, Result
from benchmarks.spark.steps import count_rows
from headwater.engine.aggregation import ARGUMENT
from headwater.engine.columns import HASH, SLOT
from headwater.engine.contract import Contract
from headwater.engine.state_folder import LocalFolder
from headwater.engine.step import PartitionEngine
from headwater.operators import Tumbling, agg

BATCHES = 100_000
SAMPLES = 200
ROWS = 100
BATCH_US = 1_000_000
LATE_US = 3_600_000_000
SCHEMA = pa.schema(
    {
        "user": pa.int64(),
        "amount": pa.int64(),
        "at": pa.timestamp("us"),
        "_partition": pa.int32(),
        "_offset": pa.int64(),
        f"{ARGUMENT}total": pa.int64(),
    }
)


def week(bench: Bench, *, docs: bool = False, batches: int = BATCHES) -> list[Result]:
    """Files, bytes and time of a batch, in the last tenth of the run beside the second."""
    batches = bench.size(batches, 1_000)
    found: dict[str, list[Sample]] = {}
    for name, contract, users in (("windows", windows(), 1_000), ("totals", totals(), 10_000)):
        # In memory where there is one: what is measured is the work of a batch, and not the disk's time for three syncs.
        memory = Path("/dev/shm")
        with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else bench.folder) as folder:
            found[name] = run(bench, contract, Path(folder), users=users, batches=batches)
    page.BUILD.mkdir(exist_ok=True)
    (page.BUILD / "growth.json").write_text(json.dumps(found), encoding="utf-8")
    if docs:
        bench.say(f"wrote {page.draw(found['windows'], found['totals'])}")
    return [result for name, samples in found.items() for result in compared(f"week.{name}", samples)]


def windows() -> Contract:
    """Counts and sums in windows, whose state goes when they close."""
    compute = {"count": agg.count(), "total": agg.sum("amount")}
    return Tumbling(size="10 seconds", by="user", compute=compute, time="at", name="windows").contract(SCHEMA)


def totals() -> Contract:
    """Counts whose state stays."""
    return Contract(
        name="totals",
        step=count_rows,
        key=("user",),
        rows=SCHEMA,
        state=pa.schema({"count": pa.int64()}),
        output=pa.schema({"user": pa.int64(), "count": pa.int64()}),
    )


def run(bench: Bench, contract: Contract, folder: Path, *, users: int, batches: int) -> list[Sample]:
    """All batches, with a sample every so often."""
    engine = PartitionEngine(contract, LocalFolder(folder), slot=0)
    random = np.random.default_rng(1)
    samples: list[Sample] = []
    took: list[float] = []
    for number in range(batches):
        rows = rows_of(number, users, random, late=contract.time is not None)
        began = time.perf_counter()
        engine.run(rows, batch=number, processing_us=number * BATCH_US, broadcast={})
        took.append(time.perf_counter() - began)
        if len(took) == max(1, batches // SAMPLES):
            files, size = usage(folder)
            ms = statistics.median(took) * 1_000
            samples.append({"batches": number + 1, "files": files, "bytes": size, "ms": ms})
            took = []
            if len(samples) % (SAMPLES // 4) == 0:
                bench.say(f"{contract.name}: {number + 1} batches, {files} files, {size:,} bytes, {ms:.2f} ms a batch")
    return samples


def rows_of(batch: int, users: int, random: np.random.Generator, *, late: bool) -> pa.Table:
    """The rows of a second of event time; with `late`, the first is an hour behind."""
    user = random.integers(0, users, ROWS)
    at = batch * BATCH_US + np.arange(ROWS) * (BATCH_US // ROWS)
    if late:
        at[0] -= LATE_US
    amount = random.integers(0, 100, ROWS)
    columns = [
        pa.array(user),
        pa.array(amount),
        pa.array(at, pa.timestamp("us")),
        pa.array(np.zeros(ROWS, np.int32)),
        pa.array(batch * ROWS + np.arange(ROWS)),
        pa.array(amount),
    ]
    hashes = (user.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(2)).astype(np.int64)
    rows = pa.table(columns, schema=SCHEMA)
    return rows.append_column(HASH, pa.array(hashes)).append_column(SLOT, pa.array(np.zeros(ROWS, np.int32)))
