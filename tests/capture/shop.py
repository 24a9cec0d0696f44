"""A small shop in SQLite, changed at random, and what a topic of it holds."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import headwater as hw
from headwater.capture import CaptureConfig
from headwater.config import Config
from headwater.log import Log

TABLES = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, item TEXT, price REAL, paid BOOLEAN);
CREATE TABLE stock (shelf TEXT, place INTEGER, count INTEGER, PRIMARY KEY (shelf, place)) WITHOUT ROWID;
CREATE TABLE visits (who TEXT, at TEXT);
"""


def shop_at(folder: Path) -> sqlite3.Connection:
    """Open the database, with its tables."""
    is_new = not (folder / "shop.db").exists()
    connection = sqlite3.connect(folder / "shop.db", isolation_level=None, timeout=30)
    if is_new:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.executescript(TABLES)
    return connection


def log_at(folder: Path) -> Log:
    return hw.open(folder / "log", config=Config(durability="os", maintenance="manual"))


# Any: settings of a capture.
def config_of(folder: Path, **settings: Any) -> CaptureConfig:
    return CaptureConfig(**{"name": "shop", "url": f"sqlite:///{folder}/shop.db", **settings})


# Any: values of rows.
def table_of(log: Log, topic: str, key: tuple[str, ...]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The table that a keyed topic holds: the newest row of each key, without deleted ones."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in log.read(topic).rows():
        place = tuple(row[name] for name in key)
        rows.pop(place, None)
        if not row["_tombstone"]:
            rows[place] = {name: value for name, value in row.items() if name[0] != "_"}
    return rows
