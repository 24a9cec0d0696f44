"""The way to a server: one pool of connections, errors raised as what they are, and calls that may be repeated repeated."""

from __future__ import annotations

import contextlib
import random
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from headwater.errors import Closed, NotFound
from headwater.log.errors import ServerUnreachable
from headwater.log.remote.wire import ARROW, REPEAT_HEADER, REPEAT_SECONDS_HEADER, SERVER_HEADER, error_from_json
from headwater.optional import require

PREFIX = "/api/v1"
#: Beyond what a server may take to answer, however long it was told to wait.
PATIENCE_SECONDS = 60.0
ATTEMPTS_MAX = 5
RETRY_SECONDS = 0.05
#: Statuses that say that the same request may be met later.
_LATER = (429, 502, 503, 504)


class Connection:
    """Calls a server. Safe to use from many threads."""

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        certificates: str | Path | None = None,
        seconds_max: float = PATIENCE_SECONDS,
        attempts_max: int | None = None,
    ) -> None:
        """`seconds_max` bounds each attempt, beyond what a call tells the server to wait."""
        require("httpx", extra="server")
        import httpx

        self._httpx = httpx
        self.address = address.rstrip("/")
        self._seconds_max = seconds_max
        self._attempts_max = attempts_max or ATTEMPTS_MAX
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        # Reading the machine's certificates takes longer than most calls; redirects are not followed.
        self._client = httpx.Client(
            base_url=self.address,
            headers=headers,
            timeout=seconds_max,
            trust_env=not _is_loopback(self.address),  # a proxy has no way to this machine's own loopback
            verify=False if self.address.lower().startswith("http:") else _trusted(certificates),
            limits=httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30.0),
        )
        self.closed = False
        #: The server that keeps receipts of our appends; empty where it keeps none, None until it was asked.
        self._server: str | None = None

    def close(self) -> None:
        self.closed = True
        self._client.close()

    # Any: JSON, and the response of a library that is loaded when it is needed; here and below.
    def get(self, path: str, **parameters: Any) -> Any:
        return self.ask("GET", path, parameters=parameters).json()

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, again: bool = False, **parameters: Any) -> Any:
        """Send a body; `again` says that the server may get it twice without harm."""
        response = self.ask("POST", path, parameters=parameters, json={} if body is None else body, again=again)
        return response.json() if response.content else None

    def delete(self, path: str, **parameters: Any) -> None:
        self.ask("DELETE", path, parameters=parameters)

    def send_rows(self, path: str, rows: bytes, *, again: bool, **parameters: Any) -> Any:
        """Send an Arrow stream."""
        headers = {"Content-Type": ARROW}
        response = self.ask("POST", path, parameters=parameters, content=rows, headers=headers, again=again)
        return response.json() if response.content else None

    def append_rows(self, topic: str, rows: bytes, *, again: bool, **parameters: Any) -> Any:
        """Send an Arrow stream to a topic. It is sent again where its answer was lost, and never taken twice.

        That needs a producer's sequence (`again`), or a server that keeps receipts and is still the same.
        """
        headers = {"Content-Type": ARROW}
        server = "" if again else self._keeper_of_receipts(topic)
        if server:
            headers["Idempotency-Key"] = uuid.uuid4().hex
        response = self.ask(
            "POST", f"/topics/{topic}/rows", parameters=parameters, content=rows, headers=headers, again=again,
            repeat_of=server,
        )  # fmt: skip
        self._server = response.headers.get(SERVER_HEADER, self._server)
        return response.json()

    def _keeper_of_receipts(self, topic: str) -> str:
        if self._server is None:
            try:
                self._server = str(self.get(f"/topics/{topic}/receipts")["server"])
            except NotFound as error:
                if error.kind != "path":
                    raise
                self._server = ""  # an older server
        return self._server

    def ask(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, Any] | None = None,
        again: bool = False,
        patience: float = 0.0,
        repeat_of: str = "",
        **settings: Any,
    ) -> Any:
        """One call. What never reached the server is sent again; what may have, only where that does no harm.

        `repeat_of` is the server that knows whether it has had this call before, by its key.
        """
        given = {name: _written(value) for name, value in (parameters or {}).items() if value is not None}
        again = again or method == "GET" or bool(repeat_of)
        began, may_have_arrived = time.monotonic(), False
        for attempt in range(self._attempts_max):
            if self.closed:
                raise Closed(what="log")
            last = attempt == self._attempts_max - 1
            if may_have_arrived and repeat_of:
                since = {REPEAT_HEADER: repeat_of, REPEAT_SECONDS_HEADER: f"{time.monotonic() - began:.3f}"}
                settings["headers"] = {**settings["headers"], **since}
            try:
                response = self._client.request(
                    method, PREFIX + path, params=given, timeout=self._seconds_max + patience, **settings
                )
            except (self._httpx.ConnectError, self._httpx.ConnectTimeout, self._httpx.PoolTimeout) as error:
                if last:
                    raise self._unreachable(error) from error
            except self._httpx.TransportError as error:
                if last or not again:
                    raise self._unreachable(error) from error
                may_have_arrived = True
            except RuntimeError as error:  # the client was closed by another thread meanwhile
                raise Closed(what="log") from error
            else:
                if not response.is_error:
                    return response
                if last or not (response.status_code == 429 or (again and response.status_code in _LATER)):
                    raise error_from_json(response.status_code, _json(response), address=self.address)
                may_have_arrived = may_have_arrived or response.status_code != 429
            time.sleep(RETRY_SECONDS * 2**attempt * (1 + random.random()))
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def stream(self, path: str, *, silence_seconds_max: float = PATIENCE_SECONDS, **settings: Any) -> Iterator[Any]:
        """Follow a stream of events while the block runs. A failure of the network is raised as it comes."""
        timeout = self._httpx.Timeout(self._seconds_max, read=silence_seconds_max)
        with self._client.stream("GET", PREFIX + path, timeout=timeout, **settings) as response:
            if response.is_error:
                response.read()
                raise error_from_json(response.status_code, _json(response), address=self.address)
            yield response

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        return ServerUnreachable(address=self.address, why=str(error) or type(error).__name__)


def _is_loopback(address: str) -> bool:
    """Whether an address is one of this machine's own.

    >>> _is_loopback("http://127.0.0.1:8080"), _is_loopback("http://localhost"), _is_loopback("https://example.org")
    (True, True, False)
    """
    return urlsplit(address).hostname in ("127.0.0.1", "::1", "localhost")


def _written(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _json(response: Any) -> Any:
    try:
        return response.json()
    except ValueError:
        return {}


def _trusted(certificates: str | Path | None) -> Any:
    if certificates is None:
        return True
    import ssl

    return ssl.create_default_context(cafile=str(certificates))


def quoted(text: str) -> str:
    """Any text as one part of an address."""
    return quote(text, safe="") if text.strip(".") else "-"
