"""The race of dual writes, produced with real threads and a real index; and the same clients with capture and sync."""

from __future__ import annotations

import sqlite3
import threading
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.capture import Capture, CaptureConfig, CaptureStore
from headwater.engine.micro_batch import MicroBatch
from headwater.sinks import SearchSink
from headwater.sync import Sync
from tests.sync.rows import define, log_at

#: Every order in which two clients can do their first and second write.
ORDERS = sorted(set(permutations("AABB")))
#: Those in which dual writes end with different values.
WRONG = [tuple("ABBA"), tuple("BAAB")]
WAIT_SECONDS_MAX = 60


class Turns:
    """Lets threads go on in a given order."""

    def __init__(self, order: tuple[str, ...]) -> None:
        self._order = list(order)
        self._changed = threading.Condition()

    def take(self, who: str, work: Any) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._order[0] == who, timeout=WAIT_SECONDS_MAX)
            work()
            self._order.pop(0)
            self._changed.notify_all()


def shop_at(path: Path) -> sqlite3.Connection:
    shop = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    shop.execute("CREATE TABLE articles (id INTEGER PRIMARY KEY, title TEXT)")
    shop.execute("INSERT INTO articles VALUES (7, 'red boat')")
    return shop


def clients(shop: sqlite3.Connection, order: tuple[str, ...], second: Any) -> None:
    """Two clients, each a thread: first the database, then whatever `second` writes."""
    turns = Turns(order)

    def client(who: str, title: str) -> None:
        turns.take(who, lambda: shop.execute("UPDATE articles SET title = ? WHERE id = 7", (title,)))
        turns.take(who, lambda: second(who, title))

    threads = [
        threading.Thread(target=client, args=("A", "blue boat")),
        threading.Thread(target=client, args=("B", "green boat")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_SECONDS_MAX)


def titles(shop: sqlite3.Connection) -> list[str]:
    return [title for (title,) in shop.execute("SELECT title FROM articles")]


def test_dual_writes_drift_apart_in_two_of_six_orders(tmp_path: Path) -> None:
    wrong = []
    for number, order in enumerate(ORDERS):
        shop = shop_at(tmp_path / f"shop{number}.db")
        index = SearchSink(path=tmp_path / f"index{number}", key="id", text="title")
        written = iter(range(10))

        def write(_: str, title: str, index: SearchSink = index, written: Any = written) -> None:
            rows = pa.record_batch({"id": [7], "title": [title]})
            index.commit([rows], MicroBatch(query="client", number=next(written)))

        clients(shop, order, write)
        found = [row["title"] for row in index.search("boat")]
        if found != titles(shop):
            wrong.append("".join(order))
        shop.close()
    assert len(ORDERS) == 6
    assert wrong == list(map("".join, WRONG))


@pytest.mark.parametrize("order", WRONG, ids="".join)
def test_capture_and_sync_follow_the_database_where_dual_writes_do_not(order: tuple[str, ...], tmp_path: Path) -> None:
    shop = shop_at(tmp_path / "shop.db")
    index = SearchSink(path=tmp_path / "index" / "articles", key="id", text="title")
    with log_at(tmp_path) as log:
        CaptureStore(log).create(CaptureConfig(name="shop", url=f"sqlite:///{tmp_path}/shop.db"))
        define(log, f"search:///{tmp_path}/index", options={"text": "title"})

        def follow(_: str, __: str) -> None:
            with Capture.open(log, "shop") as capture:
                capture.catch_up()
            with Sync.open(log, "copy") as sync:
                sync.catch_up()

        clients(shop, order, follow)
        assert [row["title"] for row in index.search("boat")] == titles(shop)
    shop.close()
