"""Documents a second against stored queries, in a real stream, and what the index of them takes.

A worker builds its index in the first batch; that batch is not counted, and building is measured by itself. Highlights,
scores and metadata are computed, as they are by default. Brute force asks every query of every document, without Spark
and on one core, as the index beside it. There are two of it: one walks the tree of each query, as a program without an
index does; the other is the index's own code without its choice of candidates, and so has its speed for a single pair.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, run_child
from benchmarks.percolate.data import KINDS, SCHEMA, documents, stored
from benchmarks.spark.workbench import CORES, Workbench, workbench
from headwater.operators import Percolate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BATCHES = 5
BRUTE_DOCUMENTS = 20
ADDED = 1_000
ONE_CORE = "documents/s on one core, without Spark"


def queries_1k(bench: Bench) -> list[Result]:
    return _measured(bench, "queries_1k", bench.size(1_000, 200), documents_count=bench.size(20_000, 2_000))


def queries_10k(bench: Bench) -> list[Result]:
    return _measured(bench, "queries_10k", bench.size(10_000, 500), documents_count=bench.size(20_000, 2_000))


def queries_100k(bench: Bench) -> list[Result]:
    """Beside brute force, which must be a hundred times slower."""
    count = bench.size(100_000, 2_000)
    (ours,) = _measured(
        bench, "queries_100k", count, documents_count=bench.size(20_000, 2_000), least=None if bench.quick else 1_000.0
    )
    bench.say("queries_100k: brute force")
    rates = run_child("benchmarks.percolate.brute", count, bench.size(10_000, 1_000), BRUTE_DOCUMENTS)
    about = {"queries": count, "documents": BRUTE_DOCUMENTS}
    bars = () if bench.quick else (Bar(figure="ratio", least=100.0),)
    walked = Result(
        name="queries_100k.brute",
        value=rates["indexed"],
        unit=ONE_CORE,
        peer="every query asked of every document, one by one",
        peer_value=rates["walked"],
        bars=bars,
        more=about,
    )
    arrays = Result(
        name="queries_100k.brute_arrays",
        value=rates["indexed"],
        unit=ONE_CORE,
        peer="every query asked of every document, by our own code over whole arrays",
        peer_value=rates["arrays"],
        more=about,
    )
    return [ours, walked, arrays]


def queries_1m(bench: Bench) -> list[Result]:
    return _measured(bench, "queries_1m", bench.size(1_000_000, 5_000), documents_count=bench.size(5_000, 2_000))


def adding(bench: Bench) -> list[Result]:
    """A thousand queries more while the stream runs: in which batch they count, and what that batch costs."""
    bench_spark = workbench(bench)
    count, per_batch = bench.size(100_000, 2_000), bench.size(5_000, 1_000)
    with bench.scratch("adding") as folder:
        _fill(folder / "log", count, documents_count=3 * per_batch)
        seconds: list[float] = []
        late = 0

        def look(rows: DataFrame, number: int) -> None:
            nonlocal late
            began = time.perf_counter()
            found = rows.where("query_id like 'new%'").count()
            seconds.append(time.perf_counter() - began)
            late += number == 2 and found == 0
            if number == 1:
                with hwlog.open(folder / "log") as log:
                    more = stored(ADDED, seed=3)
                    log.append("searches", more.set_column(0, "id", pa.array([f"new{n}" for n in range(ADDED)])))

        source = bench_spark.topic(folder / "log", "articles", rows_max=per_batch)
        bench_spark.run_each(source.transform(_operator(folder)), look)
    more = {"queries": count, "added": ADDED, "batch_seconds_before": seconds[1], "batch_seconds_with": seconds[2]}
    bar = Bar(figure="value", most=1.0)
    return [Result(name="adding", value=1.0 + late, unit="batches until they count", bars=(bar,), more=more)]


def grammar(bench: Bench) -> list[Result]:
    """Two hundred random queries over the whole grammar, one by one; the slowest of them."""
    body = run_child("benchmarks.percolate.grammar", bench.size(200, 20), bench.size(2_000, 200))
    slowest = body["slowest"]
    note = f"the slowest was {body['query'][:200]}"
    return [Result(name="grammar", value=slowest, unit="documents/s, the slowest query", more=body["more"], note=note)]


def _measured(bench: Bench, name: str, count: int, *, documents_count: int, least: float | None = None) -> list[Result]:
    bench_spark = workbench(bench)
    bench.say(f"{name}: building the index")
    built = run_child("benchmarks.percolate.index_build", count)
    with bench.scratch(name) as folder:
        _fill(folder / "log", count, documents_count=documents_count)
        rates = [_rate(bench_spark, folder, documents_count) for _ in range(bench.size(3, 1))]
    rate = sorted(rates)[len(rates) // 2]
    bench.say(f"{name}: {rate:.0f} documents/s")
    bars = () if least is None else (Bar(figure="value", least=least),)
    about = {"queries": count, "documents": documents_count, **built}
    return [Result(name=name, value=rate, unit="documents/s", more=about, bars=bars)]


def _rate(bench_spark: Workbench, folder: Path, count: int) -> float:
    source = bench_spark.topic(folder / "log", "articles", rows_max=count // BATCHES)
    ran = bench_spark.run(source.transform(_operator(folder)), rows=count)
    counted = ran.phases[1:]
    return count / len(ran.phases) * len(counted) / (sum(phase["triggerExecution"] for phase in counted) / 1000)


def _operator(folder: Path) -> Percolate:
    return Percolate(
        queries="searches",
        log=str(folder / "log"),
        fields=KINDS,
        default_fields=("title", "body"),
        time="published",
        columns=("n",),
        name="alerts",
    )


def _fill(path: Path, count: int, *, documents_count: int) -> None:
    with hwlog.open(path) as log:
        log.create("searches", {"id": "string", "query": "string"}, key="id", partitions=CORES, durability="os")
        log.create("articles", SCHEMA, partitions=CORES, durability="os")
        for start in range(0, count, 100_000):
            some = min(100_000, count - start)
            log.append("searches", stored(some, first=start, seed=2 + start))
        # Both partitions get as many, so that each batch has work for each core.
        for number, start in enumerate(range(0, documents_count, part := documents_count // CORES)):
            some = documents(min(part, documents_count - start), seed=1 + start)
            log.append("articles", some, partition=number % CORES)
