"""Every kind of target, behind what the contract suite asks of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headwater.log import Log
from headwater.sync import SyncConfig
from headwater.sync.targets import open_target
from tests.sync.rows import Values, define


@dataclass(frozen=True, kw_only=True)
class Place:
    """A target that a test may look into and change behind the sync's back."""

    url: str
    # Any: settings of a sync.
    settings: dict[str, Any]
    #: Set a column of one row, and delete one row, as another program would.
    spoil: Callable[[], None] | None = None

    def define(self, log: Log, **settings: Any) -> SyncConfig:
        return define(log, self.url, **{**self.settings, **settings})

    def table(self, config: SyncConfig, log: Log) -> dict[Any, Values]:
        """The rows of the target as the port reads them, by their key."""
        from headwater.sync.sync import topic_tables

        target = open_target(config)
        try:
            [table] = topic_tables(log, config)
            _, pieces = target.scan(table)
            rows = [row for piece in pieces for row in piece.to_pylist()]
        finally:
            target.close()
        return {row["id"]: (row["item"], row["price"], row["paid"]) for row in rows}


KINDS = ("sqlite", "duckdb", "postgres", "mariadb")
SERVERS = {"postgres": "postgres", "mariadb": "mariadb", "redis": "redis_peer"}


def params() -> list[Any]:
    return [
        pytest.param(kind, marks=pytest.mark.process) if kind in SERVERS else pytest.param(kind) for kind in KINDS
    ]


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
    return Place(url=f"{kind}:///{folder}/copy.db", settings={})
