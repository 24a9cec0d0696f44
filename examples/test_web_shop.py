"""The shop, as its user tests it: rows change in the database, and the index and the cache follow."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import redis

from headwater.apps.app_file import load_app
from headwater.sinks import SearchSink
from headwater.testing import AppTest
from tests.servers import redis_peer as redis_peer
from tests.servers import redis_url as redis_url

TABLES = """
CREATE TABLE categories (id INTEGER PRIMARY KEY, category TEXT);
CREATE TABLE products (id INTEGER PRIMARY KEY, title TEXT, category_id INTEGER);
CREATE TABLE orders (id INTEGER PRIMARY KEY, product_id INTEGER, quantity INTEGER, total REAL);
INSERT INTO categories VALUES (1, 'boats'), (2, 'houses');
INSERT INTO products VALUES (1, 'A red canoe', 1), (2, 'A blue tent', 2);
INSERT INTO orders VALUES (1, 1, 2, 500.0), (2, 1, 1, 250.0), (3, 2, 1, 80.0);
"""


def test_index_and_cache_follow_the_database(tmp_path: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    shop.executescript(TABLES)
    monkeypatch.setenv("SHOP_DATABASE", f"sqlite:///{tmp_path}/shop.db")
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
        shop.execute("UPDATE categories SET category = 'tents' WHERE id = 2")
        shop.execute("UPDATE products SET title = 'A green kayak' WHERE id = 1")
        shop.execute("UPDATE orders SET product_id = 2 WHERE id = 2")
        assert (found("canoe"), found("kayak"), found("tent"), found("house")) == ([], [1], [2], [])
        assert (cached(1)["sold"], cached(1)["title"], cached(2)["sold"]) == ("2", "A green kayak", "2")
        shop.execute("DELETE FROM orders WHERE product_id = 2")
        shop.execute("DELETE FROM products WHERE id = 1")
        assert (found("kayak"), cached(1), cached(2)) == ([], {}, {})
