"""Whole apps on a real session: declared, run, watched, corrected and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import headwater as hw
from headwater.apps.errors import DeclarationInvalid, QueryFailed
from headwater.apps.home import Home
from headwater.engine.contract import StepResult
from headwater.engine.event_time import BatchTime
from headwater.engine.step import due_keys
from headwater.operators import Process
from headwater.services import app_services
from headwater.sinks import LakeSink
from headwater.testing import AppTest
from tests.apps.fixtures import running
from tests.conditions import until

SCHEMA = {"id": "int64", "card": "int64", "amount": "int64", "at": "timestamp"}


def shop(folder: Path) -> hw.App:
    app = hw.App("shop", log=folder / "data")
    app.input("payments", SCHEMA, key="card", time="at", partitions=2)
    return app


def spend_of(app: hw.App) -> None:
    @app.view(key="card")
    def spend(payments: DataFrame) -> DataFrame:
        return payments.groupBy("card").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))


def payments(count: int, *, first: int = 0, at: Any = None) -> list[dict[str, Any]]:
    return [{"id": first + n, "card": n % 3, "amount": n, "at": at} for n in range(count)]


def expected_spend(rows: list[dict[str, Any]]) -> dict[int, tuple[int, int]]:
    found: dict[int, tuple[int, int]] = {}
    for row in rows:
        n, total = found.get(row["card"], (0, 0))
        found[row["card"]] = (n + 1, total + row["amount"])
    return found


def as_dict(rows: list[dict[str, Any]]) -> dict[int, tuple[int, int]]:
    return {row["card"]: (row["n"], row["total"]) for row in rows}


# -- in tests of users' own -------------------------------------------------------------------------------------------


def remind(state: pa.Table, rows: pa.Table, time: BatchTime) -> StepResult:
    """Tell of a card that has been silent for ten minutes of processing time."""
    kept = {row["_key"]: row["_wake_at_processing"] for row in state.to_pylist()}
    kept |= dict.fromkeys(rows.column("_key").to_pylist(), (time.processing_us or 0) + 600000000)
    due = [int(key) for key in due_keys(state, time) if kept[int(key)] <= (time.processing_us or 0)]
    for key in due:
        kept.pop(key)
    after = pa.table({"_wake_at_processing": list(kept.values()), "_key": list(kept)}, schema=STATE)
    return StepResult(after, pa.table({"_key": pa.array(due, pa.int64()), "silent": pa.array([True] * len(due))}))


STATE = pa.schema([("_wake_at_processing", pa.int64()), ("_key", pa.int64())])


@pytest.mark.core
def test_an_app_is_tested_with_rows_and_a_clock(spark: SparkSession, tmp_path: Path) -> None:
    app = shop(tmp_path)
    spend_of(app)

    @app.view(key="card")
    def rich(spend: DataFrame) -> DataFrame:
        return spend.where("total > 12")

    @app.topic(key="card")
    def silent(payments: DataFrame) -> DataFrame:
        silence = Process(
            step=remind, by="card", state={"_wake_at_processing": "int64"}, output={"card": "int64", "silent": "bool"}
        )
        return payments.transform(silence)

    @app.sink(LakeSink(path=str(tmp_path / "lake")))
    def lake(payments: DataFrame) -> DataFrame:
        return payments.select("id", "card")

    with AppTest(app, spark=spark, sinks="real") as test:
        rows = payments(9, at=test.now)
        test.feed("payments", rows)
        assert as_dict(test.views["spend"].rows()) == expected_spend(rows)
        assert [row["card"] for row in test.views["rich"].rows()] == [2]
        assert test.views["spend"].get(card=1) == {"card": 1, "n": 3, "total": 12}
        assert test.views["spend"].get(card=99) is None
        assert test.rows("silent") == []
        test.advance("9 minutes")
        test.feed("payments", payments(1, first=9, at=test.now))  # card 0 is not silent
        test.advance("2 minutes")
        assert sorted(row["card"] for row in test.rows("silent")) == [1, 2]
        assert DeltaTable(tmp_path / "lake").count() == 10


def test_a_mistake_is_told_before_any_query_starts(spark: SparkSession, tmp_path: Path) -> None:
    app = shop(tmp_path)
    spend_of(app)

    @app.view(key="cart")
    def wrong(payments: DataFrame) -> DataFrame:
        return payments.select("card", "amount")

    with AppTest(app, spark=spark) as test:
        test.feed("payments", payments(3))
        with pytest.raises(DeclarationInvalid, match=r"its key .cart. is not among the columns"):
            test.drain()
        assert test.log.read("spend").count() == 0


def test_a_null_key_stops_the_query_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    app = shop(tmp_path)
    spend_of(app)
    with AppTest(app, spark=spark) as test:
        test.feed("payments", [{"id": 1, "card": None, "amount": 1, "at": None}])
        with pytest.raises(QueryFailed, match="card"):
            test.drain()


# -- a running app: what a runner does to any query is in test_runner.py ----------------------------------------------


def test_a_replay_on_spark_takes_over_where_both_versions_met(spark: SparkSession, tmp_path: Path) -> None:
    app = shop(tmp_path)
    spend_of(app)
    rows = payments(30)
    with running(app, spark) as runner:
        appended = runner.log.append("payments", rows)
        until(lambda: "spend" in runner.keeper.views, "the view is kept")
        view = app.views["spend"]
        found = view.get(card=2, at_least={"payments": appended.offsets_next}, timeout=120.0)
        assert found == {"card": 2, "n": 10, "total": 155}
        with app_services(Home(app.home)) as services:
            queries = services.queries
            assert "StateStore" in queries.explain("spend").plan
            assert queries.replay("spend", version="v2").trial == 2
            until(lambda: queries.compare("spend").same == 3, "the second version has caught up")
            switched = queries.switch("spend")
        assert (switched.state, switched.same, switched.changed) == ("switched", 3, 0)
        runner.log.append("payments", rows)
        until(lambda: as_dict(view.rows()) == expected_spend(rows * 2), "the second version goes on")
        assert "spend.v2" not in runner.log.topics()


def test_a_query_starts_again_when_it_failed_and_takes_new_columns_in(spark: SparkSession, tmp_path: Path) -> None:
    app = shop(tmp_path)
    broken = tmp_path / "broken"
    broken.touch()

    @app.topic(key="card")
    def copied(payments: DataFrame) -> DataFrame:
        return payments.mapInArrow(_unless(str(broken)), payments.schema)

    with running(app, spark) as runner:
        runner.log.append("payments", payments(3))
        (one,) = runner.supervised.values()
        until(lambda: one.progress.status().restarts > 0, "it has failed")
        assert "broken" in str(one.progress.status().error)
        broken.unlink()
        until(lambda: runner.log.read("copied").count() == 3, "it has started again")
        assert one.progress.status().error is None or one.progress.status().state != "failed"
        runner.log.alter("payments", schema={**SCHEMA, "shop": "string"})
        runner.log.append("payments", [{"id": 9, "card": 1, "amount": 1, "at": None, "shop": "corner"}])
        until(lambda: runner.log.read("copied").count() == 4, "the row is through")
        shops = [row.get("shop") for row in runner.log.read("copied").rows()]
        if "corner" not in shops:  # it was read just before the schema was looked at
            until(lambda: "shop" in runner.log.topic("copied").schema.names, "the query knows the column")


def _unless(path: str) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if Path(path).exists():
                raise RuntimeError(f"broken by {path}")
            yield batch

    return run
