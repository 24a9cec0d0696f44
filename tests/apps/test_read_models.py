"""Views of events of an app on Spark: several of one topic, read after one's own writes, built again beside, and forgetful."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

import headwater as hw
from headwater.apps.home import Home
from headwater.operators import AggregateTable, Evolve, agg
from headwater.services import app_services
from headwater.sourcing import ReadModel, RecordedEvent, erase, reveal
from tests.apps.fixtures import running
from tests.conditions import until
from tests.sourcing.account import DECIDER, Deposit, Open
from tests.sourcing.customer import CUSTOMER, Register
from tests.sourcing.read_models import BALANCES, Balance, balance


def doubled(row: Balance, event: RecordedEvent) -> Balance:
    """Another `evolve`: each deposit counts twice."""
    after = balance(row, event)
    assert isinstance(after, Balance)
    return replace(after, amount=2 * after.amount - row.amount)


def bank(folder: Path, model: ReadModel[Balance]) -> hw.App:
    app = hw.App("bank", log=folder / "log", home=folder / "home")

    @app.view(key="entity", inputs={"events": "account.events"})
    def balances(events: DataFrame) -> DataFrame:
        return events.transform(Evolve(model=model))

    @app.view(key="owner", inputs={"events": "account.events"})
    def wealth(events: DataFrame) -> DataFrame:
        compute = {"accounts": agg.count(), "amount": agg.sum("amount")}
        return Evolve(model=model)(events).transform(AggregateTable(by="owner", compute=compute, name="wealth"))

    return app


def test_views_of_events_are_read_after_a_write_and_built_again_beside_the_ones_in_use(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hw.open(tmp_path / "log") as log, hw.Entities(log, "account", DECIDER, partitions=2) as accounts:
        app = bank(tmp_path, BALANCES)
        with running(app, spark) as runner:
            until(lambda: {"balances", "wealth"} <= set(runner.keeper.views), "the views are kept")
            view, wealth = app.views["balances"], app.views["wealth"]
            changes = view.subscribe()
            for id in ("a", "b"):
                accounts.send(id, Open("Ada"))
            decision = accounts.send("a", Deposit(5))
            written = {"account.events": decision.offsets}
            row = view.get(entity="a", at_least=written, timeout=120.0)
            assert row is not None
            assert (row["owner"], row["amount"]) == ("Ada", 5)
            total = wealth.get(
                owner="Ada", at_least={"account.events": log.end_offsets("account.events")}, timeout=120.0
            )
            assert total == {"owner": "Ada", "accounts": 2, "amount": 5}
            told = iter(lambda: changes.next(timeout=60.0), None)
            assert next(each for each in told if each.row == row).op == "+U"
            changes.close()
        app = bank(tmp_path, replace(BALANCES, evolve=doubled, version=2))
        with running(app, spark) as runner, app_services(Home(app.home)) as services:
            queries = services.queries
            for name in ("balances", "wealth"):
                assert queries.replay(name, version="v2").trial == 2
            until(lambda: queries.compare("balances").changed == 1, "the new version is compared")
            assert queries.compare("balances").same == 1
            assert queries.switch("balances").state == "switched"
            view = app.views["balances"]
            decision = accounts.send("a", Deposit(1))
            row = view.get(entity="a", at_least={"account.events": decision.offsets}, timeout=120.0)
            assert row is not None
            assert row["amount"] == 12
            rows = {row["entity"]: row["amount"] for row in view.rows()}
        with replace(BALANCES, evolve=doubled).inline(accounts, ":memory:") as inline:
            assert rows == {row["entity"]: row["amount"] for row in inline.query("SELECT * FROM balances")}


def test_a_person_is_erased_while_an_app_has_views_of_the_events(spark: SparkSession, tmp_path: Path) -> None:
    app = hw.App("shop", log=tmp_path)

    @app.view(key="entity", inputs={"events": "customer.events"})
    def people(events: DataFrame) -> DataFrame:
        """Names pass through the query, its state, its topic and its view encrypted."""
        newest = F.max_by(F.get_json_object("data", "$.name"), "version").alias("name")
        return events.groupBy("entity").agg(newest, F.count("*").alias("events"))

    names = {"c-1": "Ada Lovelace", "c-2": "Grace Hopper"}
    with hw.open(tmp_path) as log, hw.Entities(log, "customer", CUSTOMER, partitions=1) as customers:
        for id, name in names.items():
            customers.send(id, Register("another name"))
            written = {"customer.events": customers.send(id, Register(name)).offsets}
        with running(app, spark) as runner:
            until(lambda: "people" in runner.keeper.views, "the view is kept")
            view = app.views["people"]

            def shown() -> dict[str, str]:
                rows = reveal(log, pa.Table.from_pylist(view.rows())).to_pylist()
                return {row["entity"]: row["name"] for row in rows if row["events"] == 2}

            assert view.get(entity="c-2", at_least=written, timeout=120.0) is not None
            assert shown() == names
            [certificate] = erase(log, "c-1")
            assert (certificate.complete, certificate.remaining) == (True, [])
            assert "views of app shop" in certificate.searched
            assert shown() == {"c-1": "[erased]", "c-2": "Grace Hopper"}
            again = customers.send("c-2", Register("Rear Admiral Hopper"))
            row = view.get(entity="c-2", at_least={"customer.events": again.offsets}, timeout=120.0)
            assert row is not None
            assert row["events"] == 3
    found = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"Lovelace" not in found
    assert b"Hopper" not in found
