"""A database of PostgreSQL that is captured, and the comparison of its tables with their topics."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg

from headwater.capture import Capture, CaptureConfig, CaptureStore
from headwater.log import Log
from tests.capture.shop import log_at, table_of
from tests.servers import Postgres

PASSWORD_ENV = "HEADWATER_TEST_PASSWORD"


class Shop:
    """A new database of the tests' server, and a log that captures it."""

    def __init__(self, server: Postgres, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.conninfo = server.new_database()
        self.name = self.conninfo.rpartition("/")[2]
        self.url = f"postgresql://{server.user}@127.0.0.1:{server.port}/{self.name}"
        self.connect()
        self.log: Log = log_at(folder)

    def connect(self) -> None:
        self.connection = psycopg.connect(self.conninfo, autocommit=True)

    # Any: values of rows.
    def sql(self, statement: str, values: tuple[Any, ...] | None = None) -> list[tuple[Any, ...]]:
        # Tests write their statements themselves; the type wants literals only.
        cursor = self.connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []

    def wait_until_free(self, slot: str) -> None:
        """Wait until no session holds a slot: the server notices the end of one a moment later."""
        deadline = time.monotonic() + 60
        while self.sql("SELECT active FROM pg_replication_slots WHERE slot_name = %s", (slot,))[0][0]:
            assert time.monotonic() < deadline

    # Any: settings of a capture.
    def config(self, **settings: Any) -> CaptureConfig:
        return CaptureConfig(**{"name": "shop", "url": self.url, "password_env": PASSWORD_ENV, **settings})

    # Any: settings of a capture.
    def create(self, **settings: Any) -> None:
        CaptureStore(self.log).create(self.config(**settings))

    def open(self) -> AbstractContextManager[Capture]:
        return Capture.open(self.log, "shop")

    def catch_up(self) -> int:
        with self.open() as capture:
            return capture.catch_up()

    # Any: values of rows.
    def table(self, name: str = "orders", key: str = "id") -> dict[Any, dict[str, Any]]:
        cursor = self.connection.execute(f"SELECT * FROM {name}".encode())
        names = [column.name for column in cursor.description or ()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return {row[key]: row for row in rows}

    # Any: values of rows.
    def topic(self, name: str = "public.orders", key: str = "id") -> dict[Any, dict[str, Any]]:
        return {place: row for (place,), row in table_of(self.log, f"shop.{name}", (key,)).items()}

    # Any: values of rows.
    def rows(self, name: str = "public.orders") -> list[dict[str, Any]]:
        return self.log.read(f"shop.{name}").rows()

    def in_step(self, name: str = "orders") -> None:
        """The topic holds what the table holds."""
        columns = self.log.topic(f"shop.public.{name}").schema.names
        table = {key: {column: row.get(column) for column in columns} for key, row in self.table(name).items()}
        assert self.topic(f"public.{name}") == table

    def close(self) -> None:
        store = CaptureStore(self.log)
        for name in store.configs():
            store.remove(name)
        self.log.close()
        self.connection.close()
