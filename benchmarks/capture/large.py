"""What is large: the memory of a transaction of a million rows, and the rate of a snapshot."""

from __future__ import annotations

import subprocess

from benchmarks.capture.shop import Shop, postgres_shop
from benchmarks.harness import MIB, Bar, Bench, Result, Sample, Stopwatch, median_cpu_rate, median_rate, run_child
from headwater.capture import Capture, CaptureStore

MEMORY_MIB_MAX = 300


def postgres_memory(bench: Bench) -> list[Result]:
    """The peak of a process that captures one transaction of a million rows, beside one that captures a single row."""
    rows = bench.size(1_000_000, 20_000)
    with bench.scratch("postgres.memory") as folder, postgres_shop(folder) as shop:
        shop.create_capture("shop")
        address = folder / "log"
        run_child("benchmarks.capture.children", address, "shop")
        shop.insert(0, 1, each=1)
        idle = run_child("benchmarks.capture.children", address, "shop")
        shop.insert(1, rows, each=rows)
        bench.say(f"a transaction of {rows:,} rows is committed")
        found = run_child("benchmarks.capture.children", address, "shop")
    if found["rows"] != rows:
        raise RuntimeError(f"{rows} rows were committed, {found['rows']} were captured")
    return [
        Result(
            name="postgres.memory",
            value=found["peak_bytes"] / MIB,
            unit="MB",
            peer="the same process for one row",
            peer_value=idle["peak_bytes"] / MIB,
            more={"rows": rows, "rows_per_second": found["rows"] / found["seconds"]},
            bars=[Bar(figure="value", most=MEMORY_MIB_MAX)],
        )
    ]


def postgres_snapshot(bench: Bench) -> list[Result]:
    """Rows per second of the first snapshot, beside `COPY` of the same table to nowhere."""
    rows = bench.size(1_000_000, 20_000)
    with bench.scratch("postgres.snapshot") as folder, postgres_shop(folder) as shop:
        shop.insert(1, rows, each=rows)
        with shop.connect() as connection:
            connection.execute("VACUUM ANALYZE orders")
        numbers = iter(range(1_000))
        samples = bench.interleave(
            "postgres.snapshot",
            {"ours": lambda: _snapshot(shop, next(numbers), rows), "COPY": lambda: _copy(shop, rows)},
            rounds=bench.size(3, 1),
        )
    return [
        Result(
            name="postgres.snapshot",
            value=median_rate(samples["ours"]),
            unit="rows/s",
            peer="COPY BINARY to nowhere",
            peer_value=median_rate(samples["COPY"]),
            more={"rows_per_cpu_second": median_cpu_rate(samples["ours"])},
            bars=[Bar(figure="value", least=500_000)],
        )
    ]


def _snapshot(shop: Shop, number: int, rows: int) -> Sample:
    name = f"shop{number}"
    shop.create_capture(name)
    with Capture.open(shop.log, name) as capture, Stopwatch() as watch:
        found = capture.catch_up()
    CaptureStore(shop.log).remove(name)
    shop.log.delete(f"{name}.public.orders")
    if found != rows:
        raise RuntimeError(f"the table has {rows} rows, the snapshot {found}")
    return watch.sample(rows)


def _copy(shop: Shop, rows: int) -> Sample:
    words = ["psql", shop.address, "-q", "-c", r"\copy orders to '/dev/null' with (format binary)"]
    with Stopwatch() as watch:
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=300)
    return watch.sample(rows)
