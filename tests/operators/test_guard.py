"""The guard in front of Spark's own operators: what passes is never dropped, and what does not is kept and told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater import EventTime
from headwater.engine.state_maintenance import states
from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators import Guard
from headwater.operators.guard import Sorting
from tests.operators.stream_runs import Stream

SECOND = 1_000_000
NOW = 1_000 * SECOND
SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("_partition", pa.int32()), ("_offset", pa.int64())])
TOPIC = {"rows": {"schema": {"id": "int64", "at": "timestamp"}, "time": "at"}}


# -- the sorting alone ------------------------------------------------------------------------------------------------


def batch_of(times: Sequence[int | None]) -> pa.RecordBatch:
    count = len(times)
    columns = [pa.array(times, SCHEMA.field(0).type), pa.array([0] * count, pa.int32()), pa.array(range(count))]
    return pa.record_batch(columns, schema=SCHEMA)


@given(
    batches=st.lists(st.lists(st.none() | st.integers(-5, 3_000), max_size=30), max_size=4),
    watermark=st.integers(1, 1_500),
    keep=st.booleans(),
)
def test_each_row_goes_one_way_and_all_are_counted(batches: list[list[int | None]], watermark: int, keep: bool) -> None:
    guard = Guard(time=EventTime("at", scope="input", future_max=1), late="side_output" if keep else "drop")
    sorting = Sorting(guard.contract(SCHEMA), None, watermark_us=watermark * SECOND, processing_us=NOW)
    passed = []
    for times in batches:
        rows = batch_of([None if one is None else one * SECOND for one in times])
        passed += [round(row["at"].timestamp()) for row in sorting.passing(rows).to_pylist()]
    given_ = [one for times in batches for one in times]
    assert passed == [one for one in given_ if one is not None and watermark <= one <= 1_001]
    wanted: dict[str, list[int | None]] = {
        "late": [one for one in given_ if one is not None and one < watermark and one <= 1_001],
        "early": [one for one in given_ if one is not None and one > 1_001],
        "rejected": [one for one in given_ if one is None],
    }
    assert {side: len(rows) for side, rows in wanted.items()} == sorting.counts
    kept = {side: sum(one.num_rows for one in found) for side, found in sorting.sides.items()}
    assert kept == {**sorting.counts, "late": sorting.counts["late"] if keep else min(20, sorting.counts["late"])}
    latest = max((one for one in given_ if one is not None and one <= 1_001), default=None)
    assert sorting.progress == ({} if latest is None else {"": {"": (latest * SECOND, NOW)}})


def test_rows_are_early_by_the_clock_that_received_them() -> None:
    guard = Guard(time=EventTime("at", scope="input", future_max=10), received="_received")
    schema = SCHEMA.append(pa.field("_received", pa.timestamp("us", "UTC")))
    sorting = Sorting(guard.contract(schema), "_received", watermark_us=1, processing_us=NOW)
    rows = batch_of([5 * SECOND, 25 * SECOND, 25 * SECOND])
    received = pa.array([5 * SECOND, 14 * SECOND, 15 * SECOND], pa.timestamp("us", "UTC"))
    rows = rows.append_column("_received", received)
    assert sorting.passing(rows).column("_offset").to_pylist() == [0, 2]
    assert sorting.sides["early"][0].column("_early_by_us").to_pylist() == [SECOND]


@pytest.mark.parametrize(("watermark", "part"), [("input", ""), ("partition", "0")])
def test_a_promise_counts_as_a_row_that_brings_the_watermark_to_it(watermark: Any, part: str) -> None:
    schema = SCHEMA.append(pa.field("_punctuation", pa.timestamp("us", "UTC")))
    guard = Guard(time=EventTime("at", delay=10, scope=watermark))
    sorting = Sorting(guard.contract(schema), None, watermark_us=1, processing_us=NOW)
    promised = pa.array([None, 20 * SECOND], pa.timestamp("us", "UTC"))
    rows = batch_of([5 * SECOND, None]).append_column("_punctuation", promised)
    assert sorting.passing(rows).column("_offset").to_pylist() == [0, 1]
    assert sorting.progress == {"": {part: (30 * SECOND, NOW)}}
    assert not any(sorting.counts.values())


# -- in front of Spark ------------------------------------------------------------------------------------------------


def rows_at(start: datetime, *seconds: int | None) -> list[dict[str, Any]]:
    return [
        {"id": number, "at": None if one is None else start + timedelta(seconds=one)}
        for number, one in enumerate(seconds)
    ]


def counts_of(stream: Stream) -> dict[str, int]:
    found = [one.counts for one in states(stream.state, query=stream.query_id)]
    return {side: sum(one.get(side, 0) for one in found) for side in ("late", "early", "rejected")}


def test_a_clock_from_the_far_future_closes_no_window(spark: SparkSession, tmp_path: Path) -> None:
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)

    def build(rows: DataFrame) -> DataFrame:
        guard = Guard(time=EventTime("at", scope="input", delay="1 minute", future_max="1 hour"), name="far")
        return rows.transform(guard).groupBy(F.window("at", "1 minute")).count()

    stream = Stream(spark, tmp_path, build, TOPIC)
    century = 100 * 365 * 86_400
    stream.run({"rows": rows_at(start, 0, 10, century, None)})
    stream.run({"rows": rows_at(start, 20, 30)})
    stream.run({"rows": rows_at(start, 300)})
    stream.run({"rows": rows_at(start, 1, 301)})
    assert [row["count"] for row in stream.rows()] == [4]
    (early,) = stream.side("far", "early")
    assert early["_early_by_us"] > 99 * 365 * 86_400 * SECOND
    (rejected,) = stream.side("far", "rejected")
    assert rejected["_reason"] == "the event time is null"
    (late,) = stream.side("far", "late")
    assert late["late_by_us"] == 239 * SECOND
    assert counts_of(stream) == {"late": 1, "early": 1, "rejected": 1}


def test_a_promise_closes_sparks_windows(spark: SparkSession, tmp_path: Path) -> None:
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)

    def build(rows: DataFrame) -> DataFrame:
        guard = Guard(time=EventTime("at", delay="1 hour"), name="promised")
        return rows.transform(guard).groupBy(F.window("at", "1 minute")).count()

    stream = Stream(spark, tmp_path, build, TOPIC, punctuations="true")
    stream.run({"rows": rows_at(start, 0, 10)})
    assert stream.rows() == []
    for minutes in (2, 3, 4):
        with stream.log() as log:
            log.punctuate("rows", start + timedelta(minutes=minutes))
        stream.run()
    assert [row["count"] for row in stream.rows()] == [2]


def test_bounded_rows_are_never_late(spark: SparkSession) -> None:
    data = [(1, datetime(2026, 1, 1, tzinfo=UTC)), (2, datetime(1960, 1, 1, tzinfo=UTC)), (3, None)]
    rows = spark.createDataFrame(data, "id int, at timestamp")
    guard = Guard(time=EventTime("at", scope="input", delay=5))
    assert sorted(row.id for row in rows.transform(guard).collect()) == [1, 2]
    assert [(row.id, row.reason) for row in guard.side_output("rejected", rows).collect()] == [
        (3, "the event time is null")
    ]


def test_bounded_rows_are_early_by_the_clock_that_received_them(spark: SparkSession) -> None:
    received = datetime(2026, 1, 1, tzinfo=UTC)
    data = [(1, received, received), (2, received + timedelta(days=2), received), (3, received, None)]
    rows = spark.createDataFrame(data, "id int, at timestamp, received timestamp")
    guard = Guard(time=EventTime("at", scope="input"), received="received")
    assert sorted(row.id for row in rows.transform(guard).collect()) == [1, 3]
    assert [row.id for row in guard.side_output("early", rows).collect()] == [2]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"late": "keep"}, "late"),
        ({"time": ""}, "timestamp column"),
    ],
)
def test_nonsense_is_refused_when_it_is_written_down(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        Guard(**{"time": "at", **change}).strategy()


def test_a_watermark_for_each_key_is_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], "id int, at timestamp")
    with pytest.raises(ArgumentInvalid, match='"partition" or "input" for Guard'):
        rows.transform(Guard(time=EventTime("at", scope="key")))


@pytest.mark.parametrize(
    ("guard", "error", "says"),
    [
        (Guard(time=EventTime("when", scope="input")), ColumnUnknown, "no column 'when'"),
        (Guard(time=EventTime("id", scope="input")), ArgumentInvalid, "a column of timestamps"),
        (Guard(time=EventTime("at", scope="input"), received="id"), ArgumentInvalid, "a column of timestamps"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused_at_once(
    spark: SparkSession, guard: Guard, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        guard(spark.createDataFrame([], "id int, at timestamp"))
