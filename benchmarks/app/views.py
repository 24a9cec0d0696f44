"""Views: throughput of a store with a million keys, and latency of readers while rows arrive."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.app.children import UPDATES_PER_SECOND
from benchmarks.app.view_server import served_views
from benchmarks.harness import Bar, Bench, Result, Sample, Stopwatch, median_rate, percentile
from headwater.log import Log
from headwater.views import DuckStore, View, ViewKeeper, ViewSpec

SCHEMA = pa.schema([("card", pa.int64()), ("total", pa.float64()), ("n", pa.int64()), ("shop", pa.string())])
SPEC = ViewSpec(name="spend", topic="spend", key=("card",), schema=SCHEMA)
TIMED = pa.schema([("card", pa.int64()), ("sent_ns", pa.int64())])
TIMED_SPEC = ViewSpec(name="timed", topic="timed", key=("card",), schema=TIMED)
BATCH_ROWS = 50_000


def updates(rows: int, keys: int, seed: int) -> pa.RecordBatch:
    """Rows of a changelog: any of the keys, with values that differ."""
    random = np.random.default_rng(seed)
    shops = pa.array([f"shop {number}" for number in range(1000)])
    columns = [
        pa.array(random.integers(0, keys, rows)),
        pa.array(random.random(rows)),
        pa.array(random.integers(0, 1000, rows)),
        shops.take(pa.array(random.integers(0, 1000, rows))),
    ]
    return pa.record_batch(columns, schema=SCHEMA)


def all_keys(keys: int) -> pa.RecordBatch:
    rows = updates(keys, keys, 0)
    return rows.set_column(0, "card", pa.array(np.arange(keys)))


def apply(bench: Bench) -> list[Result]:
    """Rows per second from a changelog into a view that has all keys already; the peer is DuckDB's own upsert."""
    keys, rows = bench.size(1_000_000, 20_000), bench.size(2_000_000, 40_000)
    with bench.scratch("view.apply") as folder, hwlog.open(folder / "log") as log:
        log.create("spend", SCHEMA, key="card", compact=True, partitions=2, durability="os")
        log.append("spend", all_keys(keys))
        store = DuckStore(folder / "views.duckdb")
        keeper = ViewKeeper(log, store)
        keeper.add(SPEC)
        keeper.catch_up()
        peer = _Upserts(folder / "peer.duckdb", keys)
        seeds = iter(range(1, 1000))

        def ours() -> Sample:
            for _ in range(rows // BATCH_ROWS or 1):
                log.append("spend", updates(min(rows, BATCH_ROWS), keys, next(seeds)))
            with Stopwatch() as watch:
                keeper.catch_up()
            return watch.sample(rows)

        def theirs() -> Sample:
            batches = [updates(min(rows, BATCH_ROWS), keys, next(seeds)) for _ in range(rows // BATCH_ROWS or 1)]
            with Stopwatch() as watch:
                peer.apply(pa.Table.from_batches(batches))
            return watch.sample(rows)

        samples = bench.interleave("view.apply", {"ours": ours, "duckdb": theirs}, rounds=bench.size(5, 1))
        more = {"keys": keys, "store_bytes": store.bytes()}
        store.close()
        peer.close()
    return [
        Result(
            name="view.apply",
            value=median_rate(samples["ours"]),
            unit="rows/s",
            peer="DuckDB INSERT OR REPLACE from Arrow",
            peer_value=median_rate(samples["duckdb"]),
            more=more,
            bars=[Bar(figure="value", least=200_000)],
        )
    ]


class _Upserts:
    """The same rows by DuckDB alone, without a log: the last row of each key, upserted into a table with a key."""

    def __init__(self, path: Path, keys: int) -> None:
        self._connection = duckdb.connect(str(path))
        columns = "card BIGINT PRIMARY KEY, total DOUBLE, n BIGINT, shop VARCHAR"
        self._connection.execute(f"CREATE TABLE spend ({columns})")
        self.apply(pa.Table.from_batches([all_keys(keys)]))

    def apply(self, rows: pa.Table) -> None:
        numbered = rows.append_column("row", pa.array(np.arange(rows.num_rows)))
        self._connection.register("rows", numbered)
        self._connection.execute(
            "INSERT OR REPLACE INTO spend SELECT card, total, n, shop FROM rows "
            "QUALIFY row_number() OVER (PARTITION BY card ORDER BY row DESC) = 1"
        )
        self._connection.unregister("rows")

    def close(self) -> None:
        self._connection.close()


def lookup(bench: Bench) -> list[Result]:
    """One row by its key, while another process writes: in this process, and over the local API from a third one."""
    keys, seconds = bench.size(1_000_000, 20_000), bench.size(20, 2)
    with bench.scratch("view.lookup") as folder, hwlog.open(folder / "log") as log:
        log.create("spend", SCHEMA, key="card", compact=True, partitions=2, durability="os")
        log.append("spend", all_keys(keys))
        with _kept(log, folder, SPEC) as view, _writing(folder, "spend", keys, seconds * 2 + 6) as writer:
            bench.say("look-ups in this process")
            before = view.position
            here = _looked_up(view, keys, seconds)
            applied = sum(view.position.offsets.values()) - sum(before.offsets.values())
            bench.say("look-ups over the API")
            with served_views(view.keeper) as address:
                remote = _child("lookup", address, keys, seconds)
            writer.terminate()
    more = {"updates_per_second": applied / seconds, "keys": keys}
    return [
        _latency("view.lookup", here, more, p99_max=5),
        _latency("view.lookup.api", remote["latencies"], {"keys": keys}, p99_max=3),
    ]


def _latency(name: str, latencies: list[float], more: dict[str, Any], *, p99_max: float) -> Result:
    p50, p99 = percentile(latencies, 0.5), percentile(latencies, 0.99)
    return Result(
        name=name,
        value=p50,
        unit="ms",
        p50=p50,
        p99=p99,
        more=more | {"lookups": len(latencies)},
        bars=[Bar(figure="p99", most=p99_max)],
    )


def _looked_up(view: View, keys: int, seconds: float) -> list[float]:
    random = np.random.default_rng(3)
    latencies = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        card = int(random.integers(0, keys))
        began = time.perf_counter()
        row = view.get(card=card)
        latencies.append((time.perf_counter() - began) * 1e3)
        if row is None or row["card"] != card:
            raise RuntimeError(f"card {card} was not found")
        time.sleep(0.002)  # some readers, not a flood of them
    return latencies


def subscribe(bench: Bench) -> list[Result]:
    """Latency from the append in another process to the change in a subscriber."""
    seconds = bench.size(15, 2)
    latencies: list[float] = []
    with bench.scratch("view.subscribe") as folder, hwlog.open(folder / "log") as log:
        log.create("timed", TIMED, key="card", compact=True, durability="os")
        with _kept(log, folder, TIMED_SPEC) as view, _writing(folder, "timed", 10_000, seconds) as writer:
            changes = view.subscribe()
            while (change := changes.next(timeout=5.0)) is not None:
                if change.offset is not None:
                    latencies.append((time.monotonic_ns() - change.row["sent_ns"]) / 1e6)
            writer.wait(30)
    settled = latencies[len(latencies) // 5 :]
    p50, p99 = percentile(settled, 0.5), percentile(settled, 0.99)
    return [Result(name="view.subscribe", value=p50, unit="ms", p50=p50, p99=p99, more={"changes": len(settled)})]


@contextlib.contextmanager
def _kept(log: Log, folder: Path, spec: ViewSpec) -> Iterator[View]:
    store = DuckStore(folder / "views.duckdb")
    keeper = ViewKeeper(log, store)
    view = keeper.add(spec)
    keeper.catch_up()
    keeper.start()
    try:
        yield view
    finally:
        keeper.stop()
        store.close()


@contextlib.contextmanager
def _writing(folder: Path, topic: str, keys: int, seconds: float) -> Iterator[subprocess.Popen[str]]:
    words = ["write", str(folder / "log"), topic, str(keys), str(seconds), str(UPDATES_PER_SECOND)]
    writer = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.app.children", *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        writer.stdout.readline()  # it has begun
        yield writer
    finally:
        writer.kill()
        writer.communicate()


def _child(*arguments: object) -> dict[str, Any]:
    words = [sys.executable, "-m", "benchmarks.app.children", *map(str, arguments)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    body: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return body
