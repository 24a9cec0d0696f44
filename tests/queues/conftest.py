"""A log with a manual clock for the tests of queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.log import Log


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    with hw.open(tmp_path / "log", clock=clock) as log:
        yield log
