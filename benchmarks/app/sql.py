"""SQL over a topic, against DuckDB over the same rows in Parquet."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, Sample, Stopwatch, median_rate
from headwater.log import Log
from headwater.views.sql import Sql

SCHEMA = pa.schema([("id", pa.int64()), ("card", pa.int64()), ("amount", pa.float64()), ("shop", pa.string())])
BATCH_ROWS = 65_536
AGGREGATION = "SELECT shop, count(*) AS n, sum(amount) AS total, max(card) AS card FROM {} GROUP BY shop"


def sql(bench: Bench) -> list[Result]:
    """An aggregation of all rows, as `headwater sql` runs it: DuckDB over what the log has on disk."""
    rows = bench.size(10_000_000, 100_000)
    with bench.scratch("sql.topic") as folder, hwlog.open(folder / "log") as log:
        parquet = folder / "rows.parquet"
        _fill(log, parquet, rows)
        subjects = {
            "ours": lambda: _ours(log, AGGREGATION.format("payments"), rows),
            "parquet": lambda: _theirs(AGGREGATION.format(f"'{parquet}'"), rows),
        }
        samples = bench.interleave("sql.topic", subjects, rounds=bench.size(7, 1))
        same = _answer_of(log, parquet)
        size = sum(path.stat().st_size for path in (folder / "log").rglob("*") if path.is_file())
        more = {"rows": rows, "log_bytes": size, "parquet_bytes": parquet.stat().st_size, "same_answer": same}
    return [
        Result(
            name="sql.topic",
            value=median_rate(samples["ours"]),
            unit="rows/s",
            peer="DuckDB over Parquet",
            peer_value=median_rate(samples["parquet"]),
            more=more,
            bars=[Bar(figure="ratio", least=0.5)],
        )
    ]


def _fill(log: Log, parquet: Path, rows: int) -> None:
    log.create("payments", SCHEMA, partitions=2, durability="os")
    random = np.random.default_rng(11)
    shops = pa.array([f"shop {number}" for number in range(100)])
    with pq.ParquetWriter(parquet, SCHEMA) as writer:
        for number, start in enumerate(range(0, rows, BATCH_ROWS)):
            count = min(BATCH_ROWS, rows - start)
            columns = [
                pa.array(np.arange(start, start + count)),
                pa.array(random.integers(0, 100_000, count)),
                pa.array(random.random(count)),
                shops.take(pa.array(random.integers(0, 100, count))),
            ]
            batch = pa.record_batch(columns, schema=SCHEMA)
            log.append("payments", batch, partition=number % 2)
            writer.write_batch(batch)


def _ours(log: Log, statement: str, rows: int) -> Sample:
    with Stopwatch() as watch:
        Sql(log).query(statement)
    return watch.sample(rows)


def _theirs(statement: str, rows: int) -> Sample:
    with Stopwatch() as watch, duckdb.connect() as connection:
        connection.sql(statement).to_arrow_table()
    return watch.sample(rows)


def _answer_of(log: Log, parquet: Path) -> bool:
    """Whether both count the same."""
    text = "SELECT shop, count(*) AS n, max(card) AS card FROM {} GROUP BY shop ORDER BY shop"
    ours = Sql(log).query(text.format("payments"))
    with duckdb.connect() as connection:
        theirs = connection.sql(text.format(f"'{parquet}'")).to_arrow_table()
    return bool(ours.to_pylist() == theirs.to_pylist())
