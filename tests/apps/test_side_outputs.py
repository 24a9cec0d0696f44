"""Side outputs of an app's operators go to the topics that were declared, in the transaction of the batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.engine.contract import StepResult
from headwater.operators import Process
from headwater.testing import AppTest
from tests.apps.fixtures import running
from tests.conditions import until


def large_aside(state: pa.Table, rows: pa.Table, _time: object) -> StepResult:
    """Rows with an amount above 100 go to a side output."""
    large = pc.greater(rows.column("amount"), 100)
    output = rows.select(["_key", "user", "amount"])
    return StepResult(state, output.filter(pc.invert(large)), {"large": output.filter(large)})


def orders_app(folder: Path) -> hw.App:
    app = hw.App("sides", log=folder / "log")
    app.input("orders", {"user": "string", "amount": "int64"}, key="user")

    @app.topic(key="user", side_outputs={"large": "orders.large"})
    def usual(orders: DataFrame) -> DataFrame:
        columns = {"user": "string", "amount": "int64"}
        return orders.transform(
            Process(
                step=large_aside, by="user", state={}, output=columns, side_outputs={"large": columns}, name="usual"
            )
        )

    return app


def test_a_side_goes_to_its_topic(spark: SparkSession, tmp_path: Path) -> None:
    with AppTest(orders_app(tmp_path), spark=spark) as test:
        for amount in (5, 500, 7):
            test.feed("orders", [{"user": "ada", "amount": amount}])
            test.drain()
        assert [row["amount"] for row in test.rows("usual")] == [5, 7]
        assert test.rows("orders.large") == [{"user": "ada", "amount": 500}]


def test_a_version_on_trial_puts_nothing_aside_a_second_time(spark: SparkSession, tmp_path: Path) -> None:
    with running(orders_app(tmp_path), spark) as runner:
        runner.log.append("orders", [{"user": "ada", "amount": amount} for amount in (5, 500)])
        until(
            lambda: "usual" in runner.log.topics() and runner.log.read("usual").count() == 1,
            "the version in use has seen all",
        )
        runner.replays.begin("usual")
        until(
            lambda: "usual.v2" in runner.log.topics() and runner.log.read("usual.v2").count() == 1,
            "the trial has seen all",
        )
        assert runner.log.read("orders.large").count() == 1
