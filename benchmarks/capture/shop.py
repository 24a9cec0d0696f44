"""The database that is captured: one table of six columns, about 130 bytes a row, in a PostgreSQL that syncs."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headwater as hw
from headwater.capture import CaptureConfig, CaptureStore
from headwater.log import Log
from tests.servers import Postgres, postgres_server

#: The password's name; a name of Headwater's own would be taken for a setting.
PASSWORD_ENV = "CAPTURE_BENCHMARK_PASSWORD"
SETTINGS = {
    "fsync": "on",
    "logical_decoding_work_mem": "64MB",  # the default; tests have a smaller one
    "wal_level": "logical",
    "max_wal_size": "8GB",
    "shared_buffers": "256MB",
    "max_replication_slots": "20",
    "max_wal_senders": "20",
}
TABLE = """
CREATE TABLE orders (
    id BIGINT PRIMARY KEY, customer INT NOT NULL, price DOUBLE PRECISION, item TEXT, note TEXT, at TIMESTAMPTZ NOT NULL
)
"""
_VALUES = "g, g % 1000, g * 0.25, 'item ' || (g % 5000), 'a note of some length, for order ' || g, now()"


@dataclass(frozen=True, kw_only=True)
class Shop:
    """A database with its table, and a log beside it."""

    server: Postgres
    address: str
    log: Log

    # Any: a connection of psycopg's.
    def connect(self) -> Any:
        import psycopg

        return psycopg.connect(self.address, autocommit=True)

    def insert(self, first: int, count: int, *, each: int) -> None:
        """Insert rows, `each` of them in a transaction."""
        self._loop(f"INSERT INTO orders SELECT {_VALUES} FROM generate_series(n, n + {each} - 1) g", first, count, each)

    def update(self, first: int, count: int, *, each: int) -> None:
        """Update rows, `each` of them in a transaction."""
        statement = f"UPDATE orders SET price = price + 1, note = note || '!' WHERE id >= n AND id < n + {each}"
        self._loop(statement, first, count, each)

    def _loop(self, statement: str, first: int, count: int, each: int) -> None:
        """Run a statement in the server for each step, with a commit behind each.

        The backlog is not what is measured: it is committed without waiting for the disk.
        """
        block = f"""
            DO $$ BEGIN
                FOR n IN {first} .. {first + count - 1} BY {each} LOOP {statement}; COMMIT; END LOOP;
            END $$
        """
        with self.connect() as connection:
            connection.execute("SET synchronous_commit = off")
            connection.execute(block)
            connection.execute("SET synchronous_commit = on")
            connection.execute("INSERT INTO marks VALUES (1)")  # its commit syncs all those before

    def wal_end(self) -> str:
        with self.connect() as connection:
            return str(connection.execute("SELECT pg_current_wal_flush_lsn()").fetchone()[0])

    def create_capture(self, name: str) -> None:
        CaptureStore(self.log).create(self.config(name))

    def config(self, name: str) -> CaptureConfig:
        place = self.address.rpartition("/")[2]
        return CaptureConfig(
            name=name,
            url=f"postgresql://{self.server.user}@127.0.0.1:{self.server.port}/{place}",
            tables=("public.orders",),
            password_env=PASSWORD_ENV,
        )


@contextlib.contextmanager
def postgres_shop(folder: Path) -> Iterator[Shop]:
    """A PostgreSQL of its own with an empty table, and an empty log."""
    with postgres_server(settings=SETTINGS) as server, hw.open(folder / "log") as log:
        os.environ[PASSWORD_ENV] = server.password
        shop = Shop(server=server, address=server.new_database(), log=log)
        with shop.connect() as connection:
            connection.execute(TABLE)
            connection.execute("CREATE TABLE marks (mark INT)")
        yield shop
