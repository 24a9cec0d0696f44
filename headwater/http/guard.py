"""The guard in front of every path: authentication, host and origin, rate, and size of the body.

A request is refused before its body is read, and before any route has seen it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from headwater.errors import HeadwaterError
from headwater.http.errors import BodyTooLarge, BodyTooSlow, HostUnknown, OriginRefused, TooManyRequests
from headwater.http.problems import answer
from headwater.services.audit import Audit
from headwater.services.callers import ANONYMOUS, LOCAL, Caller
from headwater.services.settings import Settings
from headwater.services.tokens import TokenInvalid, Tokens
from headwater.units import MIB

# Any: the shapes of ASGI.
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
#: Health checks, which need no token: a load balancer has none.
OPEN_PATHS = ("/livez", "/readyz")
#: How a subprotocol begins that is the token of a WebSocket.
TOKEN_SUBPROTOCOL = "headwater.token."
CLIENTS_MAX = 10_000
#: How much more of a body that is too large is read, and for how long, before the answer is sent.
DRAINED_BYTES_MAX = 256 * MIB
DRAINED_SECONDS_MAX = 10.0
#: The rate from which on a body may take as long as it takes.
BODY_BYTES_PER_SECOND_MIN = 500
logger = logging.getLogger("headwater.http")


class Buckets:
    """A token bucket per client: so many events per second, with a burst of as many."""

    def __init__(self, per_second: float, *, burst: float | None = None) -> None:
        self._rate = per_second
        self._burst = max(1.0, per_second if burst is None else burst)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_seconds(self, client: str) -> float:
        """How long a client must wait before its next event; 0 if it need not, and then the event is counted."""
        now = time.monotonic()
        left, since = self._left.get(client, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._rate)
        if left < 1.0:
            return (1.0 - left) / self._rate
        self._left[client] = (left - 1.0, now)
        self._left.move_to_end(client)
        if len(self._left) > CLIENTS_MAX:
            self._left.popitem(last=False)
        return 0.0


@dataclass
class Guard:
    """An ASGI application around another, which refuses requests that may not pass."""

    app: App
    _: KW_ONLY
    tokens: Tokens
    settings: Settings
    audit: Audit | None
    #: The host name that requests may name besides loopback; "" for any.
    host: str = ""
    #: A token with all scopes that is not stored: that of a running app.
    master: str = ""
    #: Whether a token is required also while none has been made: other machines can reach the server.
    guarded: bool = False
    #: Paths, with all below them, that authenticate callers themselves.
    public: tuple[str, ...] = ()
    _requests: Buckets = field(init=False)
    _failures: Buckets = field(init=False)

    def __post_init__(self) -> None:
        self._requests = Buckets(self.settings.requests_per_second_max)
        per_minute = self.settings.failures_per_minute_max
        self._failures = Buckets(per_minute / 60, burst=per_minute)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        try:
            caller = self._admit(scope)
        except HeadwaterError as error:
            logger.warning("refused %s %s: %s", scope.get("method", "WS"), scope["path"], type(error).__name__)
            if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
                await send({"type": "websocket.close", "code": 1008})
            else:
                if isinstance(error, BodyTooLarge):
                    await _drain(receive, Headers(scope=scope))
                await answer(error)(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = caller
        if scope["type"] == "websocket":
            await self.app(scope, receive, send)
        else:
            await self._serve(scope, receive, send, caller)

    def _admit(self, scope: Scope) -> Caller:
        headers = Headers(scope=scope)
        name = _name_of(headers.get("host", ""))
        if self.host and name not in (*LOOPBACK, self.host, *self.settings.hosts):
            raise HostUnknown(host=name[:200])
        self._check_origin(headers)
        address = (scope.get("client") or ("unknown", 0))[0]
        offered = scope.get("subprotocols", ())
        caller = ANONYMOUS if self._is_public(scope["path"]) else self._identify(headers, address, offered)
        client = address if caller in (LOCAL, ANONYMOUS) else f"token {caller.name}"
        if seconds := self._requests.wait_seconds(client):
            raise TooManyRequests(seconds=seconds)
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length[:18]) > self.settings.body_bytes_max:
            raise BodyTooLarge(size_max=self.settings.body_bytes_max)
        return caller

    def _is_public(self, path: str) -> bool:
        return path in OPEN_PATHS or any(path == one or path.startswith(f"{one}/") for one in self.public)

    def _identify(self, headers: Headers, address: str, subprotocols: Iterable[str] = ()) -> Caller:
        scheme, _, text = headers.get("authorization", "").partition(" ")
        given = text.strip() if scheme.lower() == "bearer" else ""
        # A browser can give a WebSocket no header; what it offers as a subprotocol is in no address and no log.
        offered = [one.removeprefix(TOKEN_SUBPROTOCOL) for one in subprotocols if one.startswith(TOKEN_SUBPROTOCOL)]
        given = given or next(iter(offered), "")
        if self.master and given and hmac.compare_digest(given.encode(), self.master.encode()):
            return LOCAL
        # Once tokens are required they stay required: revoking the last one must not open the server to all.
        self.guarded = self.guarded or bool(self.master) or bool(self.tokens)
        if not self.guarded:
            return LOCAL
        try:
            return self.tokens.check(given)
        except TokenInvalid:
            # Only requests with a wrong token are slowed down: other clients may share the address of a proxy.
            if seconds := self._failures.wait_seconds(address):
                raise TooManyRequests(seconds=seconds) from None
            raise

    def _check_origin(self, headers: Headers) -> None:
        origin = headers.get("origin")
        if origin is None:
            return
        try:
            own = urlsplit(origin).netloc.lower() == headers.get("host", "").lower()
        except ValueError:
            own = False
        if not own or origin == "null":
            raise OriginRefused(origin=origin[:200])

    async def _serve(self, scope: Scope, receive: Receive, send: Send, caller: Caller) -> None:
        async def note(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                if scope["state"].get("body_too_large") and scope["state"]["body_goes_on"]:
                    await _drain(receive, Headers(scope=scope))
                # Before the answer: a caller who has the answer finds the change in the audit topic.
                await self._record(scope, caller, message["status"])
            await send(message)

        await self.app(scope, self._bounded(scope, receive), note)

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        size_max, seconds_max = self.settings.body_bytes_max, self.settings.body_seconds_max
        size, ended = 0, False
        began = asyncio.get_running_loop().time()

        async def read() -> MutableMapping[str, Any]:
            nonlocal size, ended
            if ended:  # what follows is that the client has disconnected
                return await receive()
            deadline = began + seconds_max + size / BODY_BYTES_PER_SECOND_MIN
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError as error:
                raise BodyTooSlow(received=size, seconds=deadline - began) from error
            ended = not message.get("more_body", False)
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                if size > size_max:
                    scope["state"]["body_too_large"] = size_max
                    scope["state"]["body_goes_on"] = not ended
                    raise BodyTooLarge(size_max=size_max)
            return message

        return read

    async def _record(self, scope: Scope, caller: Caller, status: int) -> None:
        # Neither headers nor the query string: both may hold secrets.
        logger.info("%s %s %s %s", caller.name, scope["method"], scope["path"], status)
        if self.audit is None or scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return
        if scope["state"].get("is_audited"):  # by its service; this is for routes that are mounted
            return
        address = (scope.get("client") or ("unknown", 0))[0]
        target = "/".join(filter(None, [scope["path"], scope["state"].get("target")]))
        record = partial(self.audit.record, caller=caller, address=address, action=scope["method"], target=target)
        await asyncio.to_thread(record, status=status)


async def _drain(receive: Receive, headers: Headers) -> None:
    """Read the rest of a body, up to a bound: most clients read the answer only after they have sent it."""
    if "expect" in headers:  # the client waits before it sends
        return
    left = DRAINED_BYTES_MAX
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAINED_SECONDS_MAX):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return


def _name_of(host: str) -> str:
    """The name in a Host header, without its port.

    >>> _name_of("localhost:8080"), _name_of("[::1]:8080"), _name_of("127.0.0.1")
    ('localhost', '::1', '127.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
