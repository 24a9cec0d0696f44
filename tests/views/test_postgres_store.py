"""What only the shared store has: a server that may be away, and names that it cannot take."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pytest

from headwater.log import Log
from headwater.views import PostgresStore, View, ViewKeeper, conditions
from headwater.views.errors import StatementInvalid, StoreUnreachable, ViewInvalid
from tests.servers import PeerUnavailable, Postgres, free_port, postgres_server
from tests.views.conftest import SPEND, new_app, spec

pytestmark = pytest.mark.process


def test_a_view_goes_on_when_its_server_is_back(log: Log) -> None:
    log.create("spend", SPEND, key="card", compact=True)
    try:
        server = postgres_server()
        with server as database:
            store = PostgresStore(database.new_database())
            keeper = ViewKeeper(log, store)
            view = keeper.add(spec())
            log.append("spend", [{"card": 1, "total": 1.0}])
            keeper.catch_up()
            database.stop()
            log.append("spend", [{"card": 1, "total": 2.0}])
            with pytest.raises(StoreUnreachable):
                keeper.catch_up()
            with pytest.raises(StoreUnreachable):
                view.get(card=1)
            database.start()
            keeper.catch_up()
            found = view.get(card=1)
            assert found is not None
            assert found["total"] == 2.0
            store.close()
    except PeerUnavailable as error:
        pytest.skip(str(error))


def test_a_server_that_is_not_there_or_refuses_is_told(postgres: Postgres) -> None:
    with pytest.raises(StoreUnreachable):
        PostgresStore(f"postgresql://someone@127.0.0.1:{free_port()}/nowhere")
    with pytest.raises(StoreUnreachable, match="password"):
        PostgresStore(f"postgresql://{postgres.user}:wrong@127.0.0.1:{postgres.port}/postgres")


def test_a_name_that_would_be_cut_is_refused(database: str) -> None:
    store = PostgresStore(database, app=new_app())
    with pytest.raises(ViewInvalid, match="63 bytes"):
        store.declare(spec("v" * 63))
    store.close()


@pytest.fixture
def view(database: str, log: Log) -> Iterator[View]:
    """The view `spend` over three cards."""
    log.create("spend", SPEND, key="card", compact=True)
    log.append("spend", [{"card": card, "total": float(card), "shop": "abc"[card]} for card in range(3)])
    store = PostgresStore(database, app=new_app())
    keeper = ViewKeeper(log, store)
    view = keeper.add(spec())
    keeper.catch_up()
    yield view
    store.close()


@pytest.mark.parametrize(
    "condition",
    [
        "initcap(shop) = 'C'",
        "to_char(card, 'FM9') = '2'",
        "div(card::numeric, 2) = 1",
        "overlay(shop PLACING 'x' FROM 1 FOR 1) = 'x' AND card = 2",
        "to_date('2026-01-0' || card, 'YYYY-MM-DD') = '2026-01-02'",
        "jsonb_extract_path_text('{\"a\": 2}'::jsonb, 'a') = card::text",
        "card <> ALL(ARRAY[0, 1])",
        "card = ANY('{2, 7}'::bigint[])",
        "shop = 'c' AND 'a--b' <> '/*' AND 1 -'2' < 0",
    ],
)
def test_a_condition_has_what_the_server_has(view: View, condition: str) -> None:
    assert [row["card"] for row in view.rows(condition)] == [2]


def test_a_list_of_values_may_be_a_parameter(view: View) -> None:
    assert [row["card"] for row in view.rows("card = ANY($1)", parameters=[[2, 7]])] == [2]
    assert [row["card"] for row in view.rows("shop = ANY($1)", parameters=[["c"]])] == [2]


@pytest.mark.parametrize(
    "condition",
    [
        "shop = 'c' -- '",
        "shop = 'c' /* ' */",
        "shop = $$c$$",
        "shop = $é1$c$é1$",
        "shop = E'\\' OR true --'",
        "shop = 'a''' -- '",
        '"shop" = \'c\' AND "--" IS NULL --',
        "dblink('', 'SELECT 1') IS NULL",
        "card = ANY(dblink('', 'SELECT 1'))",
        "card = ANY(SELECT 1 UNION SELECT 2)",
    ],
)
def test_a_condition_that_two_parsers_may_read_differently_is_refused(view: View, condition: str) -> None:
    with pytest.raises(StatementInvalid, match="one condition"):
        view.rows(condition)


def test_values_of_columns_are_looked_up_without_duckdb(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    monkeypatch.setattr(conditions, "_where", lambda *_: pytest.fail("nothing is to be parsed"))
    assert [row["card"] for row in view.rows({"shop": "b", "total": 1.0})] == [1]
    assert view.rows({"shop": None}) == []
    assert len(view.rows({})) == 3


def test_conditions_are_parsed_by_one_duckdb(view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(view.rows("card > 0")) == 2
    monkeypatch.setattr(duckdb, "connect", lambda *_, **__: pytest.fail("a second one was opened"))
    assert len(view.rows("card > 1")) == 1
    with ThreadPoolExecutor(1) as pool:
        assert len(pool.submit(view.rows, "card > 1").result()) == 1


def test_a_statement_can_be_stopped(view: View) -> None:
    store = view.keeper.store
    with pytest.raises(StatementInvalid, match="it was stopped"):
        store.query("SELECT pg_sleep(600)", stoppable=lambda stop: stop())


def test_apps_keep_apart(database: str) -> None:
    one, other = PostgresStore(database, app="one"), PostgresStore(database, app="other")
    one.declare(spec())
    assert other.stored() == []
    one.close()
    other.close()
