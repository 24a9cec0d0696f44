"""Fixtures for tests of the sinks: a log of the test's own, a topic to copy from, and servers to write to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log import Log
from headwater.log import open as open_log
from tests.servers import postgres as postgres
from tests.servers import redis_peer as redis_peer
from tests.servers import redis_url as redis_url
from tests.sinks.frames import close_shared
from tests.sinks.places import PLACES, Place, PostgresPlace, RedisPlace, params_of


@pytest.fixture(autouse=True)
def no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task freezes in a worker would stay in this process until its end."""
    monkeypatch.setattr("gc.freeze", lambda: None)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """A log with a topic `in` of a hundred rows in two partitions, and an empty topic `out` of the same columns."""
    with open_log(tmp_path / "log") as opened:
        for topic in ("in", "out"):
            opened.create(topic, {"id": "int64", "name": "string"}, partitions=2, key="id")
        opened.append("in", [{"id": number, "name": f"n{number}"} for number in range(100)])
        yield opened
    close_shared(opened)


@pytest.fixture(params=params_of(*PLACES))
def kind(request: pytest.FixtureRequest) -> type[Place]:
    """A kind of place, with its server if it has one."""
    if request.param == "postgres":
        PostgresPlace.server = request.getfixturevalue("postgres")
    elif request.param == "redis":
        RedisPlace.server = request.getfixturevalue("redis_peer")
    return PLACES[request.param]


@pytest.fixture
def place(kind: type[Place], tmp_path: Path) -> Iterator[Place]:
    made = kind(tmp_path)
    yield made
    made.close()
