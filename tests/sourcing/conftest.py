"""A log with a manual clock, and accounts in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.log import Log
from tests.sourcing.account import DECIDER, Accounts


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    with hw.open(tmp_path / "log", clock=clock) as log:
        yield log


@pytest.fixture
def accounts(log: Log) -> Iterator[Accounts]:
    with hw.Entities(log, "account", DECIDER, partitions=2, snapshot_events=5, check=True) as accounts:
        yield accounts
