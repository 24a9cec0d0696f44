"""A read model of five million events: as a table on Spark, and inline in SQLite."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import headwater as hw
from benchmarks.harness import Bench, Result, Sample, Stopwatch
from benchmarks.sourcing.clients import DECIDER, Headwater
from benchmarks.spark.workbench import CORES, Workbench, rate_result, workbench
from headwater.operators import Evolve
from headwater.sourcing import ReadModel, RecordedEvent
from headwater.sourcing.event_rows import SCHEMA

TOPIC = "account.events"
INLINE = "inline, in SQLite"
BATCHES = 10


@dataclass(frozen=True)
class Turnover:
    deposits: int = 0
    amount: int = 0


def turnover(row: Turnover, event: RecordedEvent) -> Turnover:
    return Turnover(row.deposits + 1, row.amount + event.event.amount)


MODEL = ReadModel("turnover", DECIDER, initial=Turnover(), evolve=turnover)


def projection(bench: Bench) -> list[Result]:
    """The turnover of 100,000 accounts from 50 deposits of each; the same rows inline, from a tenth of the accounts."""
    bench_spark = workbench(bench)
    accounts, deposits = bench.size(100_000, 1_000), bench.size(50, 10)
    with bench.scratch("projection") as folder:
        bench.say("projection: filling")
        fill(folder / "spark", accounts=accounts, deposits=deposits)
        fill(folder / "inline", accounts=accounts // 10, deposits=deposits)
        subjects = {
            "projection": lambda: on_spark(bench_spark, folder / "spark", accounts * deposits),
            INLINE: lambda: inline(folder / "inline", accounts // 10, deposits),
        }
        samples = bench.interleave("projection", subjects, rounds=bench.size(1, 1))
        check(bench_spark, folder / "spark", accounts, deposits)
    about = {"rows": accounts * deposits, "keys": accounts, "batches": BATCHES}
    return [rate_result("projection", samples, peer=INLINE, about=about)]


def fill(folder: Path, *, accounts: int, deposits: int) -> None:
    """So many accounts with so many events each, without deciding them."""
    Headwater(folder, partitions=CORES).close()
    names = pa.array([f"acc-{number}" for number in range(accounts)])
    with hw.open(folder / "log") as log:
        for version in range(1, deposits + 1):
            columns = {
                "entity": names,
                "version": _same(version, pa.int64(), accounts),
                "event": _same("Deposited", pa.string(), accounts),
                "schema": _same(1, pa.int32(), accounts),
                "data": _same('{"amount":1}', pa.string(), accounts),
                "at": pa.array(np.full(accounts, version * 1_000_000), SCHEMA.field("at").type),
                **{name: pa.nulls(accounts, SCHEMA.field(name).type) for name in SCHEMA.names[6:]},
            }
            log.append(TOPIC, pa.table(columns, schema=SCHEMA))


def _same(value: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def on_spark(bench_spark: Workbench, folder: Path, rows: int) -> Sample:
    events = bench_spark.topic(folder / "log", TOPIC, rows_max=rows // BATCHES)
    return bench_spark.run(events.transform(Evolve(model=MODEL)), rows=rows).sample()


def inline(folder: Path, accounts: int, deposits: int) -> Sample:
    client = Headwater(folder)
    try:
        with Stopwatch() as watch, MODEL.inline(client.accounts, ":memory:") as projection:
            projection.catch_up()
        return watch.sample(accounts * deposits)
    finally:
        client.close()


def check(bench_spark: Workbench, folder: Path, accounts: int, deposits: int) -> None:
    """Raise unless the rows on Spark are the right ones."""
    spark = bench_spark.spark
    events = spark.read.format("headwater").option("log", str(folder / "log")).load(TOPIC)
    rows = events.transform(Evolve(model=MODEL)).where("_op IN ('+I', '+U')")
    found = [tuple(row) for row in rows.groupBy("deposits", "amount").count().collect()]
    if found != [(deposits, deposits, accounts)]:
        raise RuntimeError(f"{accounts} rows with {deposits} deposits each were expected, not {found}")
