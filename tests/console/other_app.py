"""Apps of other processes, as the services see them: a held lock, and an address whose answers a test chooses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headwater.apps.home import Home
from headwater.apps.status import QueryStatus
from headwater.log import Log

#: How soon such an app notices that it is to end.
POLL_SECONDS = 0.01


@dataclass
class OtherApp:
    """An app that another process runs."""

    #: What `/queries` answers with. Any: JSON.
    queries: Sequence[Mapping[str, Any]]
    #: What was asked of it, without the questions how it does.
    asked: list[str] = field(default_factory=list)
    #: While this is not set, it does not answer.
    awake: threading.Event = field(default_factory=threading.Event)

    def answer(self, method: str, path: str) -> Any:
        self.awake.wait()
        path = path.partition("?")[0].removeprefix("/api/v1")
        if path == "/queries":
            return {"queries": list(self.queries)}
        if path == "/graphs":
            return []
        if path == "/views":
            return {"views": []}
        self.asked.append(f"{method} {path}")
        if path.endswith("/explain"):
            return {"query": "spend", "plan": "elsewhere"}
        return {"line": "elsewhere", "details": [], "trace": ""} if path.endswith("/failure") else {}


@contextmanager
def running_elsewhere(log: Log, name: str, *queries: QueryStatus) -> Iterator[OtherApp]:
    """An app of another process while the block runs."""
    app = OtherApp([asdict(query) for query in queries])
    app.awake.set()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(app.answer(self.command, self.path)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Write no request to the output of the tests."""

    home = Home(log.home / "apps" / name)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server, home.held(name):
        threading.Thread(target=server.serve_forever, args=[POLL_SECONDS], daemon=True).start()
        home.announce(f"http://127.0.0.1:{server.server_port}")
        try:
            yield app
        finally:
            app.awake.set()
            server.shutdown()
            home.withdraw()
