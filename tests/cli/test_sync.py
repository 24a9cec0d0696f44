"""Syncs at the command line: created, run, looked at, paused and dropped."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from tests.cli.conftest import Cli


def test_a_sync_from_its_creation_to_its_end(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/copy.db"
    assert cli("topic", "create", "shop.orders", "--schema", "id int64, item string", "--key", "id").code == 0
    assert cli("produce", "shop.orders", stdin='{"id": 1, "item": "tea"}\n{"id": 2, "item": "milk"}\n').code == 0
    created = cli("sync", "create", "copy", url, "--topics", "shop.*", "--json").json
    assert (created["state"], created["url"], created["pending"]) == ("new", url, 2)
    assert cli("sync", "run", "--until-caught-up").code == 0
    with sqlite3.connect(tmp_path / "copy.db") as copy:
        assert copy.execute("SELECT * FROM orders").fetchall() == [(1, "tea"), (2, "milk")]
    copy.close()
    cli("produce", "shop.orders", stdin='{"id": 1, "item": "oats"}\n')
    status = cli("sync", "status", "copy", "--json").json
    assert (status["state"], status["pending"]) == ("behind", 1)
    (table,) = status["tables"]
    assert (table["topic"], table["table"], table["pending"]) == ("shop.orders", "orders", 1)
    assert 0 < table["delay_seconds"] == status["delay_seconds"]
    assert cli("sync", "pause", "copy", "--json").json["state"] == "paused"
    assert cli("sync", "run", "copy", "--until-caught-up").code == 0
    assert cli("sync", "resume", "copy", "--json").json["state"] == "behind"
    assert cli("sync", "run", "copy", "--until-caught-up").code == 0
    assert cli("sync", "list", "--json").json[0]["state"] == "in sync"
    assert cli("sync", "compare", "copy").code == 0
    with sqlite3.connect(tmp_path / "copy.db") as copy:
        copy.execute("DELETE FROM orders WHERE id = 1")
    copy.close()
    compared = cli("sync", "compare", "copy", "--json")
    assert (compared.code, compared.json[0]["missing"]) == (5, 1)
    assert "missing: id=1" in compared.err
    assert cli("sync", "compare", "copy", "--repair").code == 0
    assert cli("sync", "compare", "copy").code == 0
    assert cli("sync", "rebuild", "copy", "shop.orders", "--yes").code == 0
    assert cli("sync", "rebuild", "copy", "shop.order", "--yes").code == 3
    assert cli("sync", "drop", "copy", "--yes").code == 0
    assert cli("sync", "list", "--json").json == []


def test_a_sync_that_cannot_be_ends_with_its_code(cli: Cli, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/copy.db"
    assert cli("sync", "create", "copy", "oracle://db").code == 2
    wrong = cli("sync", "create", "copy", url, "--option", "ttl")
    assert wrong.code == 2
    assert "NAME=VALUE" in wrong.err
    assert cli("sync", "status", "copy").code == 3
