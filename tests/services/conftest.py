"""Services of one log, each way that they are reached: in this process, and over HTTP from an application in process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from headwater.config import Config
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.remote.connection import Connection
from headwater.services import Audit, Services, Settings, Tokens, local, remote_services
from headwater.services.callers import Caller, Scope
from headwater.services.host import Host
from headwater.sourcing import Entities
from tests.http.conftest import clients


class InProcess:
    """An HTTP client that asks an application in this process, which has no time limits."""

    def __init__(self, client: TestClient, token: str) -> None:
        self._client = client
        self._headers = {"Authorization": f"Bearer {token}"}

    # Any: the shapes of httpx.
    def request(self, method: str, path: str, *, timeout: float, **more: Any) -> Any:  # noqa: ARG002
        return self._client.request(method, path, headers={**self._headers, **more.pop("headers", {})}, **more)

    def close(self) -> None:
        """Nothing to do: the test client is closed by what made it."""


#: Makes services for a caller with these scopes; without scopes, for one who may do everything.
ServicesOf = Callable[..., Services]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", config=Config(maintenance="manual")) as opened:
        yield opened


# Any: stands in for a runner, as far as the services ask one.
@pytest.fixture
def runner() -> Any:
    """The app that the process of the services runs; a test of apps has a fixture of its own."""
    return None


# Any: the state, command and event classes of a test.
@pytest.fixture
def entities() -> list[Entities[Any, Any, Any]]:
    """The entities whose deciders the process of the services has."""
    return []


@pytest.fixture(params=["local", "remote"])
def services_of(
    request: pytest.FixtureRequest, log: Log, runner: Any, entities: list[Entities[Any, Any, Any]]
) -> Iterator[ServicesOf]:
    if request.param == "local":
        host = Host(log=log, settings=Settings(), audit=Audit(log), runner=runner)
        host.entities = {each.name: each for each in entities}
        yield lambda *scopes: local(
            host, Caller(name="ada", scopes=tuple(map(Scope.parse, scopes or ("admin:*",)))), address="test"
        )
        host.close()
        return
    with clients(log) as make:
        client, tokens = make(runner=runner, entities=entities), Tokens(log.home)

        def of(*scopes: str) -> Services:
            connection = Connection("http://127.0.0.1:8080")
            token = tokens.create(f"ada{len(tokens.list())}", scopes or ("admin:*",))
            connection._client = InProcess(client, token)  # what of it is used
            return remote_services(connection)

        yield of


@pytest.fixture
def services(services_of: ServicesOf) -> Services:
    """Services for a caller who may do everything."""
    return services_of()


#: Reads the rows of the audit.
Audited = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def audited(log: Log) -> Audited:
    """The rows of the audit, without their times."""

    def read() -> list[dict[str, Any]]:
        names = ("action", "target", "status")
        return [{name: row[name] for name in names} for row in log.read("__audit").rows()]

    return read
