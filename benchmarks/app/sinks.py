"""Throughput of the PostgreSQL sink, compared with Spark's own JDBC writer and a plain COPY of the same rows."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from benchmarks.harness import Bar, Bench, Result, Sample, median_rate
from benchmarks.peer_servers import PeerUnavailable, installed
from benchmarks.spark.workbench import CORES, Workbench, tree_cpu_seconds, warm_up, workbench
from headwater.sinks import PostgresSink
from tests.servers import Postgres, postgres_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DRIVER = "org.postgresql:postgresql:42.7.4"
BATCHES = 5
COLUMNS = "id bigint, card string, amount double, n int, at timestamp, note string"
TABLE = "(id bigint{}, card text, amount double precision, n integer, at timestamptz, note text)"
OURS, UPSERT, PEER, PEER_KEYED, LIMIT = "append", "upsert", "JDBC writer", "JDBC writer with a key", "bare COPY"
KEY = " PRIMARY KEY"


def sink_postgres(bench: Bench) -> list[Result]:
    """A stream of 100-byte rows into a table, exactly once; Spark's JDBC writer does the same at least once.

    The server syncs its commits, as it does by default. A bare COPY of text that is ready in memory is the limit: it has
    no Spark, no rows to encode, and no promise.
    """
    bench_spark = workbench(bench)
    rows = bench.size(1_000_000, 50_000)
    with suppress(PeerUnavailable):  # Debian does not put the programs of PostgreSQL on the path; the server finds them
        installed("postgres", package="postgresql")
    with bench.scratch("postgres") as folder, postgres_server(settings={"fsync": "on"}) as server:
        text = _fill(folder, rows)
        peer = _jdbc(bench, bench_spark, server)

        def stream() -> DataFrame:
            files = bench_spark.spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", CORES)
            return files.parquet(str(folder / "parquet"))

        def measured(act: Callable[[DataFrame, int], None], *, key: str = "") -> Sample:
            with _table(server, rows, key=key):
                return _timed(rows, lambda: bench_spark.run_each(stream(), act))

        subjects = {
            OURS: lambda: measured(PostgresSink(url=server.conninfo(), table="bench")),
            UPSERT: lambda: measured(PostgresSink(url=server.conninfo(), table="bench", key="id"), key=KEY),
            LIMIT: lambda: _copied(server, text, rows),
        }
        if peer is not None:
            subjects[PEER] = lambda: measured(peer)
            subjects[PEER_KEYED] = lambda: measured(peer, key=KEY)
        warm_up(bench, subjects)
        samples = bench.interleave("sink.postgres", subjects, rounds=bench.size(5, 1))
    return _results(samples, rows)


def _results(samples: dict[str, list[Sample]], rows: int) -> list[Result]:
    about = {"rows": rows, "batches": BATCHES}
    peer = median_rate(samples[PEER]) if PEER in samples else None
    keyed = median_rate(samples[PEER_KEYED]) if PEER in samples else None
    missing = (
        "" if PEER in samples else f"{DRIVER} could not be had from Maven Central, so that the peer was not measured"
    )
    ours = median_rate(samples[OURS])
    return [
        Result(
            name="sink.postgres", value=ours, unit="rows/s", peer=PEER, peer_value=peer, more=about, note=missing,
            bars=[Bar(figure="ratio", least=1.0)],
        ),
        Result(
            name="sink.postgres.upsert", value=median_rate(samples[UPSERT]), unit="rows/s", peer=PEER_KEYED,
            peer_value=keyed, more=about, note="by its primary key; the peer can only insert, into the same table",
        ),
        Result(
            name="sink.postgres.copy", value=ours, unit="rows/s", peer=LIMIT, peer_value=median_rate(samples[LIMIT]),
            more=about, note="against one COPY of text that is ready in memory: no Spark, and no promise",
        ),
    ]  # fmt: skip


def _fill(folder: Path, rows: int) -> bytes:
    """The rows as Parquet files of equal size, and as the text that COPY reads."""
    random = np.random.default_rng(7)
    table = pa.table(
        {
            "id": np.arange(rows),
            "card": pa.array([f"card-{number:06d}" for number in random.integers(0, 10_000, rows)]),
            "amount": random.random(rows) * 1000,
            "n": random.integers(0, 100, rows).astype(np.int32),
            "at": pa.array(np.arange(rows) * 1000 + 1_700_000_000_000_000, pa.timestamp("us", "UTC")),
            "note": pa.array(["0123456789" * 4] * rows),
        }
    )
    (folder / "parquet").mkdir()
    files = BATCHES * CORES
    for number in range(files):
        part = table.slice(number * rows // files, rows // files)
        pq.write_table(part, folder / "parquet" / f"{number:03d}.parquet")
    buffer = io.BytesIO()
    csv.write_csv(table, buffer, csv.WriteOptions(include_header=False))
    return buffer.getvalue()


def _jdbc(bench: Bench, bench_spark: Workbench, server: Postgres) -> Callable[[DataFrame, int], None] | None:
    """Spark's own writer, with the option that makes it fastest; None where its driver cannot be had."""
    try:
        bench_spark.spark.sql(f"ADD JAR ivy://{DRIVER}?transitive=false")
    except Exception as error:  # whatever the network has against it
        bench.say(f"sink.postgres: no JDBC driver: {str(error).splitlines()[0]}")
        return None
    address = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres?reWriteBatchedInserts=true"
    properties = {
        "user": server.user, "password": server.password, "driver": "org.postgresql.Driver", "batchsize": "10000",
    }  # fmt: skip

    def write(rows: DataFrame, _batch_id: int) -> None:
        rows.write.jdbc(address, "bench", mode="append", properties=properties)

    return write


@contextmanager
def _table(server: Postgres, rows: int, *, key: str = "") -> Iterator[None]:
    """An empty table, which must hold all rows in the end."""
    server.execute("DROP TABLE IF EXISTS bench")
    server.execute(f"CREATE TABLE bench {TABLE.format(key)}")
    server.execute("CHECKPOINT")
    yield
    found = server.execute("SELECT count(*) FROM bench")[0][0]
    if found != rows:
        raise RuntimeError(f"{rows} rows should have been written, {found} were")


def _copied(server: Postgres, text: bytes, rows: int) -> Sample:
    def copy_all() -> None:
        with connection.cursor() as cursor, cursor.copy("COPY bench FROM STDIN (FORMAT csv)") as copy:
            for start in range(0, len(text), 1 << 20):
                copy.write(text[start : start + (1 << 20)])
        connection.commit()

    with _table(server, rows), psycopg.connect(server.conninfo()) as connection:
        return _timed(rows, copy_all)


def _timed(rows: int, work: Callable[[], None]) -> Sample:
    """How long it took, and on how much CPU of ours, Spark's and the server's, which is a child of this process."""
    cpu, began = tree_cpu_seconds(), time.perf_counter()
    work()
    return Sample(rows, time.perf_counter() - began, tree_cpu_seconds() - cpu)
