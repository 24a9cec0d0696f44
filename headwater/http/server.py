"""Run a server: bind a socket, start uvicorn, and refuse to serve other machines without tokens."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.config import Config
from headwater.connections import bounded_protocol, connections_allowed
from headwater.errors import ArgumentInvalid, InUse, NotPossible
from headwater.services.settings import Settings
from headwater.services.tokens import Tokens

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI

    from headwater.apps.home import Runner as Announced
    from headwater.apps.runner import Runner
    from headwater.http.application import Mount
    from headwater.log import Log

PORT = 8080


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a server listens, and with which certificate."""

    host: str = "127.0.0.1"
    port: int = PORT
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it.

        >>> Address(host="127.0.0.1").is_local, Address(host="0.0.0.0").is_local, Address(host="example.org").is_local
        (True, False, False)
        """
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host.strip("[]")).is_loopback
        except ValueError:
            return False

    @property
    def is_any(self) -> bool:
        return self.host in ("0.0.0.0", "::", "")

    def url(self, port: int) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.certificate else 'http'}://{host}:{port}"


def check(address: Address, tokens: Tokens) -> None:
    """Raise if other machines could reach the server without a token."""
    if not address.is_local and not tokens:
        why = f"{address.host} can be reached from other machines, and no token has been made for this log"
        raise NotPossible(why=why, instead="Make one with `headwater token create NAME`, or serve on 127.0.0.1")
    if (address.certificate is None) != (address.key is None):
        raise ArgumentInvalid(
            name="--tls-certificate", value=str(address.certificate), expected="a certificate and its key, or neither"
        )


def bound(address: Address, *, stalled_seconds_max: float = Settings.stalled_seconds_max) -> socket.socket:
    """A socket that listens; `InUse` if another program has the port."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # The protocol is named so that answers are sent at once: asyncio sets TCP_NODELAY only if it is.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux: for each connection, the kernel notices who takes nothing
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(stalled_seconds_max * 1_000))
    try:
        listening.bind((address.host.strip("[]"), address.port))
    except OSError:
        listening.close()
        instead = "Choose another port with `--port`; 0 takes a free one"
        raise InUse(what=f"{address.host}:{address.port}", by="another program", instead=instead) from None
    listening.listen(512)
    return listening


def server_of(app: FastAPI, address: Address) -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            app.state.service.stop()  # ends long polls and tails, which would delay the shutdown
            await super().shutdown(sockets)

    # Any: settings of another library, of many types.
    secure: dict[str, Any] = {}
    if address.certificate is not None:
        secure = {"ssl_certfile": str(address.certificate), "ssl_keyfile": str(address.key)}
    settings: Settings = app.state.service.settings
    config = uvicorn.Config(
        app,
        http=bounded_protocol(
            head_seconds=settings.head_seconds_max, connections_max=connections_allowed(settings.connections_max)
        ),
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,  # any client could send them and claim another address
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,  # longer than clients keep a connection, so that none is closed under a request
        h11_max_incomplete_event_size=64 * 1024,
        **secure,
    )
    return Server(config)


# Any, here and below: arguments of `application`.
def _server(log: Log, address: Address, tokens: Tokens, **more: Any) -> tuple[uvicorn.Server, socket.socket]:
    """A server that is bound to its address, and its socket."""
    from headwater.http.application import application

    settings = more.get("settings") or Settings()
    listening = bound(address, stalled_seconds_max=settings.stalled_seconds_max)
    app = application(
        log,
        tokens=tokens,
        host="" if address.is_any else address.host,
        guarded=not address.is_local,
        **more,
    )
    return server_of(app, address), listening


def run_server(
    log: Log, address: Address, *, settings: Settings, tokens: Tokens, tell: Callable[[str], None], **more: Any
) -> None:
    """Serve a log in this thread until a signal ends the process; `tell` is called with the address once it is bound."""
    from headwater.alerts import Watcher

    server, listening = _server(log, address, tokens, settings=settings, watcher=Watcher(log), **more)
    try:
        with _ended_by_signals(server):
            tell(address.url(listening.getsockname()[1]))
            server.run(sockets=[listening])
    finally:
        listening.close()


@contextlib.contextmanager
def _ended_by_signals(server: uvicorn.Server) -> Iterator[None]:
    """Shut the server down on SIGINT and SIGTERM while the block runs, then restore and call the handlers before.

    A handler that raises is not enough: Python swallows exceptions in some places, such as the callback of a weak
    reference, and the signal would be lost.
    """
    received: list[int] = []

    def receive(number: int, _: object) -> None:
        received.append(number)
        server.should_exit = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, receive) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        signal.raise_signal(received[0])


@contextlib.contextmanager
def served(log: Log, address: Address | None = None, *, settings: Settings | None = None, **more: Any) -> Iterator[str]:
    """Serve a log from a thread while the block runs, and yield the address. For programs and tests.

    >>> import headwater, tempfile
    >>> with tempfile.TemporaryDirectory() as folder, headwater.open(folder) as log:
    ...     with served(log, Address(port=0)) as url, headwater.open(url) as remote:
    ...         _ = remote.create("greetings", "text string")
    ...         remote.topics()
    ['greetings']
    """
    where = address or Address()
    tokens = Tokens(log.home, clock=log.clock)
    if not more.get("master"):
        check(where, tokens)
    server, listening = _server(log, where, tokens, settings=settings, **more)
    with _in_thread(server, listening):
        yield where.url(listening.getsockname()[1])


@contextlib.contextmanager
def served_app(
    runner: Runner,
    *,
    port: int = 0,
    settings: Settings | None = None,
    mount: Iterable[Mount] = (),
    public: Iterable[str] = (),
) -> Iterator[Announced]:
    """Serve an app and its log while the block runs; the address and the token are in the app's home.

    The token in the app's home has all scopes. The process that runs an app also evaluates the alert rules of its log, with
    its own queries and views.
    """
    from headwater.alerts import Channels, LogMeasures, Watcher
    from headwater.http.application import application

    address = Address(port=port)
    listening = bound(address)
    announced = runner.home.announce(address.url(listening.getsockname()[1]))
    measures = LogMeasures(runner.log, app=runner.app.name, statuses=runner.statuses, keeper=runner.keeper)
    app = application(
        runner.log,
        settings=settings,
        master=announced.token,
        runner=runner,
        entities=runner.entities,
        mount=mount,
        public=public,
        watcher=Watcher(runner.log, measures, sender=Channels.of(Config.load())),
    )
    with _in_thread(server_of(app, address), listening, name="headwater-api"):
        try:
            yield announced
        finally:
            runner.home.withdraw()


@contextlib.contextmanager
def _in_thread(server: uvicorn.Server, listening: socket.socket, *, name: str = "headwater-server") -> Iterator[None]:
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(5)
        listening.close()
