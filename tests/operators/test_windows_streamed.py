"""Windows in real streaming queries: four partitions, four batches, a worker killed, and the same query as a batch job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater.errors import AggregateInvalid, ArgumentInvalid, ColumnUnknown
from headwater.operators import Hopping, Tumbling, agg
from headwater.operators.keyed.plan import applied_operators
from headwater.operators.windowed import WindowStep
from tests.operators.batches import final_table
from tests.operators.streaming import ONCE, Stream
from tests.operators.test_windows import COMPUTE, END_OF_TIME, Row, arrivals, expected, flat, windows_of

TOPIC = {"orders": {"schema": {"user": "string", "amount": "int64", "at": "timestamp"}, "key": "user"}}


def orders(rows: list[Row]) -> list[dict[str, Any]]:
    return [{"user": user, "amount": amount, "at": at * 1_000_000} for user, amount, at in rows]


def closing() -> list[dict[str, Any]]:
    """Rows from far later, in every partition, so that none holds time back."""
    return orders([(f"end{number}", 0, END_OF_TIME) for number in range(40)])


def results(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    # The order of rows at one time is that of partitions and offsets, which the oracle does not know.
    found = [flat(row) for row in rows if not row["user"].startswith("end")]
    return sorted((*row[:5], tuple(sorted(row[6]))) for row in found)


def wanted(rows: list[Row], size: int, every: int) -> list[tuple[Any, ...]]:
    return sorted((*row[:5], tuple(sorted(row[6]))) for row in expected(rows, windows_of(size, every)))


@ONCE
@given(batches=arrivals(late_by=7, rows_min=20))
def test_final_windows(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]]) -> None:
    def build(rows: DataFrame) -> DataFrame:
        return rows.transform(Hopping(size=20, every=10, on="at", by="user", compute=COMPUTE, late_by=7, ahead=None))

    stream = Stream(spark, tmp_path_factory.mktemp("final"), build, TOPIC)
    for number, batch in enumerate(batches):
        stream.run({"orders": orders(batch)}, kill=number == 1)
    stream.run({"orders": closing()})
    stream.run({"orders": closing()})
    everything = [row for batch in batches for row in batch]
    assert stream.kills == 1
    assert results(stream.rows()) == wanted(everything, 20, 10)
    assert results(stream.bounded()) == wanted(everything, 20, 10)


@ONCE
@given(batches=arrivals(late_by=20, rows_min=20))
def test_a_changelog_of_windows(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]]
) -> None:
    def build(rows: DataFrame) -> DataFrame:
        operator = Tumbling(size=15, on="at", by="user", compute=COMPUTE, late_by=20, emit="net", ahead=None)
        return rows.transform(operator)

    stream = Stream(spark, tmp_path_factory.mktemp("net"), build, TOPIC)
    for number, batch in enumerate(batches):
        stream.run({"orders": orders(batch)}, kill=number == 2)
    stream.run({"orders": closing()})
    assert stream.kills == 1
    table = final_table(stream.rows(), ["user", "window_start"])
    assert results(list(table.values())) == wanted([row for batch in batches for row in batch], 15, 15)


def test_arguments_are_any_expression_of_sparks(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("a", 3, 10.0), ("a", 4, 20.0)], "user string, amount int, at double")
    rows = rows.withColumn("at", F.timestamp_seconds("at"))
    operator = Tumbling(
        size="1 minute",
        on="at",
        compute={"squares": agg.sum(F.col("amount") * F.col("amount")), "loud": agg.max(F.upper("user"))},
    )
    (row,) = rows.transform(operator).collect()
    assert (row.squares, row.loud) == (25, "A")


def test_without_compute_spark_groups_by_the_window(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1,), (61,), (62,)], "at long").withColumn("at", F.timestamp_seconds("at"))
    found = rows.transform(Tumbling(size="1 minute", on="at")).groupBy("window").count().orderBy("window").collect()
    assert [row["count"] for row in found] == [1, 2]
    hops = rows.transform(Hopping(size="2 minutes", every="1 minute", on="at")).groupBy("window").count()
    assert sorted(row["count"] for row in hops.collect()) == [1, 2, 3]


@pytest.mark.parametrize(
    ("operator", "error", "says"),
    [
        (Tumbling(size=10, on="when", compute={"n": agg.count()}), ColumnUnknown, "no column 'when'"),
        (Tumbling(size=10, on="user", compute={"n": agg.count()}), ArgumentInvalid, "a column of timestamps"),
        (Tumbling(size=10, on="at", by="card", compute={"n": agg.count()}), ColumnUnknown, "no column 'card'"),
        (Tumbling(size=10, on="at", compute={"n": agg.sum("amont")}), ColumnUnknown, "no column 'amont'"),
        (Tumbling(size=10, on="at", compute={"n": agg.sum("user")}), AggregateInvalid, "Give it a number"),
        (Tumbling(size=10, on="at", by="user", compute={"user": agg.count()}), ArgumentInvalid, "names that are free"),
        (Tumbling(size=10, on="at", by="user", compute={"window_end": agg.count()}), ArgumentInvalid, "names that are"),
        (Tumbling(size="1 month", on="at"), ArgumentInvalid, "no windows of a calendar"),
        (Hopping(size=10, every=20, on="at"), ArgumentInvalid, "leave no gaps"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused_at_once(
    spark: SparkSession, operator: Any, error: type[Exception], says: str
) -> None:
    rows = spark.createDataFrame([], "user string, amount long, at timestamp")
    with pytest.raises(error, match=says):
        operator(rows)


def test_rows_without_a_key_or_a_time_are_put_aside_and_told(spark: SparkSession, tmp_path: Path) -> None:
    from headwater.operators.sides import read_side

    def build(rows: DataFrame) -> DataFrame:
        return rows.transform(Tumbling(size=10, on="at", by="user", compute={"n": agg.count()}, name="counted"))

    stream = Stream(spark, tmp_path, build, {"orders": {"schema": TOPIC["orders"]["schema"]}})
    stream.run({"orders": [{"user": None, "amount": 1, "at": 5}, {"user": "a", "amount": 1, "at": None}]})
    state = Path(str(spark.conf.get("spark.headwater.state")))
    (query,) = {path.parent.parent.parent.name for path in state.glob("*/counted/sides/rejected")}
    reasons = [row["_reason"] for table in read_side(state, query, "counted", "rejected") for row in table.to_pylist()]
    assert sorted(reasons) == ["the event time is null", "the key is null"]


@ONCE
@given(batches=arrivals(late_by=7, rows_min=20))
def test_rows_that_are_not_combined_in_the_reader_give_the_same(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]]
) -> None:
    def build(rows: DataFrame) -> DataFrame:
        return rows.transform(
            Hopping(size=20, every=10, on="at", by="user", compute=COMPUTE, late_by=7, ahead=None, combine=False)
        )

    stream = Stream(spark, tmp_path_factory.mktemp("plain"), build, TOPIC)
    for number, batch in enumerate(batches):
        stream.run({"orders": orders(batch)}, kill=number == 1)
    stream.run({"orders": closing()})
    stream.run({"orders": closing()})
    assert stream.kills == 1
    assert results(stream.rows()) == wanted([row for batch in batches for row in batch], 20, 10)


def test_rows_are_combined_in_the_reader_wherever_that_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    def combined(rows: DataFrame, **changes: Any) -> bool:
        given: dict[str, Any] = {"size": 10, "on": "at", "by": "user", "compute": {"total": agg.sum("amount")}}
        with applied_operators() as found:
            rows.transform(Tumbling(**{**given, **changes}))
        step = found[0].step
        assert isinstance(step, WindowStep)
        return step.combined

    stream = Stream(spark, tmp_path, lambda rows: rows, TOPIC)
    topic = stream.source("orders")
    assert combined(topic)
    assert combined(topic, emit="net")
    assert combined(topic, by=())
    assert not combined(topic, emit="each")
    assert not combined(topic, late="side")
    assert not combined(topic, combine=False)
    assert not combined(topic, compute={"total": agg.sum(F.col("amount") + 1)})
    assert not combined(topic.filter("amount > 0"))
    assert not combined(topic.withColumn("amount", F.lit(1)))


def test_late_and_rejected_rows_are_counted_when_rows_are_combined(spark: SparkSession, tmp_path: Path) -> None:
    from headwater.operators.keyed.inspect import states

    def build(rows: DataFrame) -> DataFrame:
        return rows.transform(Tumbling(size=10, on="at", by="user", compute={"n": agg.count()}, name="few", ahead=None))

    stream = Stream(spark, tmp_path, build, {"orders": {"schema": TOPIC["orders"]["schema"], "partitions": 1}})
    stream.run({"orders": orders([("a", 1, 100)])})
    late = orders([("a", 1, 5), ("a", 1, 6), ("b", 1, 7)])
    stream.run({"orders": [*late, {"user": None, "amount": 1, "at": 5}, {"user": "a", "amount": 1, "at": None}]})
    state = Path(str(spark.conf.get("spark.headwater.state")))
    counts = [one.counts for one in states(state) if one.operator == "few" and one.counts]
    assert sum(one.get("late", 0) for one in counts) == 3
    assert sum(one.get("rejected", 0) for one in counts) == 2
