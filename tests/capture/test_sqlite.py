"""A captured SQLite database: its topics hold what its tables hold, whatever happens in between."""

from __future__ import annotations

import json
import sqlite3
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.capture import Capture, CaptureStore, SourceInvalid, SourceReplaced
from headwater.capture import capture as capture_module
from headwater.capture.runner import CaptureRunner
from headwater.errors import ArgumentInvalid, NotFound
from headwater.faults import CAPTURE_CRASH_POINTS
from headwater.log import Log
from headwater.testing.crash import CrashAt, run_until_killed
from tests.capture.shop import config_of, log_at, shop_at, table_of
from tests.conditions import until
from tests.laws import costly

IDS = st.integers(1, 6)
STEPS = st.one_of(
    st.tuples(
        st.just("INSERT OR REPLACE INTO orders VALUES (?, ?, ?, ?)"),
        st.tuples(IDS, st.text(max_size=3), st.floats(-1e9, 1e9), st.booleans()),
    ),
    st.tuples(st.just("UPDATE orders SET price = price + 1 WHERE id <= ?"), st.tuples(IDS)),
    st.tuples(st.just("UPDATE OR REPLACE orders SET id = ? WHERE id = ?"), st.tuples(IDS, IDS)),
    st.tuples(st.just("DELETE FROM orders WHERE id = ?"), st.tuples(IDS)),
    st.tuples(
        st.just("INSERT INTO stock VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET count = count + 1"),
        st.tuples(st.sampled_from("ab"), IDS),
    ),
    st.tuples(st.just("DELETE FROM stock WHERE place = ?"), st.tuples(IDS)),
    st.tuples(st.just("INSERT INTO visits VALUES (?, 'now')"), st.tuples(st.text(max_size=2))),
    st.tuples(st.just("UPDATE visits SET at = 'then' WHERE rowid = ?"), st.tuples(IDS)),
    st.tuples(st.just("DELETE FROM visits WHERE rowid = ?"), st.tuples(IDS)),
    st.sampled_from([("BEGIN", ()), ("COMMIT", ()), ("ROLLBACK", ()), ("capture", ()), ("restart", ())]),
)


def in_step(shop: sqlite3.Connection, log: Log) -> None:
    """Check that the topics hold what the tables hold."""
    columns = ("id", "item", "price", "paid")
    orders = {
        row[:1]: dict(zip(columns, (*row[:3], bool(row[3])), strict=True))
        for row in shop.execute("SELECT * FROM orders")
    }
    assert table_of(log, "shop.orders", ("id",)) == orders
    stock = {
        row[:2]: dict(zip(("shelf", "place", "count"), row, strict=True)) for row in shop.execute("SELECT * FROM stock")
    }
    assert table_of(log, "shop.stock", ("shelf", "place")) == stock
    operations = Counter(row["_headers"]["_op"] for row in log.read("shop.visits").rows())
    there = shop.execute("SELECT count(*) FROM visits").fetchone()[0]
    assert operations[b"c"] + operations[b"r"] - operations[b"d"] == there


def run(shop: sqlite3.Connection, step: tuple[str, Any]) -> None:
    statement, values = step
    if (statement == "BEGIN" and shop.in_transaction) or (
        statement in ("COMMIT", "ROLLBACK") and not shop.in_transaction
    ):
        return
    shop.execute(statement, values)


@costly(20)
@given(first=st.lists(STEPS, max_size=20), later=st.lists(STEPS, max_size=30), rows_max=st.integers(1, 5))
def test_topics_hold_what_the_tables_hold(first: list[Any], later: list[Any], rows_max: int) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch, log_at(Path(name)) as log:
        patch.setattr(capture_module, "ROWS_MAX", rows_max)
        shop = shop_at(Path(name))
        for step in first:
            if step[0] not in ("capture", "restart"):
                run(shop, step)
        run(shop, ("COMMIT", ()))
        CaptureStore(log).create(config_of(Path(name)))
        remaining = iter([*later, ("restart", ())])
        while True:
            with Capture.open(log, "shop") as capture:
                for step in remaining:
                    if step[0] == "restart":
                        break
                    if step[0] == "capture":
                        capture.step()
                    else:
                        run(shop, step)
                else:
                    run(shop, ("COMMIT", ()))
                    capture.catch_up()
                    in_step(shop, log)
                    break


def test_a_deletion_is_a_tombstone_and_a_moved_key_two_changes(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path, tables=["orders"]))
        with Capture.open(log, "shop") as capture:
            shop.execute("INSERT INTO orders VALUES (1, 'tea', 2.5, 1)")
            shop.execute("UPDATE orders SET id = 2")
            shop.execute("DELETE FROM orders")
            assert capture.catch_up() == 4
        rows = [(row["id"], row["item"], row["_tombstone"]) for row in log.read("shop.orders").rows()]
    assert rows == [(1, "tea", False), (1, "tea", True), (2, "tea", False), (2, "tea", True)]


def test_the_debezium_envelope_has_its_names(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    shop.execute("INSERT INTO orders VALUES (1, 'tea', 2.5, 0)")
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path, tables=["orders"], envelope="debezium", prefix="db."))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.execute("UPDATE orders SET paid = 1")
            shop.execute("DELETE FROM orders")
            capture.catch_up()
        rows = log.read("db.orders").rows()
    assert [(row["op"], row["_tombstone"]) for row in rows] == [("r", False), ("u", False), ("d", False), ("d", True)]
    assert [row["after"] and row["after"]["paid"] for row in rows[:3]] == [False, True, None]
    assert rows[2]["before"] == {"id": 1, "item": "tea", "price": 2.5, "paid": True}
    assert (rows[0]["source"]["connector"], rows[0]["source"]["snapshot"]) == ("sqlite", True)
    assert rows[1]["ts_ms"] > 1_700_000_000_000


def test_a_new_column_is_followed_with_its_values(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    shop.execute("INSERT INTO orders VALUES (1, 'tea', 2.5, 0)")
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path, tables=["orders"]))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.execute("ALTER TABLE orders ADD COLUMN note TEXT")
            shop.execute("UPDATE orders SET note = 'gift'")  # before the capture knows the column
            shop.execute("INSERT INTO orders VALUES (2, 'milk', 1.0, 1, 'cold')")
            capture.catch_up()
        assert log.topic("shop.orders").schema_version == 2
        assert {key: row["note"] for key, row in table_of(log, "shop.orders", ("id",)).items()} == {
            (1,): "gift",
            (2,): "cold",
        }


def test_a_new_column_is_followed_in_the_debezium_envelope(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path, tables=["orders"], envelope="debezium"))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.execute("ALTER TABLE orders ADD COLUMN note TEXT")
            shop.execute("INSERT INTO orders VALUES (1, 'milk', 1.0, 1, 'cold')")
            capture.catch_up()
        assert log.read("shop.orders").rows()[-1]["after"]["note"] == "cold"


def test_a_value_of_another_type_is_a_dead_letter(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    shop.execute("INSERT INTO orders VALUES (1, 'tea', 'dear', 0), (2, 'milk', 1.0, 1)")
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path, tables=["orders"]))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
        assert [row["id"] for row in log.read("shop.orders").rows()] == [2]
        letter = log.read("shop.orders.dlq").rows()[0]
    assert json.loads(letter["row"])["price"] == "dear"
    assert letter["message"] == "column 'price' is float64, and its value is 'dear'"


def test_what_is_durable_in_the_log_is_deleted_from_the_changelog(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path, tables=["visits"]))
        with Capture.open(log, "shop") as capture:
            shop.executemany("INSERT INTO visits VALUES (?, '')", [(str(number),) for number in range(50)])
            assert capture.health().pending == 50
            capture.catch_up()
            assert shop.execute('SELECT count(*), max(id) FROM "_headwater_shop"').fetchone() == (1, 50)
            shop.execute("INSERT INTO visits VALUES ('last', '')")
            capture.catch_up()
            assert capture.health().pending == 0
        headers = Counter(row["_headers"]["_op"] for row in log.read("shop.visits").rows())
    assert headers == {b"r": 50, b"c": 1}


def test_a_capture_that_runs_takes_up_a_requested_snapshot(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    shop.execute("INSERT INTO stock VALUES ('a', 1, 5)")
    with log_at(tmp_path) as log:
        store = CaptureStore(log)
        store.create(config_of(tmp_path, tables=["stock"]))
        runner = CaptureRunner(log, "shop")
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            until(lambda: store.progress("shop").rows == 1)
            store.restart_snapshot("shop", "stock")
            until(lambda: store.progress("shop").rows == 2)
            assert store.config("shop").snapshot_requests == {}
        finally:
            runner.request_stop()
            thread.join()


def test_a_snapshot_is_repeated_on_demand(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    shop.execute("INSERT INTO stock VALUES ('a', 1, 5)")
    with log_at(tmp_path) as log:
        store = CaptureStore(log)
        store.create(config_of(tmp_path))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
        assert store.progress("shop").snapshot["stock"].complete
        store.restart_snapshot("shop", "stock")
        with Capture.open(log, "shop") as capture:
            assert capture.catch_up() == 1
        with pytest.raises(NotFound, match="Did you mean 'stock'"):
            store.restart_snapshot("shop", "stok")


def test_only_one_process_runs_a_capture(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path))
        with Capture.open(log, "shop") as first, Capture.open(log, "shop") as second:
            shop.execute("INSERT INTO visits VALUES ('ada', '')")
            with pytest.raises(Exception, match="newer"):
                first.catch_up()
            assert second.catch_up() == 1
        assert log.read("shop.visits").count() == 1


def test_a_restored_database_is_refused(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path))
        with Capture.open(log, "shop") as capture:
            shop.execute("INSERT INTO visits VALUES ('ada', '')")
            capture.catch_up()
            shop.execute('DELETE FROM "_headwater_shop"')  # an older copy has an older changelog
            with pytest.raises(SourceReplaced, match="read up to 1"):
                capture.catch_up()


def test_what_cannot_be_captured_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with log_at(tmp_path) as log:
        store = CaptureStore(log)
        with pytest.raises(SourceInvalid, match="no such file"):
            store.create(config_of(tmp_path))
        (tmp_path / "shop.db").write_text("this is no database, but a text that is long enough to be one" * 20)
        with pytest.raises(SourceInvalid, match="not a database"):
            store.create(config_of(tmp_path))
        (tmp_path / "shop.db").unlink()
        shop_at(tmp_path)
        with pytest.raises(SourceInvalid, match="Did you mean 'orders'"):
            store.create(config_of(tmp_path, tables=["order"]))
        for setting, wrong in (("envelope", "paper"), ("tables", []), ("url", "postgresql://app:secret@db/shop")):
            with pytest.raises(ArgumentInvalid) as refused:
                config_of(tmp_path, **{setting: wrong})
            assert "secret" not in str(refused.value)
        for url in ("oracle://db", "sqlite:///", "shop.db"):
            with pytest.raises(ArgumentInvalid, match="sqlite:///path"):
                store.create(config_of(tmp_path, url=url))
        assert store.configs() == {}
        store.create(config_of(tmp_path))
        with pytest.raises(ArgumentInvalid, match="no other capture"):
            store.create(config_of(tmp_path))
        with pytest.raises(NotFound, match="Did you mean 'shop'"):
            store.config("shpo")


def test_a_dropped_capture_leaves_the_database_as_it_was(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    before = shop.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall()
    with log_at(tmp_path) as log:
        store = CaptureStore(log)
        store.create(config_of(tmp_path))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
        store.remove("shop")
        assert store.configs() == {}
        assert "shop.orders" in log.topics()
    assert shop.execute("SELECT name FROM sqlite_master ORDER BY name").fetchall() == before


def _captured(folder: Path) -> None:
    shop = shop_at(folder)
    with log_at(folder) as log:
        if "shop" not in CaptureStore(log).configs():
            CaptureStore(log).create(config_of(folder))
        with Capture.open(log, "shop") as capture:
            for number in range(5):
                shop.execute("BEGIN")
                shop.execute("INSERT INTO visits VALUES (?, '')", (str(number),))
                shop.execute("INSERT OR REPLACE INTO orders VALUES (?, 'tea', 1.0, 1)", (number,))
                shop.execute("COMMIT")
                capture.catch_up()


@pytest.mark.process
@pytest.mark.parametrize("visit", [1, 3])
@pytest.mark.parametrize("point", [*CAPTURE_CRASH_POINTS, "commit.recording", "commit.recorded"])
def test_a_killed_capture_loses_and_doubles_nothing(point: str, visit: int, tmp_path: Path) -> None:
    run_until_killed(lambda: _captured(tmp_path), at=CrashAt(point=point, visit=visit))
    assert run_until_killed(lambda: _captured(tmp_path)).code == 0
    shop = shop_at(tmp_path)
    with log_at(tmp_path) as log:
        in_step(shop, log)
        visits = [row["who"] for row in log.read("shop.visits").rows()]
    assert visits == [who for (who,) in shop.execute("SELECT who FROM visits ORDER BY rowid")]
