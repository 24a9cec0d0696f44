"""A target compared with the database whose tables its topics capture."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.capture import Capture, CaptureConfig, CaptureStore
from headwater.errors import ArgumentInvalid
from headwater.log import Log
from headwater.services import Settings, local
from headwater.services.host import Host
from headwater.sync import Sync
from headwater.sync import source_comparison as module
from headwater.sync.errors import SyncInvalid
from tests.capture.shop import config_of, log_at, shop_at
from tests.sync.rows import define


@pytest.fixture(autouse=True)
def _no_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process runs here: what is pending stays so."""
    monkeypatch.setattr(module, "WAIT_SECONDS_MAX", 0.05)


@contextmanager
def synced(folder: Path, shop: sqlite3.Connection, **settings: object) -> Iterator[tuple[Log, sqlite3.Connection]]:
    """A shop whose orders are captured, and a copy of them."""
    shop.executemany("INSERT INTO orders VALUES (?, ?, ?, ?)", [(n, f"item {n}", n / 2, n % 2) for n in range(100)])
    with log_at(folder) as log:
        CaptureStore(log).create(config_of(folder, tables=("orders",), **settings))
        define(log, f"sqlite:///{folder}/copy.db")
        apply_all(log)
        yield log, sqlite3.connect(folder / "copy.db", isolation_level=None)


def apply_all(log: Log, capture: str = "shop") -> None:
    with Capture.open(log, capture) as one:
        one.catch_up()
    with Sync.open(log, "copy") as sync:
        while sync.step().more:
            pass


def differences(log: Log) -> list[tuple[str, str]]:
    with Sync.open(log, "copy") as sync:
        [compared] = sync.compare_with_source()
    assert len(compared.differences) == compared.missing + compared.extra + compared.different
    return [(one.kind, one.key) for one in compared.differences]


def test_what_differs_is_reported_also_where_the_topic_does_not_have_it(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    with synced(tmp_path, shop) as (log, copy):
        assert differences(log) == []
        copy.execute("UPDATE orders SET item = 'other' WHERE id = 7")
        copy.execute("DELETE FROM orders WHERE id = 8")
        copy.execute("INSERT INTO orders (id, item) VALUES (1000, 'none')")
        wrong = [("missing", "id=8"), ("different", "id=7"), ("extra", "id=1000")]
        assert differences(log) == wrong
        # A change that no trigger records is in no topic: only the database itself tells.
        shop.executescript("PRAGMA recursive_triggers = OFF; DROP TRIGGER _headwater_shop_orders_u")
        shop.execute("UPDATE orders SET price = 99 WHERE id = 9")
        with Sync.open(log, "copy") as sync:
            [repaired] = sync.compare(repair=True)
            assert repaired.repaired
        assert differences(log) == [("different", "id=9")]


def test_filters_and_masks_of_the_capture_are_no_differences(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CAPTURE_SALT", "a secret")
    shop = shop_at(tmp_path)
    settings = {"where": {"orders": "price >= 10"}, "mask": {"orders.item": "hash"}}
    with synced(tmp_path, shop, **settings) as (log, _):
        assert differences(log) == []
        shop.execute("UPDATE orders SET price = 1 WHERE id = 50")
        apply_all(log)
        assert differences(log) == []


def test_a_row_that_changes_between_the_two_comparisons_is_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = shop_at(tmp_path)
    with synced(tmp_path, shop) as (log, copy):
        shop.execute("UPDATE orders SET item = 'on its way' WHERE id = 3")
        shop.execute("UPDATE orders SET item = 'stays' WHERE id = 4")
        copy.execute("INSERT INTO orders (id, item) VALUES (1000, 'leaves')")

        def meanwhile(*_arguments: object) -> None:
            shop.execute("UPDATE orders SET item = 'again' WHERE id = 3")
            copy.execute("DELETE FROM orders WHERE id = 1000")

        monkeypatch.setattr(module, "_wait_until_applied", meanwhile)
        assert differences(log) == [("different", "id=4")]


def test_topics_that_no_capture_fills_and_a_repair_are_refused(tmp_path: Path) -> None:
    with synced(tmp_path, shop_at(tmp_path)) as (log, _):
        with pytest.raises(ArgumentInvalid, match="new snapshot"):
            local(Host(log=log, settings=Settings())).syncs.compare("copy", repair=True, source=True)
        log.create("shop.prices", {"id": "int64"}, key="id")
        with Sync.open(log, "copy") as sync, pytest.raises(SyncInvalid, match=r"'shop\.prices' is not the topic"):
            sync.compare_with_source()


@pytest.mark.process
@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_tables_of_a_server_are_compared(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = request.getfixturevalue(kind)
    with log_at(tmp_path) as log:
        if kind == "postgres":
            conninfo = server.new_database()
            monkeypatch.setenv("SHOP_PASSWORD", server.password)
            url = f"postgresql://{server.user}@127.0.0.1:{server.port}/{conninfo.rpartition('/')[2]}"
            config = CaptureConfig(name="shop", url=url, password_env="SHOP_PASSWORD")

            def run(statement: str) -> None:
                server.execute(statement, conninfo=conninfo)
        else:
            database = server.new_database()
            connection = server.connect(database)
            config = CaptureConfig(name="shop", url=server.url(database))

            def run(statement: str) -> None:
                connection.cursor().execute(statement)

        run("CREATE TABLE orders (id INT PRIMARY KEY, item VARCHAR(20), price NUMERIC(8, 2), at TIMESTAMP NULL)")
        run("INSERT INTO orders VALUES (1, 'tea', 2.5, '2026-01-01 10:00:00'), (2, 'milk', NULL, NULL)")
        CaptureStore(log).create(config)
        define(log, f"sqlite:///{tmp_path}/copy.db")
        apply_all(log)
        assert differences(log) == []
        with sqlite3.connect(tmp_path / "copy.db") as copy:
            copy.execute("DELETE FROM orders WHERE id = 2")
        assert [key.rpartition(".")[2] for _, key in differences(log)] == ["id=2"]
        CaptureStore(log).remove("shop")
