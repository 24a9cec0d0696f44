"""A proxy before a server that loses requests and answers, as networks do."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

import httpx

Fate = Literal["pass", "lose request", "lose answer", "unavailable"]
#: What becomes of the next append.
Fates = Callable[[], Fate]


@dataclass
class Proxy:
    """Where to ask, what becomes of appends, and how many there were."""

    address: str
    target: str
    fates: list[Fate] = field(default_factory=list)
    #: Where the next request goes instead, from the first loss on.
    later: str | None = None
    appends: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fate(self, is_append: bool) -> Fate:
        with self.lock:
            self.appends += is_append
            return self.fates.pop(0) if is_append and self.fates else "pass"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    proxy: Proxy
    client: httpx.Client

    def _any(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fate = self.proxy.fate(self.command == "POST" and self.path.partition("?")[0].endswith("/rows"))
        if fate == "lose request":
            self.close_connection = True
            return
        skipped = ("host", "content-length", "connection", "accept-encoding")
        headers = {name: value for name, value in self.headers.items() if name.lower() not in skipped}
        answer = self.client.request(self.command, self.proxy.target + self.path, content=body, headers=headers)
        if fate == "lose answer":
            self.proxy.target = self.proxy.later or self.proxy.target
            self.close_connection = True
            return
        self.send_response(503 if fate == "unavailable" else answer.status_code)
        for name, value in answer.headers.items():
            if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    do_GET = do_POST = do_DELETE = _any  # noqa: N815 - the names that the library looks for

    def log_message(self, *_: Any) -> None:
        """Nothing is said."""


@contextlib.contextmanager
def losing(target: str, *fates: Fate, later: str | None = None) -> Iterator[Proxy]:
    """A proxy before the server at `target`, while the block runs."""
    proxy = Proxy(address="", target=target, fates=list(fates), later=later)
    with httpx.Client(timeout=30.0) as client:
        handler = type("Losing", (Handler,), {"proxy": proxy, "client": client})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        proxy.address = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield proxy
        finally:
            server.shutdown()
            server.server_close()
            thread.join(10)
