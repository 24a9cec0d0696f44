"""The HTTP connection to a server: a pool of connections, typed errors, and retries of calls that are safe to repeat."""

from __future__ import annotations

import contextlib
import functools
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
#: How long a server may take to answer, beyond the time that it was asked to wait.
ANSWER_SECONDS_MAX = 60.0
ATTEMPTS_MAX = 5
RETRY_SECONDS = 0.05
#: HTTP statuses after which a request is retried.
_RETRY_STATUSES = (429, 502, 503, 504)


class Connection:
    """Calls a server. Safe to use from many threads."""

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        certificates: str | Path | None = None,
        seconds_max: float = ANSWER_SECONDS_MAX,
        attempts_max: int | None = None,
    ) -> None:
        """`seconds_max` bounds each attempt, beyond the time that a call asks the server to wait."""
        require("httpx", extra="server")
        import httpx

        self._httpx = httpx
        self.address = address.rstrip("/")
        self._seconds_max = seconds_max
        self._attempts_max = attempts_max or ATTEMPTS_MAX
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._certificates = certificates
        # Any: a client of httpx or, for a server of this machine, one with the same method `request`.
        self._client: Any = None
        if _is_loopback(self.address) and not self._is_encrypted:
            from headwater.log.remote.loopback import LoopbackClient

            self._client = LoopbackClient(self.address, headers=self._headers)
        else:
            self._client = self._http
        self.closed = False
        #: The id of the server that keeps receipts of appends; empty if it keeps none, None if not known yet.
        self._server: str | None = None

    @property
    def _is_encrypted(self) -> bool:
        return not self.address.lower().startswith("http:")

    # Any: a library that is imported on demand.
    @functools.cached_property
    def _http(self) -> Any:
        # Certificates are loaded only for https, since that takes longer than most calls. Redirects are not followed.
        return self._httpx.Client(
            base_url=self.address,
            headers=self._headers,
            timeout=self._seconds_max,
            trust_env=not _is_loopback(self.address),  # a proxy cannot reach this machine's loopback
            verify=_trusted(self._certificates) if self._is_encrypted else False,
            limits=self._httpx.Limits(max_connections=100, max_keepalive_connections=20, keepalive_expiry=30.0),
        )

    def close(self) -> None:
        self.closed = True
        self._client.close()
        if "_http" in self.__dict__:
            self._http.close()

    # Any: JSON, and the response of a library that is imported on demand; here and below.
    def get(self, path: str, **parameters: Any) -> Any:
        return self.ask("GET", path, parameters=parameters).json()

    def post(self, path: str, body: Mapping[str, Any] | None = None, *, again: bool = False, **parameters: Any) -> Any:
        """Send a body; `again` if the call is idempotent and may be retried."""
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
        """Append an Arrow stream to a topic. If the answer is lost, retry without appending the rows twice.

        That needs a producer's sequence (`again`), or receipts of the same server process.
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
        wait_seconds: float = 0.0,
        repeat_of: str = "",
        **settings: Any,
    ) -> Any:
        """Send a request. Retry if it never reached the server; if it may have, only if it is idempotent.

        `repeat_of` is the id of a server that recognises a repeated request by its key.
        """
        given = {name: _as_text(value) for name, value in (parameters or {}).items() if value is not None}
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
                    method, PREFIX + path, params=given, timeout=self._seconds_max + wait_seconds, **settings
                )
            except (self._httpx.ConnectError, self._httpx.ConnectTimeout, self._httpx.PoolTimeout) as error:
                if last:
                    raise self._unreachable(error) from error
            except self._httpx.TransportError as error:
                if last or not again:
                    raise self._unreachable(error) from error
                may_have_arrived = True
            except RuntimeError as error:  # another thread has closed the client
                raise Closed(what="log") from error
            else:
                if not response.is_error:
                    return response
                if last or not (response.status_code == 429 or (again and response.status_code in _RETRY_STATUSES)):
                    raise error_from_json(response.status_code, _json(response), address=self.address)
                may_have_arrived = may_have_arrived or response.status_code != 429
            time.sleep(RETRY_SECONDS * 2**attempt * (1 + random.random()))
        raise AssertionError("the last attempt returns or raises")

    @contextlib.contextmanager
    def stream(self, path: str, *, silence_seconds_max: float = ANSWER_SECONDS_MAX, **settings: Any) -> Iterator[Any]:
        """Follow a stream of events while the block runs. Network errors are raised as they are."""
        timeout = self._httpx.Timeout(self._seconds_max, read=silence_seconds_max)
        with self._http.stream("GET", PREFIX + path, timeout=timeout, **settings) as response:
            if response.is_error:
                response.read()
                raise error_from_json(response.status_code, _json(response), address=self.address)
            yield response

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        return ServerUnreachable(address=self.address, why=str(error) or type(error).__name__)


def _is_loopback(address: str) -> bool:
    """Whether an address is a loopback address.

    >>> _is_loopback("http://127.0.0.1:8080"), _is_loopback("http://localhost"), _is_loopback("https://example.org")
    (True, True, False)
    """
    return urlsplit(address).hostname in ("127.0.0.1", "::1", "localhost")


def _as_text(value: Any) -> Any:
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
    """Any text as one segment of a path."""
    return quote(text, safe="") if text.strip(".") else "-"
