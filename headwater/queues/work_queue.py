"""What a queue can do, wherever it is: in a folder of this machine (`Queue`), or behind a server (`RemoteQueue`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, Unpack

from headwater.log.dead_letters import Selection
from headwater.log.redrive import Outcome
from headwater.queues.config import QueueConfig, QueueSettings
from headwater.queues.message import Message, Outgoing
from headwater.queues.publisher import Publisher
from headwater.queues.stats import QueueStats
from headwater.queues.transaction import QueueTransaction
from headwater.units import Duration, parse_seconds


@dataclass(frozen=True, kw_only=True)
class QueueConsumer:
    """A consumer of a group: how many messages it holds, and when it took last."""

    name: str
    held: int
    taken_us: int
    #: Whether it is held by the lease's time only, as a worker on another machine.
    remote: bool


class WorkQueue(ABC):
    """One queue, as one group uses it. Open it with `log.queue("jobs")`; threads may share it."""

    name: str
    group: str
    config: QueueConfig

    # -- put ----------------------------------------------------------------------------------------------------------

    # Any: what the queue's `body` setting or its schema allows.
    def put(
        self,
        body: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        headers: Mapping[str, bytes | str] | None = None,
        priority: int = 0,
        delay: Duration | None = None,
        deliver_at: datetime | int | None = None,
        ttl: Duration | None = None,
        reply_to: str | None = None,
    ) -> str:
        """Put a message; on return it is as durable as the topic promises. Return its id.

        Each call waits for the disk: `put_many` and `publisher` share that wait between many messages.
        """
        message = Outgoing(
            body=body,
            key=key,
            id=id,
            headers=headers,
            priority=priority,
            delay=delay,
            deliver_at=deliver_at,
            ttl=ttl,
            reply_to=reply_to,
        )
        return self.put_many([message])[0]

    @abstractmethod
    def put_many(self, bodies: Sequence[Any], *, wait: Duration | None = None) -> list[str]:
        """Put messages, all or none of them; return their ids. An `Outgoing` among the bodies has options of its own.

        A message whose id was put before, in the time of `deduplicate`, is not put again. With `drop_newest` a full
        queue drops messages; they have an empty id. With `block` a full queue lets the caller wait for room up to
        `wait`, or for `lock_seconds_max` of the log's settings.
        """

    def publisher(self, *, batch: int = 1_000, linger: Duration = "5 ms") -> Publisher:
        """A buffer that puts messages in batches in the background, and confirms each by a future."""
        return Publisher(self, batch=batch, linger=parse_seconds(linger, name="linger"))

    # -- take and what follows ----------------------------------------------------------------------------------------

    @abstractmethod
    def take(
        self, n: int = 1, *, wait: Duration = 0.0, lease: Duration | None = None, consumer: str | None = None
    ) -> list[Message]:
        """Take up to `n` messages that no other worker of the group holds; wait for the first one up to `wait`.

        A message that is not acknowledged before its lease ends is delivered again, and so is one whose process dies,
        at once. With `consumer`, a name for a worker on another machine, only the lease's time counts.
        """

    def ack(self, *messages: Message | str) -> None:
        """Acknowledge messages: the group never gets them again. On return that is durable.

        Raises `LeaseLost` for messages that the caller no longer holds, after the others are acknowledged.
        """
        self.ack_many(messages)

    @abstractmethod
    def ack_many(self, messages: Sequence[Message | str]) -> None:
        """Acknowledge many messages with one wait for the disk; see `ack`."""

    @abstractmethod
    def nack(self, *messages: Message | str, delay: Duration | None = None, reason: str = "", trace: str = "") -> None:
        """Return messages after a failure, to be delivered again after `delay`; after its last attempt one is dead."""

    @abstractmethod
    def reject(self, *messages: Message | str, reason: str = "", trace: str = "") -> None:
        """Make messages dead letters now, whatever their attempts."""

    @abstractmethod
    def release(self, *messages: Message | str) -> None:
        """Return messages unprocessed: the delivery does not count."""

    @abstractmethod
    def extend(self, *messages: Message | str, lease: Duration | None = None) -> int:
        """Hold messages for another `lease` from now; return when it ends, in microseconds."""

    @abstractmethod
    def transaction(self) -> QueueTransaction:
        """Append rows, put messages and acknowledge in one transaction of the log: all of it happens, or nothing."""

    @abstractmethod
    def request(self, body: Any, *, timeout: Duration = "10 seconds", **options: Any) -> Message:
        """Put a message, and wait for the reply to it. Replies come over a queue of this request alone."""

    @abstractmethod
    def reply(self, message: Message, body: Any) -> None:
        """Reply to a request and acknowledge it. A request whose caller has stopped waiting is only acknowledged."""

    # -- state --------------------------------------------------------------------------------------------------------

    @abstractmethod
    def stats(self) -> QueueStats:
        """The group's counts now; counters begin with the index file."""

    @abstractmethod
    def consumers(self) -> list[QueueConsumer]:
        """The consumers of this group that have taken messages and not ended, with what each holds."""

    @abstractmethod
    def peek(self, n: int = 10) -> list[Message]:
        """The next messages that wait, without a lease. Scheduled ones behind the cursor are among them."""

    @abstractmethod
    def groups(self) -> list[str]:
        """The groups of the queue; each gets every message."""

    @abstractmethod
    def delete_group(self, group: str) -> None:
        """Delete a group: it holds no messages back any more. A later group of this name gets all messages."""

    @abstractmethod
    def pause(self) -> None:
        """Deliver nothing to this group until `resume`; leases that are held stay valid."""

    @abstractmethod
    def resume(self) -> None:
        """Deliver messages again."""

    @abstractmethod
    def replay(self, start: Literal["earliest", "latest"] | datetime | int | Mapping[int, int] = "earliest") -> None:
        """Deliver to this group all messages from `start` on, also those that it has acknowledged.

        Leases that are held are lost. Other groups are not affected.
        """

    @abstractmethod
    def redrive(self, selection: Selection | None = None, **options: Any) -> Outcome:
        """Put dead letters of the queue again, exactly once; see `headwater.log.redrive`."""

    @abstractmethod
    def alter(self, **settings: Unpack[QueueSettings]) -> None:
        """Change settings of the queue; queues that are open in other processes have them at their next call."""

    @abstractmethod
    def close(self) -> None:
        """Return messages that this object holds, unprocessed, and close its files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
