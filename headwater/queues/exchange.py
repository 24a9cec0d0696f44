"""Exchanges: a message goes to each queue whose binding matches its routing key or its headers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from headwater.errors import ArgumentInvalid, NotFound
from headwater.log import Log
from headwater.log.topic_rules import check_name
from headwater.queues.config import Settings
from headwater.queues.message import Outgoing
from headwater.queues.queue import open_queue

#: Header with the routing key of a message.
ROUTING_HEADER = "headwater.routing_key"


def matches(pattern: str, routing_key: str) -> bool:
    """Whether a routing key matches a pattern: `*` is one word, `#` any number of words; words end at a point.

    >>> matches("orders.*.eu", "orders.new.eu"), matches("orders.*.eu", "orders.eu"), matches("orders.#", "orders")
    (True, False, True)
    """
    text = ""
    for word in pattern.split("."):
        text += r"(?:\.[^.]*)*" if word == "#" else r"\." + (r"[^.]*" if word == "*" else re.escape(word))
    return re.fullmatch(text, f".{routing_key}") is not None


@dataclass(frozen=True, kw_only=True)
class Binding:
    """A queue, and which messages of the exchange it gets: by a pattern of routing keys, or by headers."""

    queue: str
    pattern: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    match: Literal["all", "any"] = "all"

    def includes(self, routing_key: str, headers: Mapping[str, bytes | str]) -> bool:
        if self.pattern is not None and not matches(self.pattern, routing_key):
            return False
        if not self.headers:
            return self.pattern is not None
        texts = {name: value.decode() if isinstance(value, bytes) else value for name, value in headers.items()}
        found = [texts.get(name) == value for name, value in self.headers.items()]
        return all(found) if self.match == "all" else any(found)


class Exchange:
    """Routes messages to queues, to all that match in one transaction.

    >>> import tempfile, headwater
    >>> log = headwater.open(tempfile.mkdtemp())
    >>> events = log.exchange("events")
    >>> events.bind("europe", pattern="orders.*.eu")
    >>> events.bind("urgent", headers={"urgent": "yes"})
    >>> events.put({"id": 1}, routing_key="orders.new.eu", headers={"urgent": "yes"})
    ['europe', 'urgent']
    """

    def __init__(self, log: Log, name: str) -> None:
        check_name("exchange", name)
        self._log, self.name = log, name
        self._settings = Settings(log)

    def bind(
        self,
        queue: str,
        *,
        pattern: str | None = None,
        headers: Mapping[str, str] | None = None,
        match: Literal["all", "any"] = "all",
    ) -> None:
        """Send matching messages to a queue, which is created if there is none."""
        if pattern is None and not headers:
            raise ArgumentInvalid(name="pattern", value=None, expected="a pattern or headers")
        if match not in ("all", "any"):
            raise ArgumentInvalid(name="match", value=match, expected="'all' or 'any'")
        open_queue(self._log, queue).close()
        binding = Binding(queue=queue, pattern=pattern, headers=dict(headers or {}), match=match)
        self._settings.set("binding", f"{self.name}/{queue}", asdict(binding))

    def unbind(self, queue: str) -> None:
        """Send nothing more to a queue."""
        if f"{self.name}/{queue}" not in self._settings.all("binding"):
            raise NotFound(kind="binding", name=f"{self.name}/{queue}")
        self._settings.set("binding", f"{self.name}/{queue}", None)

    def bindings(self) -> list[Binding]:
        found = self._settings.all("binding")
        return [Binding(**value) for name, value in sorted(found.items()) if name.startswith(f"{self.name}/")]

    def matching(self, routing_key: str, headers: Mapping[str, bytes | str]) -> list[str]:
        """The queues that get a message with this routing key and these headers."""
        return [each.queue for each in self.bindings() if each.includes(routing_key, headers)]

    # Any: as in `Queue.put`.
    def put(
        self, body: Any, *, routing_key: str = "", headers: Mapping[str, bytes | str] | None = None, **options: Any
    ) -> list[str]:
        """Put a message into each queue that matches; return their names. An empty list: no queue matched."""
        names = self.matching(routing_key, headers or {})
        message = body if isinstance(body, Outgoing) else Outgoing(body=body, **options)
        message = replace(message, headers={**(headers or {}), ROUTING_HEADER: routing_key})
        with self._log.transaction() as transaction:
            for name in names:
                with open_queue(self._log, name) as queue:
                    now_us = self._log.clock.now_us()
                    for priority, (rows, row_headers, _) in queue.encoder.batches([message], now_us=now_us).items():
                        transaction.append(name, rows, partition=priority, headers=row_headers)
        return names


def exchanges(log: Log) -> dict[str, list[Binding]]:
    """The exchanges of a log that have bindings."""
    found: dict[str, list[Binding]] = {}
    for name, value in sorted(Settings(log).all("binding").items()):
        found.setdefault(name.rpartition("/")[0], []).append(Binding(**value))
    return found
