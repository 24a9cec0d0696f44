"""SQLite at its limits: a locked database, a full disk, and another column of a table without a key."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from headwater.capture import Capture, CaptureStore, SourceInvalid
from headwater.capture import sqlite as sqlite_source
from tests.capture.shop import config_of, log_at, shop_at


def test_a_locked_database_is_refused_and_nothing_is_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_source, "BUSY_SECONDS_MAX", 0.05)
    shop = shop_at(tmp_path)
    with log_at(tmp_path) as log:
        shop.execute("BEGIN IMMEDIATE")
        with pytest.raises(SourceInvalid, match="locked"):
            CaptureStore(log).create(config_of(tmp_path))
        shop.execute("ROLLBACK")
        CaptureStore(log).create(config_of(tmp_path))
        with Capture.open(log, "shop") as capture:
            shop.execute("BEGIN IMMEDIATE")  # reading goes on beside a writer, and so does the log
            shop.execute("INSERT INTO visits VALUES ('not committed', '')")
            assert capture.catch_up() == 0
            shop.execute("COMMIT")
            assert capture.catch_up() == 1


def test_a_write_that_finds_the_disk_full_is_in_neither_the_table_nor_the_topic(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path))
        with Capture.open(log, "shop") as capture:
            pages = shop.execute("PRAGMA page_count").fetchone()[0]
            shop.execute(f"PRAGMA max_page_count = {pages + 10}")  # as a disk that has room for ten pages
            with pytest.raises(sqlite3.OperationalError, match="full"):
                for number in range(1000):
                    shop.execute("INSERT INTO visits VALUES (?, ?)", (str(number), "x" * 500))
            with contextlib.suppress(sqlite3.OperationalError):
                shop.execute("ROLLBACK")
            written = [who for (who,) in shop.execute("SELECT who FROM visits ORDER BY rowid")]
            assert capture.catch_up() == len(written) > 0
            shop.execute("PRAGMA max_page_count = 100000")
            shop.execute("INSERT INTO visits VALUES ('later', '')")
            capture.catch_up()
        assert [row["who"] for row in log.read("shop.visits").rows()] == [*written, "later"]


def test_another_column_of_a_table_without_a_key_is_followed_and_no_row_is_repeated(tmp_path: Path) -> None:
    shop = shop_at(tmp_path)
    shop.execute("INSERT INTO visits VALUES ('ada', 'now')")
    with log_at(tmp_path) as log:
        CaptureStore(log).create(config_of(tmp_path, tables=["visits"]))
        with Capture.open(log, "shop") as capture:
            capture.catch_up()
            shop.execute("ALTER TABLE visits ADD COLUMN page TEXT DEFAULT 'home'")
            shop.execute("INSERT INTO visits VALUES ('bob', 'now', 'shop')")  # before the capture knows the column
            capture.catch_up()
            shop.execute("INSERT INTO visits VALUES ('eve', 'now', 'cart')")
            shop.execute("UPDATE visits SET page = 'exit' WHERE who = 'ada'")
            capture.catch_up()
        rows = [(row["_headers"]["_op"], row["who"], row["page"]) for row in log.read("shop.visits").rows()]
        assert log.topic("shop.visits").schema_version == 2
    assert rows == [(b"r", "ada", None), (b"c", "bob", None), (b"c", "eve", "cart"), (b"u", "ada", "exit")]
