"""The server: TLS, deadlines of connections, a stop in order; and an app with its log on one port, before Spark is up."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest

from headwater.apps import App
from headwater.apps.runner import Runner
from headwater.cli.app import run
from headwater.errors import ArgumentInvalid
from headwater.http import Address, Settings, Tokens, served
from headwater.http.server import check, served_app
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.errors import ServerUnreachable
from headwater.services import app_services, wait
from headwater.services.queries import AppStatus
from headwater.services.tokens import TokenInvalid
from headwater.units import MIB
from headwater.views import RemoteView, ViewSpec
from tests.certificates import certificate
from tests.conditions import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def test_rows_go_over_https_to_whom_the_client_trusts(
    log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public, private = certificate(tmp_path)
    with served(log, Address(port=0, certificate=public, key=private)) as address:
        assert address.startswith("https://")
        with open_log(address, certificates=public) as remote:
            remote.create("t", "id int64")
            remote.append("t", [{"id": 1}])
        with open_log(address) as stranger, pytest.raises(ServerUnreachable, match="certificate"):
            stranger.topics()
        for spelt in (address, address.replace("https", "HTTPS")):
            with pytest.raises(ServerUnreachable, match="certificate"):
                RemoteView("spend", address=spelt).describe()
        listed = run(["view", "list", "--log", address])
        assert (listed, "certificate" in capsys.readouterr().err) == (1, True)
    assert log.read("t").count() == 1


def test_a_certificate_without_its_key_is_refused(tokens: Tokens, tmp_path: Path) -> None:
    with pytest.raises(ArgumentInvalid, match="its key"):
        check(Address(certificate=tmp_path / "certificate.pem"), tokens)


#: A reader that waits for longer than this has found a connection that is never closed.
DEADLINE_SECONDS = 30.0


def connected(address: str) -> socket.socket:
    parts = urlsplit(address)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 0), timeout=DEADLINE_SECONDS)


@pytest.mark.parametrize("sent", [b"", b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_a_connection_whose_request_does_not_come_is_closed(log: Log, sent: bytes) -> None:
    with served(log, Address(port=0), settings=Settings(head_seconds_max=0.1)) as address, connected(address) as client:
        client.sendall(sent)
        assert client.recv(1_000) == b""


def test_a_connection_beyond_the_bound_is_closed_and_others_are_served(log: Log) -> None:
    whole = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(log, Address(port=0), settings=Settings(connections_max=2)) as address:
        kept = [connected(address), connected(address)]
        for client in kept:  # they are known when they are answered
            client.sendall(whole)
            assert client.recv(1_000).startswith(b"HTTP/1.1 200")
        with connected(address) as third, contextlib.suppress(ConnectionResetError):
            assert third.recv(1_000) == b""
        kept.pop().close()
        kept[0].sendall(whole)
        assert kept[0].recv(1_000).startswith(b"HTTP/1.1 200")
        kept[0].close()


def test_the_second_request_of_a_connection_has_the_same_time(log: Log) -> None:
    whole = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with served(log, Address(port=0), settings=Settings(head_seconds_max=0.1)) as address, connected(address) as client:
        client.sendall(whole)
        answer = b""
        while not answer.endswith(b"ok\n"):
            answer += client.recv(1_000)
        client.sendall(whole[:-2])
        assert client.recv(1_000) == b""


def test_an_answer_may_take_longer_than_the_head_of_its_request(log: Log) -> None:
    log.create("orders", "id int64")
    path = b"/api/v1/topics/orders/rows?start=latest&wait_seconds=0.5"
    with served(log, Address(port=0), settings=Settings(head_seconds_max=0.1)) as address, connected(address) as client:
        client.sendall(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % path)
        assert client.recv(1_000).startswith(b"HTTP/1.1 200")


FOR_EVER = 10_000.0


@pytest.fixture
def no_waiter_looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "LOOK_AGAIN_SECONDS", FOR_EVER)


@pytest.mark.usefixtures("no_waiter_looks_again")
def test_a_request_that_waits_is_answered_when_the_server_stops(log: Log) -> None:
    log.create("orders", "id int64")
    answers: list[httpx.Response] = []
    before = set(threading.enumerate())  # that of another test's server may not have ended yet

    def waits() -> bool:
        return any(thread.name == "headwater-file-events" for thread in set(threading.enumerate()) - before)

    def ask(address: str) -> None:
        asked = {"topics": {"orders": {"0": 0}}, "seconds": 30}
        answers.append(httpx.post(f"{address}/api/v1/wait", json=asked, timeout=60))

    with served(log, Address(port=0)) as address:
        waiting = threading.Thread(target=ask, args=[address])
        waiting.start()
        until(waits, "it waits")
    waiting.join(60)
    assert [answer.status_code for answer in answers] == [200]


@pytest.mark.usefixtures("no_waiter_looks_again")
def test_the_thread_that_watches_files_ends_at_once(tmp_path: Path) -> None:
    events = wait.FileEvents()

    async def listen() -> None:
        with events.waiting({tmp_path: "topics"}):
            pass

    asyncio.run(listen())
    closing = threading.Thread(target=events.close)
    closing.start()
    until(lambda: not closing.is_alive(), "it is closed")


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Runner]:
    with open_log(tmp_path / "log") as log:
        log.create("payments", "card int64, amount float64")
        log.append("payments", [{"card": 1, "amount": 2.5}])
    app = App("fraud", log=str(tmp_path / "log"))

    @app.topic(name="large")
    def large(payments: DataFrame) -> DataFrame:
        return payments.where("amount > 100")

    with Runner(app, served=served_app).ready() as running:
        yield running


def test_the_log_and_the_app_are_served_on_one_port(runner: Runner) -> None:
    address, token = runner.announced.address, runner.announced.token
    with open_log(address, token=token) as remote:
        assert remote.read("payments").count() == 1
        remote.append("payments", [{"card": 2, "amount": 500.0}])
    assert runner.log.read("payments").count() == 2
    headers = {"Authorization": f"Bearer {token}"}
    [query] = httpx.get(f"{address}/api/v1/queries", headers=headers).json()["queries"]
    assert query["name"] == "large"
    assert httpx.get(f"{address}/api/v1/views", headers=headers).json()["views"] == []
    scraped = httpx.get(f"{address}/metrics", headers=headers).text
    assert 'headwater_query_restarts_total{app="fraud",query="large",version="1"} 0' in scraped
    assert 'headwater_topic_end_offset{topic="payments",partition="0"} 2' in scraped


@pytest.mark.process
def test_a_statement_has_the_bounds_of_the_server(tmp_path: Path) -> None:
    serve = partial(served_app, settings=Settings(answer_rows_max=2))
    with Runner(App("fraud", log=str(tmp_path / "log")), served=serve).ready() as running:
        headers = {"Authorization": f"Bearer {running.announced.token}"}
        asked = {"sql": "SELECT * FROM range(3)"}
        answer = httpx.post(f"{running.announced.address}/api/v1/sql", json=asked, headers=headers)
        assert (answer.json()["error"], answer.json()["facts"]["bound"]) == ("StatementExceeded", "2 rows")


@pytest.mark.process
def test_what_a_statement_takes_is_not_taken_from_the_app(tmp_path: Path) -> None:
    """One that may take more than the rows of a view runs in a process that the app hands the rows to."""
    serve = partial(served_app, settings=Settings(statement_memory_max=64 * MIB))
    with Runner(App("fraud", log=str(tmp_path / "log")), served=serve).ready() as running:
        spend = running.log.create("spend", "card int64, total float64", key="card", compact=True)
        running.log.append("spend", [{"card": 1, "total": 2.5}, {"card": 2, "total": 4.0}])
        running.keeper.add(ViewSpec(name="spend", topic="spend", key=spend.key, schema=spend.schema))
        running.keeper.catch_up()
        headers = {"Authorization": f"Bearer {running.announced.token}"}

        def ask(path: str, **body: Any) -> Any:
            address = f"{running.announced.address}/api/v1{path}"
            answer = httpx.post(address, json=body, headers=headers, timeout=60).json()
            return answer.get("rows", answer.get("error"))

        assert ask("/sql", sql="SELECT sum(total) AS t FROM spend") == [{"t": 6.5}]
        assert ask("/sql", sql="SELECT string_agg(repeat('x', card::INTEGER), '-' ORDER BY card) AS t FROM spend") == [
            {"t": "x-xx"}
        ]
        assert ask("/views/spend/rows", where="length(repeat('x', card::INTEGER)) = $1", parameters=[2]) == [
            {"card": 2, "total": 4.0}
        ]
        for path, body in (
            ("/sql", {"sql": "SELECT repeat('a', 3000000000) FROM spend"}),
            ("/views/spend/rows", {"where": "length(repeat('a', 3000000000)) > 1"}),
        ):
            assert ask(path, **body) == "StatementExceeded"


def test_other_processes_find_the_app_by_its_home(runner: Runner) -> None:
    with app_services(runner.home) as services:
        assert services.queries.apps() == [AppStatus(name="fraud", running=True, spark=False)]


def test_nobody_is_let_in_without_a_token(runner: Runner) -> None:
    with open_log(runner.announced.address) as stranger, pytest.raises(TokenInvalid):
        stranger.topics()
    assert httpx.get(f"{runner.announced.address}/api/v1/queries").status_code == 401


def test_tokens_of_the_log_are_good_for_what_they_say(runner: Runner) -> None:
    reader = Tokens(runner.log.home).create("reader", ["read:*"])
    headers = {"Authorization": f"Bearer {reader}"}
    address = runner.announced.address
    assert httpx.get(f"{address}/api/v1/queries", headers=headers).status_code == 200
    assert httpx.post(f"{address}/api/v1/apps/fraud/stop", headers=headers).status_code == 403
    assert httpx.post(f"{address}/api/v1/queries/large/stop", headers=headers).status_code == 403
    assert not runner.is_stopping


@pytest.mark.process
def test_a_server_needs_no_spark() -> None:
    script = "import headwater.http, sys; print({'pyspark', 'pandas', 'duckdb'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
