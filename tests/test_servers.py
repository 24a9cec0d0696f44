"""A server that tests need, and that is not on this machine, is left out with its reason and its remedy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kafka_broker import kafka_brokers
from tests import servers


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (lambda _folder: servers.postgres_server(), "PostgreSQL is not installed: `apt-get install postgresql`"),
        (servers.redis_process, "redis-server is not installed: `apt-get install redis-server`"),
        (kafka_brokers, "and Maven, which would fetch it, is not installed"),
    ],
    ids=["postgres", "redis", "kafka"],
)
# Any: whichever server it is.
def test_a_missing_server_skips_its_tests_with_one_line(
    start: Callable[[Path], contextlib.AbstractContextManager[Any]],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shutil.which", lambda _program, **_options: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(servers, "_find_postgres", lambda: None)
    with pytest.raises(pytest.skip.Exception) as caught, servers.or_skip(start(tmp_path)):
        pass
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
