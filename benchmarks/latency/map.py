"""How old an event is when it can be read behind a query, and which phase of a batch that time goes to."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headwater.log as hwlog
from benchmarks.harness import Bar, Bench, Result, percentile
from benchmarks.spark.workbench import Workbench, workbench
from headwater.config import Durability
from headwater.spark.topic_query import TopicQuery
from headwater.spark.topic_target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

#: Starts a query into the topic `out`: its rows, the log, its checkpoint and its trigger.
Start = Callable[["DataFrame", Path | str, Path, str], "StreamingQuery"]
SCHEMA = {"created_ns": "int64", "text": "string", "at": "timestamp"}
ROWS_PER_SECOND = 1_000
Columns = Sequence[str]
#: What the query computes: simple enough for the reader of the topic, or not.
IN_READER = ("created_ns", "concat('<', text, '>') AS text")
IN_SPARK = ("created_ns", "upper(text) AS text")
#: A producer that lingers so long appends ten rows at a time.
APPEND_EVERY_MS = 10
WARM_UP_BATCHES = 60
WARM_UP_SECONDS_MAX = 90.0
#: Rows of the first moments are not counted: the two processes that make and watch them are starting.
LEAD_IN_SECONDS = 3.0
FLOOR_BATCHES = 100


@dataclass(frozen=True, kw_only=True)
class Latency:
    """Ages of rows in milliseconds, and how long a batch and each of its phases took."""

    ages: Sequence[float]
    phases: Mapping[str, float]
    append_p50: float = 0.0

    @property
    def p50(self) -> float:
        return percentile(self.ages, 0.5)

    @property
    def p99(self) -> float:
        return percentile(self.ages, 0.99)


def map_(bench: Bench) -> list[Result]:
    """Topic → map → topic at 1,000 rows a second, beside a query without a topic, a worker or a sink: Spark's floor."""
    bench_spark = workbench(bench)
    seconds, warm_up = bench.size(45, 3), bench.size(WARM_UP_BATCHES, 3)
    found: dict[str, Latency] = {}
    kinds: tuple[tuple[str, Durability, Start, Columns], ...] = (
        ("map", "os", as_app, IN_READER),
        ("map.fsync", "fsync", as_app, IN_READER),
        ("map.spark", "os", as_app, IN_SPARK),
        ("map.format", "os", by_format, IN_SPARK),
    )
    for name, durability, start, columns in kinds:
        with bench.scratch(name) as folder:
            bench.say(f"{name}: {seconds} s")
            create_topics(folder / "log", durability)
            found[name] = measure(
                bench_spark, folder / "log", seconds=seconds, warm_up=warm_up, start=start, columns=columns
            )
    floor = bare_query(bench_spark, batches=bench.size(FLOOR_BATCHES, 10))
    return [
        result("map", found["map"], bars=bars(), note="written as an app writes its topics"),
        result("map.fsync", found["map.fsync"], note="both topics sync each append and commit"),
        result("map.spark", found["map.spark"], note="a column that Spark computes, not the reader"),
        result("map.format", found["map.format"], note="the same by `writeStream.format('headwater')`"),
        Result(
            name="map.floor",
            value=floor["triggerExecution"],
            unit="ms/batch",
            more={"phases_ms": floor},
            note="a batch of a query with a source inside the JVM and no sink; a row waits for one and a half of them",
        ),
    ]


def create_topics(log: Path, durability: Durability) -> None:
    with hwlog.open(log) as opened:
        for topic in ("in", "out"):
            opened.create(topic, SCHEMA, durability=durability)


def measure(
    bench_spark: Workbench,
    log: Path | str,
    *,
    seconds: float,
    warm_up: int,
    trigger: str = "0 seconds",
    checkpoint: Path | None = None,
    start: Start | None = None,
    columns: Columns = IN_SPARK,
) -> Latency:
    """Run the query while one process appends and another watches, after `warm_up` batches that are not counted."""
    rows = bench_spark.topic(log, "in").selectExpr(*columns)
    query = (start or as_app)(rows, log, checkpoint or bench_spark.checkpoint(), trigger)
    with _running(query):
        known = _warm(query, log, batches=warm_up)
        lasting = seconds + LEAD_IN_SECONDS
        watcher = child("watch", log, "out", known, round(lasting * ROWS_PER_SECOND))
        producer = child("produce", log, "in", lasting, ROWS_PER_SECOND, APPEND_EVERY_MS)
        produced, seen = answer(producer), answer(watcher)
        phases = _phases(list(query.recentProgress)[warm_up:])
    if produced["rows"] != len(seen["ages"]):
        raise RuntimeError(f"{produced['rows']} rows were written, {len(seen['ages'])} arrived")
    began = min(created for created, _ in seen["ages"])
    ages = [age for created, age in seen["ages"] if created >= began + LEAD_IN_SECONDS]
    return Latency(ages=ages, phases=phases, append_p50=produced["append_p50"])


def _warm(query: StreamingQuery, log: Path | str, *, batches: int) -> int:
    """Append a row now and then until so many batches have run; returns the end of what has come out."""
    deadline = time.monotonic() + WARM_UP_SECONDS_MAX
    with hwlog.open(log) as opened:
        while not (report := query.lastProgress) or report["batchId"] < batches:
            if time.monotonic() > deadline:
                raise RuntimeError(f"fewer than {batches} batches in {WARM_UP_SECONDS_MAX:.0f} s")
            opened.append("in", [{"created_ns": 0, "text": "warm", "at": datetime.now(UTC)}])
            time.sleep(0.05)
        query.processAllAvailable()
        return opened.end_offsets("out")[0]


def as_app(rows: DataFrame, log: Path | str, checkpoint: Path, trigger: str) -> StreamingQuery:
    topic = TopicQuery(target=Target.of(log=log, topic="out"), checkpoint=str(checkpoint))
    return topic.start(rows, lambda writer: writer.trigger(processingTime=trigger))


def by_format(rows: DataFrame, log: Path | str, checkpoint: Path, trigger: str) -> StreamingQuery:
    writer = rows.writeStream.format("headwater").option("log", str(log)).option("topic", "out")
    return writer.option("checkpointLocation", str(checkpoint)).trigger(processingTime=trigger).start()


def bare_query(bench_spark: Workbench, *, batches: int) -> Mapping[str, float]:
    """The phases of a batch that has nothing to do: rows made in the JVM, to nowhere."""
    rows: DataFrame = bench_spark.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(bench_spark.checkpoint()))
    with _running(writer.start()) as query:
        while (query.lastProgress or {"batchId": 0})["batchId"] < 2 * batches:
            time.sleep(0.05)
        return _phases(list(query.recentProgress)[-batches:])


def bars() -> list[Bar]:
    return [Bar(figure="p50", most=100), Bar(figure="p99", most=200)]


def result(name: str, found: Latency, **more: Any) -> Result:
    about = {"rows_per_second": ROWS_PER_SECOND, "phases_ms": found.phases, "append_p50": found.append_p50}
    return Result(name=name, value=found.p50, unit="ms", p50=found.p50, p99=found.p99, more=about, **more)


@contextmanager
def _running(query: StreamingQuery) -> Iterator[StreamingQuery]:
    try:
        yield query
    finally:
        query.stop()


def _phases(reports: Sequence[Any]) -> dict[str, float]:
    """The median of each phase over batches with rows, in milliseconds."""
    found: dict[str, list[int]] = {}
    for report in reports:
        if report["numInputRows"]:
            for phase, milliseconds in report["durationMs"].items():
                found.setdefault(phase, []).append(milliseconds)
    return {phase: statistics.median(each) for phase, each in sorted(found.items())}


def child(act: str, *arguments: object) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "benchmarks.latency.children", act, *map(str, arguments)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def answer(child: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = child.communicate(timeout=300)
    if child.returncode:
        raise RuntimeError(f"{child.args!r} ended with {child.returncode}")
    body: dict[str, Any] = json.loads(output.splitlines()[-1])
    return body
