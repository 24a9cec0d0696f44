"""Each adapter of the log in turn: the suite says what every one of them does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.kafka_broker import Kafka
from headwater.clock import ManualClock
from headwater.config import Config
from headwater.log import Log
from headwater.log import open as open_log
from tests.http.process import ServerProcess, SharedClock
from tests.kafka_server import kafka as kafka
from tests.log.adapters import KAFKA, kafka_address, open_kafka
from tests.log.adapters import server as server
from tests.log.contract.limits import SERVED, is_left_out


@pytest.fixture
def clock(tmp_path: Path) -> ManualClock:
    return SharedClock(tmp_path / "clock")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what an adapter cannot do, by the list that its reference page shows."""
    items[:] = [item for item in items if not is_left_out(item)]


#: A log on Kafka behind a server.
SERVED_KAFKA = pytest.param(SERVED, marks=[pytest.mark.process, pytest.mark.kafka, pytest.mark.long])


@pytest.fixture(
    params=["embedded", pytest.param("remote", marks=[pytest.mark.process, pytest.mark.core]), KAFKA, SERVED_KAFKA]
)
def log(request: pytest.FixtureRequest, tmp_path: Path, clock: SharedClock) -> Iterator[Log]:
    if request.param == "embedded":
        with open_log(tmp_path / "log", clock=clock, config=Config(maintenance="manual")) as opened:
            yield opened
        return
    if request.param == "kafka":
        with open_kafka(request.getfixturevalue("kafka")) as opened:
            yield opened
        return
    server: ServerProcess = request.getfixturevalue("server")
    if request.param == SERVED:
        kafka: Kafka = request.getfixturevalue("kafka")
        address = server.serve(kafka_address(kafka))
        with open_log(address) as opened:
            yield opened
        server.stop(address)
        return
    address = server.serve(tmp_path / "log", clock=clock.path)
    with open_log(address, clock=clock) as opened:
        yield opened
    server.stop(address)
