"""Fixtures for tests of the sinks: a log of the test's own, and a topic to copy from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.log import EmbeddedLog
from headwater.log import open as open_log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedLog]:
    """A log with a topic `in` of a hundred rows in two partitions, and an empty topic `out` of the same columns."""
    with open_log(tmp_path / "log") as opened:
        for topic in ("in", "out"):
            opened.create(topic, {"id": "int64", "name": "string"}, partitions=2, key="id")
        opened.append("in", [{"id": number, "name": f"n{number}"} for number in range(100)])
        yield opened
