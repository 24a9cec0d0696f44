"""Several apps in one process, on one Spark session: each keeps its own state, views and checkpoints."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.apps.plan import keeping_state_in
from headwater.apps.runner import Runner
from headwater.engine.state_maintenance import states
from headwater.operators import Dedupe
from headwater.spark.session import STATE
from tests.conditions import SECONDS_MAX, until


def shop(folder: Path, name: str) -> hw.App:
    app = hw.App(name, log=folder / "data")
    app.input(f"{name}_orders", {"id": "int64", "at": "timestamp"}, key="id", time="at")

    @app.topic(name=f"{name}_once", key="id", inputs={"orders": f"{name}_orders"})
    def once(orders: DataFrame) -> DataFrame:
        return orders.transform(Dedupe(by="id", time="at", within="1 hour"))

    return app


def test_two_apps_share_a_session_and_keep_their_state_apart(spark: SparkSession, tmp_path: Path) -> None:
    before = spark.conf.get(STATE)
    runners = [Runner(shop(tmp_path, name), spark=spark) for name in ("east", "west")]
    with contextlib.ExitStack() as stack, hw.open(tmp_path / "data") as log:
        for runner in runners:
            stack.enter_context(runner.ready())
            log.append(f"{runner.app.name}_orders", [{"id": n % 3, "at": 1_000_000} for n in range(6)])
        threads = [threading.Thread(target=runner.supervise) for runner in runners]
        for thread in threads:
            thread.start()
        until(lambda: all(runner.statuses()[0].batch is not None for runner in runners), "both have had a batch")
        for runner, thread in zip(runners, threads, strict=True):
            runner.request_stop()
            thread.join(SECONDS_MAX)
        for runner in runners:
            name = f"{runner.app.name}_once"
            assert sorted(row["id"] for row in log.read(name).rows()) == [0, 1, 2]
            identity = runner.home.query_id(name, 1)
            assert identity is not None
            partition = next((runner.home.state / identity).glob("*/0"))
            (partition / ".vanished.tmp").symlink_to("nowhere")  # listed, and gone when it is looked at
            assert sum(one.rows for one in states(runner.home.state, query=identity)) == 3
            assert [path.name for path in runner.home.state.iterdir()] == [identity]
    assert spark.conf.get(STATE) == before


def test_apps_that_are_planned_at_once_take_turns(spark: SparkSession) -> None:
    before = spark.conf.get(STATE)
    mistaken: list[str] = []
    together = threading.Barrier(2)

    def plan(folder: str) -> None:
        together.wait()
        for _ in range(50):
            with keeping_state_in(spark, folder):
                mistaken.extend({str(spark.conf.get(STATE)) for _ in range(3)} - {folder})

    threads = [threading.Thread(target=plan, args=(folder,)) for folder in ("east", "west")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert mistaken == []
    assert spark.conf.get(STATE) == before
