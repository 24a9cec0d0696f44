"""The same five million payments in every kind of window, and by Spark's aggregation in RocksDB.

100,000 users, 50,000 payments a second of event time, ten batches, everything on disk. Our state is synced with each
batch; Spark's changelog is on the same disk, and not synced. The rate is taken over the batches, without the start of
the query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Bench, Result, Sample
from benchmarks.spark.keyed_state import BATCHES, fill, native_windows
from benchmarks.spark.workbench import Workbench, rate_result, warm_up, workbench
from headwater.operators import Panes, Session, Sliding, Tumbling, agg
from headwater.operators.trigger import rows as after_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NATIVE = "Spark windowed aggregation"
Operator = Callable[["DataFrame"], "DataFrame"]


def compute() -> dict[str, agg.Aggregate]:
    return {"total": agg.sum("amount"), "count": agg.count()}


def tumbling(bench: Bench) -> list[Result]:
    """Windows of ten seconds: on the keyed engine, and with the first half of the work in the source's reader."""
    subjects: dict[str, Operator] = {
        "tumbling.keyed": Tumbling(size=10, time="at", by="user", compute=compute(), combine=False, name="keyed"),
        "tumbling.pushed": Tumbling(size=10, time="at", by="user", compute=compute(), name="pushed"),
    }
    return beside_native(bench, "tumbling", subjects, {"tumbling.keyed": 2.0, "tumbling.pushed": 3.5})


def own_windows(bench: Bench) -> list[Result]:
    """The kinds of windows that Spark has not, or not live."""
    subjects: dict[str, Operator] = {
        "sliding": Sliding(size=10, time="at", by="user", compute=compute(), name="sliding"),
        "session.live": Session(gap=5, time="at", by="user", compute=compute(), emit="changes", name="sessions"),
        "panes": Panes(
            window=Tumbling(size=10, time="at"),
            by="user",
            compute=compute(),
            early=after_rows(2),
            mode="retracting",
            name="panes",
        ),
    }
    return beside_native(bench, "own", subjects, dict.fromkeys(subjects, 1.0))


def native_column(bench: Bench) -> list[Result]:
    """`Tumbling` as a column in front of Spark's own grouping, beside the same query written by hand."""
    from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

    def sugar(rows: DataFrame) -> DataFrame:
        grouped = rows.transform(Tumbling(size=10, time="at")).groupBy("window", "user")
        return grouped.agg(F.sum("amount").alias("total"), F.count("*").alias("count"))

    return beside_native(bench, "tumbling.native", {"tumbling.native": sugar}, {"tumbling.native": 0.95})


def beside_native(
    bench: Bench, name: str, operators: Mapping[str, Operator], bars: Mapping[str, float] | None = None
) -> list[Result]:
    """Each operator and Spark's aggregation in turn, by rows a second and by CPU."""
    bars = bars or {}
    bench_spark = workbench(bench)
    rows, users = bench.size(5_000_000, 100_000), bench.size(100_000, 2_000)
    with bench.scratch(name) as folder:
        bench.say(f"{name}: filling")
        fill(folder / "log", "events", rows=rows, users=users)
        made: dict[str, Operator] = {**operators, NATIVE: native_windows}
        subjects = {one: _subject(bench_spark, folder, operator, rows) for one, operator in made.items()}
        warm_up(bench, subjects)
        samples = bench.interleave(name, subjects, rounds=bench.size(3, 1))
    about = {"rows": rows, "keys": users, "batches": BATCHES}
    return [rate_result(one, samples, peer=NATIVE, about=about, least=bars.get(one)) for one in operators]


def _subject(bench_spark: Workbench, folder: Path, operator: Operator, rows: int) -> Callable[[], Sample]:
    def measure() -> Sample:
        source = bench_spark.topic(folder / "log", "events", rows_max=rows // BATCHES)
        return bench_spark.run(operator(source), rows=rows).sample()

    return measure
