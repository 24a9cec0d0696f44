"""A queue: each message goes to one worker of each group, and is delivered again if that worker fails.

Messages are rows of an ordinary topic, one partition for each priority. What was acknowledged is in the journal topic.
Leases and schedules are in an index file for each group, which processes of this machine share without a server.
"""

from __future__ import annotations

import math
import os
import secrets
import shutil
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Unpack

import pyarrow as pa

from headwater.errors import ArgumentInvalid, NotFound, NotPossible, Overdue, did_you_mean
from headwater.filelock import LeaderLock
from headwater.home import is_remote, is_server
from headwater.log import Log
from headwater.log.dead_letters import Selection
from headwater.log.embedded import local_log
from headwater.log.redrive import Outcome, redrive
from headwater.log.topic_rules import check_name
from headwater.queues.config import QueueConfig, QueueSettings, Settings, check_same, seconds_us
from headwater.queues.delivery import Idle
from headwater.queues.errors import QueueFull
from headwater.queues.group import EXTERNAL, Group
from headwater.queues.identifiers import Identifiers
from headwater.queues.journal import SUFFIX, Event, Journal
from headwater.queues.message import Encoder, Message, Outgoing, Place, parse_receipt, topic_schema
from headwater.queues.stats import QueueStats, next_messages, rows_of, stats_of
from headwater.queues.transaction import QueueTransaction
from headwater.queues.work_queue import QueueConsumer, WorkQueue
from headwater.units import Duration, parse_seconds

#: How often a waiting consumer looks whether another process has died.
DEATH_SECONDS = 0.2
#: In the name of a queue for one reply, after the name of the queue of its request.
REPLY = ".reply-"
#: How long after the end of its request a queue for its reply is left alone.
REPLY_SECONDS = 60


class Queue(WorkQueue):
    """A queue in a log's folder, as one group uses it. Open it with `log.queue("jobs")`; threads may share it.

    >>> import tempfile, headwater
    >>> log = headwater.open(tempfile.mkdtemp())
    >>> queue = log.queue("jobs")
    >>> _ = queue.put({"task": "resize"}, key="picture-7")
    >>> [message] = queue.take()
    >>> message.body, message.attempt
    ({'task': 'resize'}, 1)
    >>> message.ack()
    >>> queue.take(), queue.stats().acknowledged
    ([], 1)
    """

    def __init__(self, log: Log, name: str, group: str, config: QueueConfig) -> None:
        self._log = log
        self.name = self.topic = name
        self.group = group
        self.config = config
        self.journal = name + SUFFIX
        self._schema = _body_schema(log, name)
        self._settings = Settings(log)
        self.encoder = Encoder(config, self._schema)
        self._folder = folder_of(log, name)
        self._state = Group(log, name, group, config=lambda: self.config, folder=self._folder / "groups")
        self._others: dict[str, Group] = {}
        self._identifiers = Identifiers(log, name, self._folder) if config.deduplicate is not None else None
        self._owner = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._owner_lock = LeaderLock(self._folder / "consumers" / f"{self._owner}.lock")
        self._overflow_lock = LeaderLock(self._folder / "length.lock")
        self._threads = threading.Lock()
        self._closed = self._deleted = False

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, group={self.group!r})"

    # -- put ----------------------------------------------------------------------------------------------------------

    def put_many(self, bodies: Sequence[Any], *, wait: Duration | None = None) -> list[str]:
        seconds = self._log.config.lock_seconds_max if wait is None else parse_seconds(wait, name="wait")
        if not bodies:
            return []
        self._refresh()
        if self._is_plain(bodies) and (rows := self.encoder.plain(list(bodies))) is not None:
            start, stop = self._log.append(self.topic, rows, partition=0).ranges[0]
            return [f"0-{offset}" for offset in range(start, stop)]
        messages = [body if isinstance(body, Outgoing) else Outgoing(body=body) for body in bodies]
        if self.config.length_max is None:
            return self._put_once(messages)
        return self._put_bounded(messages, self.config.length_max, seconds)

    def _is_plain(self, bodies: Sequence[Any]) -> bool:
        """Whether bodies have no options, and can be put without a look at other messages."""
        return self._identifiers is None and self.config.length_max is None and Outgoing not in set(map(type, bodies))

    def _put_once(self, messages: list[Outgoing]) -> list[str]:
        if self._identifiers is None:
            return self._append(messages)
        window = parse_seconds(self.config.deduplicate or 0)
        with self._identifiers.new(messages, window=window) as fresh:
            given = dict(zip(fresh, self._append([messages[number] for number in fresh]), strict=True)) if fresh else {}
        return [given.get(number) or message.id or "" for number, message in enumerate(messages)]

    def _append(self, messages: list[Outgoing]) -> list[str]:
        batches = self.encoder.batches(messages, now_us=self._log.clock.now_us())
        ids = [message.id or "" for message in messages]
        if len(batches) == 1:
            [(priority, (rows, headers, numbers))] = batches.items()
            appended = self._log.append(self.topic, rows, partition=priority, headers=headers)
        else:
            with self._log.transaction() as transaction:
                for priority, (rows, headers, _) in batches.items():
                    transaction.append(self.topic, rows, partition=priority, headers=headers)
                appended = transaction.commit()[self.topic]
        for priority, (_, _, numbers) in batches.items():
            start = appended.ranges[priority][0]
            for place, number in enumerate(numbers):
                ids[number] = ids[number] or f"{priority}-{start + place}"
        return ids

    def _put_bounded(self, messages: list[Outgoing], length_max: int, seconds: float) -> list[str]:
        deadline = time.monotonic() + seconds
        while True:
            ends = Journal(self._log, self.name, self.group).end()
            with self._threads, self._overflow_lock.held():
                room = length_max - self.length()
                if room >= len(messages):
                    return self._put_once(messages)
                if self.config.overflow == "drop_newest":
                    kept = self._put_once(messages[: max(room, 0)]) if room > 0 else []
                    return kept + [""] * (len(messages) - len(kept))
                if self.config.overflow == "drop_oldest":
                    ids = self._put_once(messages)
                    for state in self._states():
                        state.drop_oldest(max(0, self._length(state) - length_max))
                    return ids
            remaining = deadline - time.monotonic()
            if self.config.overflow == "reject" or remaining <= 0 or len(messages) > length_max:
                raise QueueFull(queue=self.name, length_max=length_max)
            self._log.wait({self.journal: {0: ends}}, seconds=min(remaining, 1.0))

    def length(self) -> int:
        """How many messages the slowest group is not done with."""
        return max(self._length(state) for state in self._states())

    def _states(self) -> list[Group]:
        """The states of all groups. Those of other groups stay open: a queue with a length limit needs them at each put."""
        groups = self.groups()
        for group in self._others.keys() - set(groups):
            self._others.pop(group).close()
        for group in groups:
            if group != self.group and group not in self._others:
                folder = self._folder / "groups"
                self._others[group] = Group(self._log, self.name, group, config=lambda: self.config, folder=folder)
        return [self._state, *self._others.values()]

    def _length(self, state: Group) -> int:
        with state.changes() as index:
            ready, scheduled, in_flight, blocked, ahead = index.counts(self._log.clock.now_us())
            cursors = index.cursors()
            ends = self._log.end_offsets(self.topic)
        return ready + scheduled + in_flight + blocked - ahead + sum(ends[each] - cursors[each] for each in ends)

    # -- take and what follows ----------------------------------------------------------------------------------------

    def take(
        self, n: int = 1, *, wait: Duration = 0.0, lease: Duration | None = None, consumer: str | None = None
    ) -> list[Message]:
        if not isinstance(n, int) or n < 1:
            raise ArgumentInvalid(name="n", value=n, expected="at least 1")
        lease_us = self.config.lease_us if lease is None else seconds_us(lease)
        owner = self._claimed_owner() if consumer is None else EXTERNAL + consumer
        deadline = time.monotonic() + parse_seconds(wait, name="wait")
        while True:
            messages, idle = self.take_now(n, lease_us=lease_us, owner=owner)
            remaining = deadline - time.monotonic()
            if messages or remaining <= 0:
                return messages
            if idle.event_us is not None:
                remaining = min(remaining, max(0.001, (idle.event_us - self._log.clock.now_us()) / 1_000_000))
            if idle.others:
                remaining = min(remaining, DEATH_SECONDS)
            self._log.wait({self.topic: idle.ends, self.journal: {0: idle.journal_next}}, seconds=remaining)

    def take_now(self, n: int, *, lease_us: int, owner: str) -> tuple[list[Message], Idle]:
        """Take without waiting, and what a caller that got nothing has to wait for."""
        while True:
            self._refresh()
            if self._state.claim_maintenance():
                self._maintain(force=False)
            messages, idle = self._state.take(n, lease_us=lease_us, owner=owner, queue=self)
            if messages or not idle.unread:
                return messages, idle

    def ack_many(self, messages: Sequence[Message | str]) -> None:
        if messages:
            self._state.ack(
                [
                    (each.partition, each.offset, each.token) if isinstance(each, Message) else parse_receipt(each)
                    for each in messages
                ]
            )

    def nack(self, *messages: Message | str, delay: Duration | None = None, reason: str = "", trace: str = "") -> None:
        self._state.give_back(
            [parse_receipt(message) for message in messages],
            delay_us=0 if delay is None else seconds_us(delay),
            error="AttemptsExhausted",
            reason=reason or "a worker returned it",
            trace=trace,
            failed=True,
        )

    def reject(self, *messages: Message | str, reason: str = "", trace: str = "") -> None:
        self._state.reject([parse_receipt(message) for message in messages], reason=reason, trace=trace)

    def release(self, *messages: Message | str) -> None:
        leases = [parse_receipt(message) for message in messages]
        self._state.give_back(leases, delay_us=0, error="", reason="", trace="", failed=False)

    def extend(self, *messages: Message | str, lease: Duration | None = None) -> int:
        until = self._log.clock.now_us() + (self.config.lease_us if lease is None else seconds_us(lease))
        self._state.extend([parse_receipt(message) for message in messages], until)
        for message in messages:
            if isinstance(message, Message):
                message.lease_until_us = until
        return until

    def transaction(self) -> QueueTransaction:
        """Append rows, put messages and acknowledge in one transaction of the log: all of it happens, or nothing.

        >>> import tempfile, headwater
        >>> log = headwater.open(tempfile.mkdtemp())
        >>> queue, _ = log.queue("jobs"), log.create("results", {"result": "int64"})
        >>> _ = queue.put(20)
        >>> [message] = queue.take()
        >>> with queue.transaction() as transaction:
        ...     transaction.append("results", [{"result": message.body + 1}])
        ...     transaction.ack(message)
        >>> log.read("results").rows()[0]["result"], queue.stats().length
        (21, 0)
        """
        return QueueTransaction(self._log, self)

    # -- request and reply --------------------------------------------------------------------------------------------

    def request(self, body: Any, *, timeout: Duration = "10 seconds", **options: Any) -> Message:
        seconds = parse_seconds(timeout, name="timeout")
        reply_to = reply_queue(self._log, self.name, seconds)
        with open_queue(self._log, reply_to) as replies:
            try:
                self.put(body, reply_to=reply_to, ttl=seconds, **options)
                answers = replies.take(wait=seconds)
            finally:
                delete_queue(self._log, reply_to)
            if not answers:
                raise no_reply(self.name, seconds)
            return answers[0]

    def reply(self, message: Message, body: Any) -> None:
        if message.reply_to is None:
            raise ArgumentInvalid(name="message", value=message.id, expected="a message with `reply_to`")
        with suppress(NotFound), open_queue(self._log, message.reply_to, create=False) as replies:
            replies.put(body, headers={"headwater.reply_to_id": message.id})
        self.ack(message)

    # -- state --------------------------------------------------------------------------------------------------------

    def stats(self) -> QueueStats:
        self._refresh()
        return stats_of(self._log, self)

    def consumers(self) -> list[QueueConsumer]:
        with self._state.changes() as index:
            return self._state.consumers(index)

    def peek(self, n: int = 10) -> list[Message]:
        self._refresh()
        return next_messages(self._log, self, n)

    def find(self, receipt: str) -> Message:
        """The message that a receipt names; it may be acknowledged already."""
        lease = parse_receipt(receipt)
        for stored in rows_of(self._log, self, Place(*lease[:2]), 1):
            message = stored.message
            message.token, message.queue = lease[2], self
            return message
        raise ArgumentInvalid(name="receipt", value=receipt, expected="the receipt of a message that is still there")

    def groups(self) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in _groups(self._settings, self.name))

    def delete_group(self, group: str) -> None:
        if group == self.group:
            raise ArgumentInvalid(name="group", value=group, expected="another group than that of this object")
        if group not in self.groups():
            raise NotFound(kind="queue group", name=group, near=did_you_mean(group, self.groups()))
        starts = self._log.start_offsets(self.topic)
        with self._threads:
            state = next(each for each in self._states() if each.name == group)
            state.announce([*(Event("reset", *place) for place in starts.items()), Event("resume")])
            self._settings.set("group", f"{self.name}/{group}", None)
            self._others.pop(group).close()
        state.remove()

    def maintain(self) -> None:
        """Free what no group needs any more; `take` does it from time to time.

        The journal begins with the last snapshot of each group. With `delete_acknowledged`, so do the messages with the
        first one that a group is not done with. Whole segments are deleted.
        """
        self._maintain(force=True)

    def _maintain(self, *, force: bool) -> None:
        log = local_log(self._log)
        if force:  # first, so that the snapshots are in a segment of their own
            log.maintain(self.journal, seal=True)
        with self._threads:
            kept = [state.snapshot(force=force) for state in self._states()]
        log.delete_before(self.journal, {0: min(needed for needed, _ in kept)})
        if self.config.delete_acknowledged:
            floors = {each: min(offsets[each] for _, offsets in kept) for each in kept[0][1]}
            log.delete_before(self.topic, floors, seal=force)

    def pause(self) -> None:
        self._state.announce([Event("pause")])

    def resume(self) -> None:
        self._state.announce([Event("resume")])

    def replay(self, start: Literal["earliest", "latest"] | datetime | int | Mapping[int, int] = "earliest") -> None:
        if start == "earliest":
            offsets = self._log.start_offsets(self.topic)
        elif start == "latest":
            offsets = self._log.end_offsets(self.topic)
        elif isinstance(start, Mapping):
            offsets = self._log.end_offsets(self.topic)
            starts = self._log.start_offsets(self.topic)
            for partition, offset in start.items():
                if partition not in offsets or not 0 <= offset <= offsets[partition]:
                    expected = f"offsets of the priorities 0 to {len(offsets) - 1}, up to {offsets}"
                    raise ArgumentInvalid(name="start", value=dict(start), expected=expected)
                offsets[partition] = max(offset, starts[partition])
        elif isinstance(start, datetime | int):
            offsets = self._log.offset_at(self.topic, start)
        else:
            raise ArgumentInvalid(name="start", value=start, expected="'earliest', 'latest', a time or offsets")
        self._state.announce([Event("reset", partition, offset) for partition, offset in offsets.items()])

    def redrive(self, selection: Selection | None = None, **options: Any) -> Outcome:
        return redrive(self._log, self.name, selection, **options)

    def alter(self, **settings: Unpack[QueueSettings]) -> None:
        self._refresh()
        config = self.config.changed(settings)
        for name in ("body", "priorities", "ordered"):
            if getattr(config, name) != getattr(self.config, name):
                raise ArgumentInvalid(
                    name=name, value=getattr(config, name), expected="no change: create another queue"
                )
        self._settings.set("queue", self.name, config.to_json())
        self._refresh()

    def _refresh(self) -> None:
        """Use the settings that another process has changed; raise `NotFound` if the queue was deleted."""
        if not self._settings.has_changed() and not self._deleted:
            return
        self._deleted = True
        known, groups = self._settings.all("queue"), _groups(self._settings, self.name)
        if self.name not in known or folder_of(self._log, self.name) != self._folder:
            raise NotFound(kind="queue", name=self.name, near=did_you_mean(self.name, known))
        if f"{self.name}/{self.group}" not in groups:
            raise NotFound(kind="queue group", name=self.group, near=did_you_mean(self.group, self.groups()))
        self._deleted = False
        self.apply(QueueConfig(**known[self.name]))

    def apply(self, config: QueueConfig) -> None:
        """Work with settings that are stored already, by this object or by another process."""
        if config != self.config:
            self.config = config
            self.encoder = Encoder(config, self._schema)
        if config.deduplicate is not None and self._identifiers is None:
            self._identifiers = Identifiers(self._log, self.name, self._folder)

    def _claimed_owner(self) -> str:
        if not self._owner_lock.is_mine:
            with self._threads:
                self._owner_lock.acquire()
        return self._owner

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._owner_lock.is_mine:
            with suppress(NotFound):  # the queue was deleted
                self._state.forget_owner(self._owner)
            self._owner_lock.release()
            self._owner_lock.path.unlink(missing_ok=True)
        for state in [self._state, *self._others.values()]:
            state.close()
        if self._identifiers is not None:
            self._identifiers.close()

    @property
    def state(self) -> Group:
        """For modules of queues."""
        return self._state


def reply_queue(log: Log, queue: str, seconds: float) -> str:
    """A new name for the queue of the reply to one request, which waits so long.

    It has that time in it: queues that processes left as they were killed are deleted here.
    """
    now, prefix = log.clock.now_us() / 1_000_000, f"{queue}{REPLY}"
    for name in queues(log):
        ends = name.removeprefix(prefix).partition("-")[0] if name.startswith(prefix) else ""
        if ends.isdigit() and int(ends) + REPLY_SECONDS < now:
            with suppress(NotFound):  # another process has deleted it
                delete_queue(log, name)
    return f"{prefix}{math.ceil(now + seconds)}-{secrets.token_hex(8)}"


def no_reply(queue: str, seconds: float) -> Overdue:
    return Overdue(
        what=f"No worker replied to a request in queue {queue!r}",
        seconds=seconds,
        instead="Start a worker that calls `queue.reply(message, …)`, or raise `timeout`",
    )


def folder_of(log: Log, queue: str) -> Path:
    """The folder of the index files of a queue; a later queue of the same name has another one."""
    return log.home / "queues" / f"{queue}-{log.topic(queue).id[:12]}"


def open_queue(
    log: Log,
    name: str,
    *,
    group: str = "default",
    schema: Any = None,
    create: bool = True,
    **settings: Unpack[QueueSettings],
) -> Queue:
    """Open a queue as one of its groups; create both if they do not exist."""
    if is_remote(log.address):
        raise NotPossible(
            why="This process does not have the folder of the log, where leases of its queues are",
            instead="Ask the server of the log" if is_server(log.address) else "Put the queue into a log in a folder",
        )
    check_name("queue", name)
    check_name("group", group)
    store = Settings(log)
    known = store.all("queue")
    if name not in known:
        if not create:
            raise NotFound(kind="queue", name=name, near=did_you_mean(name, known))
        given = {**({"body": "schema"} if schema is not None else {}), **settings}
        config = QueueConfig().changed(given)
        log.create(name, topic_schema(config, schema), exist_ok=True, partitions=config.priorities)
        Journal(log, name, group).make()
        store.set("queue", name, config.to_json())
    else:
        config = QueueConfig(**known[name])
        check_same(name, config, settings)
        Journal(log, name, group).make()
    if f"{name}/{group}" not in store.all("group"):
        store.set("group", f"{name}/{group}", True)
    return Queue(log, name, group, config)


def queues(log: Log) -> list[str]:
    """The names of the queues of a log."""
    return sorted(Settings(log).all("queue"))


def delete_queue(log: Log, name: str) -> None:
    """Delete a queue with its messages and its journal. Its dead letters stay."""
    store = Settings(log)
    if name not in store.all("queue"):
        raise NotFound(kind="queue", name=name, near=did_you_mean(name, store.all("queue")))
    folder = folder_of(log, name)
    for group in _groups(store, name):
        store.set("group", group, None)
    store.set("queue", name, None)
    for topic in (name, name + SUFFIX):
        with suppress(NotFound):
            log.delete(topic)
    shutil.rmtree(folder, ignore_errors=True)


def _groups(settings: Settings, queue: str) -> list[str]:
    return [name for name in settings.all("group") if name.rpartition("/")[0] == queue]


def _body_schema(log: Log, name: str) -> pa.Schema:
    return pa.schema([field for field in log.topic(name).schema if not field.name.startswith("_")])
