"""Captures at the command line: created, run, looked at, paused and dropped."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Cli


@pytest.fixture
def shop(tmp_path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT)")
    connection.execute("INSERT INTO orders VALUES (1, 'tea')")
    return connection


def test_a_capture_from_its_creation_to_its_end(cli: Cli, shop: sqlite3.Connection, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    created = cli("capture", "create", "shop", url, "--tables", "orders", "--json").json
    assert (created["state"], created["url"]) == ("new", url)
    assert cli("capture", "run", "--until-caught-up").code == 0
    shop.execute("UPDATE orders SET item = 'milk'")
    status = cli("capture", "status", "shop", "--json").json
    assert (status["state"], status["rows"], status["pending"]) == ("streaming", 1, 1)
    assert status["tables"][0] == {
        "table": "orders",
        "topic": "shop.orders",
        "rows_per_second": 0.0,
        "dead_letters": 0,
        "snapshot_rows": 1,
        "snapshot_rows_expected": 1,
        "snapshot_complete": True,
        "snapshot_seconds_left": None,
        "snapshot_share": 1.0,
    }
    assert (status["running"], status["pid"], status["position"]) == (False, None, '{"id":0}')
    lines = cli("capture", "status", "shop").out
    assert "  pending   1 changes, " in lines
    assert cli("capture", "pause", "shop", "--json").json["state"] == "paused"
    assert cli("capture", "run", "shop", "--until-caught-up").code == 0
    assert cli("capture", "status", "shop", "--json").json["pending"] == 1
    assert cli("capture", "resume", "shop", "--json").json["state"] == "streaming"
    cli("capture", "snapshot", "shop", "orders")
    cli("capture", "run", "shop", "--until-caught-up")
    rows = cli("consume", "shop.orders", "--exit", "--json").out.splitlines()
    assert [json.loads(row)["item"] for row in rows] == ["tea", "milk", "milk"]
    assert cli("capture", "drop", "shop", "--yes").code == 0
    assert cli("capture", "list", "--json").json == []


def test_what_cannot_be_captured_ends_with_its_code(cli: Cli, tmp_path: Path) -> None:
    missing = cli("capture", "create", "shop", f"sqlite:///{tmp_path}/none.db")
    assert missing.code == 2
    assert "there is no such file" in missing.err
    assert cli("capture", "create", "shop", "oracle://db").code == 2
    assert cli("capture", "status", "shop").code == 3


def test_an_unreachable_database_is_said_in_the_list(cli: Cli, shop: sqlite3.Connection, tmp_path: Path) -> None:
    cli("capture", "create", "shop", f"sqlite:///{tmp_path}/shop.db")
    shop.close()
    (tmp_path / "shop.db").unlink()
    found = cli("capture", "list", "--json").json[0]
    assert (found["state"], found["pending"]) == ("unreachable", None)
    assert "there is no such file" in found["error"]
