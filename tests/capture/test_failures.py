"""What goes wrong under a running capture: a full disk, a clock set back, tables that are dropped or renamed."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import headwater as hw
from headwater.capture import Capture, CaptureStore, SourceInvalid
from headwater.clock import ManualClock
from headwater.config import Config
from headwater.log.errors import DiskFull
from tests.capture.shop import config_of, log_at, shop_at, table_of

ROWS = 3_000


def fill(shop: sqlite3.Connection) -> None:
    shop.execute("BEGIN")
    # Every text differs, or the log would compress them to nothing.
    shop.execute(
        f"""
        WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {ROWS})
        INSERT INTO orders SELECT n, hex(randomblob(4000)), 1.0, 1 FROM number
        """
    )
    shop.execute("COMMIT")


@pytest.mark.process
def test_a_disk_that_fills_during_a_snapshot_loses_and_doubles_nothing(
    tmp_path: Path, disk_of: Callable[[int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.capture.capture.ROWS_MAX", 500)
    disk = disk_of(16)
    shop = shop_at(tmp_path)
    fill(shop)
    config = Config(maintenance="manual", durability="os")
    with hw.open(disk / "log", config=config) as log:
        CaptureStore(log).create(config_of(tmp_path, tables=["orders"]))
        with Capture.open(log, "shop") as capture:
            with pytest.raises(DiskFull):
                capture.catch_up()
            begun = log.read("shop.orders").count()
            assert 0 < begun < ROWS
            shop.execute("UPDATE orders SET item = 'tea' WHERE id % 7 = 0")
            subprocess.run(["mount", "-o", "remount,size=128m", str(disk)], check=True)
            capture.catch_up()
    with hw.open(disk / "log", config=config) as log:
        rows = [row["id"] for row in log.read("shop.orders").rows()]
        table = table_of(log, "shop.orders", ("id",))
        assert CaptureStore(log).progress("shop").snapshot["orders"].rows == ROWS
    assert len(rows) == ROWS + ROWS // 7
    assert {key: row["item"] for (key,), row in table.items()} == dict(shop.execute("SELECT id, item FROM orders"))


def test_a_clock_that_is_set_back_changes_nothing(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    clock = ManualClock()
    clock.advance(seconds=10_000)
    with hw.open(tmp_path / "log", config=Config(durability="os", maintenance="manual"), clock=clock) as log:
        CaptureStore(log).create(config_of(tmp_path, tables=["orders"]))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.execute("INSERT INTO orders VALUES (1, 'tea', 2.5, 1)")
            capture.catch_up()
            # The clock of the database as well: its changelog then says that a later change is older.
            clock.advance(seconds=-3_600)
            shop.execute("UPDATE orders SET item = 'milk'")
            shop.execute("UPDATE _headwater_shop SET at = at - 3600000 WHERE op = 'u'")
            assert capture.health().delay_seconds >= 3_600
            capture.catch_up()
            shop.execute("INSERT INTO orders VALUES (2, 'bread', 1.0, 1)")
            shop.execute("UPDATE _headwater_shop SET at = at + 7200000 WHERE op = 'c'")
            assert capture.health().delay_seconds == 0
        with Capture.open(log, "shop") as capture:
            assert capture.catch_up() == 1
        assert [row["item"] for row in log.read("shop.orders").rows()] == ["tea", "milk", "bread"]


def test_a_dropped_table_ends_the_capture_of_it_with_the_remedy(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path, tables=["orders", "visits"]))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.execute("INSERT INTO orders VALUES (1, 'tea', 2.5, 1)")
            shop.execute("DROP TABLE orders")
            with pytest.raises(SourceInvalid, match=r"Table 'orders' .* no such table"):
                capture.catch_up()


def test_a_pattern_goes_on_without_a_dropped_table_after_its_last_changes(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.execute("INSERT INTO orders VALUES (1, 'tea', 2.5, 1)")
            shop.execute("DROP TABLE orders")
            shop.execute("INSERT INTO visits VALUES ('ann', 'today')")
            capture.catch_up()
            capture.catch_up()
        assert [row["id"] for row in log.read("shop.orders").rows()] == [1]
        assert [row["who"] for row in log.read("shop.visits").rows()] == ["ann"]


def test_a_table_that_is_dropped_before_its_snapshot_does_not_stop_the_others(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path))
        shop.execute("DROP TABLE orders")
        shop.execute("INSERT INTO visits VALUES ('ann', 'today')")
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
        assert [row["who"] for row in log.read("shop.visits").rows()] == ["ann"]


def test_a_renamed_table_is_another_table(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.execute("INSERT INTO orders VALUES (1, 'tea', 2.5, 1)")
            capture.catch_up()
            shop.execute("ALTER TABLE orders RENAME TO sales")
            capture.catch_up()
            shop.execute("INSERT INTO sales VALUES (2, 'milk', 1.0, 1)")
            capture.catch_up()
        assert [row["id"] for row in log.read("shop.orders").rows()] == [1]
        assert [row["id"] for row in log.read("shop.sales").rows()] == [1, 2]
