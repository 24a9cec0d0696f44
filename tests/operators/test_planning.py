"""What operators say of rows before any is read: columns and types that do not fit are refused, and results have names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater import EventTime
from headwater.engine.errors import AggregateInvalid
from headwater.errors import ArgumentInvalid, ColumnUnknown
from headwater.operators import (
    AggregateTable,
    Anomaly,
    ComparedTo,
    Enrich,
    Hopping,
    IntervalJoin,
    Panes,
    Rate,
    Rolling,
    Session,
    Sliding,
    TableJoin,
    TopN,
    Trend,
    Tumbling,
    agg,
)
from headwater.units import Duration
from tests.operators.registry.windows import ORDERS as ORDERS_TOPIC
from tests.operators.stream_runs import Stream

Empty = Callable[[str], DataFrame]
#: An operator over rows with these columns, and how it is refused.
Case = tuple[Callable[[Empty], Any], type[Exception], str]


@pytest.fixture(scope="module")
def empty(spark: SparkSession) -> Empty:
    """A DataFrame without rows."""
    return cache(lambda schema: spark.createDataFrame([], schema))


def joins(**changes: Any) -> Callable[[str], Callable[[Empty], IntervalJoin]]:
    settings = {"on": "user", "time": "at", "within": 5, **changes}
    return lambda other: lambda empty: IntervalJoin(empty(other), **settings)


def panes(**changes: Any) -> Callable[[Empty], Panes]:
    settings = {"window": Tumbling(size=10, time="at"), "compute": {"n": agg.count()}, **changes}
    return lambda _: Panes(**settings)


def enriches(table: str | None, **changes: Any) -> Callable[[Empty], Enrich]:
    settings = {"on": {"country": "land"}, "as_of": "sold", "valid_from": "since", **changes}
    return lambda empty: Enrich(None if table is None else empty(table), **settings)


def tables(**settings: Any) -> Callable[[Empty], TableJoin]:
    return lambda empty: TableJoin(empty("id string, name string"), **settings)


def just(operator: Any) -> Callable[[Empty], Any]:
    return lambda _: operator


N = {"n": agg.count()}
ORDERS = "user string, amount long, at timestamp"
SALES = "country string, n long, sold timestamp"
RATES = "land string, rate long, since timestamp, _op string, _appended_at timestamp"
READINGS = "sensor string, celsius double, at timestamp"
OF_ORDERS: list[Case] = [
    (just(Tumbling(size=10, time="when", compute=N)), ColumnUnknown, "no column 'when'"),
    (just(Tumbling(size=10, time="user", compute=N)), ArgumentInvalid, "a column of timestamps"),
    (just(Tumbling(size=10, time="at", by="card", compute=N)), ColumnUnknown, "no column 'card'"),
    (just(Tumbling(size=10, time="at", compute={"n": agg.sum("amont")})), ColumnUnknown, "no column 'amont'"),
    (just(Tumbling(size=10, time="at", compute={"n": agg.sum("user")})), AggregateInvalid, "Give it a number"),
    (just(Tumbling(size=10, time="at", by="user", compute={"user": agg.count()})), ArgumentInvalid, "names that are"),
    (just(Tumbling(size=10, time="at", by="user", compute={"window_end": agg.count()})), ArgumentInvalid, "names that"),
    (just(Tumbling(size="1 month", time="at")), ArgumentInvalid, "no windows of a calendar"),
    (just(Tumbling(size=10, clock="processing", compute=N)), ArgumentInvalid, "_appended_at"),
    (just(Hopping(size=10, every=20, time="at")), ArgumentInvalid, "leave no gaps"),
    (just(Session(gap=10, time="when", compute=N)), ColumnUnknown, "no column 'when'"),
    (just(Session(gap=10, time="user")), ArgumentInvalid, "a column of timestamps"),
    (just(Session(gap=10, time="at", compute={})), ArgumentInvalid, "aggregates"),
    (just(Sliding(size=10, time="when", compute=N)), ColumnUnknown, "no column 'when'"),
    (just(Sliding(size=10, time="at")), ArgumentInvalid, "aggregates"),
    (panes(window=Tumbling(size=10, time="when")), ColumnUnknown, "no column 'when'"),
    (panes(window=Tumbling(size=10, time="user")), ArgumentInvalid, "a column of timestamps"),
    (panes(by="card"), ColumnUnknown, "no column 'card'"),
    (panes(compute={"n": agg.sum("amont")}), ColumnUnknown, "no column 'amont'"),
    (panes(compute={"n": agg.sum("user")}), AggregateInvalid, "Give it a number"),
    (panes(compute={"pane_index": agg.count()}), ArgumentInvalid, "names that are free"),
    (joins(on="card")("user string, at timestamp"), ColumnUnknown, "no column 'card'"),
    (joins()("card string, at timestamp"), ColumnUnknown, "no column 'user'"),
    (joins()("user long, at timestamp"), ArgumentInvalid, r"user \(string\) = user \(bigint\).*cast one"),
    (joins()("user string, at string"), ArgumentInvalid, "a column of timestamps"),
    (joins()("user string, at timestamp_ntz"), ArgumentInvalid, "times of one type"),
    (joins(time="when")("user string, at timestamp"), ColumnUnknown, "no column 'when'"),
    (joins(other_time="when")("user string, at timestamp"), ColumnUnknown, "no column 'when'"),
    (joins()("user string, at timestamp, amount long"), ArgumentInvalid, "suffix.*two columns would be called 'at'"),
    (joins(suffix="_2")("user string, at timestamp, at_2 long"), ArgumentInvalid, "suffix.*be called 'at_2'"),
    (joins()("user string, at timestamp, _op string"), ArgumentInvalid, "a changelog.*TableJoin"),
]
OF_SALES: list[Case] = [
    (enriches(RATES, on={"land": "land"}), ColumnUnknown, "no column 'land'"),
    (enriches("land long, rate long, since timestamp"), ArgumentInvalid, "columns of one type"),
    (enriches("land string, rate long, since string"), ArgumentInvalid, "a column of timestamps"),
    (enriches(RATES, as_of="when"), ColumnUnknown, "no column 'when'"),
    (enriches(RATES, valid_from="when"), ColumnUnknown, "no column 'when'"),
    (enriches("land string, rate long", valid_from=None), ArgumentInvalid, "from when a row holds"),
    (enriches("land string, n long, since timestamp"), ArgumentInvalid, "suffix.*called 'n'"),
    (enriches(None), ArgumentInvalid, "a table of the app"),
]
OF_TABLES: list[Case] = [
    (tables(on="customer"), ColumnUnknown, "no column 'customer'"),
    (tables(on=("custmer", "id")), ColumnUnknown, "no column 'custmer'"),
    (tables(on=("customer", "id"), key="number"), ColumnUnknown, "no column 'number'"),
    (tables(on=("customer", "id"), key=()), ArgumentInvalid, "at least one column"),
    (tables(on=("customer", "id"), key=("id", "id")), ArgumentInvalid, "each column once"),
    (tables(on=("id", "id")), ArgumentInvalid, "columns of one type"),
    (tables(on=("customer", "id"), key="_offset"), ArgumentInvalid, "columns of your own"),
    (tables(on=("customer", "name"), key="id"), ArgumentInvalid, "both have 'id'"),
]
OF_CHANGES: list[Case] = [
    (just(AggregateTable(by="kind", compute=N, key="id")), ColumnUnknown, "no column 'kind'"),
    (just(AggregateTable(by="name", compute={"n": agg.sum("amont")}, key="id")), ColumnUnknown, "no column 'amont'"),
    (just(AggregateTable(by="name", compute=N, key="key")), ColumnUnknown, "no column 'key'"),
    (just(AggregateTable(by="name", compute=N)), ArgumentInvalid, "the primary key of the table"),
    (
        just(AggregateTable(by="name", compute={"n": agg.last("id")}, order_by="at", key="id")),
        ColumnUnknown,
        "column 'at'",
    ),
    (just(TopN(n=1, order="id", key="key")), ColumnUnknown, "no column 'key'"),
    (just(TopN(n=1, order="id")), ArgumentInvalid, "the primary key of the rows"),
    (just(TopN(n=1, order="size", key="id")), ColumnUnknown, "no column 'size'"),
    (just(TopN(n=1, order="id", key="id", by="team")), ColumnUnknown, "no column 'team'"),
    (just(TopN(n=1, order="list", key="id")), ArgumentInvalid, "columns that have an order"),
]
OF_READINGS: list[Case] = [
    (just(Rolling(period=5, time="when", compute=N)), ColumnUnknown, "no column 'when'"),
    (just(Rolling(period=5, time="sensor", compute=N)), ArgumentInvalid, "a column of timestamps"),
    (just(Rolling(period=5, time="at", by="room", compute=N)), ColumnUnknown, "no column 'room'"),
    (just(Rolling(period=5, time="at", compute={})), ArgumentInvalid, "aggregates"),
    (just(Rolling(period=5, time="at", compute={"m": agg.mean("sensor")})), AggregateInvalid, "a number"),
    (just(Rolling(period=5, time="at", compute={"celsius": agg.count()})), ArgumentInvalid, "already"),
    (just(Rate(time="at", of="fahrenheit")), ColumnUnknown, "no column 'fahrenheit'"),
    (just(Rate(time="at", of="sensor")), ArgumentInvalid, "a column of numbers"),
    (just(Trend(of="sensor", time="at", period=5)), ArgumentInvalid, "a column of numbers"),
    (just(Trend(of="fahrenheit", time="at", period=5)), ColumnUnknown, "no column 'fahrenheit'"),
    (just(Anomaly(of="sensor", time="at")), ArgumentInvalid, "a column of numbers"),
    (just(ComparedTo(time="at", every=5, period=10, compute={"m": agg.max("sensor")})), ArgumentInvalid, "numbers to"),
    (just(ComparedTo(time="at", every=5, period=10, compute={"m": agg.max("fahr")})), ColumnUnknown, "'fahr'"),
    (
        just(ComparedTo(time=EventTime("at", scope="key"), every=5, period=10, compute=N)),
        ArgumentInvalid,
        '"partition" or "input" for ComparedTo',
    ),
]
CHANGED_READINGS: list[Case] = [
    (just(Rate(time="at")), ArgumentInvalid, "a changelog"),
    (just(ComparedTo(time="at", every=5, period=10, compute=N)), ArgumentInvalid, "a changelog"),
]
REFUSED = {
    ORDERS: OF_ORDERS,
    SALES: OF_SALES,
    "id long, customer string, amount long, _offset long": OF_TABLES,
    "id long, name string, list array<int>, _op string, _partition int, _offset long": OF_CHANGES,
    READINGS: OF_READINGS,
    f"_op string, {READINGS}": CHANGED_READINGS,
}


@pytest.mark.parametrize(
    ("schema", "make", "error", "says"), [(schema, *case) for schema, cases in REFUSED.items() for case in cases]
)
def test_what_does_not_fit_the_rows_is_refused_at_once(
    empty: Empty, schema: str, make: Callable[[Empty], Any], error: type[Exception], says: str
) -> None:
    operator = make(empty)
    with pytest.raises(error, match=says):
        operator(empty(schema))


# -- streams beside what is not one ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    """A topic as a stream, which nothing reads."""
    return Stream(spark, tmp_path_factory.mktemp("planning"), lambda rows: rows, ORDERS_TOPIC).source("orders")


def test_a_stream_does_not_meet_bounded_rows(orders: DataFrame, empty: Empty) -> None:
    operator = IntervalJoin(empty("user string, n long, at timestamp"), on="user", time="at", within=5, suffix="_2")
    with pytest.raises(ArgumentInvalid, match=r"bounded beside a stream.*Spark's own `join`"):
        orders.transform(operator)


def test_spark_has_no_windows_of_processing_time(orders: DataFrame) -> None:
    with pytest.raises(ArgumentInvalid, match="aggregates"):
        Tumbling(size=10, clock="processing")(orders)


# -- columns and expressions -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def amounts(spark: SparkSession) -> DataFrame:
    rows = spark.createDataFrame([("a", 3, 10.0), ("a", 4, 20.0)], "user string, amount int, at double")
    return rows.withColumn("at", F.timestamp_seconds("at"))


def test_arguments_are_any_expression_of_sparks(amounts: DataFrame) -> None:
    compute = {"squares": agg.sum(F.col("amount") * F.col("amount")), "loud": agg.max(F.upper("user"))}
    (row,) = amounts.transform(Tumbling(size="1 minute", time="at", compute=compute)).collect()
    assert (row.squares, row.loud) == (25, "A")
    window = Tumbling(size="1 minute", time="at")
    (pane,) = amounts.transform(Panes(window=window, compute=compute)).collect()
    assert (pane.squares, pane.pane_index, pane.pane_timing, pane.is_last) == (25, 0, "on_time", True)


def test_of_rows_that_are_all_there_every_window_is_complete(amounts: DataFrame) -> None:
    operator = Tumbling(size=15, time="at", compute=N, emit="changes", completeness=True)
    found = amounts.transform(operator).select("n", "completeness").collect()
    assert [tuple(row) for row in found] == [(1, 1.0), (1, 1.0)]


def test_without_compute_spark_groups_by_the_window(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1,), (61,), (62,)], "at long").withColumn("at", F.timestamp_seconds("at"))
    found = rows.transform(Tumbling(size="1 minute", time="at")).groupBy("window").count().orderBy("window").collect()
    assert [row["count"] for row in found] == [1, 2]
    hops = rows.transform(Hopping(size="2 minutes", every="1 minute", time="at")).groupBy("window").count()
    assert sorted(row["count"] for row in hops.collect()) == [1, 2, 3]


@pytest.mark.parametrize(("inclusive", "counts"), [(False, [1, 1, 2]), (True, [2, 2])])
def test_without_compute_spark_groups_by_the_session(spark: SparkSession, inclusive: bool, counts: list[int]) -> None:
    rows = spark.createDataFrame([(0,), (10,), (100,), (105,)], "at long").withColumn("at", F.timestamp_seconds("at"))
    found = rows.transform(Session(gap=10, time="at", inclusive=inclusive)).groupBy("window").count()
    assert sorted(row["count"] for row in found.collect()) == counts


def test_windows_of_log_append_time(spark: SparkSession, tmp_path: Path) -> None:
    stream = Stream(spark, tmp_path, lambda rows: rows, ORDERS_TOPIC)
    stream.append({"orders": [{"user": user, "amount": 1, "at": at} for user, at in (("a", 5), ("a", 900), ("b", 5))]})
    rows = spark.read.format("headwater").option("log", str(tmp_path / "log")).option("metadata", "all").load("orders")
    found = rows.transform(Tumbling(size="1 day", time="_appended_at", by="user", compute=N)).collect()
    # The days on which the rows were appended, as the log says them: one, or two around midnight.
    days = rows.groupBy("user", F.window("_appended_at", "1 day").start.alias("day")).count().collect()
    assert {(row.user, row.window_start): row.n for row in found} == {(row.user, row.day): row["count"] for row in days}


def test_a_result_has_the_columns_of_both_inputs_under_names_that_are_told_apart(spark: SparkSession) -> None:
    left = spark.sql("SELECT 1 AS id, 'x' AS what, timestamp'2024-01-01 10:00:00' AS at, 0 AS _partition")
    right = spark.sql("SELECT 1L AS number, 2.5D AS what, timestamp'2024-01-01 10:30:00' AS at, 7 AS m")
    settings: dict[str, Any] = {"on": {"id": "number"}, "time": "at", "suffix": "_2"}
    (row,) = left.transform(IntervalJoin(right, within="1 hour", **settings)).collect()
    assert row.asDict() == {"id": 1, "what": "x", "at": row["at"], "what_2": 2.5, "at_2": row["at_2"], "m": 7}
    assert (row["at_2"] - row["at"]).total_seconds() == 1800
    (alone,) = left.transform(IntervalJoin(right, within="1 minute", how="anti", **settings)).collect()
    assert {name for name in alone.asDict() if name[0] != "_"} == {"id", "what", "at"}


def test_an_input_may_meet_itself(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT * FROM VALUES ('a', 1, timestamp_seconds(0)), ('a', 2, timestamp_seconds(5)) AS t(k, n, t)"
    )
    pairs = rows.transform(IntervalJoin(rows, on="k", time="t", before=0, after=10, suffix="_later")).where(
        "n <> n_later"
    )
    assert [(row["n"], row["n_later"]) for row in pairs.collect()] == [(1, 2)]


def test_without_a_key_all_rows_are_one(spark: SparkSession) -> None:
    rows = spark.sql("SELECT timestamp_seconds(id) AS at, id * 2.0 AS celsius, id % 2 = 0 AS even FROM range(10)")
    found = rows.transform(Rolling(time="at", period=2, compute={"n": agg.count()})).orderBy("at").collect()
    assert [row.n for row in found] == [1, 2, 3, 3, 3, 3, 3, 3, 3, 3]
    assert found[0].asDict().keys() == {"at", "celsius", "even", "n"}
    compared_rows = rows.transform(ComparedTo(time="at", every=1, period=2, compute={"n": agg.count()})).collect()
    assert sorted(row.periods for row in compared_rows) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]


# -- tables of an app ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Known:
    """A table as an app has it."""

    changes: DataFrame
    key: tuple[str, ...] = ("land",)
    time: str | None = None
    versions: tuple[str, Duration] | None = None
    name: str = "rates"

    def history(self) -> DataFrame:
        return self.changes


def test_a_table_says_itself_from_when_its_rows_hold(spark: SparkSession) -> None:
    sales = spark.sql("SELECT 'a' AS country, id AS n, timestamp_seconds(id * 10) AS sold FROM range(6)")
    changes = spark.sql(
        """SELECT * FROM VALUES
           ('a', 7L, timestamp_seconds(15), '+U', timestamp_seconds(0)),
           ('a', null, null, '-D', timestamp_seconds(35)) AS t(land, rate, since, _op, _appended_at)"""
    )
    on = {"country": "land"}
    declared = sales.transform(Enrich(Known(changes=changes, time="since"), on=on, as_of="sold"))
    assert [row["rate"] for row in declared.orderBy("n").collect()] == [None, None, 7, 7, None, None]
    appended = sales.transform(Enrich(Known(changes=changes), on=on, as_of="sold", how="inner"))
    assert sorted(row["n"] for row in appended.collect()) == [0, 1, 2, 3]


def test_a_table_is_looked_up_by_its_key(empty: Empty) -> None:
    rows, changes = empty(SALES), empty(RATES)
    table = Known(changes=changes)
    assert rows.transform(Enrich(table, on={"country": "land"})).columns == ["country", "n", "sold", "rate", "since"]
    with pytest.raises(ArgumentInvalid, match="table 'rates' is versioned"):
        rows.transform(Enrich(Known(changes=changes, versions=("since", 0)), on={"country": "land"}))
    with pytest.raises(ArgumentInvalid, match="the key of table 'rates', which is land"):
        rows.transform(Enrich(table, on={"country": "rate"}))
    with pytest.raises(ArgumentInvalid, match=r"changelog.*TableJoin"):
        changes.transform(Enrich(changes, on="land"))
