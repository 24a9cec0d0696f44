"""Spark calls the reader as the other tests of this folder do, and its users see rows and errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from headwater.engine.micro_batch import MicroBatch, batch_time_us
from headwater.log import Log
from headwater.spark import lag_of
from tests.conditions import until
from tests.spark.source.planner import Checkpoint, plan
from tests.spark.source.spark_reads import Run, batch_sizes, stream, table

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000


@pytest.fixture
def clock(tmp_path: Path) -> Path:
    path = tmp_path / "clock"
    set_clock(path, NOON_US)
    return path


def set_clock(path: Path, now_us: int) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text(str(now_us))
    fresh.replace(path)


# Any: offsets are JSON.
def offsets_in(checkpoint: Path) -> list[Any]:
    """The offsets of the one source, batch by batch, as Spark has written them."""
    files = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text(encoding="utf-8").splitlines()[2]) for path in files]


def forget_commit(run: Run, batch: int) -> None:
    """As if the driver had died just before Spark wrote down that the batch is done."""
    for path in (run.checkpoint / "commits").glob(f"*{batch}*"):
        path.unlink()


@pytest.mark.core
def test_a_topic_is_a_table(spark: SparkSession, orders: Log) -> None:
    rows = table(spark, orders, partitions_min=4, metadata="position")
    assert rows.columns == ["id", "name", "_partition", "_offset"]
    assert rows.rdd.getNumPartitions() == 4
    assert sorted(tuple(row) for row in rows.collect()) == [
        (10 * partition + n, "x", partition, n) for partition in (0, 1) for n in range(5)
    ]
    with pytest.raises(PySparkException, match="did you mean `columns`"):
        table(spark, orders, column="id").collect()


@pytest.mark.core
def test_a_stream_and_its_restart_make_the_batches_that_the_classes_make(
    spark: SparkSession, orders: Log, run: Run, checkpoint: Checkpoint, clock: Path
) -> None:
    options: dict[str, Any] = {"rows_max": 4, "clock": clock}
    rows, planned = stream(spark, orders, **options), plan(orders, **options)
    query, batches = run(rows), checkpoint(planned)
    assert batch_sizes(query) == [len(batch) for batch in batches] == [4, 4, 2]
    assert [lag_of(progress) for progress in query.recentProgress] == [{"orders": 6}, {"orders": 2}, {"orders": 0}]
    state = Path(str(spark.conf.get("spark.headwater.state")))
    assert [batch_time_us(state, MicroBatch(query=str(query.id), number=n)) for n in range(4)] == [*[NOON_US] * 3, None]
    # The restart has the plan, and the schema, of before.
    orders.alter("orders", schema="id int64, name string, note string")
    orders.append("orders", [{"id": 5, "note": "new"}], partition=0)
    run(rows)
    checkpoint(planned)
    assert offsets_in(run.checkpoint) == [json.loads(text) for text in checkpoint.offsets]
    found = [(row.id, row.name) for row in run.rows(spark, "id long, name string")]
    assert sorted(found) == sorted((row["id"], row["name"]) for row in checkpoint.rows)


def test_a_repeated_batch_has_the_same_rows_and_doubles_no_dead_letter(spark: SparkSession, log: Log, run: Run) -> None:
    log.create("events")
    log.append("events", [(None, value) for value in (b'{"id": 1}', b'{"id": 2}', b"bad", b'{"id": 4}')])
    rows = stream(spark, log, "events", start=-2, format="json", schema="id int64")
    # This sink forgets, where the one for files would not ask for rows of a batch that it has.
    assert batch_sizes(run(rows, sink="noop")) == [1]
    forget_commit(run, 0)
    log.append("events", [(None, b"worse")])
    assert batch_sizes(run(rows, sink="noop")) == [1, 0]
    letters = log.read("events.dlq").rows()
    assert [letter["value"] for letter in letters] == [b"bad", b"worse"]
    assert run.query is not None
    assert {letter["query"] for letter in letters} == {str(run.query.id)}


def test_ticks_go_on_in_a_running_query_and_a_deleted_topic_ends_it(
    spark: SparkSession, orders: Log, run: Run, clock: Path
) -> None:
    query = run(stream(spark, orders, clock=clock, tick="1 second"), available_now=False)
    state = Path(str(spark.conf.get("spark.headwater.state")))

    def time_of(batch: int) -> int | None:
        return batch_time_us(state, MicroBatch(query=str(query.id), number=batch))

    until(lambda: time_of(0) == NOON_US, "the first batch")
    set_clock(clock, NOON_US + 999_999)
    query.processAllAvailable()
    assert time_of(1) is None
    set_clock(clock, NOON_US + 1_000_000)
    until(lambda: time_of(1) == NOON_US + 1_000_000, "a tick")
    orders.delete("orders")
    with pytest.raises(StreamingQueryException, match="it has been deleted"):
        query.awaitTermination(180)


def test_a_punctuation_moves_sparks_own_watermark(spark: SparkSession, log: Log, run: Run) -> None:
    log.create("orders", {"id": "int64", "at": "timestamp"}, time="at")
    log.append("orders", [{"id": 1, "at": NOON}])
    log.punctuate("orders", NOON_US + 60_000_000)
    rows = stream(spark, log, punctuations=True).withWatermark("at", "0 seconds")
    query = run(rows.where("_punctuation is null or at is null").groupBy("at").count())
    marks = [progress.eventTime.get("watermark") for progress in query.recentProgress]
    assert "2026-01-01T12:01:00.000Z" in marks
