"""The company's database: who follows whom, in SQLite. The world changes it as any program would; the app captures it."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

#: The tables of the database; each is an input topic of the same name.
TABLES = {"follows": "CREATE TABLE IF NOT EXISTS follows (reader TEXT, author TEXT, PRIMARY KEY (reader, author))"}


class Database:
    """The database, open for a program that changes it."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=30, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        for statement in TABLES.values():
            self._connection.execute(statement)

    # Any: values of rows.
    def write(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """Insert rows in one transaction; a row with `_tombstone` is deleted instead."""
        with self._connection:
            self._connection.execute("BEGIN")
            for row in rows:
                values = {name: value for name, value in row.items() if name != "_tombstone"}
                if row.get("_tombstone"):
                    condition = " AND ".join(f"{name} = :{name}" for name in values)
                    self._connection.execute(f"DELETE FROM {table} WHERE {condition}", values)
                else:
                    names, places = ", ".join(values), ", ".join(f":{name}" for name in values)
                    self._connection.execute(f"INSERT OR REPLACE INTO {table} ({names}) VALUES ({places})", values)

    def close(self) -> None:
        self._connection.close()
