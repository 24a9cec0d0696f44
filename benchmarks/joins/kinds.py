"""What joins cost: beside Spark's aggregation in RocksDB over the same stream, and where Spark has the join, beside it.

100,000 users, 50,000 payments a second of event time, ten batches, everything on disk. Our state is synced with each
batch; Spark's changelog is on the same disk, and not synced.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

import headwater.log as hwlog
from benchmarks.harness import Bench, Result, Sample
from benchmarks.spark.keyed_state import BATCHES, fill, native_windows
from benchmarks.spark.workbench import CORES, Workbench, rate_result, warm_up, workbench
from headwater import EventTime
from headwater.operators import Enrich, IntervalJoin, TableJoin

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NATIVE = "Spark windowed aggregation"
NATIVE_JOIN = "Spark stream-stream join"
#: How far two rows of a join may lie apart.
APART_SECONDS = 1
Subject = Callable[[], Sample]


def enrich(bench: Bench) -> list[Result]:
    """Each payment with what the table of users holds now, and as of the payment's time."""
    bench_spark = workbench(bench)
    rows, users = bench.size(5_000_000, 100_000), bench.size(100_000, 2_000)
    with bench.scratch("enrich") as folder:
        bench.say("enrich: filling")
        fill(folder / "log", "events", rows=rows, users=users)
        fill_users(folder / "log", users)

        def joined(**settings: Any) -> Sample:
            events = bench_spark.topic(folder / "log", "events", rows_max=rows // BATCHES)
            table = bench_spark.topic(folder / "log", "users")
            return bench_spark.run(events.transform(Enrich(table, on="user", **settings)), rows=rows + users).sample()

        subjects: dict[str, Subject] = {
            "enrich": lambda: joined(name="now"),
            "enrich.as_of": lambda: joined(name="then", as_of=EventTime("at", delay=1), valid_from="since"),
            NATIVE: lambda: native(bench_spark, folder, rows),
        }
        warm_up(bench, subjects)
        samples = bench.interleave("enrich", subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "keys": users, "batches": BATCHES}
    return [
        rate_result("enrich", samples, peer=NATIVE, about=about, least=1.0),
        rate_result("enrich.as_of", samples, peer=NATIVE, about=about),
    ]


def tables(bench: Bench) -> list[Result]:
    """Two tables of a hundred thousand keys that change all the time, joined as they do."""
    bench_spark = workbench(bench)
    rows, users = bench.size(5_000_000, 100_000), bench.size(100_000, 2_000)
    with bench.scratch("tables") as folder:
        bench.say("tables: filling")
        fill(folder / "log", "events", rows=rows, users=users)
        for side in ("left", "right"):
            fill(folder / "log", side, rows=rows // 2, users=users)

        def joined() -> Sample:
            left, right = (
                bench_spark.topic(folder / "log", side, rows_max=rows // 2 // BATCHES) for side in ("left", "right")
            )
            made = TableJoin(right, on="user", key="user", other_key="user", suffix="_other", name="tables")
            return bench_spark.run(made(left), rows=rows).sample()

        subjects: dict[str, Subject] = {"tables": joined, NATIVE: lambda: native(bench_spark, folder, rows)}
        warm_up(bench, subjects)
        samples = bench.interleave("tables", subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "keys": users, "batches": BATCHES}
    return [rate_result("tables", samples, peer=NATIVE, about=about, least=0.5)]


def within(bench: Bench) -> list[Result]:
    """Two streams joined where a user's rows lie at most a second apart, beside the same join of Spark's."""
    bench_spark = workbench(bench)
    rows, users = bench.size(2_000_000, 100_000), bench.size(100_000, 2_000)
    with bench.scratch("within") as folder:
        bench.say("within: filling")
        for side in ("left", "right"):
            fill(folder / "log", side, rows=rows // 2, users=users)

        def sides() -> tuple[DataFrame, DataFrame]:
            left, right = (
                bench_spark.topic(folder / "log", side, rows_max=rows // 2 // BATCHES).select("user", "amount", "at")
                for side in ("left", "right")
            )
            return left, right

        def ours() -> Sample:
            left, right = sides()
            made = IntervalJoin(right, on="user", time="at", other_time="at", within=APART_SECONDS, suffix="_other")
            return bench_spark.run(made(left), rows=rows).sample()

        def sparks() -> Sample:
            return bench_spark.run(native_join(*sides()), rows=rows).sample()

        subjects: dict[str, Subject] = {"within": ours, NATIVE_JOIN: sparks}
        warm_up(bench, subjects)
        samples = bench.interleave("within", subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "keys": users, "batches": BATCHES}
    return [rate_result("within", samples, peer=NATIVE_JOIN, about=about, least=0.95)]


def native(bench_spark: Workbench, folder: Path, rows: int) -> Sample:
    source = bench_spark.topic(folder / "log", "events", rows_max=rows // BATCHES)
    return bench_spark.run(native_windows(source), rows=rows).sample()


def native_join(left: DataFrame, right: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    one = left.withWatermark("at", "0 seconds").alias("one")
    other = right.withWatermark("at", "0 seconds").alias("other")
    near = F.expr(
        f"one.user = other.user AND other.at BETWEEN one.at - INTERVAL {APART_SECONDS} SECONDS "
        f"AND one.at + INTERVAL {APART_SECONDS} SECONDS"
    )
    return one.join(other, near)


def fill_users(log: Path, users: int) -> None:
    """A row for each user, from the beginning of time."""
    with hwlog.open(log) as opened:
        schema = {"user": "int64", "country": "string", "since": "timestamp"}
        opened.create("users", schema, partitions=CORES, time="since", key="user", durability="os")
        countries = np.array(["de", "fr", "us", "br"])[np.arange(users) % 4]
        columns = {
            "user": pa.array(np.arange(users)),
            "country": pa.array(countries),
            "since": pa.array(np.zeros(users, np.int64), pa.timestamp("us", "UTC")),
        }
        opened.append("users", pa.table(columns))
