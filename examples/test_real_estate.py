"""Homes, as their user tests them: a mail server that keeps what it gets stands in for the real one."""

from __future__ import annotations

import importlib
import json
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from aiosmtpd.controller import Controller

from headwater.testing import AppTest

FLAT = {
    "offer": 1,
    "kind": "flat",
    "city": "Utrecht",
    "text": "Sunny, with two gardens",
    "price": 280_000.0,
    "rooms": 3,
}


class Mailbox:
    def __init__(self) -> None:
        self.mails: list[tuple[str, str]] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
        self.mails.append((envelope.rcpt_tos[0], envelope.content.decode()))
        return "250 taken"


@contextmanager
def mail_server(port: int) -> Iterator[Mailbox]:
    mailbox = Mailbox()
    controller = Controller(mailbox, hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield mailbox
    finally:
        controller.stop()


def test_who_looks_for_a_home_hears_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    monkeypatch.setenv("SMTP_PORT", str(port))
    monkeypatch.delitem(sys.modules, "real_estate", raising=False)
    homes = importlib.import_module("real_estate")
    near = {"geo_distance": {"distance": "10km", "place": {"lat": 52.09, "lon": 5.12}}}
    searches = [
        {"id": "ann", "query": "kind:flat AND price:<=300000 AND garden", "metadata": {"email": "ann@example.org"}},
        {"id": "ben", "query": json.dumps({"bool": {"filter": [near, {"range": {"rooms": {"gte": 3}}}]}})},
        {"id": "cas", "query": "city:Utrecht AND (", "metadata": {"email": "cas@example.org"}},
    ]
    with mail_server(port) as mailbox, AppTest(homes.app, sinks="real") as test:
        test.feed("searches", searches)
        test.feed("offers", [FLAT | {"place": {"lat": 52.1, "lon": 5.1}}])
        assert [row["query_id"] for row in test.rows("found")] == ["ann", "ben"]
        ((to, mail),) = mailbox.mails
        assert to == "ann@example.org"
        assert "two *gardens*" in mail
        assert ["column 19" in row["message"] for row in test.rows("searches.dlq")] == [True]
        test.feed("searches", [{"id": "ann", "query": "kind:house", "metadata": {"email": "ann@example.org"}}])
        test.feed("offers", [FLAT | {"offer": 2, "place": {"lat": 48.0, "lon": 5.1}}])
        assert len(mailbox.mails) == 1, "she looks for a house now, and it is too far away for Ben"
