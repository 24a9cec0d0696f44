"""Every kind of target, behind what the contract suite asks of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis

from headwater.log import Log
from headwater.sync import SyncConfig
from headwater.sync.tables import topic_tables
from headwater.sync.targets import open_target
from tests.sync.rows import SCHEMA, Values, define


@dataclass(frozen=True, kw_only=True)
class Place:
    """A target that a test may look into and change behind the sync's back."""

    url: str
    # Any: settings of a sync.
    settings: dict[str, Any]

    def define(self, log: Log, **settings: Any) -> SyncConfig:
        return define(log, self.url, **{**self.settings, **settings})

    def holds(self, config: SyncConfig, log: Log, rows: dict[Any, Values]) -> bool:
        """Whether the target has these rows, in the form in which it stores them."""
        target = open_target(config)
        try:
            [table] = topic_tables(log, config)
            _, pieces = target.scan(table)
            found = [tuple(row.items()) for piece in pieces for row in piece.to_pylist()]
            names = list(SCHEMA)
            lines = [dict(zip(names, (key, *values), strict=True)) for key, values in rows.items()]
            expected = target.stored(pa.Table.from_pylist(lines, schema=table.columns))
        finally:
            target.close()
        return sorted(map(repr, found)) == sorted(repr(tuple(row.items())) for row in expected.to_pylist())


KINDS = ("sqlite", "duckdb", "parquet", "delta", "search", "postgres", "mariadb", "redis")
SERVERS = {"postgres": "postgres", "mariadb": "mariadb", "redis": "redis_peer"}


def params() -> list[Any]:
    return [pytest.param(kind, marks=pytest.mark.process) if kind in SERVERS else pytest.param(kind) for kind in KINDS]


def place_of(kind: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    if kind == "postgres":
        from urllib.parse import urlsplit

        server = request.getfixturevalue("postgres")
        url = urlsplit(server.new_database())
        monkeypatch.setenv("SYNC_PASSWORD", server.password)
        address = f"postgresql://{server.user}@{url.hostname}:{url.port}{url.path}"
        return Place(url=address, settings={"password_env": "SYNC_PASSWORD"})
    if kind == "mariadb":
        server = request.getfixturevalue("mariadb")
        return Place(url=server.url(server.new_database()), settings={})
    if kind == "redis":
        server = request.getfixturevalue("redis_peer")
        with redis.Redis.from_url(server.url) as client:
            client.flushdb()
        return Place(url=server.url, settings={"table": f"{folder.name}.{{table}}", "options": {"format": "json"}})
    options = {"text": "item"} if kind == "search" else {}
    return Place(url=f"{kind}:///{folder}/copy.db", settings={"options": options})
