"""The client for servers on this machine: connections are kept, and replaced when the server has closed them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress

import httpx
import pytest

from headwater.log.remote.loopback import LoopbackClient


class Echo:
    """A server that answers each request with its first line, and can end its connections."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # the test has ended the connection
            while data := connection.recv(65_536):
                line = data.partition(b"\r\n")[0]
                if b"/broken" in line:
                    return
                if b"/silent" not in line:
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(line), line))


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    with closing(server.listening):
        yield server
    for connection in server.connections:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def client(echo: Echo) -> Iterator[LoopbackClient]:
    with closing(LoopbackClient(echo.address, headers={})) as made:
        yield made


def get(client: LoopbackClient, path: str, *, timeout: float = 10.0, **params: object) -> str:
    return client.request("GET", path, params=params, timeout=timeout).text


def test_a_connection_is_kept(echo: Echo, client: LoopbackClient) -> None:
    for _ in range(3):
        assert get(client, "/a") == "GET /a HTTP/1.1"
    assert len(echo.connections) == 1


def test_a_connection_that_the_server_has_closed_is_replaced(echo: Echo, client: LoopbackClient) -> None:
    get(client, "/a")
    echo.connections[0].shutdown(socket.SHUT_RDWR)
    assert get(client, "/b") == "GET /b HTTP/1.1"
    assert len(echo.connections) == 2


def test_any_text_can_stand_in_a_path_and_in_a_parameter(client: LoopbackClient) -> None:
    assert get(client, "/ä b?%2F", name="c d&é") == "GET /%C3%A4%20b%3F%2F?name=c+d%26%C3%A9 HTTP/1.1"


@pytest.mark.parametrize(
    ("path", "timeout", "error"), [("/silent", 0.01, httpx.ReadTimeout), ("/broken", 10.0, httpx.RemoteProtocolError)]
)
def test_a_call_without_an_answer_raises_an_error_of_httpx(
    client: LoopbackClient, path: str, timeout: float, error: type[Exception]
) -> None:
    with pytest.raises(error):
        get(client, path, timeout=timeout)
    assert get(client, "/a") == "GET /a HTTP/1.1"


def test_a_server_that_is_not_there_cannot_be_connected_to() -> None:
    with socket.socket() as bound:  # it has a port, and does not listen
        bound.bind(("127.0.0.1", 0))
        client = LoopbackClient(f"http://127.0.0.1:{bound.getsockname()[1]}", headers={})
        with pytest.raises(httpx.ConnectError):
            get(client, "/a")
