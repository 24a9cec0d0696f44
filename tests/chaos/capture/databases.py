"""The databases under load: how to start each, to reach it as a writer and as a capture, and to disturb it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.capture.proxy import Proxy, proxy_to
from tests.servers import mariadb_server, postgres_server

KINDS = ("sqlite", "postgres", "mariadb")
PASSWORD_ENV = "CHAOS_PASSWORD"
#: So small that transactions of a few hundred rows are streamed before their commit.
POSTGRES_SETTINGS = {
    "wal_level": "logical",
    "logical_decoding_work_mem": "64kB",
    "max_replication_slots": "8",
    "max_wal_senders": "8",
    "wal_sender_timeout": "12s",
}
_TABLES = """
CREATE TABLE items (id BIGINT NOT NULL PRIMARY KEY, version BIGINT NOT NULL, body TEXT);
CREATE TABLE notes (who BIGINT, body TEXT);
CREATE TABLE audit (seq {serial}, id BIGINT NOT NULL, version BIGINT NOT NULL, op CHAR(1) NOT NULL);
"""


class Session:
    """A connection of a writer, which begins and ends its transactions itself. Statements have `?` for each value."""

    # Any: connections and values of three drivers.
    def __init__(self, connection: Any, *, mark: str, begin: str, lock: str) -> None:
        self._connection = connection
        self._mark = mark
        self.begin = begin
        self.lock = lock

    def run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.cursor()
        if values:
            cursor.execute(statement.replace("?", self._mark), tuple(values))
        else:  # a driver that is given no values takes a % as it is
            cursor.execute(statement)
        rows: list[tuple[Any, ...]] = list(cursor.fetchall()) if cursor.description else []
        cursor.close()
        return rows

    def run_many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        cursor = self._connection.cursor()
        cursor.executemany(statement.replace("?", self._mark), rows)
        cursor.close()

    def columns(self, table: str) -> list[str]:
        """The names of a table's columns, in order."""
        cursor = self._connection.cursor()
        cursor.execute(f"SELECT * FROM {table} WHERE 1 = 0")
        names = [str(one[0]) for one in cursor.description]
        cursor.close()
        return names

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a connection that is broken already
            self._connection.close()


def connect(kind: str, address: str) -> Session:
    """Connect a writer."""
    match kind:
        case "sqlite":
            file = sqlite3.connect(address, isolation_level=None, timeout=60)
            return Session(file, mark="?", begin="BEGIN IMMEDIATE", lock="")
        case "postgres":
            import psycopg

            return Session(psycopg.connect(address, autocommit=True), mark="%s", begin="BEGIN", lock=" FOR UPDATE")
        case "mariadb":
            import pymysql

            host, port, user, name = address.split(",")
            link = pymysql.connect(host=host, port=int(port), user=user, database=name, autocommit=True)
            return Session(link, mark="%s", begin="BEGIN", lock=" FOR UPDATE")
        case _:
            raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")


@dataclass(frozen=True, kw_only=True)
class Database:
    """A database under load."""

    kind: str
    address: str
    """How writers reach it."""
    url: str
    """How a capture reaches it."""
    tables: tuple[str, str]
    """What the capture calls `items` and `notes`."""
    writers: int
    restart: Callable[[], None] | None = None
    proxy: Proxy | None = None
    copy: Database | None = None
    """An empty database of the same kind, for a target."""

    def session(self) -> Session:
        return connect(self.kind, self.address)


@contextlib.contextmanager
def database(kind: str, home: Path) -> Iterator[Database]:
    """A database of its own with its tables, gone afterwards."""
    with {"sqlite": _sqlite, "postgres": _postgres, "mariadb": _mariadb}[kind](home) as made:
        session = made.session()
        if kind == "sqlite":
            session.run("PRAGMA journal_mode=WAL")
        serial = {
            "sqlite": "INTEGER PRIMARY KEY",
            "postgres": "BIGSERIAL PRIMARY KEY",
            "mariadb": "BIGINT AUTO_INCREMENT PRIMARY KEY",
        }[kind]
        for statement in _TABLES.format(serial=serial).strip().split(";\n"):
            session.run(statement.rstrip(";"))
        if kind == "postgres":
            session.run("ALTER TABLE notes REPLICA IDENTITY FULL")
        session.close()
        yield made


@contextlib.contextmanager
def _sqlite(home: Path) -> Iterator[Database]:
    path = home / "shop.db"
    yield Database(
        kind="sqlite", address=str(path), url=f"sqlite:///{path}", tables=("items", "notes"), writers=1
    )  # SQLite has one writer at a time


@contextlib.contextmanager
def _postgres(_home: Path) -> Iterator[Database]:
    with postgres_server(settings=POSTGRES_SETTINGS) as server, proxy_to(server.port) as proxy:
        address = server.new_database()
        os.environ[PASSWORD_ENV] = server.password
        name = address.rpartition("/")[2]

        def restart() -> None:
            server.stop()
            server.start(settings=POSTGRES_SETTINGS)

        yield Database(
            kind="postgres",
            address=address,
            url=f"postgresql://{server.user}@127.0.0.1:{proxy.port}/{name}",
            tables=("public.items", "public.notes"),
            writers=3,
            restart=restart,
            proxy=proxy,
            copy=_empty("postgres", server.new_database(), server.user, server.port),
        )


@contextlib.contextmanager
def _mariadb(_home: Path) -> Iterator[Database]:
    with mariadb_server() as server, proxy_to(server.port) as proxy:
        name = server.new_database()

        def restart() -> None:
            server.stop()
            server.start()

        yield Database(
            kind="mariadb",
            address=f"127.0.0.1,{server.port},{server.user},{name}",
            url=f"mariadb://{server.user}@127.0.0.1:{proxy.port}/{name}",
            tables=("items", "notes"),
            writers=3,
            restart=restart,
            proxy=proxy,
            copy=_empty(
                "mariadb",
                f"127.0.0.1,{server.port},{server.user},{server.new_database()}",
                server.user,
                server.port,
            ),
        )


def _empty(kind: str, address: str, user: str, port: int) -> Database:
    scheme = {"postgres": "postgresql"}.get(kind, kind)
    name = address.replace(",", "/").rpartition("/")[2]
    return Database(
        kind=kind,
        address=address,
        url=f"{scheme}://{user}@127.0.0.1:{port}/{name}",
        tables=("items", "notes"),
        writers=0,
    )
