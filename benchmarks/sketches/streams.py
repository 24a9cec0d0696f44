"""The same events in windows of ten seconds: approximate and exact, and by Spark's own sketch aggregates in RocksDB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Bench, Result, Sample
from benchmarks.spark.keyed_state import BATCHES, fill
from benchmarks.spark.workbench import Workbench, rate_result, warm_up, workbench
from headwater.operators import Tumbling, agg

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Operator = Callable[["DataFrame"], "DataFrame"]


def streams(bench: Bench) -> list[Result]:
    """Distinct amounts and their 99th percentile per window, for a thousand users."""
    bench_spark = workbench(bench)
    rows, users = bench.size(5_000_000, 100_000), bench.size(1_000, 200)
    made: dict[str, Operator] = {
        "streams.distinct": _windows("distinct", agg.approx_count_distinct("amount")),
        "agg.count_distinct": _windows("exact", agg.count_distinct("amount")),
        "hll_sketch_agg": _natively("hll_sketch_estimate(hll_sketch_agg(amount, 14))"),
        "streams.quantiles": _windows("quantiles", agg.approx_percentile("amount", [0.99])),
        "agg.percentile": _windows("exact-quantile", agg.percentile("amount", 0.99)),
        "kll_sketch_agg": _natively("kll_sketch_get_quantile_double(kll_sketch_agg_double(amount), 0.99D)"),
    }
    with bench.scratch("streams") as folder:
        fill(folder / "log", "events", rows=rows, users=users)
        subjects = {name: _subject(bench_spark, folder, operator, rows) for name, operator in made.items()}
        warm_up(bench, subjects)
        samples = bench.interleave("streams", subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "keys": users, "batches": BATCHES}
    found = []
    for name, exact, native in (
        ("streams.distinct", "agg.count_distinct", "hll_sketch_agg"),
        ("streams.quantiles", "agg.percentile", "kll_sketch_agg"),
    ):
        found.append(rate_result(name, samples, peer=native, about=about))
        beside = {f"{name}.exact": samples[name], exact: samples[exact]}
        found.append(rate_result(f"{name}.exact", beside, peer=exact, about=about))
    return found


def _windows(name: str, aggregate: agg.Aggregate) -> Operator:
    return Tumbling(size=10, time="at", by="user", compute={"answer": aggregate}, name=name)


def _natively(expression: str) -> Operator:
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    def grouped(rows: DataFrame) -> DataFrame:
        doubled = rows.withColumn("amount", F.col("amount").cast("double" if "kll" in expression else "bigint"))
        windows = doubled.withWatermark("at", "0 seconds").groupBy(F.window("at", "10 seconds"), "user")
        return windows.agg(F.expr(expression).alias("answer"))

    return grouped


def _subject(bench_spark: Workbench, folder: Path, operator: Operator, rows: int) -> Callable[[], Sample]:
    def measure() -> Sample:
        source = bench_spark.topic(folder / "log", "events", rows_max=rows // BATCHES)
        return bench_spark.run(operator(source), rows=rows).sample()

    return measure
