"""The same app on every kind of log: a derived topic, a view, dead letters and a sink; only the address changes."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import headwater as hw
from headwater.apps.runner import Runner
from headwater.log import Log
from headwater.operators import Dedupe
from headwater.sinks import LakeSink
from tests.apps.fixtures import supervised
from tests.conditions import until
from tests.log.adapters import Logs
from tests.log.adapters import logs as logs
from tests.log.adapters import server as server

BEGAN = datetime(2026, 3, 1, tzinfo=UTC)


def shop(log: Log, folder: Path) -> hw.App:
    app = hw.App("shop", log=log.address, home=folder / "home")
    app.input(
        "payments", {"id": "int64", "card": "int64", "amount": "int64", "at": "timestamp"}, partitions=2, time="at"
    )

    @app.topic(key="card", sinks=[LakeSink(path=str(folder / "lake"))])
    def paid(payments: DataFrame) -> DataFrame:
        return payments.transform(Dedupe(by="id", within="1 hour"))

    @app.view(key="card")
    def spend(paid: DataFrame) -> DataFrame:
        return paid.groupBy("card").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))

    return app


def payments(*ids: int) -> list[dict[str, Any]]:
    return [{"id": id, "card": id % 3, "amount": id, "at": BEGAN + timedelta(seconds=id)} for id in ids]


def expected(ids: set[int]) -> dict[int, tuple[int, int]]:
    cards = {id % 3 for id in ids}
    return {card: (sum(id % 3 == card for id in ids), sum(id for id in ids if id % 3 == card)) for card in cards}


def spent(rows: list[dict[str, Any]]) -> dict[int, tuple[int, int]]:
    return {row["card"]: (row["n"], row["total"]) for row in rows}


def test_an_app_runs_on_every_kind_of_log(logs: Logs, spark: SparkSession, tmp_path: Path) -> None:
    with logs() as log:
        app = shop(log, tmp_path)
        Runner(app, spark=spark, until_caught_up=True, serve=False).run()
        log.append("payments", [*payments(*range(20), 3, 4), {"id": 99, "card": 1, "amount": 7, "at": None}])
        Runner(app, spark=spark, until_caught_up=True, serve=False).run()
        assert sorted(row["id"] for row in log.read("paid").rows()) == list(range(20))
        [letter] = log.read("payments.dlq").rows()
        assert json.loads(letter["row"])["id"] == 99
        # It goes on where it was, continuously now, and serves the same log with its views.
        with supervised(Runner(app, spark=spark)) as runner:
            log.append("payments", payments(4, *range(20, 30)))
            until(lambda: sum(log.end_offsets("paid").values()) == 30, "all rows are in the derived topic")
            view = app.views["spend"]
            until(lambda: spent(view.rows()) == expected(set(range(30))), "the view has followed")
            assert view.get(card=1) == {"card": 1, "n": 10, "total": expected(set(range(30)))[1][1]}
            api = {"Authorization": f"Bearer {runner.announced.token}"}
            base = f"{runner.announced.address}/api/v1"
            answer = httpx.post(f"{base}/sql", json={"sql": "select count(*) as n from spend"}, headers=api)
            assert answer.json()["rows"] == [{"n": 3}]
            waited = httpx.post(f"{base}/wait", json={"topics": {"paid": {"0": 0}}, "seconds": 5}, headers=api)
            assert waited.json()["signs"] == ["rows"]
            page = httpx.get(f"{base}/topics/paid/page", params={"limit": 100}, headers=api)
            assert len(page.json()["rows"]) == 30
        assert sorted(row["id"] for row in log.read("paid").rows()) == list(range(30))
        assert log.read("payments.dlq").count() == 1
        lake = DeltaTable(tmp_path / "lake").to_pyarrow_table().to_pylist()
        assert sorted(row["id"] for row in lake) == list(range(30))
