"""Webhooks in: signed HTTP requests of other services as rows, each message once.

A request is answered 200 when its row is durable. A sender that gets no answer sends the message again; its id is known by then, in this
process and, after a restart, from the topic itself. So a message is appended once, as long as it comes again within the
`duplicate_window`. When rows come faster than the log takes them, the answer is 429 with `Retry-After`, before the body is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
import pyarrow as pa

from headwater.connections import bounded_protocol, connections_allowed
from headwater.errors import ArgumentInvalid, HeadwaterError
from headwater.gateways.errors import AddressUnusable, SignatureInvalid
from headwater.gateways.port import Counters, Direction
from headwater.gateways.signatures import Scheme, check_secrets, verified_id
from headwater.log.port import Log
from headwater.optional import require
from headwater.schema import parse_schema
from headwater.units import MIB, Duration, parse_seconds

if TYPE_CHECKING:
    import socket

WEBHOOK_SCHEMA: pa.Schema = parse_schema(
    "id string not null, at timestamp not null, type string, body string not null, headers map<string, string>"
)
#: Rows that are appended together.
ROWS_AT_ONCE = 1_000
RETRY_AFTER_SECONDS = 1
#: Headers that say what a message is about; others, such as signatures and cookies, are not stored.
_STORED = ("content-type", "user-agent", "webhook-timestamp", "x-github-event", "x-github-hook-id")
# Any: the shapes of ASGI.
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class WebhookIn:
    """An HTTP address that takes signed webhooks.

    `scheme` is "standard" (Standard Webhooks), "github" or "stripe". `secret_env` names the environment variable with the secret, or with
    several and commas between, while one is replaced.

    >>> WebhookIn(topic="payments", scheme="stripe", secrets=("whsec_abc",)).name
    'webhook-in-payments'
    """

    topic: str = "webhooks"
    scheme: Scheme = "standard"
    secrets: tuple[str, ...] = field(default=(), repr=False)
    secret_env: str | None = None
    host: str = "127.0.0.1"
    port: int = 8090
    path: str = "/"
    body_bytes_max: int = MIB
    replay_window: Duration = "5 minutes"
    duplicate_window: Duration = "1 day"
    #: A client that has not sent its whole request by then is answered 408; one that says nothing is disconnected.
    request_timeout: Duration = "10 seconds"
    pending_max: int = 5_000
    #: Further connections are closed at once. The limit of open files of the process is raised to it, where the system allows that.
    connections_max: int = 10_000

    kind: ClassVar[str] = "webhook-in"
    direction: ClassVar[Direction] = "in"

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise ArgumentInvalid(name="path", value=self.path, expected="a path that begins with /")
        if parse_seconds(self.duplicate_window) < parse_seconds(self.replay_window):
            expected = "at least the replay window: a message that may come again must be known"
            raise ArgumentInvalid(name="duplicate_window", value=self.duplicate_window, expected=expected)

    @property
    def name(self) -> str:
        return f"webhook-in-{self.topic}"

    def known_secrets(self) -> tuple[str, ...]:
        """The secrets given, and those of the environment variable."""
        of_env = os.environ.get(self.secret_env, "") if self.secret_env else ""
        return (*self.secrets, *(one.strip() for one in of_env.split(",") if one.strip()))

    def create_topics(self, log: Log) -> None:
        log.create(self.topic, WEBHOOK_SCHEMA, time="at", exist_ok=True)

    def open(self, log: Log) -> WebhookInSession:
        check_secrets(self.scheme, self.known_secrets())
        require("uvicorn", extra="server")
        self.create_topics(log)
        return WebhookInSession(log, self)


@dataclass
class KnownIds:
    """The ids of messages of a period, each with its time.

    >>> known = KnownIds(seconds=60)
    >>> known.add("m1", at_us=0); "m1" in known
    True
    >>> known.forget(now_us=61_000_000); "m1" in known
    False
    """

    seconds: float
    _times: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def __contains__(self, id: str) -> bool:
        return id in self._times

    def add(self, id: str, *, at_us: int) -> None:
        self._times[id] = at_us

    def forget(self, *, now_us: int) -> None:
        oldest = now_us - round(self.seconds * 1e6)
        while self._times and next(iter(self._times.values())) < oldest:
            self._times.popitem(last=False)

    @staticmethod
    def of(log: Log, topic: str, *, seconds: float) -> KnownIds:
        """The ids of a topic's rows in the last seconds."""
        known = KnownIds(seconds)
        since = datetime.fromtimestamp(log.clock.now_us() / 1e6, tz=UTC) - timedelta(seconds=seconds)
        for batch in log.read(topic, start=log.offset_at(topic, since), columns=["id", "at"]):
            times = batch.column("at").cast(pa.int64()).to_pylist()
            for id, at_us in zip(batch.column("id").to_pylist(), times, strict=True):
                known.add(id, at_us=at_us)
        return known


@dataclass(frozen=True, kw_only=True)
class Refused(Exception):
    """An answer other than 200."""

    status: int
    why: str
    headers: Mapping[str, str] = field(default_factory=dict)


class Receiver:
    """An ASGI application that appends webhooks; it knows nothing of sockets, so that tests call it."""

    def __init__(self, log: Log, gateway: WebhookIn) -> None:
        self._log = log
        self._gateway = gateway
        self._secrets = gateway.known_secrets()
        self.counters = Counters()
        self._known = KnownIds.of(log, gateway.topic, seconds=parse_seconds(gateway.duplicate_window))
        # Any: a row.
        self._waiting: list[tuple[dict[str, Any], asyncio.Future[None]]] = []
        self._in_flight: dict[str, asyncio.Future[None]] = {}
        self._appender: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.counters.add(received=1)
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        more: Mapping[str, str] = {}
        try:
            answer, status = await self._take(scope, headers, receive), 200
        except Refused as refused:
            status, answer, more = refused.status, {"error": refused.why}, refused.headers
        except SignatureInvalid as error:
            status, answer = error.http_status, {"error": str(error)}
        except HeadwaterError as error:  # the log is full or closed: the sender tries again
            status, answer, more = 503, {"error": str(error)}, {"retry-after": str(RETRY_AFTER_SECONDS)}
        if status != 200:
            self.counters.add(rejected=1)
        body = orjson.dumps(answer)
        given = {"content-type": "application/json", "content-length": str(len(body)), **more}
        if status in (408, 413, 429):
            given["connection"] = "close"  # the rest of the body is not read
        pairs = [(name.encode(), value.encode()) for name, value in given.items()]
        with contextlib.suppress(OSError):
            await send({"type": "http.response.start", "status": status, "headers": pairs})
            await send({"type": "http.response.body", "body": body})

    async def _take(self, scope: Scope, headers: Mapping[str, str], receive: Receive) -> dict[str, str]:
        gateway = self._gateway
        if scope["path"] != gateway.path:
            raise Refused(status=404, why=f"webhooks are taken at {gateway.path}")
        if scope["method"] != "POST":
            raise Refused(status=405, why="webhooks are sent by POST", headers={"allow": "POST"})
        if len(self._in_flight) >= gateway.pending_max:
            raise Refused(status=429, why="too many webhooks wait", headers={"retry-after": str(RETRY_AFTER_SECONDS)})
        body = await self._body(headers, receive)
        now_us = self._log.clock.now_us()
        id = verified_id(
            gateway.scheme,
            headers,
            body,
            secrets=self._secrets,
            now=now_us / 1e6,
            replay_window_seconds=parse_seconds(gateway.replay_window),
        )
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            raise Refused(status=400, why="the body is not UTF-8") from error
        self._known.forget(now_us=now_us)
        if id in self._known:
            self.counters.add(duplicates=1)
            return {"id": id, "state": "duplicate"}
        if id in self._in_flight:  # its first copy is being appended: both are answered by that
            await asyncio.shield(self._in_flight[id])
            self.counters.add(duplicates=1)
            return {"id": id, "state": "duplicate"}
        stored = [(name, headers[name]) for name in _STORED if name in headers]
        row = {"id": id, "at": now_us, "type": _type_of(headers, text), "body": text, "headers": stored}
        await self._append(id, row)
        self._known.add(id, at_us=now_us)
        self.counters.add(appended=1, bytes=len(body))
        return {"id": id, "state": "appended"}

    async def _body(self, headers: Mapping[str, str], receive: Receive) -> bytes:
        size_max = self._gateway.body_bytes_max
        too_large = Refused(status=413, why=f"a body has at most {size_max} bytes")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length[:18]) > size_max:
            raise too_large
        parts, size = [], 0
        try:
            async with asyncio.timeout(parse_seconds(self._gateway.request_timeout)):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Refused(status=400, why="the connection was closed")
                    size += len(message.get("body", b""))
                    if size > size_max:
                        raise too_large
                    parts.append(message.get("body", b""))
                    if not message.get("more_body", False):
                        return b"".join(parts)
        except TimeoutError as error:
            raise Refused(status=408, why="the body did not come in time") from error

    # Any: a row.
    async def _append(self, id: str, row: dict[str, Any]) -> None:
        """Append a row together with those of other requests; return when it is durable."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._in_flight[id] = done
        self._waiting.append((row, done))
        if self._appender is None or self._appender.done():
            self._appender = asyncio.create_task(self._append_waiting())
        try:
            # A sender that has left has its row appended all the same.
            await asyncio.shield(done)
        finally:
            if done.done():
                self._in_flight.pop(id, None)

    async def _append_waiting(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:ROWS_AT_ONCE], self._waiting[ROWS_AT_ONCE:]
            try:
                await asyncio.to_thread(self._log.append, self._gateway.topic, [row for row, _ in some])
            except Exception as error:  # each sender gets it as its answer
                for _, done in some:
                    if not done.done():
                        done.set_exception(error)
                        done.exception()
                continue
            for row, done in some:
                self._known.add(row["id"], at_us=row["at"])
                self._in_flight.pop(row["id"], None)
                if not done.done():
                    done.set_result(None)


def _type_of(headers: Mapping[str, str], text: str) -> str | None:
    """What a message is about: GitHub's event, or `type` of a body that is a JSON object."""
    if "x-github-event" in headers:
        return headers["x-github-event"]
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    kind = found.get("type") if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else None


class WebhookInSession:
    """The receiver behind a port."""

    def __init__(self, log: Log, gateway: WebhookIn) -> None:
        import socket

        self._gateway = gateway
        self._receiver = Receiver(log, gateway)
        self.counters = self._receiver.counters
        try:
            family = socket.AF_INET6 if ":" in gateway.host else socket.AF_INET
            self._socket: socket.socket = socket.create_server(
                (gateway.host, gateway.port), family=family, backlog=2_048
            )
        except OSError as error:
            address = f"{gateway.host}:{gateway.port}"
            raise AddressUnusable(gateway=gateway.name, address=address, why=str(error)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # answers are sent at once
        host, port, *_ = self._socket.getsockname()
        self.address = f"http://{f'[{host}]' if ':' in host else host}:{port}{gateway.path}"

    def run(self, stop: threading.Event) -> None:
        import uvicorn

        config = uvicorn.Config(
            self._receiver,
            http=bounded_protocol(
                head_seconds=parse_seconds(self._gateway.request_timeout),
                connections_max=connections_allowed(self._gateway.connections_max),
            ),
            log_level="warning",
            lifespan="off",
            access_log=False,
            ws="none",
            server_header=False,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=5,
        )
        server = uvicorn.Server(config)

        async def serve() -> None:
            serving = asyncio.create_task(server.serve(sockets=[self._socket]))
            while not serving.done():
                if stop.is_set():
                    server.should_exit = True
                await asyncio.wait([serving], timeout=0.05)
            await serving

        asyncio.run(serve())

    def close(self) -> None:
        self._socket.close()
