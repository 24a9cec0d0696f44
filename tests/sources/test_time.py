"""Processing time is what the source recorded; ticks and punctuations move it on without rows."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headwater.batches import MicroBatch, batch_time_us, time_folder
from headwater.log import EmbeddedLog
from tests.sources.reading import Run, stream, table

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


def eventually(condition: Callable[[], bool], *, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def recorded_time(spark: SparkSession, query: StreamingQuery, batch: int) -> int | None:
    state = Path(str(spark.conf.get("spark.headwater.state")))
    return batch_time_us(state, MicroBatch(query=str(query.id), number=batch))


def test_the_query_and_the_batch_reach_the_reader_which_records_the_time(
    spark: SparkSession, orders: EmbeddedLog, run: Run, clock: Path
) -> None:
    query = run(stream(spark, orders, clock=clock))
    assert recorded_time(spark, query, 0) == NOON_US
    assert recorded_time(spark, query, 1) is None
    state = Path(str(spark.conf.get("spark.headwater.state")))
    [record] = time_folder(state, str(query.id)).glob("time-0-*.json")
    assert record.exists()


def test_a_tick_is_a_batch_without_rows(spark: SparkSession, orders: EmbeddedLog, run: Run, clock: Path) -> None:
    query = run(stream(spark, orders, clock=clock, tick="1 second"), available_now=False)
    eventually(lambda: recorded_time(spark, query, 0) == NOON_US)
    set_clock(clock, NOON_US + 999_999)
    query.processAllAvailable()
    assert recorded_time(spark, query, 1) is None
    set_clock(clock, NOON_US + 1_000_000)
    eventually(lambda: recorded_time(spark, query, 1) == NOON_US + 1_000_000)
    query.stop()


def test_ticks_that_are_counted_come_to_rest_until_rows_come(
    spark: SparkSession, orders: EmbeddedLog, run: Run, clock: Path
) -> None:
    query = run(stream(spark, orders, clock=clock, tick="1 second", ticks_max=1), available_now=False)
    eventually(lambda: recorded_time(spark, query, 0) == NOON_US)
    set_clock(clock, NOON_US + 1_000_000)
    eventually(lambda: recorded_time(spark, query, 1) == NOON_US + 1_000_000)
    set_clock(clock, NOON_US + 60_000_000)
    query.processAllAvailable()
    assert recorded_time(spark, query, 2) is None
    orders.append("orders", [{"id": 99}], partition=0)
    eventually(lambda: recorded_time(spark, query, 2) == NOON_US + 60_000_000)
    set_clock(clock, NOON_US + 61_000_000)
    eventually(lambda: recorded_time(spark, query, 3) == NOON_US + 61_000_000)
    query.stop()


def test_without_a_tick_time_alone_makes_no_batch(
    spark: SparkSession, orders: EmbeddedLog, run: Run, clock: Path
) -> None:
    query = run(stream(spark, orders, clock=clock), available_now=False)
    query.processAllAvailable()
    set_clock(clock, NOON_US + 60_000_000)
    orders.append("orders", [{"id": 99}], partition=0)
    query.processAllAvailable()
    assert recorded_time(spark, query, 1) == NOON_US + 60_000_000
    assert recorded_time(spark, query, 2) is None
    query.stop()


def test_time_never_goes_back(spark: SparkSession, orders: EmbeddedLog, run: Run, clock: Path) -> None:
    run(stream(spark, orders, clock=clock))
    set_clock(clock, NOON_US - 5)
    orders.append("orders", [{"id": 99}], partition=0)
    query = run(stream(spark, orders, clock=clock))
    assert recorded_time(spark, query, 1) == NOON_US


@pytest.fixture
def timed(log: EmbeddedLog) -> EmbeddedLog:
    log.create("orders", {"id": "int64", "at": "timestamp"}, time="at")
    return log


def test_punctuations_come_as_rows_of_their_own(spark: SparkSession, timed: EmbeddedLog) -> None:
    timed.append("orders", [{"id": 1, "at": NOON}])
    timed.punctuate("orders", NOON)
    timed.append("orders", [{"id": 2, "at": NOON}])
    rows = table(spark, timed, punctuations=True).collect()
    assert [(row.id, row["_punctuation"] is not None, row["at"] is not None) for row in rows] == [
        (1, False, True),
        (None, True, True),
        (2, False, True),
    ]
    assert len(table(spark, timed).collect()) == 2


def test_a_punctuation_makes_a_batch_by_itself_and_comes_once(
    spark: SparkSession, timed: EmbeddedLog, run: Run
) -> None:
    timed.append("orders", [{"id": 1, "at": NOON}])
    timed.punctuate("orders", NOON)
    run(stream(spark, timed, punctuations=True))
    timed.punctuate("orders", NOON_US + 1_000_000)
    run(stream(spark, timed, punctuations=True))
    run(stream(spark, timed, punctuations=True))
    timed.append("orders", [{"id": 2, "at": NOON}])
    run(stream(spark, timed, punctuations=True))
    found = [row["_punctuation"] for row in run.rows(spark, "_punctuation string") if row["_punctuation"]]
    assert sorted(found) == ["2026-01-01T12:00:00.000Z", "2026-01-01T12:00:01.000Z"]


def test_a_punctuation_moves_sparks_own_watermark(spark: SparkSession, timed: EmbeddedLog, run: Run) -> None:
    timed.append("orders", [{"id": 1, "at": NOON}])
    timed.punctuate("orders", NOON_US + 60_000_000)
    rows = stream(spark, timed, punctuations=True).withWatermark("at", "0 seconds")
    query = run(rows.where("_punctuation is null or at is null").groupBy("at").count())
    assert query.lastProgress is not None
    marks = [progress.eventTime.get("watermark") for progress in query.recentProgress]
    assert "2026-01-01T12:01:00.000Z" in marks
