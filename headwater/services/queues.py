"""Work queues: messages are put, taken and ended; and what an operator sees and does: groups, consumers, exchanges."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa

from headwater.errors import ArgumentInvalid
from headwater.log.dead_letters import Selection, dead_letter_topic
from headwater.log.remote.wire import schema_to_text, start_from_text, time_from_text
from headwater.log.topic_rules import check_name
from headwater.queues import (
    Binding,
    Exchange,
    LeaseLost,
    Message,
    Outgoing,
    QueueConfig,
    QueueConsumer,
    QueueStats,
    exchanges,
)
from headwater.queues.body_json import bodies_from_json, bodies_to_json
from headwater.queues.config import Body, seconds_us
from headwater.queues.delivery import Idle
from headwater.queues.group import EXTERNAL
from headwater.queues.journal import SUFFIX
from headwater.queues.queue import DEATH_SECONDS, REPLY, delete_queue, no_reply, open_queue, reply_queue
from headwater.services.dead_letters import ALL, DeadLetters, Redrive, open_dead_letters
from headwater.services.open_queues import OpenQueues
from headwater.services.route import Service, route
from headwater.services.wait import LOOK_AGAIN_SECONDS, WaitFor, wait_for

#: Messages of one call.
MESSAGES_MAX = 10_000
NEW = QueueConfig()
NO_SCHEMA = pa.schema([])
#: A duration in JSON: seconds, or a text such as "30 seconds".
Seconds = float | str


@dataclass(frozen=True, kw_only=True)
class NewMessage:
    """A message to put. Of a queue of bytes, the body is a text or `{"base64": …}`."""

    # Any: JSON.
    body: Any
    key: str | None = None
    id: str | None = None
    headers: dict[str, bytes] = field(default_factory=dict)
    priority: int = 0
    delay: Seconds | None = None
    """How long the message is not delivered."""
    deliver_at: int | str | None = None
    """The time until which it is not delivered: microseconds since 1970, or ISO 8601."""
    ttl: Seconds | None = None
    reply_to: str | None = None


@dataclass(frozen=True, kw_only=True)
class TakenMessage:
    """A message of a queue. If it was taken, `receipt` names the delivery in `ack` and the other calls that end it."""

    # Any: JSON.
    body: Any
    id: str
    partition: int
    offset: int
    key: str | None = None
    headers: dict[str, bytes | None] = field(default_factory=dict)
    priority: int = 0
    attempt: int = 1
    put_us: int = 0
    lease_until_us: int = 0
    reply_to: str | None = None
    receipt: str = ""


@dataclass(frozen=True, kw_only=True)
class QueueGroup:
    """One group of a queue: its counts, and its consumers."""

    name: str
    stats: QueueStats
    consumers: list[QueueConsumer] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class QueueBinding(Binding):
    """A binding of an exchange to a queue: which messages the queue gets, by a pattern of routing keys or by headers."""

    exchange: str


@dataclass(frozen=True, kw_only=True)
class QueueStatus:
    """A queue: its settings, its groups, and what is bound to it."""

    name: str
    settings: QueueConfig
    groups: list[QueueGroup] = field(default_factory=list)
    dead_letters: int = 0
    """Open dead letters of all groups."""
    dead_letter_topic: str = ""
    bindings: list[QueueBinding] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Messages that the slowest group is not done with."""
        return max((group.stats.length for group in self.groups), default=0)

    @property
    def oldest_seconds(self) -> float | None:
        """The age of the oldest message that waits in a group."""
        return max(
            (group.stats.oldest_seconds for group in self.groups if group.stats.oldest_seconds is not None),
            default=None,
        )


@dataclass(frozen=True, kw_only=True)
class QueueSettingsAnswer:
    """What a client needs to use a queue: its settings, its groups, and the schema of its rows."""

    name: str
    settings: QueueConfig
    groups: list[str]
    arrow_schema: str


class Queues(Service):
    """What can be done with work queues. The scopes are those of the queue's topic: `write` puts, `read` takes."""

    # -- queues -------------------------------------------------------------------------------------------------------

    @route("GET", "/queues")
    def list_queues(self) -> list[QueueStatus]:
        """List the queues that the caller may read, with the counts of every group."""
        return [
            self._status(name, config) for name, config in self._open.configs().items() if self.caller.may("read", name)
        ]

    @route("GET", "/queues/{queue}", scope="read:{queue}")
    def status(self, queue: str) -> QueueStatus:
        """Read a queue: its settings, its groups with their counts and consumers, and its bindings."""
        return self._status(queue, self._open.config(queue))

    @route("PUT", "/queues/{queue}", scope="admin:{queue}")
    def create(self, queue: str, settings: QueueConfig = NEW, *, schema: pa.Schema | None = None) -> QueueStatus:
        """Create a queue; a queue that exists with the same settings is left as it is.

        With a `schema` the bodies are rows of it.
        """
        given = settings.to_json()
        if schema is not None:
            given["body"] = "schema"
        open_queue(self.log, queue, schema=schema, **given).close()
        return self.status(queue)

    # Any: each setting has its own type, and null is the value of some.
    @route("PATCH", "/queues/{queue}", scope="admin:{queue}")
    def alter(self, queue: str, settings: dict[str, Any]) -> QueueStatus:
        """Change some settings of a queue; null removes a limit."""
        self._open.config(queue)
        with open_queue(self.log, queue, create=False) as opened:
            opened.alter(**settings)
        return self.status(queue)

    @route("DELETE", "/queues/{queue}", scope="admin:{queue}")
    def delete(self, queue: str) -> None:
        """Delete a queue with its messages. Its dead letters stay."""
        delete_queue(self.log, queue)

    @route("GET", "/queues/{queue}/settings", scope="see:{queue}")
    def settings(self, queue: str) -> QueueSettingsAnswer:
        """Read the settings, the groups and the schema of a queue."""
        config = self._open.config(queue)
        return QueueSettingsAnswer(
            name=queue,
            settings=config,
            groups=self._open.groups(queue),
            arrow_schema=schema_to_text(self.log.topic(queue).schema),
        )

    # -- put ----------------------------------------------------------------------------------------------------------

    @route("POST", "/queues/{queue}/put", scope="write:{queue}", audited=False)
    def put(self, queue: str, message: NewMessage) -> str:
        """Put a message, and answer with its id. A queue at its maximum length refuses it: try again later."""
        return self.put_many(queue, [message])[0]

    @route("POST", "/queues/{queue}/put-many", scope="write:{queue}", audited=False)
    def put_many(self, queue: str, messages: list[NewMessage]) -> list[str]:
        """Put messages, all or none of them, and answer with their ids; an empty id: the full queue has dropped it."""
        _check_count("messages", len(messages))
        outgoing = self._outgoing(queue, messages)
        with self._open.use(queue, self._any_group(queue)) as opened:
            return opened.put_many(outgoing, wait=0)

    # -- take ---------------------------------------------------------------------------------------------------------

    @route("POST", "/queues/{queue}/take", scope="read:{queue}", audited=False, served_by="take_in_event_loop")
    def take(
        self,
        queue: str,
        *,
        n: int = 1,
        group: str = "default",
        consumer: str | None = None,
        lease: Seconds | None = None,
        wait_seconds: float = 0.0,
    ) -> list[TakenMessage]:
        """Take up to `n` messages that no other worker of the group holds; wait for the first one up to `wait_seconds`.

        A message that is not acknowledged before its lease ends is delivered again. `consumer` is a name for the worker;
        without one it has the caller's. A group that does not exist is created.
        """
        return self._take_waiting(wait_seconds, queue, n, group, consumer, lease)

    async def take_in_event_loop(
        self,
        queue: str,
        *,
        n: int = 1,
        group: str = "default",
        consumer: str | None = None,
        lease: Seconds | None = None,
        wait_seconds: float = 0.0,
    ) -> list[TakenMessage]:
        """The same as `take`, without a thread for each caller that waits."""
        self.caller.require("read", queue)
        return await self._take_in_event_loop(wait_seconds, queue, n, group, consumer, lease)

    # -- the end of a delivery ----------------------------------------------------------------------------------------

    @route("POST", "/queues/{queue}/ack", scope="read:{queue}", audited=False)
    def ack(self, queue: str, receipts: list[str], *, group: str = "default") -> None:
        """Acknowledge messages: the group never gets them again. A conflict names the leases that are lost."""
        _check_count("receipts", len(receipts))
        with self._open.use(queue, group) as opened:
            opened.ack_many(receipts)

    @route("POST", "/queues/{queue}/nack", scope="read:{queue}", audited=False)
    def nack(
        self,
        queue: str,
        receipts: list[str],
        *,
        group: str = "default",
        delay: Seconds | None = None,
        reason: str = "",
        trace: str = "",
    ) -> None:
        """Return messages after a failure, to be delivered again after `delay`; after its last attempt one is dead."""
        _check_count("receipts", len(receipts))
        with self._open.use(queue, group) as opened:
            opened.nack(*receipts, delay=delay, reason=reason, trace=trace)

    @route("POST", "/queues/{queue}/reject", scope="read:{queue}", audited=False)
    def reject(
        self, queue: str, receipts: list[str], *, group: str = "default", reason: str = "", trace: str = ""
    ) -> None:
        """Make messages dead letters now, whatever their attempts."""
        _check_count("receipts", len(receipts))
        with self._open.use(queue, group) as opened:
            opened.reject(*receipts, reason=reason, trace=trace)

    @route("POST", "/queues/{queue}/release", scope="read:{queue}", audited=False)
    def release(self, queue: str, receipts: list[str], *, group: str = "default") -> None:
        """Return messages unprocessed: the delivery does not count."""
        _check_count("receipts", len(receipts))
        with self._open.use(queue, group) as opened:
            opened.release(*receipts)

    @route("POST", "/queues/{queue}/extend", scope="read:{queue}", audited=False)
    def extend(self, queue: str, receipts: list[str], *, group: str = "default", lease: Seconds | None = None) -> int:
        """Hold messages for another `lease` from now; answer when it ends, in microseconds since 1970."""
        _check_count("receipts", len(receipts))
        with self._open.use(queue, group) as opened:
            return opened.extend(*receipts, lease=lease)

    @route("DELETE", "/queues/{queue}/consumers/{consumer}", scope="read:{queue}", audited=False)
    def leave(self, queue: str, consumer: str, *, group: str = "default") -> None:
        """End a consumer: the messages that it holds return at once, unprocessed."""
        with self._open.use(queue, group) as opened:
            opened.state.forget_owner(self._owner(consumer))

    # -- request and reply --------------------------------------------------------------------------------------------

    @route("POST", "/queues/{queue}/request", scope="write:{queue}", audited=False, served_by="request_in_event_loop")
    def request(self, queue: str, message: NewMessage, *, wait_seconds: float = 10.0) -> TakenMessage:
        """Put a message, and wait for a worker's reply to it. The message expires with that time."""
        reply_to = self._begin_request(queue, message, wait_seconds)
        try:
            return _reply_in(self._take_waiting(wait_seconds, reply_to, 1, "default", None, None), queue, wait_seconds)
        finally:
            delete_queue(self.log, reply_to)

    async def request_in_event_loop(
        self, queue: str, message: NewMessage, *, wait_seconds: float = 10.0
    ) -> TakenMessage:
        """The same as `request`, without a thread for each caller that waits."""
        self.caller.require("write", queue)
        reply_to = await self.host.run(
            partial(self._begin_request, queue, message, wait_seconds), undo=partial(delete_queue, self.log)
        )
        try:
            found = await self._take_in_event_loop(wait_seconds, reply_to, 1, "default", None, None)
            return _reply_in(found, queue, wait_seconds)
        finally:
            await self.host.run(partial(delete_queue, self.log, reply_to))

    @route("POST", "/queues/{queue}/reply", scope="read:{queue}", audited=False)
    def reply(self, queue: str, receipt: str, body: Any, *, group: str = "default") -> None:
        """Reply to a request, and acknowledge it."""
        with self._open.use(queue, group) as opened:
            message = opened.find(receipt)
            if message.reply_to is not None and not message.reply_to.startswith(f"{queue}{REPLY}"):
                self.caller.require("write", message.reply_to)
            opened.reply(message, body)

    # -- state --------------------------------------------------------------------------------------------------------

    @route("GET", "/queues/{queue}/stats", scope="read:{queue}")
    def stats(self, queue: str, *, group: str = "default") -> QueueStats:
        """Count the messages of a group: waiting, scheduled, in flight and blocked, and how old the oldest is."""
        with self._open.use(queue, group) as opened:
            return opened.stats()

    @route("GET", "/queues/{queue}/peek", scope="read:{queue}")
    def peek(self, queue: str, *, n: int = 10, group: str = "default") -> list[TakenMessage]:
        """Read the next messages without taking them."""
        _check_count("n", n)
        with self._open.use(queue, group) as opened:
            return self._taken(queue, opened.peek(n))

    @route("GET", "/queues/{queue}/groups", scope="read:{queue}")
    def groups(self, queue: str) -> list[QueueGroup]:
        """List the groups of a queue with their counts and consumers. Each group gets every message."""
        return self.status(queue).groups

    @route("PUT", "/queues/{queue}/groups/{group}", scope="read:{queue}")
    def create_group(self, queue: str, group: str) -> None:
        """Create a group, which gets all messages that the queue still has. Taking as a new group creates it, too."""
        with self._open.use(queue, group, create_group=True):
            pass

    @route("DELETE", "/queues/{queue}/groups/{group}", scope="admin:{queue}")
    def delete_group(self, queue: str, group: str) -> None:
        """Delete a group: it holds no messages back any more. A queue keeps its last group."""
        others = [name for name in self._open.groups(queue) if name != group]
        if not others:
            expected = "a group beside which there is another; or delete the queue"
            raise ArgumentInvalid(name="group", value=group, expected=expected)
        with self._open.use(queue, others[0]) as opened:
            opened.delete_group(group)

    @route("GET", "/queues/{queue}/consumers", scope="read:{queue}")
    def consumers(self, queue: str, *, group: str = "default") -> list[QueueConsumer]:
        """List the consumers of a group, what each holds, and when it took last."""
        with self._open.use(queue, group) as opened:
            return opened.consumers()

    @route("POST", "/queues/{queue}/pause", scope="admin:{queue}")
    def pause(self, queue: str, *, group: str = "default") -> None:
        """Deliver nothing to a group until it is resumed; leases that are held stay valid."""
        with self._open.use(queue, group) as opened:
            opened.pause()

    @route("POST", "/queues/{queue}/resume", scope="admin:{queue}")
    def resume(self, queue: str, *, group: str = "default") -> None:
        """Deliver to a paused group again."""
        with self._open.use(queue, group) as opened:
            opened.resume()

    @route("POST", "/queues/{queue}/replay", scope="admin:{queue}")
    def replay(self, queue: str, start: str = "earliest", *, group: str = "default") -> None:
        """Deliver to a group all messages from a start on, also acknowledged ones; leases that are held are lost.

        `start` is earliest, latest, @time or offsets such as 0:5,1:9.
        """
        begin = start_from_text(start)
        if isinstance(begin, int):
            raise ArgumentInvalid(name="start", value=start, expected="earliest, latest, @time or offsets by partition")
        with self._open.use(queue, group) as opened:
            opened.replay(begin)

    @route("POST", "/queues/{queue}/redrive")
    def redrive(
        self,
        queue: str,
        selection: Selection = ALL,
        *,
        attempts_max: int | None = None,
        rate: float | None = None,
        dry_run: bool = False,
        wait_seconds: float = 20.0,
    ) -> Redrive:
        """Put open dead letters of the queue again, each of them once, for the group that failed."""
        letters = DeadLetters(self.host, self.caller, address=self.address)
        return letters.redrive(
            queue, selection, attempts_max=attempts_max, rate=rate, dry_run=dry_run, wait_seconds=wait_seconds
        )

    # -- exchanges ----------------------------------------------------------------------------------------------------

    @route("GET", "/exchanges")
    def exchanges(self) -> list[QueueBinding]:
        """List the bindings of all exchanges to queues that the caller may read."""
        return [
            QueueBinding(exchange=exchange, **vars(binding))
            for exchange, bindings in exchanges(self.log).items()
            for binding in bindings
            if self.caller.may("read", binding.queue)
        ]

    @route("PUT", "/exchanges/{exchange}/bindings/{queue}", scope="admin:{queue}")
    def bind(
        self,
        exchange: str,
        queue: str,
        *,
        pattern: str | None = None,
        headers: dict[str, str] | None = None,
        match: Literal["all", "any"] = "all",
    ) -> None:
        """Send messages whose routing key or headers match to a queue, which is created if there is none."""
        Exchange(self.log, exchange).bind(queue, pattern=pattern, headers=headers, match=match)

    @route("DELETE", "/exchanges/{exchange}/bindings/{queue}", scope="admin:{queue}")
    def unbind(self, exchange: str, queue: str) -> None:
        """Send nothing more from an exchange to a queue."""
        Exchange(self.log, exchange).unbind(queue)

    @route("POST", "/exchanges/{exchange}/put", scope="write", audited=False)
    def route_message(self, exchange: str, message: NewMessage, *, routing_key: str = "") -> list[str]:
        """Put a message into each queue that matches, all in one transaction, and answer with their names.

        It needs the scope `write` for each of these queues.
        """
        found, headers = Exchange(self.log, exchange), dict[str, bytes | str](message.headers)
        names = found.matching(routing_key, headers)
        for name in names:
            self.caller.require("write", name)
        kinds = {self._open.config(name).body for name in names}
        kind: Body = "bytes" if kinds == {"bytes"} else "json"
        [body] = bodies_from_json(kind, NO_SCHEMA, [message.body])
        return found.put(_outgoing(message, body), routing_key=routing_key, headers=headers)

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _open(self) -> OpenQueues:
        return self.host.share("queues", lambda: OpenQueues(self.log))

    def _any_group(self, queue: str) -> str:
        self._open.config(queue)
        return self._open.groups(queue)[0]

    def _owner(self, consumer: str | None) -> str:
        """The name by which a group knows a consumer: two callers never share one."""
        if consumer is not None:
            check_name("consumer", consumer)
        return EXTERNAL + (self.caller.name if consumer is None else self.caller.own(consumer))

    def _outgoing(self, queue: str, messages: list[NewMessage]) -> list[Outgoing]:
        config, schema = self._open.config(queue), self.log.topic(queue).schema
        bodies = bodies_from_json(config.body, schema, [message.body for message in messages])
        return [_outgoing(message, body) for message, body in zip(messages, bodies, strict=True)]

    def _take(
        self, queue: str, n: int, group: str, consumer: str | None, lease: Seconds | None
    ) -> tuple[list[TakenMessage], Idle]:
        _check_count("n", n)
        check_name("group", group)
        with self._open.use(queue, group, create_group=True) as opened:
            lease_us = opened.config.lease_us if lease is None else seconds_us(lease)
            messages, idle = opened.take_now(n, lease_us=lease_us, owner=self._owner(consumer))
        return self._taken(queue, messages), idle

    def _take_waiting(
        self, wait_seconds: float, queue: str, n: int, group: str, consumer: str | None, lease: Seconds | None
    ) -> list[TakenMessage]:
        deadline = time.monotonic() + self.host.seconds(wait_seconds)
        while True:
            messages, idle = self._take(queue, n, group, consumer, lease)
            seconds = self._pause(idle, deadline)
            if messages or seconds <= 0 or self.host.closing:
                return messages
            self.log.wait(_behind(queue, idle), seconds=seconds)

    async def _take_in_event_loop(
        self, wait_seconds: float, queue: str, n: int, group: str, consumer: str | None, lease: Seconds | None
    ) -> list[TakenMessage]:
        deadline = time.monotonic() + self.host.seconds(wait_seconds)
        while True:
            messages, idle = await self.host.run(
                partial(self._take, queue, n, group, consumer, lease),
                undo=lambda taken: self._release(queue, group, taken[0]),
            )
            seconds = self._pause(idle, deadline)
            if messages or seconds <= 0 or self.host.closing:
                return messages
            await wait_for(self.host, WaitFor(topics=_behind(queue, idle)), seconds=seconds)

    def _release(self, queue: str, group: str, messages: Sequence[TakenMessage]) -> None:
        """Return messages that were taken for a client that has disconnected."""
        with self._open.use(queue, group) as opened, suppress(LeaseLost):
            opened.release(*(message.receipt for message in messages))

    def _begin_request(self, queue: str, message: NewMessage, wait_seconds: float) -> str:
        """Put a request; return the name of the queue that its reply comes over."""
        longest = self.host.settings.wait_seconds_max
        if not 0 < wait_seconds <= longest:
            expected = f"more than 0, at most {longest:g}, the server's `wait_seconds_max`"
            raise ArgumentInvalid(name="wait_seconds", value=wait_seconds, expected=expected)
        with self._open.use(queue, self._any_group(queue)) as opened:
            reply_to = reply_queue(self.log, queue, wait_seconds)
            [outgoing] = self._outgoing(queue, [replace(message, ttl=wait_seconds, reply_to=reply_to)])
            open_queue(self.log, reply_to).close()
            try:
                opened.put_many([outgoing], wait=0)
            except BaseException:
                delete_queue(self.log, reply_to)
                raise
        return reply_to

    def _pause(self, idle: Idle, deadline: float) -> float:
        """How long to wait before the next attempt to take."""
        seconds = deadline - time.monotonic()
        if idle.event_us is not None:
            seconds = min(seconds, max(0.001, (idle.event_us - self.log.clock.now_us()) / 1_000_000))
        return min(seconds, DEATH_SECONDS if idle.others else LOOK_AGAIN_SECONDS)

    def _taken(self, queue: str, messages: Sequence[Message]) -> list[TakenMessage]:
        config = self._open.config(queue)
        bodies = bodies_to_json(config.body, self.log.topic(queue).schema, [message.body for message in messages])
        return [
            TakenMessage(
                body=body,
                id=message.id,
                partition=message.partition,
                offset=message.offset,
                key=message.key,
                headers=message.headers,
                priority=message.priority,
                attempt=message.attempt,
                put_us=message.put_at_us,
                lease_until_us=message.lease_until_us,
                reply_to=message.reply_to,
                receipt=message.receipt,
            )
            for message, body in zip(messages, bodies, strict=True)
        ]

    def _status(self, name: str, config: QueueConfig) -> QueueStatus:
        groups = []
        for group in self._open.groups(name):
            with self._open.use(name, group) as opened:
                groups.append(QueueGroup(name=group, stats=opened.stats(), consumers=opened.consumers()))
        bindings = [
            QueueBinding(exchange=exchange, **vars(binding))
            for exchange, bindings in exchanges(self.log).items()
            for binding in bindings
            if binding.queue == name
        ]
        return QueueStatus(
            name=name,
            settings=config,
            groups=groups,
            dead_letters=open_dead_letters(self.host, name),
            dead_letter_topic=dead_letter_topic(name),
            bindings=bindings,
        )


def _outgoing(message: NewMessage, body: Any) -> Outgoing:
    at = message.deliver_at
    return Outgoing(
        body=body,
        key=message.key,
        id=message.id,
        headers=message.headers or None,
        priority=message.priority,
        delay=message.delay,
        deliver_at=time_from_text(at, name="deliver_at") if isinstance(at, str) else at,
        ttl=message.ttl,
        reply_to=message.reply_to,
    )


def _reply_in(found: list[TakenMessage], queue: str, wait_seconds: float) -> TakenMessage:
    if not found:
        raise no_reply(queue, wait_seconds)
    return found[0]


def _behind(queue: str, idle: Idle) -> dict[str, dict[int, int]]:
    """What a call that got no message waits for: new messages, and ends of deliveries."""
    return {queue: idle.ends, queue + SUFFIX: {0: idle.journal_next}}


def _check_count(name: str, count: int) -> None:
    if not 1 <= count <= MESSAGES_MAX:
        raise ArgumentInvalid(name=name, value=count, expected=f"1 to {MESSAGES_MAX:,}")
