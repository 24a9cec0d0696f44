"""A log, and a server of it in this process that is asked without a network; and one that is asked over a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headwater.config import Config
from headwater.http import Address, Settings, Tokens, application, served
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.remote import connection

Ask = Callable[..., TestClient]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", config=Config(maintenance="manual")) as opened:
        yield opened


@pytest.fixture
def tokens(log: Log) -> Tokens:
    return Tokens(log.home)


@contextmanager
def clients(log: Log) -> Iterator[Ask]:
    """Clients of applications over a log, each with settings of its own."""
    with ExitStack() as stack:

        def make(*, token: str | None = None, settings: Settings | None = None, **more: Any) -> TestClient:
            # SQL in this process: a test of what runs it elsewhere says so.
            app = application(log, settings=settings, **{"confined": False, **more})
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            client = TestClient(app, base_url="http://127.0.0.1:8080", headers=headers, raise_server_exceptions=False)
            return stack.enter_context(client)

        yield make


@pytest.fixture
def client_of(log: Log) -> Iterator[Ask]:
    with clients(log) as make:
        yield make


@pytest.fixture(scope="module")
def shared_log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """A log for all tests of a file that change nothing in it."""
    with open_log(tmp_path_factory.mktemp("shared") / "log", config=Config(maintenance="manual")) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared_client_of(shared_log: Log) -> Iterator[Ask]:
    """Clients for those tests: an application takes longer to make than most requests to answer."""
    with clients(shared_log) as make:
        yield make


@pytest.fixture
def client(client_of: Ask) -> TestClient:
    return client_of()


@pytest.fixture
def address(log: Log) -> Iterator[str]:
    """A real server on a free port."""
    with served(log, Address(port=0)) as found:
        yield found


@pytest.fixture
def remote(address: str) -> Iterator[Log]:
    with open_log(address) as opened:
        yield opened


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client gives a server up after some milliseconds, not after a second."""
    monkeypatch.setattr(connection, "RETRY_SECONDS", 0.001)


Opened = AbstractContextManager[Log]
