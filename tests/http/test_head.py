"""Connections on which a request does not arrive: they are closed, and no others are."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import pytest

from headwater.http import Address, Settings, served
from headwater.log import Log

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
