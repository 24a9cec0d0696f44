"""Whole apps: declared, run, watched, corrected and replayed, on a real session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import headwater as hw
from headwater import errors as hw_errors
from headwater.errors import DeclarationInvalid, OutputChanged, PortTaken, QueryFailed, QueryNotFound
from headwater.operators import Process
from headwater.operators.keyed import BatchTime, Stepped, due_keys
from headwater.runtime.api import bound
from headwater.runtime.client import Client
from headwater.runtime.runner import Runner
from headwater.sinks import ParquetSink, read_lake
from headwater.testing import AppTest
from tests.servers import Postgres
from tests.servers import postgres as postgres
from tests.waiting import until

SCHEMA = {"id": "int64", "card": "int64", "amount": "int64", "at": "timestamp"}
SECONDS_MAX = 120.0


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


def payments_of(view: Any, *, card: int) -> int:
    row = view.get(card=card)
    return 0 if row is None else int(row["n"])


# -- in tests of users' own -------------------------------------------------------------------------------------------


def remind(state: pa.Table, rows: pa.Table, time: BatchTime) -> Stepped:
    """Tell of a card that has been silent for ten minutes of processing time."""
    kept = {row["_key"]: row["_wake_at_processing"] for row in state.to_pylist()}
    kept |= dict.fromkeys(rows.column("_key").to_pylist(), (time.processing_us or 0) + 600000000)
    due = [int(key) for key in due_keys(state, time) if kept[int(key)] <= (time.processing_us or 0)]
    for key in due:
        kept.pop(key)
    after = pa.table({"_wake_at_processing": list(kept.values()), "_key": list(kept)}, schema=STATE)
    return Stepped(after, pa.table({"_key": pa.array(due, pa.int64()), "silent": pa.array([True] * len(due))}))


STATE = pa.schema([("_wake_at_processing", pa.int64()), ("_key", pa.int64())])


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

    @app.sink(ParquetSink(path=str(tmp_path / "lake")))
    def lake(payments: DataFrame) -> DataFrame:
        return payments.select("id", "card")

    with AppTest(app, spark=spark) as test:
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
        assert read_lake(tmp_path / "lake").table().num_rows == 10


def test_a_mistake_is_told_before_any_query_starts(spark: SparkSession, tmp_path: Path) -> None:
    app = shop(tmp_path)
    spend_of(app)

    @app.view(key="cart")
    def wrong(payments: DataFrame) -> DataFrame:
        return payments.select("card", "amount")

    with AppTest(app, spark=spark) as test:
        test.feed("payments", payments(3))
        with pytest.raises(DeclarationInvalid, match=r"its key .cart. is not among the columns"):
            test.settle()
        assert test.log.read("spend").count() == 0


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda payments: None, "it returned NoneType, not a DataFrame"),  # noqa: ARG005
        (lambda payments: payments.sparkSession.range(3), "reads no stream"),
    ],
)
def test_a_function_that_returns_no_stream_is_told(
    spark: SparkSession, tmp_path: Path, function: Callable[..., Any], why: str
) -> None:
    app = shop(tmp_path)
    app.topic(name="wrong")(function)
    with AppTest(app, spark=spark) as test, pytest.raises(DeclarationInvalid, match=why):
        test.feed("payments", payments(1))
        test.settle()


def test_a_null_key_stops_the_query_with_its_reason(spark: SparkSession, tmp_path: Path) -> None:
    app = shop(tmp_path)
    spend_of(app)
    with AppTest(app, spark=spark) as test:
        test.feed("payments", [{"id": 1, "card": None, "amount": 1, "at": None}])
        with pytest.raises(QueryFailed, match="card"):
            test.settle()


def test_an_output_that_changed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def version(key: str, **columns: Any) -> hw.App:
        app = shop(tmp_path)

        @app.view(key=key)
        def spend(payments: DataFrame) -> DataFrame:
            return payments.select("card", "id", *(value.alias(name) for name, value in columns.items()))

        return app

    def run(app: hw.App) -> None:
        Runner(app, until_caught_up=True, serve=False, spark=spark).run()

    run(version("card", amount=F.col("amount")))
    run(version("card", amount=F.col("amount"), more=F.lit("x")))  # a column more is taken in
    with hw.open(tmp_path / "data") as log:
        assert log.topic("spend").schema.names == ["card", "id", "amount", "more"]
    with pytest.raises(OutputChanged, match="its key was card, and now it is id"):
        run(version("id", amount=F.col("amount")))
    with pytest.raises(OutputChanged, match="column 'amount'"):
        run(version("card", amount=F.lit("text")))


def test_views_may_live_in_postgresql(spark: SparkSession, tmp_path: Path, postgres: Postgres) -> None:
    app = hw.App("shared", log=tmp_path / "data", views=postgres.new_database())
    app.input("payments", SCHEMA, key="card", time="at", partitions=2)
    spend_of(app)
    rows = payments(9)
    with hw.open(tmp_path / "data") as log:
        log.create("payments", SCHEMA, key="card", time="at", partitions=2)
        log.append("payments", rows)
    Runner(app, until_caught_up=True, serve=False, spark=spark).run()
    assert as_dict(app.views["spend"].rows()) == expected_spend(rows)  # from the store, while nobody runs the app


def test_a_store_of_another_kind_is_refused() -> None:
    with pytest.raises(hw_errors.ArgumentInvalid, match="postgresql"):
        hw.App("shared", views="mysql://somewhere")


# -- a running app ----------------------------------------------------------------------------------------------------


@contextmanager
def running(app: hw.App, spark: SparkSession) -> Iterator[Runner]:
    runner = Runner(app, spark=spark)
    with runner.ready():
        failure: list[BaseException] = []

        def supervise() -> None:
            try:
                runner.supervise()
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=supervise)
        thread.start()
        try:
            yield runner
        finally:
            runner.request_stop()
            thread.join(SECONDS_MAX)
        if failure:
            raise failure[0]


def test_a_running_app_is_asked_told_replayed_and_rebuilt(spark: SparkSession, tmp_path: Path) -> None:
    app = shop(tmp_path)
    spend_of(app)
    rows = payments(30)
    with running(app, spark) as runner:
        at = runner.log.append("payments", rows).ranges
        wanted = {"payments": {partition: end for partition, (_, end) in at.items()}}
        until(lambda: "spend" in runner.keeper.views, "the view is kept")
        view = app.views["spend"]
        assert view.get(card=2, at_least=wanted, timeout=SECONDS_MAX) == {"card": 2, "n": 10, "total": 155}
        client = Client("shop", app.home)
        assert [(one["name"], one["kind"]) for one in client.get("/queries")] == [("spend", "view")]
        assert "headwater_" in client.get("/metrics")
        assert "spend" in client.get("/graph")
        assert "payments" in client.get("/graph", format="svg")
        with pytest.raises(QueryNotFound, match="Did you mean 'spend'"):
            client.post("/queries/spent/stop")
        client.post("/queries/spend/stop")
        runner.log.append("payments", rows)
        assert client.get("/queries")[0]["state"] == "stopped"
        assert payments_of(view, card=2) == 10
        client.post("/queries/spend/restart")
        until(lambda: payments_of(view, card=2) == 20, "the query has started again")

        assert client.post("/queries/spend/replay", version="v2")["trial"] == 2
        until(lambda: client.get("/queries/spend/replay")["same"] == 3, "the second version has caught up")
        with view.subscribe() as changes:
            for _ in range(3):
                next(changes)
            switched = client.post("/queries/spend/switch")
            assert (switched["state"], switched["same"], switched["changed"]) == ("switched", 3, 0)
            runner.log.append("payments", rows)
            change = next(changes)  # the subscriber goes on, and has missed nothing
            assert change.row["n"] == 30
        until(lambda: payments_of(view, card=2) == 30, "the second version goes on")
        assert "spend.v2" not in runner.log.topics()

        assert client.post("/views/spend/rebuild")["version"] == 2
        assert as_dict(view.rows()) == expected_spend(rows * 3)


def test_replay_corrects_what_readers_have_seen(spark: SparkSession, tmp_path: Path) -> None:
    def version(factor: int) -> hw.App:
        app = shop(tmp_path)

        @app.view(key="card")
        def spend(payments: DataFrame) -> DataFrame:
            return payments.where(f"card < {factor}").groupBy("card").agg((F.sum("amount") * factor).alias("total"))

        return app

    with running(version(3), spark) as runner:
        runner.log.append("payments", payments(6))
        until(lambda: "spend" in runner.keeper.views, "the view is kept")
        until(lambda: len(runner.keeper.views["spend"].rows()) == 3, "three cards")
    with running(version(2), spark) as runner:
        runner.replays.begin("spend")
        until(lambda: runner.replays.report("spend").only_active == 1, "the trial has seen all")
        report = runner.replays.report("spend")
        assert (report.same, report.changed, report.only_active, report.only_trial) == (0, 2, 1, 0)
        runner.replays.switch("spend")
        totals = {0: 6, 1: 10}
        view = runner.keeper.views["spend"]
        until(lambda: {row["card"]: row["total"] for row in view.rows()} == totals, "readers see the corrections")


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
        until(lambda: one.watch.status().restarts > 0, "it has failed")
        assert "broken" in str(one.watch.status().error)
        broken.unlink()
        until(lambda: runner.log.read("copied").count() == 3, "it has started again")
        assert one.watch.status().error is None or one.watch.status().state != "failed"
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


def test_a_port_that_is_taken_is_told() -> None:
    taken = bound(0)
    try:
        with pytest.raises(PortTaken, match="used by another program"):
            bound(taken.getsockname()[1])
    finally:
        taken.close()
