"""A queue behind a server: the calls of `Queue` as requests of the HTTP API. Its consumers are held by their leases' time."""

from __future__ import annotations

import os
import platform
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from typing import Any, Literal, NoReturn, Unpack

import orjson
import pyarrow as pa

from headwater.clock import time_us
from headwater.errors import ArgumentInvalid, NotAllowed, NotFound, NotPossible
from headwater.log.dead_letters import Place as LetterPlace
from headwater.log.dead_letters import Selection
from headwater.log.errors import ServerUnreachable
from headwater.log.redrive import Outcome, Refusal
from headwater.log.remote.connection import Connection, quoted
from headwater.log.remote.log import WAIT_SECONDS_MAX, RemoteLog
from headwater.log.remote.wire import start_to_text, text_to_schema
from headwater.queues.body_json import bodies_from_json, bodies_to_json, bytes_from_json, bytes_to_json
from headwater.queues.config import QueueConfig, QueueSettings, check_same
from headwater.queues.errors import QueueFull
from headwater.queues.exchange import Binding
from headwater.queues.message import Message, Outgoing, parse_receipt
from headwater.queues.stats import QueueStats
from headwater.queues.work_queue import QueueConsumer, WorkQueue
from headwater.schema import parse_schema, schema_to_json
from headwater.units import Duration, parse_seconds

#: Messages of one request; more are sent in several, except those of one `put_many`.
MESSAGES_MAX = 10_000
_JSON = {"Content-Type": "application/json"}
#: The pause before a full queue is asked again.
FULL_SECONDS = 0.1


class RemoteQueue(WorkQueue):
    """A queue of a remote log. Close it to return the messages that it holds; otherwise their leases run out.

    If the answer to a call is lost, `ServerUnreachable` is raised: messages that were put may be there, and messages that
    were taken return when their leases end. Ends of deliveries are repeated: then `LeaseLost` may mean that the
    first attempt has succeeded.
    """

    def __init__(self, log: RemoteLog, name: str, group: str, config: QueueConfig, schema: pa.Schema) -> None:
        self._log, self._connection = log, log.connection
        self.name, self.group, self.config = name, group, config
        self._schema = schema
        machine = re.sub(r"[^A-Za-z0-9-]", "-", platform.node())[:32]
        self._consumer = f"{machine}-{os.getpid()}-{secrets.token_hex(4)}"
        self._has_taken = self._closed = False

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, group={self.group!r})"

    # -- put ----------------------------------------------------------------------------------------------------------

    def put_many(self, bodies: Sequence[Any], *, wait: Duration | None = None) -> list[str]:
        seconds = self._log.config.lock_seconds_max if wait is None else parse_seconds(wait, name="wait")
        messages = [body if isinstance(body, Outgoing) else Outgoing(body=body) for body in bodies]
        if not messages:
            return []
        # A message with an id is put once, however often it is sent.
        again = self.config.deduplicate is not None and all(message.id for message in messages)
        deadline = time.monotonic() + seconds
        while True:
            try:
                ids: list[str] = self._post("put-many", again=again, messages=self._drafts(messages))
                return ids
            except QueueFull:
                too_many = self.config.length_max is not None and len(messages) > self.config.length_max
                if self.config.overflow != "block" or too_many or time.monotonic() >= deadline:
                    raise
            time.sleep(FULL_SECONDS)

    # Any: JSON, here and below.
    def _drafts(self, messages: Sequence[Outgoing]) -> list[dict[str, Any]]:
        bodies = bodies_to_json(self.config.body, self._schema, [message.body for message in messages])
        return [_draft(message, body) for message, body in zip(messages, bodies, strict=True)]

    # -- take and what follows ----------------------------------------------------------------------------------------

    def take(
        self, n: int = 1, *, wait: Duration = 0.0, lease: Duration | None = None, consumer: str | None = None
    ) -> list[Message]:
        if not isinstance(n, int) or n < 1:
            raise ArgumentInvalid(name="n", value=n, expected="at least 1")
        self._has_taken = True
        deadline = time.monotonic() + parse_seconds(wait, name="wait")
        while True:
            seconds = min(max(0.0, deadline - time.monotonic()), WAIT_SECONDS_MAX)
            found = self._post(
                "take",
                wait_seconds=seconds,
                n=min(n, MESSAGES_MAX),
                consumer=self._consumer if consumer is None else consumer,
                lease=None if lease is None else parse_seconds(lease, name="lease"),
            )
            if found or time.monotonic() >= deadline:
                return self._messages(found)

    def ack_many(self, messages: Sequence[Message | str]) -> None:
        for start in range(0, len(messages), MESSAGES_MAX):
            self._end("ack", messages[start : start + MESSAGES_MAX])

    def nack(self, *messages: Message | str, delay: Duration | None = None, reason: str = "", trace: str = "") -> None:
        seconds = None if delay is None else parse_seconds(delay, name="delay")
        self._end("nack", messages, delay=seconds, reason=reason, trace=trace)

    def reject(self, *messages: Message | str, reason: str = "", trace: str = "") -> None:
        self._end("reject", messages, reason=reason, trace=trace)

    def release(self, *messages: Message | str) -> None:
        self._end("release", messages)

    def extend(self, *messages: Message | str, lease: Duration | None = None) -> int:
        until: int = self._end("extend", messages, lease=None if lease is None else parse_seconds(lease, name="lease"))
        for message in messages:
            if isinstance(message, Message):
                message.lease_until_us = until
        return until

    def transaction(self) -> NoReturn:
        raise NotPossible(
            why="A queue behind a server is not part of transactions",
            instead="Open the log's folder on its machine, or give what the worker writes an id by which it is written once",
        )

    # -- request and reply --------------------------------------------------------------------------------------------

    def request(self, body: Any, *, timeout: Duration = "10 seconds", **options: Any) -> Message:
        seconds = parse_seconds(timeout, name="timeout")
        [draft] = self._drafts([Outgoing(body=body, **options)])
        path = f"/queues/{quoted(self.name)}/request"
        # Not in the group's name: the reply comes over a queue of its own.
        content = _content({**draft, "wait_seconds": seconds})
        answer = self._connection.ask("POST", path, content=content, headers=_JSON, wait_seconds=seconds).json()
        return self._message(answer, answer["body"])

    def reply(self, message: Message, body: Any) -> None:
        if message.reply_to is None:
            raise ArgumentInvalid(name="message", value=message.id, expected="a message with `reply_to`")
        self._post("reply", again=True, receipt=message.receipt, body=body)

    # -- state --------------------------------------------------------------------------------------------------------

    def stats(self) -> QueueStats:
        stats: QueueStats = _made(QueueStats, self._get("stats", group=self.group))
        return stats

    def consumers(self) -> list[QueueConsumer]:
        return [_made(QueueConsumer, each) for each in self._get("consumers", group=self.group)]

    def peek(self, n: int = 10) -> list[Message]:
        return self._messages(self._get("peek", group=self.group, n=n), held=False)

    def groups(self) -> list[str]:
        return [str(name) for name in self._get("settings")["groups"]]

    def delete_group(self, group: str) -> None:
        if group == self.group:
            raise ArgumentInvalid(name="group", value=group, expected="another group than that of this object")
        self._connection.delete(f"/queues/{quoted(self.name)}/groups/{quoted(group)}")

    def pause(self) -> None:
        self._post("pause", again=True)

    def resume(self) -> None:
        self._post("resume", again=True)

    def replay(self, start: Literal["earliest", "latest"] | datetime | int | Mapping[int, int] = "earliest") -> None:
        is_time = isinstance(start, int) and not isinstance(start, bool)
        self._post("replay", start=f"@{start}" if is_time else start_to_text(start))

    def redrive(self, selection: Selection | None = None, **options: Any) -> Outcome:
        given: dict[str, Any] = (
            {} if selection is None else {each.name: getattr(selection, each.name) for each in fields(selection)}
        )
        if selection is not None:
            given["offsets"] = [[each.start, each.stop - 1] for each in selection.offsets]
        given = {name: value for name, value in {**given, **options}.items() if value is not None}
        found = self._post("redrive", grouped=False, wait_seconds=WAIT_SECONDS_MAX, **given)
        while found["state"] == "running":
            path = f"/dead-letters/{quoted(found['topic'])}/redrive"
            parameters = {"wait_seconds": WAIT_SECONDS_MAX}
            found = self._connection.ask("GET", path, parameters=parameters, wait_seconds=WAIT_SECONDS_MAX).json()
        if found["state"] == "failed":
            raise ServerUnreachable(address=self._connection.address, why=found["error"])
        outcome = found["outcome"]
        done = Outcome(seen=outcome["seen"])
        for name in ("redriven", "parked", "unparked"):
            getattr(done, name).update(outcome[name])
        done.refused = [Refusal(place=LetterPlace(**each["place"]), why=each["why"]) for each in outcome["refused"]]
        return done

    def alter(self, **settings: Unpack[QueueSettings]) -> None:
        config = self.config.changed(settings)
        values = {name: value for name, value in config.to_json().items() if name in settings}
        path = f"/queues/{quoted(self.name)}"
        answer = self._connection.ask("PATCH", path, json={"settings": values}, again=True).json()
        self.config = _made(QueueConfig, answer["settings"])

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._has_taken:
            with suppress(NotFound, ServerUnreachable):  # the queue was deleted; or the leases run out
                self._connection.delete(f"/queues/{quoted(self.name)}/consumers/{self._consumer}", group=self.group)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _get(self, what: str, **parameters: Any) -> Any:
        return self._connection.get(f"/queues/{quoted(self.name)}/{what}", **parameters)

    def _post(
        self, what: str, *, again: bool = False, grouped: bool = True, wait_seconds: float = 0.0, **values: Any
    ) -> Any:
        body = {name: value for name, value in values.items() if value is not None or name == "body"}
        if grouped and what != "put-many":
            body["group"] = self.group
        if wait_seconds:
            body["wait_seconds"] = wait_seconds
        path = f"/queues/{quoted(self.name)}/{what}"
        response = self._connection.ask(
            "POST", path, content=_content(body), headers=_JSON, again=again, wait_seconds=wait_seconds
        )
        return response.json() if response.content else None

    def _end(self, what: str, messages: Sequence[Message | str], **values: Any) -> Any:
        if not messages:
            raise ArgumentInvalid(name="messages", value=0, expected="at least one message")
        receipts = [".".join(map(str, parse_receipt(message))) for message in messages]
        return self._post(what, again=True, receipts=receipts, **values)

    def _messages(self, found: Sequence[Mapping[str, Any]], *, held: bool = True) -> list[Message]:
        bodies = bodies_from_json(self.config.body, self._schema, [each["body"] for each in found])
        messages = [self._message(each, body) for each, body in zip(found, bodies, strict=True)]
        for message in messages:
            message.queue = self if held else None
        return messages

    def _message(self, found: Mapping[str, Any], body: Any) -> Message:
        return Message(
            body,
            found["partition"],
            found["offset"],
            found["id"],
            found["key"],
            {name: None if value is None else bytes_from_json(value) for name, value in found["headers"].items()},
            found["attempt"],
            found["put_us"],
            found["lease_until_us"],
            found["reply_to"],
            parse_receipt(found["receipt"])[2] if found["receipt"] else 0,
        )


class RemoteExchange:
    """An exchange of a remote log; see `Exchange`."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection, self.name = connection, name
        self._path = f"/exchanges/{quoted(name)}"

    def bind(
        self,
        queue: str,
        *,
        pattern: str | None = None,
        headers: Mapping[str, str] | None = None,
        match: Literal["all", "any"] = "all",
    ) -> None:
        body = {"pattern": pattern, "headers": None if headers is None else dict(headers), "match": match}
        given = {name: value for name, value in body.items() if value is not None}
        self._connection.ask("PUT", f"{self._path}/bindings/{quoted(queue)}", json=given, again=True)

    def unbind(self, queue: str) -> None:
        self._connection.delete(f"{self._path}/bindings/{quoted(queue)}")

    def bindings(self) -> list[Binding]:
        found = self._connection.get("/exchanges")
        return [_made(Binding, each) for each in found if each["exchange"] == self.name]

    def put(
        self, body: Any, *, routing_key: str = "", headers: Mapping[str, bytes | str] | None = None, **options: Any
    ) -> list[str]:
        draft = _draft(Outgoing(body=body, headers=headers, **options), body)
        content = _content({**draft, "routing_key": routing_key})
        found: list[str] = self._connection.ask("POST", f"{self._path}/put", content=content, headers=_JSON).json()
        return found


def open_remote_queue(
    log: RemoteLog, name: str, *, group: str, schema: Any, create: bool, settings: QueueSettings
) -> RemoteQueue:
    """Open a queue behind a server; create it and its group if they do not exist."""
    path = f"/queues/{quoted(name)}"
    try:
        found = log.connection.get(f"{path}/settings")
    except NotFound as error:
        if not create or error.kind != "queue":
            raise
        values: dict[str, Any] = {**QueueConfig().changed(settings).to_json()}
        if schema is not None:
            values |= {"body": "schema", "schema": schema_to_json(parse_schema(schema))}
        log.connection.ask("PUT", path, json=values, again=True)
        found = log.connection.get(f"{path}/settings")
    config = _made(QueueConfig, found["settings"])
    check_same(name, config, settings)
    if group not in found["groups"]:
        with suppress(NotAllowed):  # one who only puts needs no group
            log.connection.ask("PUT", f"{path}/groups/{quoted(group)}", json={}, again=True)
    return RemoteQueue(log, name, group, config, text_to_schema(found["arrow_schema"]))


def _draft(message: Outgoing, body: Any) -> dict[str, Any]:
    given = {
        "body": body,
        "key": message.key,
        "id": message.id,
        "headers": {
            name: bytes_to_json(value) if isinstance(value, bytes) else value
            for name, value in (message.headers or {}).items()
        },
        "priority": message.priority,
        "delay": None if message.delay is None else parse_seconds(message.delay, name="delay"),
        "deliver_at": None if message.deliver_at is None else time_us(message.deliver_at),
        "ttl": None if message.ttl is None else parse_seconds(message.ttl, name="ttl"),
        "reply_to": message.reply_to,
    }
    return {name: value for name, value in given.items() if value is not None or name == "body"}


def _content(body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except TypeError as error:
        raise ArgumentInvalid(name="body", value=str(error), expected="JSON values; nothing was put") from error


# Any: a dataclass, and what its JSON form has beside its fields.
def _made(kind: Any, found: Mapping[str, Any]) -> Any:
    names = {each.name for each in fields(kind)}
    return kind(**{name: value for name, value in found.items() if name in names})
