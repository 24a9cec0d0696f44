"""An app on Kafka: a topic, a view, dead letters, an alert, a question and a replay, with nothing but another address."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

import headwater as hw
from benchmarks.kafka_broker import Kafka, kafka_brokers
from headwater.alerts import Rule
from headwater.apps.home import Home
from headwater.apps.runner import Runner
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.errors import BrokerUnreachable
from headwater.operators import Dedupe, Tumbling, agg
from headwater.services import app_services
from tests.apps.fixtures import SECONDS_MAX, supervised
from tests.conditions import until
from tests.kafka_server import kafka as kafka
from tests.log.adapters import open_kafka
from tests.servers import or_skip

pytestmark = [pytest.mark.process, pytest.mark.kafka]
BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
Row = dict[str, Any]  # Any: the values of a row


def shop(log: Log, folder: Path) -> hw.App:
    app = hw.App("shop", log=log.address, home=folder / "home")
    columns = {"id": "int64", "card": "int64", "amount": "int64", "at": "timestamp"}
    app.input("payments", columns, partitions=2, time=hw.EventTime("at", delay="1 minute"))

    @app.topic(key="card", ask=True)
    def hours(payments: DataFrame) -> DataFrame:
        once = payments.transform(Dedupe(by="id", within="1 hour"))
        return once.transform(
            Tumbling(size="1 hour", by="card", compute={"total": agg.sum("amount"), "n": agg.count()})
        )

    @app.view(key="card")
    def spend(payments: DataFrame) -> DataFrame:
        return payments.groupBy("card").agg(F.count("*").alias("n"), F.sum("amount").alias("total"))

    return app


def payments(*ids: int) -> list[Row]:
    return [{"id": id, "card": id % 3, "amount": id, "at": BEGAN + timedelta(seconds=id)} for id in ids]


def expected(ids: Sequence[int]) -> dict[int, tuple[int, int]]:
    cards = {card: [id for id in ids if id % 3 == card] for card in range(3)}
    return {card: (len(own), sum(own)) for card, own in cards.items()}


def totals(rows: Sequence[Row]) -> dict[int, tuple[int, int]]:
    return {row["card"]: (row["n"], row["total"]) for row in rows}


def test_an_app_on_kafka(kafka: Kafka, spark: SparkSession, tmp_path: Path) -> None:
    ids = list(range(30))
    with open_kafka(kafka) as log, supervised(Runner(shop(log, tmp_path), spark=spark)) as runner:
        app = runner.app
        log.append("payments", [*payments(*ids, 3, 4), {"id": 99, "card": 1, "amount": 7, "at": None}])
        # A view answers when it has read what was appended.
        until(lambda: "spend" in runner.keeper.views, "the view is kept")
        view, more = app.views["spend"], log.append("payments", payments(30))
        found = view.get(card=0, at_least={"payments": more.offsets_next}, timeout=SECONDS_MAX)
        n, total = expected([*ids, 30, 3, 4])[0]
        assert found == {"card": 0, "n": n, "total": total}
        # The hour is not over, but its sums can be asked for; what came twice is in them once.
        assert totals(app.ask("hours", seconds=60).rows) == expected([*ids, 30])
        [letter] = log.read("payments.dlq").rows()
        assert json.loads(letter["row"])["id"] == 99
        for number in range(2):  # the watermark is that of the slower partition
            later = {"id": 5_000 + number, "card": 0, "amount": 0, "at": BEGAN + timedelta(hours=2)}
            log.append("payments", [later], partition=number)
        until(lambda: log.read("hours").count() == 3, "the hour is closed")
        assert totals(log.read("hours").rows()) == expected([*ids, 30])
        with app_services(Home(app.home)) as services:
            sql = "select card, total as value from spend where total > 160"
            services.alerts.set(Rule(name="much", kind="view", sql=sql, key=("card",)))
            until(lambda: services.alerts.history(), "the alert fires")
            assert [one.state for one in services.alerts.history()] == ["firing"]  # only the first card is above it
            # A second version reads everything again, and takes over where both have met.
            assert services.queries.replay("spend", version="v2").trial == 2
            until(lambda: services.queries.compare("spend").same == 3, "the second version has caught up")
            switched = services.queries.switch("spend")
        assert (switched.state, switched.same, switched.changed) == ("switched", 3, 0)
        log.append("payments", payments(31))
        until(lambda: totals(view.rows())[1][0] == 13, "the second version goes on")
        assert "spend.v2" not in log.topics()
        assert log.read("payments.dlq").count() == 1


@pytest.mark.long
def test_an_app_goes_on_when_its_broker_was_away(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with or_skip(kafka_brokers(tmp_path)) as server, open_log(f"{server.address}/away") as log:
        # The app gives up soon; the test's own log waits for the broker.
        monkeypatch.setenv("HEADWATER_KAFKA_SECONDS_MAX", "2")
        app = shop(log, tmp_path)
        server.broker.kill()
        with pytest.raises(BrokerUnreachable, match="cannot be reached"):
            Runner(app, spark=spark).run()
        server.broker.start()
        server.broker.wait_until_ready()
        with supervised(Runner(app, spark=spark)) as runner:
            log.append("payments", payments(*range(10)))
            until(lambda: "spend" in runner.keeper.views, "the view is kept")
            view = app.views["spend"]
            until(lambda: totals(view.rows()) == expected(range(10)), "the view has followed")
            server.broker.kill()
            until(
                lambda: any("cannot be reached" in (one.error or "") for one in runner.statuses()), "a query has failed"
            )
            server.broker.start()
            server.broker.wait_until_ready()
            log.append("payments", payments(*range(10, 20)))
            until(lambda: totals(view.rows()) == expected(range(20)), "the view goes on")
        changes = [(row["card"], row["n"]) for row in log.read("spend").rows()]
        assert len(changes) == len(set(changes))  # no batch was written twice
