"""Analytics in real streaming queries: four partitions, a worker killed, and the same query as a batch job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater.errors import AggregateInvalid, ArgumentInvalid, ColumnUnknown
from headwater.operators import Anomaly, ComparedTo, Rate, Rolling, Trend, agg
from tests.operators.analytics.readings import END_OF_TIME, LATE_BY, SECOND, Reading, arrivals, same
from tests.operators.analytics.test_anomaly import scores
from tests.operators.analytics.test_compared_to import compared
from tests.operators.analytics.test_rate import over_period
from tests.operators.analytics.test_rolling import of_period
from tests.operators.analytics.test_trend import trend
from tests.operators.streaming import ONCE, Stream

TOPIC = {
    "readings": {
        "schema": {"sensor": "string", "celsius": "float64", "at": "timestamp", "place": "int64"},
        "key": "sensor",
    }
}
COMMON: dict[str, Any] = {"on": "at", "by": "sensor", "late_by": LATE_BY, "ahead": None}
COMPUTE = {"n": agg.count(), "mean": agg.mean("celsius"), "high": agg.quantile("celsius", 0.9)}


def placed(rows: list[Reading], first: int) -> list[dict[str, Any]]:
    return [
        {"sensor": sensor, "celsius": value, "at": at * SECOND, "place": first + number}
        for number, (sensor, value, at) in enumerate(rows)
    ]


def closing(time: int) -> list[dict[str, Any]]:
    """Rows from far later, in every partition, so that none holds time back."""
    return placed([(f"end{number}", 0.0, END_OF_TIME + 1000 * time) for number in range(40)], -1000)


def all_together(rows: DataFrame) -> DataFrame:
    """Four operators, one after the other: each adds its columns."""
    return (
        rows.transform(Rolling(period=20, compute=COMPUTE, **COMMON))
        .transform(Rate(period=20, **COMMON))
        .transform(Trend(of=F.col("celsius"), period=20, horizon=10, **COMMON))
        .transform(Anomaly(of="celsius", memory=5, warm_up=2, period=50, prefix="celsius_", **COMMON))
    )


def run(stream: Stream, batches: list[list[Reading]], *, more: int) -> None:
    first = 0
    for number, batch in enumerate(batches):
        stream.run({"readings": placed(batch, first)}, kill=number == 1)
        first += len(batch)
    for time in range(more):  # in each batch time passes for one more operator
        stream.run({"readings": closing(time)})
    assert stream.kills == 1


@ONCE
@given(batches=arrivals(rows_min=20))
def test_rows_with_what_their_past_amounts_to(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, batches: list[list[Reading]]
) -> None:
    stream = Stream(spark, tmp_path_factory.mktemp("rows"), all_together, TOPIC)
    run(stream, batches, more=8)
    rows = [row for batch in batches for row in batch]
    models: list[Callable[..., dict[str, Any]]] = [of_period(20, "both"), over_period(20, 1, None), trend(20, 10)]
    for found in (stream.rows(), stream.bounded()):
        by_place = {row["place"]: row for row in found if row["place"] >= 0}
        assert sorted(by_place) == list(range(len(rows))) == sorted(row["place"] for row in found if row["place"] >= 0)
        for place, (sensor, value, at) in enumerate(rows):
            past = sorted(
                ((time, one) for own, one, time in rows if own == sensor and time <= at), key=lambda one: one[0]
            )
            wanted: dict[str, Any] = {}
            for model in models:
                wanted |= model(past, (at, value))
            # Which of several values of one time are among the last ones depends on their partitions, here on none.
            wanted |= {f"celsius_{name}": one for name, one in scores(5, 2, 50)(past, (at, value)).items()}
            chosen = [name for name in wanted if name in by_place[place] and name not in ("since", "celsius_anomaly")]
            got = {name: by_place[place][name] for name in chosen}
            assert same(got, {name: wanted[name] for name in chosen}), f"{got}, not {wanted}"


@ONCE
@given(batches=arrivals(rows_min=20))
def test_windows_beside_earlier_ones(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, batches: list[list[Reading]]
) -> None:
    def build(rows: DataFrame) -> DataFrame:
        compute = {"n": agg.count(), "mean": agg.mean("celsius")}
        return rows.transform(ComparedTo(every=10, period=20, periods=3, compute=compute, **COMMON))

    stream = Stream(spark, tmp_path_factory.mktemp("compared"), build, TOPIC)
    run(stream, batches, more=2)
    wanted = compared([row for batch in batches for row in batch], 10, 20, 3)
    for rows in (stream.rows(), stream.bounded()):
        found = {(row["sensor"], round(row["window_start"].timestamp())): row for row in rows if row["sensor"] in "abc"}
        assert found.keys() == wanted.keys()
        for place, values in wanted.items():
            assert same({name: found[place][name] for name in values}, values)


@pytest.mark.parametrize(
    ("operator", "error", "says"),
    [
        (Rolling(period=5, on="when", compute=COMPUTE), ColumnUnknown, "no column 'when'"),
        (Rolling(period=5, on="sensor", compute=COMPUTE), ArgumentInvalid, "a column of timestamps"),
        (Rolling(period=5, on="at", by="room", compute=COMPUTE), ColumnUnknown, "no column 'room'"),
        (Rolling(period=5, on="at", compute={}), ArgumentInvalid, "aggregates"),
        (Rolling(period=5, on="at", compute={"m": agg.mean("sensor")}), AggregateInvalid, "a number"),
        (Rolling(period=5, on="at", compute={"celsius": agg.count()}), ArgumentInvalid, "already"),
        (Rate(on="at", of="fahrenheit"), ColumnUnknown, "no column 'fahrenheit'"),
        (Rate(on="at", of="sensor"), ArgumentInvalid, "a column of numbers"),
        (Trend(of="sensor", on="at", period=5), ArgumentInvalid, "a column of numbers"),
        (Trend(of="fahrenheit", on="at", period=5), ColumnUnknown, "no column 'fahrenheit'"),
        (Anomaly(of="sensor", on="at"), ArgumentInvalid, "a column of numbers"),
        (
            ComparedTo(on="at", every=5, period=10, compute={"m": agg.max("sensor")}),
            ArgumentInvalid,
            "numbers to compare",
        ),
        (ComparedTo(on="at", every=5, period=10, compute={"m": agg.max("fahrenheit")}), ColumnUnknown, "'fahrenheit'"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused_at_once(
    spark: SparkSession, operator: Any, error: type[Exception], says: str
) -> None:
    rows = spark.createDataFrame([], "sensor string, celsius double, at timestamp")
    with pytest.raises(error, match=says):
        operator(rows)


def test_without_a_key_all_rows_are_one(spark: SparkSession) -> None:
    rows = spark.sql("SELECT timestamp_seconds(id) AS at, id * 2.0 AS celsius, id % 2 = 0 AS even FROM range(10)")
    found = rows.transform(Rolling(on="at", period=2, compute={"n": agg.count()})).orderBy("at").collect()
    assert [row.n for row in found] == [1, 2, 3, 3, 3, 3, 3, 3, 3, 3]
    assert found[0].asDict().keys() == {"at", "celsius", "even", "n"}
    compared_rows = rows.transform(ComparedTo(on="at", every=1, period=2, compute={"n": agg.count()})).collect()
    assert sorted(row.periods for row in compared_rows) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


def test_changes_of_tables_are_refused(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], "_op string, sensor string, celsius double, at timestamp")
    for operator in (Rate(on="at"), ComparedTo(on="at", every=5, period=10, compute=COMPUTE)):
        with pytest.raises(ArgumentInvalid, match="a changelog"):
            operator(rows)
