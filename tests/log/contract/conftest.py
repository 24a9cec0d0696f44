"""Each adapter of the log in turn: the suite says what every one of them does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.config import Config
from headwater.log import Log
from headwater.log import open as open_log
from tests.http.process import ServerProcess, SharedClock
from tests.log.adapters import server as server


@pytest.fixture
def clock(tmp_path: Path) -> ManualClock:
    return SharedClock(tmp_path / "clock")


@pytest.fixture(params=["embedded", pytest.param("remote", marks=[pytest.mark.process, pytest.mark.core])])
def log(request: pytest.FixtureRequest, tmp_path: Path, clock: SharedClock) -> Iterator[Log]:
    if request.param == "embedded":
        with open_log(tmp_path / "log", clock=clock, config=Config(maintenance="manual")) as opened:
            yield opened
        return
    server: ServerProcess = request.getfixturevalue("server")
    address = server.serve(tmp_path / "log", clock=clock.path)
    with open_log(address, clock=clock) as opened:
        yield opened
    server.stop(address)
