"""The shop, as its user tests it: rows change in the database, and the index and the cache follow."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from headwater.apps.app_file import load_app
from headwater.sinks import SearchSink
from headwater.testing import AppTest
from tests.conditions import until
from tests.servers import Postgres
from tests.servers import postgres as postgres
from tests.servers import redis_peer as redis_peer
from tests.servers import redis_url as redis_url

TABLES = """
CREATE TABLE categories (id INTEGER PRIMARY KEY, category TEXT);
CREATE TABLE products (id INTEGER PRIMARY KEY, title TEXT, category_id INTEGER);
CREATE TABLE orders (id INTEGER PRIMARY KEY, product_id INTEGER, quantity INTEGER, total DOUBLE PRECISION);
INSERT INTO categories VALUES (1, 'boats'), (2, 'houses');
INSERT INTO products VALUES (1, 'A red canoe', 1), (2, 'A blue tent', 2);
INSERT INTO orders VALUES (1, 1, 2, 500.0), (2, 1, 1, 250.0), (3, 2, 1, 80.0);
"""


#: Runs one statement or several in the database of the shop.
Execute = Callable[[str], object]


@pytest.fixture
def sqlite_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Execute]:
    shop = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    monkeypatch.setenv("SHOP_DATABASE", f"sqlite:///{tmp_path}/shop.db")
    yield shop.executescript
    shop.close()


@pytest.fixture
def postgres_shop(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> Iterator[Execute]:
    conninfo = postgres.new_database()
    name = conninfo.rpartition("/")[2]
    monkeypatch.setenv("SHOP_DATABASE", f"postgresql://{postgres.user}@127.0.0.1:{postgres.port}/{name}")
    monkeypatch.setenv("SHOP_PASSWORD", postgres.password)
    with psycopg.connect(conninfo, autocommit=True) as shop:
        yield lambda statement: shop.execute(statement.encode())
        slots = "FROM pg_replication_slots WHERE database = current_database()"
        shop.execute(f"SELECT pg_terminate_backend(active_pid) {slots} AND active".encode())
        until(lambda: shop.execute(f"SELECT 1 {slots} AND active".encode()).fetchone() is None)
        shop.execute(f"SELECT pg_drop_replication_slot(slot_name) {slots}".encode())


@pytest.mark.parametrize("database", ["sqlite_shop", pytest.param("postgres_shop", marks=pytest.mark.long)])
def test_index_and_cache_follow_the_database(
    database: str, tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    execute: Execute = request.getfixturevalue(database)
    execute(TABLES)
    monkeypatch.setenv("SHOP_INDEX", str(tmp_path / "search"))
    monkeypatch.setenv("SHOP_CACHE", redis_url)
    app = load_app(str(Path(__file__).with_name("web_shop.py")))
    [index] = app.query("catalogue").sinks
    assert isinstance(index, SearchSink)
    with AppTest(app, captures="real", sinks="real") as test, redis.Redis.from_url(redis_url) as client:

        def found(text: str) -> list[int]:
            test.drain()
            return sorted(row["id"] for row in index.search(text))

        def cached(product: int) -> dict[str, Any]:
            test.drain()
            return {name.decode(): value.decode() for name, value in client.hgetall(f"product:{product}").items()}

        assert (found("canoes"), found("boats")) == ([1], [1])
        assert cached(1) == {"id": "1", "title": "A red canoe", "sold": "3", "revenue": "750.0"}
        execute("UPDATE categories SET category = 'tents' WHERE id = 2")
        execute("UPDATE products SET title = 'A green kayak' WHERE id = 1")
        execute("UPDATE orders SET product_id = 2 WHERE id = 2")
        assert (found("canoe"), found("kayak"), found("tent"), found("house")) == ([], [1], [2], [])
        assert (cached(1)["sold"], cached(1)["title"], cached(2)["sold"]) == ("2", "A green kayak", "2")
        execute("DELETE FROM orders WHERE product_id = 2")
        execute("DELETE FROM products WHERE id = 1")
        assert (found("kayak"), cached(1), cached(2)) == ([], {}, {})
