"""Logs with a manual clock for the tests of queues: in a folder, and behind a server in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.http import Tokens
from headwater.log import Log
from headwater.log.remote.connection import Connection
from headwater.log.remote.log import RemoteLog
from headwater.services.host import Host
from headwater.services.open_queues import OpenQueues
from tests.http.conftest import clients
from tests.services.conftest import InProcess


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def local_log(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    """A log in a folder, for tests that look at its files or that use what only a folder has."""
    with hw.open(tmp_path / "log", clock=clock) as log:
        yield log


@dataclass(frozen=True)
class Server:
    """An application over a log of its own, which tests replace: to make one takes longer than most tests."""

    host: Host
    client: InProcess

    @contextlib.contextmanager
    def of(self, log: Log) -> Iterator[Connection]:
        """A connection to the server, as if it were that of a log."""
        own, shared = self.host.log, self.host._shared
        self.host.log, self.host._shared = log, {}
        connection = Connection("http://127.0.0.1:8080")
        connection._client = self.client  # what of it is used
        try:
            yield connection
        finally:
            self.host.share("queues", lambda: OpenQueues(log)).close()
            self.host.cursors.close()
            self.host.log, self.host._shared = own, shared


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with hw.open(tmp_path_factory.mktemp("server") / "log") as log, clients(log) as make:
        client = make()
        token = Tokens(log.home).create("ada", ("admin:*",))
        yield Server(client.app.state.service, InProcess(client, token))  # type: ignore[attr-defined]  # a FastAPI


@pytest.fixture(params=["local", "remote"])
def log(request: pytest.FixtureRequest, local_log: Log, clock: ManualClock) -> Iterator[Log]:
    """The same log, in its folder and behind a server."""
    if request.param == "local":
        yield local_log
        return
    with (
        request.getfixturevalue("server").of(local_log) as connection,
        RemoteLog("http://127.0.0.1:8080", connection=connection, clock=clock) as remote,
    ):
        yield remote
