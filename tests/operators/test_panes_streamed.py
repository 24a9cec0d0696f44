"""Panes in real streaming queries: four partitions, a worker killed, and the same query as a batch job."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from headwater.errors import AggregateInvalid, ArgumentInvalid, ColumnUnknown
from headwater.operators import Hopping, Panes, Tumbling, agg
from headwater.operators.panes import AfterProcessingTime, FirstOf, every, rows
from tests.operators.batches import final_table
from tests.operators.streaming import ONCE, Stream
from tests.operators.test_panes import check_order
from tests.operators.test_windows import COMPUTE, Row, arrivals
from tests.operators.test_windows_streamed import TOPIC, closing, orders, results, wanted


@ONCE
@given(batches=arrivals(late_by=20))
def test_retracting_panes(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]]
) -> None:
    def build(rows_in: DataFrame) -> DataFrame:
        window = Hopping(size=20, every=10, on="at", late_by=8, ahead=None)
        early = FirstOf(rows(2), AfterProcessingTime("1 ms"))
        operator = Panes(window=window, by="user", compute=COMPUTE, early=early, allowed_lateness=20, mode="retracting")
        return rows_in.transform(operator)

    stream = Stream(spark, tmp_path_factory.mktemp("retracting"), build, TOPIC)
    for number, batch in enumerate(batches):
        stream.run({"orders": orders(batch)}, kill=number == 1)
    stream.run({"orders": closing()})
    stream.run({"orders": closing()})
    everything = [row for batch in batches for row in batch]
    table = final_table(stream.rows(), ["user", "window_start"])
    assert results(list(table.values())) == wanted(everything, 20, 10)
    panes: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in stream.rows():
        if row["_op"] in ("+I", "+U"):
            panes[row["user"], row["window_start"]].append(row)
    for one in panes.values():
        check_order(one)
    bounded = final_table(stream.bounded(), ["user", "window_start"])
    assert results(list(bounded.values())) == wanted(everything, 20, 10)


def test_an_early_pane_comes_when_time_has_passed_and_no_row_comes(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def build(rows_in: DataFrame) -> DataFrame:
        window = Tumbling(size="1 day", on="at", ahead=None)
        return rows_in.transform(Panes(window=window, by="user", compute={"n": agg.count()}, early=every("1 ms")))

    stream = Stream(spark, tmp_path_factory.mktemp("early"), build, TOPIC)
    stream.run({"orders": orders([("a", 1, 5), ("a", 1, 6)])})
    assert stream.rows() == []
    stream.run({"orders": orders([("b", 1, 5)])})
    assert [(row["user"], row["n"], row["pane_timing"]) for row in stream.rows()] == [("a", 2, "early")]


def test_a_batch_job_has_panes_too_and_arguments_are_any_expression(spark: SparkSession) -> None:
    given_rows = spark.createDataFrame([("a", 3, 10.0), ("a", 4, 20.0)], "user string, amount int, at double")
    operator = Panes(
        window=Tumbling(size="1 minute", on="at"), compute={"squares": agg.sum(F.col("amount") * F.col("amount"))}
    )
    (row,) = given_rows.withColumn("at", F.timestamp_seconds("at")).transform(operator).collect()
    assert (row.squares, row.pane_index, row.pane_timing, row.is_last) == (25, 0, "on_time", True)


@pytest.mark.parametrize(
    ("how", "error", "says"),
    [
        ({"window": Tumbling(size=10, on="when")}, ColumnUnknown, "no column 'when'"),
        ({"window": Tumbling(size=10, on="user")}, ArgumentInvalid, "a column of timestamps"),
        ({"by": "card"}, ColumnUnknown, "no column 'card'"),
        ({"compute": {"n": agg.sum("amont")}}, ColumnUnknown, "no column 'amont'"),
        ({"compute": {"n": agg.sum("user")}}, AggregateInvalid, "Give it a number"),
        ({"compute": {"pane_index": agg.count()}}, ArgumentInvalid, "names that are free"),
    ],
)
def test_what_does_not_fit_the_rows_is_refused_at_once(
    spark: SparkSession, how: dict[str, Any], error: type[Exception], says: str
) -> None:
    operator = Panes(**{"window": Tumbling(size=10, on="at"), "compute": {"n": agg.count()}, **how})
    with pytest.raises(error, match=says):
        operator(spark.createDataFrame([], "user string, amount long, at timestamp"))
