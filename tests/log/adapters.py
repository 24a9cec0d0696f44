"""Fresh logs of each adapter, for suites that say what holds on every kind of log."""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from benchmarks.kafka_broker import Kafka
from headwater.log import Log
from headwater.log import open as open_log
from tests.http.process import ServerProcess, server_process
from tests.kafka_server import kafka as kafka

#: The parameter of fixtures that have each adapter in turn, also the one that needs a broker.
KAFKA = pytest.param("kafka", marks=[pytest.mark.process, pytest.mark.kafka])

#: Makes a new, empty log each time.
Logs = Callable[[], AbstractContextManager[Log]]
#: The folders of remote logs, by their addresses.
FOLDERS: dict[str, Path] = {}


@pytest.fixture(scope="session")
def server() -> Iterator[ServerProcess]:
    with server_process() as process:
        yield process


def kafka_address(kafka: Kafka) -> str:
    """The address of a new, empty log on the one broker: each has a namespace of its own."""
    return f"{kafka.address}/test-{uuid.uuid4().hex[:12]}"


def open_kafka(kafka: Kafka) -> Log:
    """A new, empty log on the one broker."""
    return open_log(kafka_address(kafka))


@pytest.fixture(params=["embedded", pytest.param("remote", marks=pytest.mark.process)])
def logs(request: pytest.FixtureRequest, tmp_path: Path) -> Logs:
    return logs_of(request, tmp_path)


@pytest.fixture(params=["embedded", pytest.param("remote", marks=pytest.mark.process), KAFKA])
def all_logs(request: pytest.FixtureRequest, tmp_path: Path) -> Logs:
    return logs_of(request, tmp_path)


def logs_of(request: pytest.FixtureRequest, tmp_path: Path) -> Logs:
    """Makes logs of the kind that a fixture has as its parameter."""
    folders = (tmp_path / f"log{number}" for number in itertools.count())
    if request.param == "embedded":
        return lambda: open_log(next(folders))
    if request.param == "kafka":
        broker: Kafka = request.getfixturevalue("kafka")
        return lambda: open_kafka(broker)
    server: ServerProcess = request.getfixturevalue("server")

    @contextlib.contextmanager
    def served() -> Iterator[Log]:
        folder = next(folders)
        address = server.serve(folder)
        FOLDERS[address] = folder
        with open_log(address) as log:
            yield log
        server.stop(address)

    return served


def folder_of(log: Log) -> Path:
    """The folder with the files of a log, also of a remote one."""
    return FOLDERS.get(log.address, log.home)
