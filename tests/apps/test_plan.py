"""From a declared query to a plan and the topic of its output: mistakes are found here, and no stream is started."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import headwater as hw
from headwater.apps.errors import DeclarationInvalid, OutputChanged
from headwater.apps.home import Version
from headwater.apps.plan import Planner, QueryPlan
from headwater.engine.contract import StepResult
from headwater.log import Log
from headwater.operators import Dedupe, Process

SCHEMA = {"id": "int64", "card": "int64", "amount": "int64", "at": "timestamp"}
Function = Callable[[DataFrame], Any]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with hw.open(tmp_path / "data") as log:
        log.create("payments", SCHEMA, key="card", time="at", partitions=2)
        yield log


# Any: the settings of a declaration.
def planned(spark: SparkSession, log: Log, function: Function, *, view: bool = False, **settings: Any) -> QueryPlan:
    """The plan of the only query of an app; it reads the topic `payments`."""
    app = hw.App("shop", log=log.home)
    declare = app.view if view else app.topic
    declare(name="made", inputs={"rows": "payments"}, **settings)(function)
    (query,) = app.queries
    planner = Planner(spark=spark, log=log, views=frozenset(), state=str(log.home / "state"), app="shop")
    return planner.plan(query, Version(number=1, topic="made"))


def aside(rows: DataFrame) -> DataFrame:
    """All rows, and a side output `large`."""
    columns = {"card": "int64", "amount": "int64"}

    def step(state: pa.Table, rows: pa.Table, _time: object) -> StepResult:
        return StepResult(state, rows)

    return rows.transform(
        Process(step=step, by="card", state={}, output=columns, side_outputs={"large": columns}, name="usual")
    )


def once(rows: DataFrame) -> DataFrame:
    return rows.transform(Dedupe(by="card", time="at", within="1 hour", name="once"))


@pytest.mark.parametrize(
    ("function", "settings", "why"),
    [
        (lambda rows: None, {}, "it returned NoneType, not a DataFrame"),  # noqa: ARG005
        (lambda rows: rows.sparkSession.range(3), {}, "reads no stream"),
        (
            lambda rows: rows,
            {"key": "cart"},
            "its key 'cart' is not among the columns of its result; did you mean 'card'",
        ),
        (lambda rows: rows, {"ask": True}, "no operator that keeps state"),
        (lambda rows: rows, {"late": "made.late"}, "no operator that tells which are late"),
        (
            aside,
            {"side_outputs": {"huge": "made.huge"}},
            "a side output 'huge' that none of its operators has; they have large",
        ),
        (lambda rows: once(once(rows)), {}, "two of its operators are called 'once'"),
    ],
)
def test_a_query_that_cannot_work_says_why(
    spark: SparkSession, log: Log, function: Function, settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(DeclarationInvalid, match=why):
        planned(spark, log, function, **settings)


def test_a_topic_gets_the_columns_the_key_and_the_partitions_of_its_query(spark: SparkSession, log: Log) -> None:
    found = planned(spark, log, lambda rows: rows.select("card", F.lit("x").alias("more")), view=True, key="card")
    topic = log.topic("made")
    assert (topic.schema.names, topic.key, topic.partitions, topic.compact) == (["card", "more"], ("card",), 2, True)
    assert all(column.nullable for column in topic.schema)
    assert found.schemas == {"payments": log.topic("payments").schema_version}


def test_an_output_that_changed_is_refused_unless_it_has_a_column_more(spark: SparkSession, log: Log) -> None:
    def version(key: str, **columns: Any) -> None:
        def function(rows: DataFrame) -> DataFrame:
            return rows.select("card", "id", *(value.alias(name) for name, value in columns.items()))

        planned(spark, log, function, view=True, key=key)

    version("card", amount=F.col("amount"))
    version("card", amount=F.col("amount"), more=F.lit("x"))
    assert log.topic("made").schema.names == ["card", "id", "amount", "more"]
    version("card", amount=F.col("amount"))  # readers keep a column that is no longer written
    assert log.topic("made").schema.names == ["card", "id", "amount", "more"]
    with pytest.raises(OutputChanged, match="its key was card, and now it is id"):
        version("id", amount=F.col("amount"))
    with pytest.raises(OutputChanged, match="column 'amount'"):
        version("card", amount=F.lit("text"))


def test_a_topic_that_was_not_made_for_a_view_is_no_view(spark: SparkSession, log: Log) -> None:
    log.create("made", SCHEMA, key="card")
    with pytest.raises(OutputChanged, match="it was not made for a view"):
        planned(spark, log, lambda rows: rows, view=True, key="card")


def test_a_side_output_whose_columns_changed_is_refused(spark: SparkSession, log: Log) -> None:
    planned(spark, log, aside, side_outputs={"large": "made.large"})
    assert log.topic("made.large").schema.names == ["card", "amount"]
    log.delete("made.large")
    log.create("made.large", {"other": "int64"})
    with pytest.raises(OutputChanged, match="have other columns now"):
        planned(spark, log, aside, side_outputs={"large": "made.large"})
