"""What every part of the remote log stands on: its connection, and what it remembers of topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headwater.clock import Clock, SystemClock
from headwater.config import Config
from headwater.errors import Closed
from headwater.log.embedded.topics import check_name
from headwater.log.port import Topic
from headwater.log.remote.connection import Connection
from headwater.log.remote.wire import topic_from_json


class Core:
    """A server's log, reached."""

    read_only = False

    def __init__(
        self,
        address: str,
        *,
        token: str | None = None,
        certificates: str | Path | None = None,
        config: Config | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config or Config()
        self.clock = clock or SystemClock()
        self.path = address.rstrip("/")
        self._token = token if token is not None else self.config.token
        self._certificates = certificates
        self._connection = Connection(address, token=self._token, certificates=certificates)
        self._lock = threading.Lock()
        self._topics: dict[str, tuple[float, Topic]] = {}
        self._start()

    def __repr__(self) -> str:
        return f"Log({self.path!r})"

    def _start(self) -> None:
        """What further parts need from the beginning."""

    @property
    def closed(self) -> bool:
        return self._connection.closed

    def topic(self, name: str) -> Topic:
        return self._remember(self._connection.get(f"/topics/{named(name)}"))

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(what="log")

    def _check_writable(self) -> None:
        self._check_open()  # what may be written is for the server to say

    def _remember(self, body: Mapping[str, Any]) -> Topic:
        found = topic_from_json(body)
        with self._lock:
            known = self._topics.get(found.name)
            # The same value, so that what others keep by its schema's identity is found again.
            if known is not None and known[1] == found:
                found = known[1]
            self._topics[found.name] = (time.monotonic(), found)
        return found

    def _recent(self, topic: str, *, seconds: float | None = None) -> Topic:
        """A topic as it was when last asked for, however long ago, or at most so many seconds."""
        self._check_open()
        known = self._topics.get(topic)
        if known is None or (seconds is not None and time.monotonic() - known[0] > seconds):
            return self.topic(topic)
        return known[1]


def named(topic: str) -> str:
    """A topic's name as part of an address; one that could leave its place there is refused."""
    check_name("topic", topic, internal=True)
    return topic


def quoted(text: str) -> str:
    """Any text as one part of an address."""
    return quote(text, safe="") if text.strip(".") else "-"


# Any: JSON.
def given(body: dict[str, Any]) -> dict[str, Any]:
    """What was given of a body."""
    return {name: value for name, value in body.items() if value is not None}
