"""An HTTP client for servers on this machine: kept connections, one send for each request, and nothing else.

A call over the loopback network takes less time than httpx takes to prepare it. Proxies, redirects, cookies and
certificates are for other machines, and so for httpx; errors have its classes, since the caller handles both clients.
"""

from __future__ import annotations

import http.client
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import httpx
import orjson

from headwater.connections import wait_for_bytes

#: Connections that are kept while no call uses them.
IDLE_MAX = 20
_PATH_SAFE = "/%:@!$&'()*+,;=~-._"


@dataclass(frozen=True)
class Response:
    """An answer that was read to its end."""

    status_code: int
    headers: Message
    content: bytes

    @property
    def is_error(self) -> bool:
        return self.status_code >= 400

    @property
    def text(self) -> str:
        return self.content.decode()

    # Any: JSON.
    def json(self) -> Any:
        return orjson.loads(self.content)


class LoopbackClient:
    """Sends requests to one address. Safe to use from many threads."""

    def __init__(self, address: str, *, headers: Mapping[str, str]) -> None:
        place = urlsplit(address)
        self._host, self._port, self._prefix = place.hostname or "", place.port or 80, place.path.rstrip("/")
        self._headers = dict(headers)
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._closed = False

    def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    # Any: JSON.
    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any],
        timeout: float,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        content: bytes | None = None,
    ) -> Response:
        """Send a request, and read the answer. Raise an error of httpx if the server does not answer in time."""
        if self._closed:
            raise RuntimeError("the client is closed")
        target = self._prefix + quote(path, safe=_PATH_SAFE) + (f"?{urlencode(params, doseq=True)}" if params else "")
        sent = {**self._headers, **(headers or {})}
        if json is not None:
            content = orjson.dumps(json)
            sent["Content-Type"] = "application/json"
        connection = self._connected(timeout)
        try:
            connection.request(method, target, body=content, headers=sent)
            answer = connection.getresponse()
            response = Response(answer.status, answer.headers, answer.read())
        except TimeoutError as error:
            connection.close()
            raise httpx.ReadTimeout(f"no answer within {timeout:.0f} s") from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise httpx.RemoteProtocolError(str(error) or type(error).__name__) from error
        except BaseException:
            connection.close()
            raise
        self._keep(connection, is_over=answer.will_close)
        return response

    def _connected(self, timeout: float) -> http.client.HTTPConnection:
        """A connection that is kept and still open, or a new one."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            # What an idle connection has to say is that the server has closed it.
            if connection.sock is not None and not wait_for_bytes(connection.sock, seconds=0):
                connection.sock.settimeout(timeout)
                return connection
            connection.close()
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        return connection

    def _keep(self, connection: http.client.HTTPConnection, *, is_over: bool) -> None:
        if is_over or self._closed or len(self._idle) >= IDLE_MAX:
            connection.close()
        else:
            self._idle.append(connection)
