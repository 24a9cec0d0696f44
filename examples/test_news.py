"""News, as their user tests them: a small server stands in for the hook."""

from __future__ import annotations

import importlib
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from headwater.testing import AppTest


@contextmanager
def hook() -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """A port, and the messages that come in there."""
    messages: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.extend(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"])
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], messages
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_desks_hear_of_what_they_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    with hook() as (port, messages):
        monkeypatch.setenv("NEWS_HOOK", f"http://127.0.0.1:{port}/hook")
        monkeypatch.delitem(sys.modules, "news", raising=False)
        news = importlib.import_module("news")
        with AppTest(news.app, sinks="real") as test:

            def publish(number: int, title: str, body: str = "") -> None:
                test.feed("articles", [{"url": f"/{number}", "title": title, "body": body, "published": test.now}])

            floods = '+(flood* OR "high water"~2) -sport'
            test.feed("topics", [{"id": "floods", "query": floods, "metadata": {"desk": "weather"}}])
            publish(1, "Flooding in the valley", "The river has not been so high in years.")
            publish(2, "Water high again, says the mayor")
            publish(3, "A flood of goals", "Sport this weekend.")
            assert [(row["url"], row["query_id"]) for row in test.rows("mentioned")] == [
                ("/1", "floods"),
                ("/2", "floods"),
            ]
            assert [message["row"]["desk"] for message in messages] == ["weather", "weather"]
            assert messages[0]["row"]["highlights"][0] == {
                "field": "title", "fragment": "<em>Flooding</em> in the valley",
            }  # fmt: skip
            (hour,) = test.views["mentions"].rows()
            assert hour["articles"] == 2
            test.feed("topics", [{"id": "floods", "_tombstone": True}])
            publish(4, "The flood is over")
            assert len(messages) == 2
