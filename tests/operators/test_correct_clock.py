"""Three clocks, one estimate: what Spark computes is what the definition says, on streams of devices gone wrong."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators import CorrectClock

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


#: All ways in which three clocks can be missing, agree, or be off by less or more than the error that is believed.
TIMES = (None, -2 * HOUR, -HOUR - 1, -HOUR, -1, 0, 1, HOUR, HOUR + 1, 2 * HOUR)
CLOCKS = list(product(TIMES, TIMES, TIMES))
OTHERWISE: tuple[Any, ...] = ("occurred", "received", "null")


def test_the_estimate_is_the_definition(spark: SparkSession) -> None:
    data = [(number, *(at(one) for one in times)) for number, times in enumerate(CLOCKS)]
    rows = spark.createDataFrame(data, SCHEMA)
    start = F.lit(round(START.timestamp()))
    for otherwise in OTHERWISE:
        operator = CorrectClock(
            occurred="occurred",
            sent="sent",
            received="received",
            shift_max="1 hour",
            otherwise=otherwise,
            to=f"else_{otherwise}",
        )
        rows = rows.transform(operator)
    estimates = [F.unix_seconds(f"else_{otherwise}") - start for otherwise in OTHERWISE]
    found = rows.orderBy("number").select(*estimates).collect()
    assert [tuple(row) for row in found] == [
        tuple(believed(*times, otherwise) for otherwise in OTHERWISE) for times in CLOCKS
    ]


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
