"""Captures that an app declares: how queries name their tables, and who runs them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import headwater as hw
from headwater.apps.capture_supervision import SupervisedCapture
from headwater.apps.captures import AppCapture, named_tables, with_captured_inputs
from headwater.apps.check import problems
from headwater.apps.declaration import Query
from headwater.apps.diagram import as_svg, as_text
from headwater.apps.diagram.text import summary
from headwater.apps.errors import DeclarationInvalid
from headwater.apps.graph import picture
from headwater.apps.home import DeclaredQuery
from headwater.capture import Capture, CaptureChanged, CaptureStore, SourceInvalid
from headwater.capture.report import report_of
from headwater.errors import ArgumentInvalid
from headwater.operators import AggregateTable, TableJoin, agg
from headwater.testing import AppTest
from tests.capture.shop import log_at
from tests.conditions import until

ORDERS = {"id": "int64", "customer": "int64", "price": "float64"}
CUSTOMERS = {"id": "int64", "name": "string"}


def database(folder: Path) -> sqlite3.Connection:
    shop = sqlite3.connect(folder / "shop.db", isolation_level=None, timeout=30)
    shop.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER, price REAL)")
    shop.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
    shop.execute("INSERT INTO customers VALUES (1, 'Anna'), (2, 'Bo')")
    shop.execute("INSERT INTO orders VALUES (1, 1, 2.5), (2, 1, 1.0), (3, 2, 4.0)")
    return shop


def app_of(folder: Path) -> tuple[hw.App, AppCapture]:
    app = hw.App("revenue", log=folder / "log")
    shop = app.capture(f"sqlite:///{folder}/shop.db", tables=["orders", "customers"])

    @app.view(key="name")
    def revenue(orders: hw.Table, customers: hw.Table) -> DataFrame:
        priced = orders.transform(TableJoin(customers, on=("customer", "id")))
        return priced.transform(AggregateTable(by="name", compute={"total": agg.sum("price")}))

    return app, shop


def reading(name: str) -> Sequence[Query]:
    """A query whose argument is called so."""
    app = hw.App("any", log="./data")
    app.topic(name="declared", inputs={"rows": name})(lambda rows: rows)
    return app.queries


# -- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["orders", "public.orders", "public_orders", "shop.public.orders"])
def test_an_argument_names_a_captured_table(name: str) -> None:
    (query,) = with_captured_inputs(reading(name), {"shop.public.orders": "public.orders"}, inputs=[])
    assert query.reads == ("shop.public.orders",)


def test_what_the_app_declares_itself_comes_before_a_captured_table() -> None:
    captured = {"shop.orders": "orders"}
    assert with_captured_inputs(reading("orders"), captured, inputs=["orders"])[0].reads == ("orders",)
    assert with_captured_inputs(reading("other"), captured, inputs=[])[0].reads == ("other",)


def test_a_name_of_two_tables_must_be_made_clear() -> None:
    captured = {"east.orders": "orders", "west.orders": "orders"}
    with pytest.raises(DeclarationInvalid, match=r"east.orders or west.orders; say which, as in `inputs="):
        with_captured_inputs(reading("orders"), captured, inputs=[])


def test_a_declaration_that_cannot_work_is_refused_at_once() -> None:
    app = hw.App("shop", log="./data")
    app.capture("sqlite:///shop.db")
    with pytest.raises(ArgumentInvalid, match="a name that no other capture has"):
        app.capture("sqlite:///elsewhere/shop.db")
    with pytest.raises(ArgumentInvalid, match="such as `partitions`"):
        app.capture("sqlite:///a.db", partition=2)
    with pytest.raises(ArgumentInvalid, match=r"a list, such as \['orders'\]"):
        app.capture("sqlite:///b.db", tables="orders")
    with pytest.raises(ArgumentInvalid, match="with the name of a database, or give `name=`"):
        app.capture("postgresql://db.example")
    with pytest.raises(ArgumentInvalid, match="one of id, name"):
        app.captures[0].table("customers", CUSTOMERS, key="nr")


# -- check ------------------------------------------------------------------------------------------------------------


def test_a_check_reads_the_columns_and_changes_nothing(tmp_path: Path) -> None:
    shop = database(tmp_path)
    app, capture = app_of(tmp_path)
    assert problems(app, start_spark=None) == []
    assert not (tmp_path / "log").exists()
    assert list(shop.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")) == []
    capture.table("orders", {"id": "int64", "prices": "float64"}, key="id")
    (found,) = problems(app, start_spark=None)
    assert "it has no column 'prices'; did you mean 'price'?" in found.message


def test_a_check_without_the_database_needs_the_declared_columns(tmp_path: Path) -> None:
    app, capture = app_of(tmp_path)
    (found,) = problems(app, start_spark=None)
    assert (found.name, "there is no such file" in found.message) == ("shop", True)
    capture.table("orders", ORDERS, key="id")
    (found,) = problems(app, start_spark=None)
    assert (found.name, "`capture.table`" in found.message) == ("revenue", True)
    capture.table("customers", CUSTOMERS, key="id")
    assert problems(app, start_spark=None) == []


# -- at work ----------------------------------------------------------------------------------------------------------


def test_a_capture_is_restarted_when_its_database_comes_back(tmp_path: Path) -> None:
    shop = database(tmp_path)
    _, declared = app_of(tmp_path)
    with log_at(tmp_path) as log:
        first = SupervisedCapture(log, declared, app="revenue")
        assert first.prepare() == ["orders", "customers"]
        assert first.catch_up() == 5
        (tmp_path / "shop.db").rename(tmp_path / "away.db")
        one = SupervisedCapture(log, declared, app="revenue")
        assert one.prepare() == ["orders", "customers"]  # known from before
        one.start()
        try:
            until(lambda: "there is no such file" in report_of(log, "shop")[0].error)
            assert one.failures > 0
            (tmp_path / "away.db").rename(tmp_path / "shop.db")
            shop.execute("INSERT INTO orders VALUES (4, 2, 1.0)")
            until(lambda: log.read("shop.orders").count() == 4)
            until(lambda: report_of(log, "shop")[0].error == "")
            report, running = report_of(log, "shop")
            assert (running, report.app, one.failures, one.error) == (True, "revenue", 0, "")
        finally:
            one.stop()
        assert not report_of(log, "shop")[1]


def test_a_capture_that_another_process_takes_over_goes_on_when_that_one_stops(tmp_path: Path) -> None:
    shop = database(tmp_path)
    _, declared = app_of(tmp_path)
    with log_at(tmp_path) as log, log_at(tmp_path) as other:
        one = SupervisedCapture(log, declared, app="revenue")
        one.prepare()
        one.start()
        try:
            until(lambda: CaptureStore(log).progress("shop").rows == 5)
            taken = SupervisedCapture(other, declared, app="")
            assert taken.catch_up() == 0
            shop.execute("INSERT INTO orders VALUES (4, 2, 1.0)")
            until(lambda: log.read("shop.orders").count() == 4)
        finally:
            one.stop()


def test_the_first_start_needs_the_database(tmp_path: Path) -> None:
    _, declared = app_of(tmp_path)
    with log_at(tmp_path) as log:
        one = SupervisedCapture(log, declared, app="revenue")
        with pytest.raises(SourceInvalid, match="there is no such file"):
            one.prepare()
        database(tmp_path)
        declared.table("orders", ORDERS, key=("id", "customer"))
        with pytest.raises(SourceInvalid, match="its key is id, and the app declares id, customer"):
            one.prepare()


def test_a_capture_keeps_its_database_and_follows_its_other_settings(tmp_path: Path) -> None:
    database(tmp_path)
    with log_at(tmp_path) as log:
        store = CaptureStore(log)
        app = hw.App("shop", log=tmp_path / "log")
        first = app.capture(f"sqlite:///{tmp_path}/shop.db", tables=["orders"])
        store.declare(first.config)
        store.set_paused("shop", True)
        again = hw.App("shop", log=tmp_path / "log").capture(f"sqlite:///{tmp_path}/shop.db", tables=["*"])
        assert store.declare(again.config).paused
        assert store.config("shop").tables == ("*",)
        moved = hw.App("shop", log=tmp_path / "log").capture(f"sqlite:///{tmp_path}/shop.db", envelope="debezium")
        with pytest.raises(CaptureChanged, match="`envelope` flat, and is now declared with debezium"):
            store.declare(moved.config)
        with Capture.open(log, "shop") as capture:
            assert [table.name for table in capture.tables] == ["customers", "orders"]


# -- in a test of an app ----------------------------------------------------------------------------------------------


def totals(test: AppTest) -> dict[str, Any]:
    return {row["name"]: row["total"] for row in test.views["revenue"].rows()}


def test_rows_of_captured_tables_are_fed_by_a_test(tmp_path: Path) -> None:
    app, shop = app_of(tmp_path)
    with pytest.raises(DeclarationInvalid, match=r"of a table of capture 'shop', declare the columns"), AppTest(app):
        pass
    app.queries.clear()  # those are run by the tutorial
    topic = shop.table("orders", ORDERS, key="id")
    with AppTest(app) as test:
        test.feed("orders", [{"id": 1, "customer": 1, "price": 2.5}])
        test.feed(topic, [{"id": 1, "_tombstone": True}])
        assert [row["_tombstone"] for row in test.rows("orders", system=True)] == [False, True]
        assert test.log.topic(topic).key == ("id",)
    with pytest.raises(ArgumentInvalid, match="'fed' or 'real'"):
        AppTest(app, captures="all")  # type: ignore[arg-type]  # what is refused


def test_a_view_follows_the_database(tmp_path: Path, spark: SparkSession) -> None:
    shop = database(tmp_path)
    app, _ = app_of(tmp_path)
    with AppTest(app, spark=spark, captures="real") as test:
        assert totals(test) == {"Anna": 3.5, "Bo": 4.0}
        shop.execute("UPDATE orders SET customer = 2 WHERE id = 1")
        shop.execute("UPDATE customers SET name = 'Ann' WHERE id = 1")
        shop.execute("DELETE FROM orders WHERE id = 3")
        assert totals(test) == {"Ann": 1.0, "Bo": 2.5}
        assert len(test.rows("orders")) == 5
    assert app.queries[0].reads == ("orders", "customers"), "an app is as it was declared"


def test_a_capture_is_drawn_before_the_topics_that_queries_read(tmp_path: Path) -> None:
    app, _ = app_of(tmp_path)
    queries = with_captured_inputs(app.queries, named_tables(app.captures), inputs=[])
    captures = {"shop": ["shop.orders", "shop.customers"], "other": ["other.rows"]}
    drawn = picture("revenue", [DeclaredQuery.of(query) for query in queries], labels={}, captures=captures)
    assert ("capture shop", "shop.orders") in drawn.edges
    assert "capture other" not in {node.name for node in drawn.nodes}
    assert "1 capture" in summary(drawn)
    assert "capture shop" in as_text(drawn)
    assert "capture shop" in as_svg(drawn)
