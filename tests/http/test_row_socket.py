"""Rows over a WebSocket: frames that a client can go on behind, as many as it has room for, to callers with a token."""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import socket
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from headwater.errors import ArgumentInvalid
from headwater.http import Address, Settings, Tokens, served
from headwater.http.row_socket import RowSocket
from headwater.log import Log
from tests.conditions import until
from tests.http.test_streams import tail, take


@contextmanager
def follow(address: str, query: str = "", **more: Any) -> Iterator[ClientConnection]:
    """A WebSocket on topic `t`; when the block begins, the server is listening."""
    url = f"{address.replace('http', 'ws', 1)}/api/v1/topics/t/ws{query}"
    with connect(url, proxy=None, **more) as opened:
        assert frame(opened)["type"] == "open"
        yield opened


def frame(opened: ClientConnection) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(opened.recv(timeout=60))
    return found


def ids(opened: ClientConnection, count: int) -> tuple[list[int], str]:
    """The ids of so many rows, and the position behind them."""
    found: list[int] = []
    while len(found) < count:
        some = frame(opened)
        assert some["type"] == "rows"
        found += [row["id"] for row in some["rows"]]
    return found, some["next"]


def test_every_row_comes_in_a_frame_and_a_client_goes_on_behind_the_last(log: Log, address: str) -> None:
    log.create("t", "id int64", partitions=2)
    log.append("t", [{"id": number} for number in range(1_200)], partition=0)
    with follow(address, "?start=earliest") as opened:
        found, position = ids(opened, 1_200)
        assert found == list(range(1_200))
    log.append("t", [{"id": 1_200}], partition=1)
    with follow(address, f"?start={position}") as opened:
        log.append("t", [{"id": 1_201}], partition=1)
        assert ids(opened, 2)[0] == [1_200, 1_201]
        log.delete("t")
        assert frame(opened)["problem"]["error"] == "NotFound"
        with pytest.raises(ConnectionClosed):
            opened.recv(timeout=60)


def test_a_client_with_credits_gets_as_many_frames(log: Log, address: str) -> None:
    log.create("t", "id int64")
    log.append("t", [{"id": number} for number in range(1_000)])  # in two frames
    with follow(address, "?start=earliest&credit=1") as opened:
        first, _ = ids(opened, 1)
        opened.send('{"credit": 1}')
        second, _ = ids(opened, 1)
        assert first + second == list(range(1_000))
        opened.send('{"credit": "many"}')
        with pytest.raises(ConnectionClosed, match="1008"):
            opened.recv(timeout=60)


def test_a_client_that_leaves_without_its_frames_gives_its_place_back(log: Log) -> None:
    log.create("t", "id int64")
    log.append("t", [{"id": number} for number in range(1_000)])
    with served(log, Address(port=0), settings=Settings(streams_max=1)) as address:
        for _ in range(3):
            with follow(address, "?start=earliest&credit=1") as opened:
                ids(opened, 1)

            def is_free() -> bool:
                with contextlib.suppress(InvalidStatus), follow(address):
                    return True
                return False

            until(is_free)


def test_without_credit_nothing_is_read_from_the_tail() -> None:
    read: list[int] = []

    async def frames() -> AsyncGenerator[bytes, None]:
        for number in range(10):
            read.append(number)
            yield b'{"type":"rows","next":"0:%d","rows":[]}' % number

    async def run() -> list[str]:
        sent: list[str] = []

        async def send_text(text: str) -> None:
            sent.append(text)

        # Any: what sends needs of a socket.
        fake: Any = SimpleNamespace(send_text=send_text)
        connection = RowSocket(fake, credit=2)
        sending = asyncio.create_task(connection._send(frames()))
        for _ in range(50):
            await asyncio.sleep(0)
        assert (len(sent), len(read)) == (2, 3)  # the third waits here, and the others in the log
        connection._grant('{"credit": 8}')
        await sending
        return sent

    assert len(asyncio.run(run())) == 10


@pytest.mark.parametrize("message", ["", "junk", "{}", '{"credit": 0}', '{"credit": 1e9}', "[1]", "x" * 5_000])
def test_a_message_that_means_nothing_is_refused(message: str) -> None:
    fake: Any = SimpleNamespace()
    with pytest.raises(ArgumentInvalid, match="credit"):
        RowSocket(fake, credit=1)._grant(message)
    with pytest.raises(ArgumentInvalid, match="credit"):
        RowSocket(fake, credit=None)._grant('{"credit": 1}')


def test_a_socket_needs_a_token_with_the_scope_and_a_page_of_this_server(log: Log, tokens: Tokens) -> None:
    log.create("t", "id int64")
    good, other = tokens.create("reader", ["read:t"]), tokens.create("other", ["read:else"])
    with served(log, Address(port=0)) as address:
        for more, status, error in (
            ({}, 401, "TokenInvalid"),
            ({"subprotocols": ["headwater", "headwater.token.hw_wrong_00"]}, 401, "TokenInvalid"),
            ({"subprotocols": ["headwater", f"headwater.token.{other}"]}, 403, "ScopeMissing"),
            (
                {"subprotocols": [f"headwater.token.{good}"], "origin": "https://elsewhere.example"},
                403,
                "OriginRefused",
            ),
        ):
            with pytest.raises(InvalidStatus) as raised, follow(address, **more):
                pass
            response = raised.value.response
            assert (response.status_code, json.loads(response.body or b"{}")["error"]) == (status, error)
        with follow(address, subprotocols=["headwater", f"headwater.token.{good}"], origin=address) as opened:
            assert opened.subprotocol == "headwater"
        with follow(address, additional_headers={"Authorization": f"Bearer {good}"}) as opened:
            log.append("t", [{"id": 7}])
            assert ids(opened, 1)[0] == [7]
        plain = httpx.get(f"{address}/api/v1/topics/t/ws", headers={"Authorization": f"Bearer {good}"}, trust_env=False)
        assert (plain.status_code, plain.json()["error"]) == (426, "UpgradeMissing")


def test_a_condition_leaves_rows_out_of_events_and_of_frames(log: Log) -> None:
    log.create("t", "id int64, user string")
    log.append("t", [{"id": number, "user": "ada" if number % 100 == 7 else "bob"} for number in range(700)])
    with served(log, Address(port=0), confined=False) as address:
        with tail(address, start="earliest", where="user = 'ada'", column="id") as events:
            found = take(events, 7)
        assert [event.data["id"] for event in found] == [7, 107, 207, 307, 407, 507, 607]
        assert "user" not in found[0].data
        with tail(address, where="user = 'ada'", last=found[-1].id) as events:
            log.append("t", [{"id": 998, "user": "eve"}, {"id": 999, "user": "ada"}])
            assert next(events).data["id"] == 999
        with follow(address, "?start=earliest&where=id%20%3D%20607") as opened:
            while (some := frame(opened))["type"] == "note":  # rows of which none fits
                assert some["next"]
            assert [row["id"] for row in some["rows"]] == [607]
        answer = httpx.get(f"{address}/api/v1/topics/t/tail", params={"where": "no such"}, trust_env=False)
    assert (answer.status_code, answer.json()["error"]) == (400, "ArgumentInvalid")


def test_a_reader_that_takes_nothing_loses_its_connection(log: Log) -> None:
    log.create("t", "text string")
    log.append("t", [{"text": "x" * 100_000} for _ in range(300)])
    settings = Settings(streams_max=1, stalled_seconds_max=0.3)
    with served(log, Address(port=0), settings=settings) as address:
        where = urlsplit(address)
        with socket.create_connection((where.hostname, where.port)) as stalled:
            stalled.sendall(
                f"GET /api/v1/topics/t/tail?start=earliest HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode()
            )

            def status() -> int:
                with (
                    httpx.Client(trust_env=False) as client,
                    client.stream("GET", f"{address}/api/v1/topics/t/tail") as answer,
                ):
                    return answer.status_code

            until(lambda: status() == 429, "the tail is open")
            until(lambda: status() == 200, "the server has given the reader up")


@pytest.mark.long
def test_two_thousand_idle_connections_stop_no_other(log: Log) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 5_000:
        pytest.skip("a process may open fewer than 5,000 files here: `ulimit -n 5000`")
    log.create("t", "id int64")
    with ExitStack() as stack:
        address = stack.enter_context(served(log, Address(port=0), settings=Settings(streams_max=2_000)))
        where = urlsplit(address)
        request = f"GET /api/v1/topics/t/tail HTTP/1.1\r\nHost: {where.netloc}\r\n\r\n".encode()
        idle = [
            stack.enter_context(socket.create_connection((where.hostname, where.port), timeout=60))
            for _ in range(2_000)
        ]
        for one in idle:
            one.sendall(request)
        for one in idle:
            _until(one, b": tail of t")
        with httpx.Client(trust_env=False, timeout=60) as client:
            for number in range(100):
                body = {"id": number}
                assert client.post(f"{address}/api/v1/topics/t/rows", json=body).status_code == 200
        for one in idle:  # and each of them has every row
            assert b'"id":99' in _until(one, b'"id":99')


def _until(one: socket.socket, wanted: bytes) -> bytes:
    found = b""
    while wanted not in found:
        part = one.recv(65_536)
        assert part, "the connection was closed"
        found += part
    return found
