"""Rows per second that a sync applies to a PostgreSQL table with a key."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa

from benchmarks.capture.shop import PASSWORD_ENV, SETTINGS
from benchmarks.harness import Bench, Result, Sample, Stopwatch, median_cpu_rate, median_rate
from headwater.log import Log
from headwater.log import open as open_log
from headwater.sync import Sync, SyncConfig, SyncStore
from tests.servers import postgres_server

TOPIC = "shop.orders"
SCHEMA = {"id": "int64 not null", "customer": "int32", "price": "float64", "item": "string", "note": "string"}


def sync_postgres(bench: Bench) -> list[Result]:
    """Half of the rows are new keys, the other half changes of them; the target syncs each commit."""
    keys = bench.size(150_000, 2_000)
    samples: list[Sample] = []
    with (
        bench.scratch("sync.postgres") as folder,
        postgres_server(settings=SETTINGS) as server,
        open_log(folder / "log") as log,
    ):
        os.environ[PASSWORD_ENV] = server.password
        name = server.new_database().rpartition("/")[2]
        url = f"postgresql://{server.user}@127.0.0.1:{server.port}/{name}"
        log.create(TOPIC, SCHEMA, key="id", compact=True)
        SyncStore(log).create(SyncConfig(name="copy", url=url, topics=(TOPIC,), password_env=PASSWORD_ENV))
        for number in range(bench.size(3, 1) + 1):
            for _ in range(2):
                log.append(TOPIC, _rows(number * keys, keys))
            sample = _applied(log, keys * 2)
            if number:  # the first round warms up
                samples.append(sample)
                bench.say(f"sync.postgres {number}: {sample.rate:,.0f} rows/s")
    return [
        Result(
            name="sync.postgres",
            value=median_rate(samples),
            unit="rows/s",
            more={"rows_per_cpu_second": median_cpu_rate(samples)},
        )
    ]


def _rows(first: int, count: int) -> pa.RecordBatch:
    ids = np.arange(first, first + count)
    texts = [f"a note of some length, for order {one}" for one in ids]
    return pa.record_batch(
        {
            "id": pa.array(ids),
            "customer": pa.array(ids % 1_000, pa.int32()),
            "price": pa.array(ids * 0.25),
            "item": pa.array([f"item {one % 5_000}" for one in ids]),
            "note": pa.array(texts),
        }
    )


def _applied(log: Log, count: int) -> Sample:
    with Stopwatch() as watch, Sync.open(log, "copy") as sync:
        found = sync.catch_up()
    if found != count:
        raise RuntimeError(f"the topic has {count} new rows, {found} were applied")
    return watch.sample(count)
