"""Fixtures for tests of the source: a log of the test's own, and a topic in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log import EmbeddedLog
from headwater.log import open as open_log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    with open_log(tmp_path / "log") as opened:
        yield opened
