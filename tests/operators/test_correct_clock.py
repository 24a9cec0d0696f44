"""Three clocks, one estimate: what Spark computes is what the definition says, on streams of devices gone wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators import CorrectClock
from tests.operators.streaming import ONCE, Stream

START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = "number int, occurred timestamp, sent timestamp, received timestamp"
HOUR = 3600


def at(seconds: int | None) -> datetime | None:
    return None if seconds is None else START + timedelta(seconds=seconds)


def believed(occurred: int | None, sent: int | None, received: int | None, otherwise: str) -> int | None:
    """The definition, in seconds, with an error of one hour at most."""
    if occurred is not None and sent is not None and received is not None and abs(received - sent) <= HOUR:
        return min(occurred + received - sent, received)
    if otherwise == "received":
        return received if received is not None else occurred
    return occurred if otherwise == "occurred" else None


SECONDS = st.none() | st.integers(-2 * HOUR, 2 * HOUR)
CLOCKS = st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=40, max_size=60)


@ONCE
@given(clocks=CLOCKS)
@pytest.mark.parametrize("otherwise", ["occurred", "received", "null"])
def test_the_estimate_is_the_definition(
    spark: SparkSession, clocks: list[tuple[int | None, int | None, int | None]], otherwise: Any
) -> None:
    data = [(number, *(at(one) for one in times)) for number, times in enumerate(clocks)]
    operator = CorrectClock(
        occurred="occurred", sent="sent", received="received", shift_max="1 hour", otherwise=otherwise
    )
    rows = spark.createDataFrame(data, SCHEMA).transform(operator).orderBy("number").select(F.unix_seconds("at"))
    start = round(START.timestamp())
    found = [None if row[0] is None else row[0] - start for row in rows.collect()]
    assert found == [believed(*times, otherwise) for times in clocks]


def test_in_a_stream_the_log_is_the_clock_that_is_trusted(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def build(rows: DataFrame) -> DataFrame:
        clock = CorrectClock(occurred="occurred", sent="sent", received="_appended_at")
        gap = F.unix_micros("at") + F.unix_micros("sent") - F.unix_micros("occurred") - F.unix_micros("_appended_at")
        return rows.transform(clock).select("device", gap.alias("gap"))

    schema = {"device": "string", "occurred": "timestamp", "sent": "timestamp"}
    stream = Stream(spark, tmp_path_factory.mktemp("clocks"), build, {"readings": {"schema": schema}}, metadata="all")
    year = timedelta(days=365)
    slow = {"device": "a", "occurred": START - year, "sent": START - year + timedelta(minutes=5)}
    fast = {"device": "b", "occurred": START + 9 * year, "sent": START + 9 * year + timedelta(seconds=1)}
    stream.run({"readings": [slow]}, kill=True)
    stream.run({"readings": [fast]})
    assert sorted((row["device"], row["gap"]) for row in stream.rows()) == [("a", 0), ("b", 0)]


def test_it_stays_within_spark(spark: SparkSession) -> None:
    operator = CorrectClock(occurred="occurred", sent="sent", received="received")
    plan = spark.createDataFrame([], SCHEMA).transform(operator)._jdf.queryExecution().toString()
    assert "Python" not in plan


def test_times_at_the_end_of_all_numbers_are_left_alone(spark: SparkSession) -> None:
    rows = spark.range(1).select(
        F.timestamp_micros(F.lit(2**63 - 1)).alias("occurred"),
        F.timestamp_micros(F.lit(-(2**63) + 1)).alias("sent"),
        F.timestamp_micros(F.lit(2**63 - 1)).alias("received"),
    )
    operator = CorrectClock(occurred="occurred", sent="sent", received="received")
    (row,) = rows.transform(operator).select(F.unix_micros("at").alias("at")).collect()
    assert row["at"] == 2**63 - 1


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"sent": "posted"}, ColumnUnknown, "no column 'posted'"),
        ({"sent": "number"}, ArgumentInvalid, "a column of timestamps"),
        ({"sent": "local"}, ArgumentInvalid, "three columns of one type"),
    ],
)
def test_columns_that_do_not_fit_are_refused_at_once(
    spark: SparkSession, change: dict[str, Any], error: type[Exception], says: str
) -> None:
    rows = spark.createDataFrame([], f"{SCHEMA}, local timestamp_ntz")
    with pytest.raises(error, match=says):
        rows.transform(CorrectClock(**{"occurred": "occurred", "sent": "sent", "received": "received", **change}))


@pytest.mark.parametrize(
    ("change", "says"),
    [({"shift_max": "-1 hour"}, "shift_max"), ({"otherwise": "sent"}, "otherwise"), ({"to": ""}, "to")],
)
def test_nonsense_is_refused_when_it_is_written_down(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ArgumentInvalid, match=says):
        CorrectClock(**{"occurred": "occurred", "sent": "sent", "received": "received", **change})
