"""Fixtures for every test of the log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.clock import ManualClock
from headwater.config import Config
from headwater.log.embedded import EmbeddedLog
from headwater.log.embedded import open_folder as open_log


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["embedded"])
def log(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Iterator[EmbeddedLog]:
    """Each adapter of the log in turn."""
    assert request.param == "embedded"
    with open_log(tmp_path / "log", clock=clock, config=Config(maintenance="manual")) as opened:
        yield opened
