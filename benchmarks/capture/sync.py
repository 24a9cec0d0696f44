"""Rows per second that a sync applies to PostgreSQL, beside a bare COPY of the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

import headwater as hw
from benchmarks.capture.shop import SETTINGS
from benchmarks.harness import Bench, Result, Sample, Stopwatch, median_cpu_rate, median_rate
from headwater.postgres.copy import binary_of, encoders
from headwater.sync import Sync, SyncConfig
from headwater.sync.postgres import PostgresTarget
from tests.servers import Postgres, postgres_server

TOPIC = "shop.orders"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.int32()),
        ("price", pa.float64()),
        ("item", pa.string()),
        ("note", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
TYPES = {
    "id": "bigint",
    "customer": "integer",
    "price": "double precision",
    "item": "text",
    "note": "text",
    "at": "timestamp with time zone",
}


def sync_postgres(bench: Bench) -> list[Result]:
    """Insertions of new keys, and then updates of all of them, from a backlog, in steps of 65,536 rows."""
    rows = bench.size(300_000, 3_000)
    batch = _rows(rows)
    with bench.scratch("sync.postgres") as folder, postgres_server(settings=SETTINGS) as server:
        numbers = iter(range(1_000))
        updates: list[Sample] = []
        samples = bench.interleave(
            "sync.postgres",
            {
                "sync": lambda: _synced(server, folder / str(next(numbers)), batch, updates),
                "COPY": lambda: _copied(server, batch),
            },
            rounds=bench.size(5, 1),
        )
    return [
        Result(
            name="sync.postgres",
            value=median_rate(samples["sync"]),
            unit="rows/s",
            peer="COPY of the same rows, with nothing else",
            peer_value=median_rate(samples["COPY"]),
            more={"updates_per_second": median_rate(updates), "rows_per_cpu_second": median_cpu_rate(samples["sync"])},
        )
    ]


def _rows(count: int) -> pa.RecordBatch:
    numbers = np.arange(count, dtype=np.int64)
    columns = [
        pa.array(numbers),
        pa.array((numbers % 1_000).astype(np.int32)),
        pa.array(numbers * 0.25),
        pa.array([f"item {number % 5_000}" for number in numbers]),
        pa.array([f"a note of some length, for order {number}" for number in numbers]),
        pa.array(numbers + 1_800_000_000_000_000).cast(pa.timestamp("us", "UTC")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _synced(server: Postgres, folder: Path, batch: pa.RecordBatch, updates: list[Sample]) -> Sample:
    """Apply insertions; then updates of the same keys, which are noted in `updates`."""
    place = server.new_database().rpartition("/")[2]
    url = f"postgresql://{server.user}@127.0.0.1:{server.port}/{place}"
    config = SyncConfig(name="copy", url=url, topics=(TOPIC,))
    target = PostgresTarget(url, sync="copy", password=server.password)
    try:
        with hw.open(folder) as log:
            log.create(TOPIC, SCHEMA, key="id", compact=True)
            log.append(TOPIC, batch)
            sync = Sync(log, config, target)
            sync.tables()
            with Stopwatch() as watch:
                sync.catch_up()
            log.append(TOPIC, batch.set_column(1, SCHEMA.field("customer"), pa.array([7] * batch.num_rows, pa.int32())))
            with Stopwatch() as second:
                sync.catch_up()
            updates.append(second.sample(batch.num_rows))
    finally:
        target.close()
    return watch.sample(batch.num_rows)


def _copied(server: Postgres, batch: pa.RecordBatch) -> Sample:
    import psycopg

    encode = encoders(SCHEMA, TYPES)
    assert encode is not None
    columns = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
    with psycopg.connect(server.new_database()) as connection:
        connection.execute(f"CREATE TABLE orders ({columns}, PRIMARY KEY (id))".encode())
        connection.commit()
        with Stopwatch() as watch:
            with connection.cursor() as cursor, cursor.copy("COPY orders FROM STDIN (FORMAT binary)") as copy:
                for piece in binary_of(pa.Table.from_batches([batch]), encode):
                    copy.write(piece)
            connection.commit()
    return watch.sample(batch.num_rows)
